"""Puts models over the tiny checkpoints into a server's repository, as the tools do."""

import os
import pathlib
from collections.abc import Mapping

from tests.harness import golden
from tools.lib.assemble import VERSION, AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText

GPU = "KIND_GPU"


def instance_kind() -> str:
    """KIND_CPU, unless SEQ2SEQ_INSTANCE_KIND names another for the whole run."""
    return os.environ.get("SEQ2SEQ_INSTANCE_KIND", "KIND_CPU")


def exact_options(kind: str) -> dict[str, str]:
    """The options with which answers equal the goldens, which are in float32 arithmetic.

    The CPU engine always computes in float32, the CUDA engine in the type of its weights.
    """
    return {"weights_dtype": "float32"} if kind == GPU else {}


def write_model(
    repository: pathlib.Path,
    name: str,
    checkpoint: str | pathlib.Path,
    *,
    options: Mapping[str, str] | None = None,
    instances: int = 1,
    kind: str | None = None,
) -> pathlib.Path:
    """Assembles <repository>/<name> and returns its version folder, which tests may then damage.

    `checkpoint` is a folder, or the name of a tiny one.
    `options` go into config.pbtxt unchecked, after exact_options(): the server's own checks are
    what is tested.
    """
    kind = kind or instance_kind()
    config = ModelConfigText(
        name=name,
        instance_kind=kind,
        instance_count=instances,
        options={**exact_options(kind), **(options or {})},
    )
    request = AssembleRequest(
        checkpoint=golden.CHECKPOINTS / checkpoint, repository=repository, config=config
    )
    return assemble(request) / VERSION
