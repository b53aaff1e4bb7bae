"""Assembling this model writes exactly the files of this folder."""

import sys
from pathlib import Path

import pytest

from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText
from tools.lib.paths import room_file


def test_assemble_writes_the_golden_config_and_the_checkpoint(tmp_path: Path) -> None:
    room = room_file("models/g2p_t5")
    checkpoint = room / "checkpoint"
    model = assemble(AssembleRequest(checkpoint, tmp_path, ModelConfigText("g2p_t5")))
    assert (model / "config.pbtxt").read_text() == (room / "config.pbtxt").read_text()
    written = {path.name: path.read_bytes() for path in (model / "1").iterdir()}
    assert written == {path.name: path.read_bytes() for path in checkpoint.iterdir()}


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
