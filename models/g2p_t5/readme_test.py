"""The curl examples of the README: each command gives the answer that is printed below it."""

import json
import pathlib
import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.fixtures import Boot, boot, module_folder, report_server_log
from tests.harness.model_repository import instance_kind
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText
from tools.lib.paths import room_file

__all__ = ["module_folder", "report_server_log"]

_MODEL = "g2p_t5"
_ADDRESS = "127.0.0.1:8000"
# A command, indented, and the next block of what it prints.
_EXAMPLE = re.compile(r"^    (curl [^\n]*)\n\n```\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _examples() -> list[tuple[str, str]]:
    return _EXAMPLE.findall(room_file("README.md").read_text(encoding="utf-8"))


def _write(repository: pathlib.Path) -> None:
    config = ModelConfigText(_MODEL, instance_kind=instance_kind())
    checkpoint = room_file("models/g2p_t5/checkpoint")
    assemble(AssembleRequest(checkpoint, repository, config))


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with the README's model."""
    with boot(module_folder, write=_write, load=(_MODEL,)) as b:
        yield b


def _answer(text: str) -> dict[str, Any]:
    """What a reader relies on: all ids in order, and the last response's other fields.

    How tokens are spread over a stream's events is a matter of time.
    """
    events = [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.strip()]
    ids: list[int] = []
    for event in events:
        piece = event.pop("output_ids", [])
        ids += piece if isinstance(piece, list) else [piece]
    return {**events[-1], "output_ids": ids}


def test_there_are_examples() -> None:
    assert len(_examples()) == 3


@pytest.mark.parametrize(("command", "printed"), _examples())
def test_example(booted: Boot, command: str, printed: str) -> None:
    assert _ADDRESS in command
    words = shlex.split(command.replace(_ADDRESS, booted.server.http_url))
    result = subprocess.run(
        [*words, "--silent"], capture_output=True, text=True, timeout=60, check=True
    )
    assert _answer(result.stdout) == _answer(printed)
