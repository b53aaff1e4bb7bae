"""The environment sees what was asked for, its own numpy, and nothing else."""

import importlib.metadata
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from benchmarks.python_baseline import make_environment


def distribution(folder: pathlib.Path, name: str, requires: tuple[str, ...] = ()) -> None:
    """An installed package of one module."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    lines = [f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0", *requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    record = (
        f"{name}.py,,",
        f"../../bin/{name},,",
        "__pycache__/x.pyc,,",
        f"{info.name}/METADATA,,",
    )
    (info / "RECORD").write_text("\n".join(record) + "\n")


@pytest.fixture(name="installed")
def fixture_installed(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "installed"
    requires = (
        "Requires-Dist: filelocker",
        "Requires-Dist: numpy>=1.17",
        "Requires-Dist: absent",
        'Requires-Dist: other; extra == "dev"',
        'Requires-Dist: other; python_version < "3"',
    )
    distribution(folder, "torch", ("Requires-Dist: numpy",))
    distribution(folder, "transformers", requires)
    for name in ("filelocker", "numpy", "other"):
        distribution(folder, name)
    monkeypatch.syspath_prepend(str(folder))
    library = tmp_path / "libpython.so"
    library.touch()
    monkeypatch.setattr(make_environment, "libpython", lambda: library)
    return folder


@pytest.fixture(name="numpy", params=["wheel", "folder"])
def fixture_numpy(request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> pathlib.Path:
    if request.param == "folder":
        (tmp_path / "unpacked").mkdir()
        (tmp_path / "unpacked" / "numpy.py").write_text("NAME = 'old numpy'\n")
        return tmp_path / "unpacked"
    with zipfile.ZipFile(tmp_path / "numpy.whl", "w") as wheel:
        wheel.writestr("numpy.py", "NAME = 'old numpy'\n")
    return tmp_path / "numpy.whl"


@pytest.mark.usefixtures("installed")
def test_the_environment_has_its_packages_alone(
    tmp_path: pathlib.Path, numpy: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "environment"
    make_environment.main([f"--numpy={numpy}", str(folder)])
    assert f"PATH={folder}/bin" in capsys.readouterr().out
    assert (folder / "lib" / "libpython.so").exists()
    script = (
        "import importlib.util as u, sys, numpy, torch, transformers, filelocker\n"
        "print(sys.prefix, numpy.NAME, *(u.find_spec(name) for name in ('other', 'pytest')))"
    )
    environment = {name: value for name, value in os.environ.items() if name[:6] != "PYTHON"}
    python = folder / "bin" / "python3"
    output = subprocess.run(
        [python, "-c", script], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert output == f"{folder} old numpy None None\n"


@pytest.mark.usefixtures("installed")
def test_what_is_required() -> None:
    found = make_environment.required(("torch", "transformers"))
    assert set(found) == {"torch", "transformers", "filelocker"}
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        make_environment.required(("absent",))


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
