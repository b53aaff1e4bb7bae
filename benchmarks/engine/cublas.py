"""Where CTranslate2 finds a cuBLAS.

Its wheel is built for CUDA 12 and opens libcublas.so.12; what it calls of it is unchanged in CUDA
13, whose library only has another name.
"""

import contextlib
import glob
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_VARIABLE = "LD_LIBRARY_PATH"
_WANTED = "libcublas.so.12"
_ALSO_GOOD = "libcublas.so.13"


@contextlib.contextmanager
def on_library_path(folder: Path) -> Iterator[None]:
    """Processes that are started meanwhile find a cuBLAS by the dynamic loader.

    A link goes into `folder` where only CUDA 13 is there. Does nothing where there is no cuBLAS in
    the usual places: then the loader has to know.
    """
    before = os.environ.get(_VARIABLE)
    paths = [*_search_path(folder), *([before] if before else [])]
    try:
        if paths:
            os.environ[_VARIABLE] = os.pathsep.join(paths)
        yield
    finally:
        os.environ.pop(_VARIABLE, None)
        if before is not None:
            os.environ[_VARIABLE] = before


def _search_path(folder: Path) -> list[str]:
    for library_folder in _library_folders():
        if (library_folder / _WANTED).exists():
            return [str(library_folder)]
        if (library_folder / _ALSO_GOOD).exists():
            link = folder / _WANTED
            if not link.is_symlink():
                link.symlink_to(library_folder / _ALSO_GOOD)
            return [str(folder), str(library_folder)]
    return []


def _library_folders() -> list[Path]:
    """Of the CUDA toolkit and of NVIDIA's Python packages."""
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    packages = [found for path in sys.path for found in glob.glob(f"{path}/nvidia/*/lib")]
    return [toolkit / "lib64", *map(Path, sorted(packages))]
