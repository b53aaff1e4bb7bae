"""The interpreter of the offline Python toolchain: an empty environment over Python 3.11."""

import pathlib
import sys

from files import digest, folder_aside, run
from progress import Progress


def make(interpreter: pathlib.Path, target: pathlib.Path) -> None:
    """Makes an environment that has neither pip nor the host's site packages."""
    with folder_aside(target) as aside:
        command = [str(interpreter), "-I", "-m", "venv", "--without-pip", str(aside)]
        run(command, "python -m venv")


def prepare(cache: pathlib.Path, progress: Progress) -> pathlib.Path:
    """Returns the interpreter's path.

    It lies in the cache, not in a checkout, so that checkouts share results.
    """
    interpreter = pathlib.Path(sys.executable).resolve()
    target = cache / f"python-{digest(str(interpreter), sys.version)}"
    if not (target / "bin/python3").exists():
        with progress.step(f"an empty Python environment over {interpreter}"):
            make(interpreter, target)
    return target / "bin/python3"
