import os
import pathlib
import sys

import pytest

from benchmarks.engine import cublas


@pytest.fixture
def toolkit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A CUDA toolkit without libraries; no other one is looked at."""
    folder = tmp_path / "cuda" / "lib64"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "cuda"))
    monkeypatch.setattr(sys, "path", [])
    return folder


def test_cuda_12_is_taken_as_it_is(
    toolkit: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toolkit / "libcublas.so.12").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    with cublas.on_library_path(tmp_path):
        assert os.environ["LD_LIBRARY_PATH"] == f"{toolkit}:/before"
    assert os.environ["LD_LIBRARY_PATH"] == "/before"


def test_cuda_13_gets_another_name(
    toolkit: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toolkit / "libcublas.so.13").touch()
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    for _ in range(2):
        with cublas.on_library_path(tmp_path):
            assert os.environ["LD_LIBRARY_PATH"] == f"{tmp_path}:{toolkit}"
            link = tmp_path / "libcublas.so.12"
            assert link.resolve() == toolkit / "libcublas.so.13"
        assert "LD_LIBRARY_PATH" not in os.environ


@pytest.mark.usefixtures("toolkit")
def test_without_any_nothing_changes(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    with cublas.on_library_path(tmp_path):
        assert os.environ["LD_LIBRARY_PATH"] == "/before"


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
