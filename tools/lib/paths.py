"""Where the user stands, and where Bazel put the files that a tool needs."""

import os
from pathlib import Path


def from_user(path: str) -> Path:
    """An absolute path from what the user typed.

    Relative paths start where the user stands, which under `bazel run` is BUILD_WORKING_DIRECTORY
    rather than the current directory.
    """
    base = Path(os.environ.get("BUILD_WORKING_DIRECTORY") or Path.cwd())
    return Path(os.path.normpath(base / Path(path).expanduser()))


def runfile(rlocation: str) -> Path:
    """The file that Bazel's $(rlocationpath) names as `rlocation` ("<repository>/<path>").

    Runfiles lie in a folder a repository; this module is <runfiles>/<main
    repository>/tools/lib/paths.py.
    """
    return Path(os.path.normpath(Path(__file__).absolute().parents[3] / rlocation))


def room_file(path: str) -> Path:
    """The file `path`, from the repository's root: a tool's data, or a file of a plain checkout."""
    return Path(__file__).absolute().parents[2] / path
