"""Puts models over the tiny checkpoints into a server's repository, as the tools do."""

import os
import pathlib
from collections.abc import Mapping

from tests.harness import golden
from tools.lib.assemble import VERSION, AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText


def instance_kind() -> str:
    """KIND_CPU, unless SEQ2SEQ_INSTANCE_KIND names another for the whole run."""
    return os.environ.get("SEQ2SEQ_INSTANCE_KIND", "KIND_CPU")


def write_model(
    repository: pathlib.Path,
    name: str,
    checkpoint: str,
    *,
    options: Mapping[str, str] | None = None,
    instances: int = 1,
    kind: str | None = None,
) -> pathlib.Path:
    """Assembles <repository>/<name> and returns its version folder, which tests may then damage.

    `options` go into config.pbtxt unchecked: the server's own checks are what is tested.
    """
    config = ModelConfigText(
        name=name,
        instance_kind=kind or instance_kind(),
        instance_count=instances,
        options=options or {},
    )
    request = AssembleRequest(
        checkpoint=golden.CHECKPOINTS / checkpoint, repository=repository, config=config
    )
    return assemble(request) / VERSION
