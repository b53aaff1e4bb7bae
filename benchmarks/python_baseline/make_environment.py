#!/usr/bin/env python3
"""Makes a Python environment in which Triton's Python backend runs model.py.

    python3 benchmarks/python_baseline/make_environment.py --numpy=WHEEL ENVIRONMENT

Triton's stubs need numpy below 2; where torch and transformers are installed, numpy is often newer,
and so are packages that transformers would import beside it and that then fail. So the environment
sees nothing of this interpreter's packages but links to torch, transformers and what they require,
and has a numpy of its own, from a wheel for this version of Python or a folder that holds what a
wheel does.

The stub finds an environment by the python3 on its PATH, and libpython where the dynamic loader
looks: ENVIRONMENT/bin and ENVIRONMENT/lib. The interpreter that runs this is the one whose packages
are linked; it needs `packaging`, which transformers does, too.
"""

import argparse
import importlib.metadata
import os
import pathlib
import sys
import sysconfig
import zipfile
from collections.abc import Iterator, Sequence

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOTS = ("torch", "transformers")
OWN = "numpy"


def required(roots: Sequence[str]) -> dict[str, importlib.metadata.Distribution]:
    """The distributions of that names and all that they require, by name, without numpy.

    What an installation lacks of them is left out: whoever installed it could do without.
    """
    found: dict[str, importlib.metadata.Distribution] = {}
    waiting = [*roots]
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name in found or name == OWN:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            if name in roots:
                raise
            continue
        for text in found[name].requires or ():
            requirement = Requirement(text)
            # Markers that name an extra are false: none is asked for.
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


def places(distribution: importlib.metadata.Distribution) -> Iterator[pathlib.Path]:
    """The folders and files at the top of site-packages that belong to a distribution."""
    tops = {path.parts[0] for path in distribution.files or ()}
    for top in sorted(tops - {"..", "__pycache__"}):
        # What .pth files do at start-up is none of the stub's concern.
        if not top.endswith(".pth"):
            yield pathlib.Path(distribution.locate_file(top)).absolute()


def libpython() -> pathlib.Path:
    """The shared library of this interpreter."""
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders = (
        sysconfig.get_config_var("LIBDIR"),
        f"{sys.base_prefix}/lib",
        f"/usr/lib/{multiarch}",
        "/usr/local/lib",
        "/usr/lib",
    )
    for folder in filter(None, folders):
        if (pathlib.Path(folder) / name).exists():
            return pathlib.Path(folder) / name
    sys.exit(f"{name} is in none of {', '.join(filter(None, folders))}")


def make(folder: pathlib.Path, numpy: pathlib.Path) -> pathlib.Path:
    """Makes the environment in a new `folder`; returns its site-packages."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = folder / "lib" / version / "site-packages"
    packages.mkdir(parents=True)
    (folder / "bin").mkdir()
    # Of a virtual environment the interpreter that it was made of.
    base = pathlib.Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    for name in ("python3", "python", version):
        (folder / "bin" / name).symlink_to(base)
    settings = f"home = {base.parent}\ninclude-system-site-packages = false\n"
    (folder / "pyvenv.cfg").write_text(settings)
    library = libpython()
    (folder / "lib" / library.name).symlink_to(library)
    if numpy.is_dir():
        for place in numpy.iterdir():
            (packages / place.name).symlink_to(place.absolute())
    else:
        with zipfile.ZipFile(numpy) as wheel:
            wheel.extractall(packages)
    for distribution in required(ROOTS).values():
        for place in places(distribution):
            link = packages / place.name
            # Several distributions may share a folder, such as nvidia.
            if place.exists() and not link.exists():
                link.symlink_to(place)
    return packages


def main(arguments: list[str]) -> None:
    """Makes the environment and says how to use it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--numpy", required=True, type=pathlib.Path, help="a wheel or folder, below 2"
    )
    parser.add_argument("folder", type=pathlib.Path, help="new")
    options = parser.parse_args(arguments)
    folder = options.folder.absolute()
    packages = make(folder, options.numpy)
    print(*sorted(path.name for path in packages.iterdir() if path.suffix != ".dist-info"))
    print(f"--server_env=PATH={folder}/bin:$PATH --server_env=LD_LIBRARY_PATH={folder}/lib")


if __name__ == "__main__":
    main(sys.argv[1:])
