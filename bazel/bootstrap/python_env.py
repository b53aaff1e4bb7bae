"""The interpreter that the offline Python toolchain runs: an empty environment over the host's Python 3.11."""

import pathlib
import sys

from files import digest, folder_aside, run
from progress import Progress


def prepare(cache: pathlib.Path, progress: Progress) -> pathlib.Path:
    """Returns the interpreter's path. It lies in the cache, not in a checkout, so that checkouts share results."""
    interpreter = pathlib.Path(sys.executable).resolve()
    target = cache / f"python-{digest(str(interpreter), sys.version)}"
    if not (target / "bin/python3").exists():
        with progress.step(f"a Python environment without site packages over {interpreter}"):
            with folder_aside(target) as aside:
                run([str(interpreter), "-I", "-m", "venv", "--without-pip", str(aside)], "python -m venv")
    return target / "bin/python3"
