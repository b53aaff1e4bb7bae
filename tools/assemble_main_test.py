"""The command `assemble`, as a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lib.paths import room_file
from tools.testing.tiny_checkpoint import write_checkpoint


def assemble(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {
        "BUILD_WORKING_DIRECTORY": str(folder),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, str(room_file("tools/assemble.py")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


FLAGS = ("--checkpoint=c", "--repository=r", "--name=tiny")


def test_paths_are_relative_to_where_the_user_stands(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "c")
    result = assemble(tmp_path, *FLAGS, "--option=cpu_threads=2", "--option=engine=cpu")
    assert (result.returncode, result.stdout) == (0, f"{tmp_path}/r/tiny\n")
    config = (tmp_path / "r" / "tiny" / "config.pbtxt").read_text()
    assert config.index('"engine"') < config.index('"cpu_threads"')
    assert (tmp_path / "r" / "tiny" / "1" / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--option=beams=4",), ["beams", "max_active_sequences", "cpu_threads"]),
        (("--option=cpu_threads=0",), ["cpu_threads", "'0'"]),
        (("--checkpoint=absent",), ["absent"]),
        (("--name=a/b",), ["'a/b'"]),
        (("stray",), ["'stray'"]),
    ],
)
def test_an_error_is_one_line_and_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    write_checkpoint(tmp_path / "c")
    result = assemble(tmp_path, *FLAGS, *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words)
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_help_shows_what_is_needed(tmp_path: Path) -> None:
    result = assemble(tmp_path, "--help")
    assert "assemble --checkpoint=DIR --repository=DIR --name=NAME" in result.stdout
    for flag in ("checkpoint", "repository", "name", "option", "overwrite", "instance_kind"):
        assert f"--{flag}" in result.stdout or f"--[no]{flag}" in result.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
