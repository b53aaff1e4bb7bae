"""Files and folders that several checkouts share: locked, written aside, then renamed."""

import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

from progress import Progress


class SetupError(Exception):
    """Something that the user can mend; its text says what and how, in one line."""


@contextlib.contextmanager
def locked(path: pathlib.Path, progress: Progress) -> Iterator[None]:
    """Holds an exclusive lock on `path`, saying so when it has to wait."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with progress.step("waiting for another set-up in the same cache"):
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def write_aside(path: pathlib.Path, text: str, mode: int = 0o644) -> None:
    """Writes `text` beside `path` and renames it into place, so that no reader sees half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.{os.getpid()}")
    aside.write_text(text)
    aside.chmod(mode)
    aside.replace(path)


@contextlib.contextmanager
def folder_aside(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty folder that becomes `path` when all went well; the caller has the lock."""
    aside = path.with_name(path.name + ".part")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    yield aside
    shutil.rmtree(path, ignore_errors=True)
    aside.replace(path)


def digest(*parts: str | bytes | pathlib.Path) -> str:
    """A short hash over texts and the contents of files."""
    total = hashlib.sha256()
    for part in parts:
        data = part.read_bytes() if isinstance(part, pathlib.Path) else part
        data = data.encode() if isinstance(data, str) else data
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:16]


def run(command: list[str], what: str, **options: object) -> str:
    """Runs a command and returns its output; a failure becomes a SetupError with the last lines."""
    result = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if result.returncode:
        tail = " | ".join((result.stderr or result.stdout).strip().splitlines()[-5:])
        raise SetupError(f"{what} failed with status {result.returncode}: {tail}")
    return result.stdout
