"""Paths are relative to where the user stands."""

import sys
from pathlib import Path

import pytest

from tools.lib.paths import from_user, room_file, runfile


def test_relative_to_build_working_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", "/somewhere/else")
    assert from_user("a/../b") == Path("/somewhere/else/b")
    assert from_user("/absolute") == Path("/absolute")


def test_relative_to_the_current_directory_without_bazel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    monkeypatch.chdir(tmp_path)
    assert from_user("a") == tmp_path / "a"


def test_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/users/somebody")
    assert from_user("~/models") == Path("/users/somebody/models")


def test_files_of_this_repository() -> None:
    assert room_file("tools/lib/paths_test.py").samefile(__file__)
    here = Path(__file__).absolute().parents[2].name
    assert runfile(f"{here}/tools/lib/paths_test.py").samefile(__file__)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
