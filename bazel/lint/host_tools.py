"""Programs for the developer's machine, from wheels and npm packages that are pinned by hash."""

import os
import pathlib
import shutil
import sys

BAZEL = pathlib.Path(__file__).resolve().parent.parent
sys.path += [str(BAZEL), str(BAZEL / "bootstrap")]
import unpack_wheel  # noqa: E402  the folders above are not packages
from files import SetupError, digest, folder_aside, locked, run  # noqa: E402
from progress import Progress  # noqa: E402

LOCK = "third_party/host_tools.lock"
NPM = "third_party/npm"


def cache_folder() -> pathlib.Path:
    """The folder that bazelw uses too."""
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache")
    folder = pathlib.Path(os.environ.get("SEQ2SEQ_CACHE") or default / "triton-seq2seq").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def wheel_program(root: pathlib.Path, distribution: str) -> pathlib.Path:
    """The program of a wheel in the lock, which has the distribution's name."""
    lock = root / LOCK
    cache = cache_folder()
    target = cache / f"{distribution}-{digest(lock)}"
    progress = Progress("tools")
    with locked(cache / "tools.lock", progress):
        if not target.exists():
            with progress.step(f"fetching {distribution}"), folder_aside(target) as aside:
                try:
                    unpack_wheel.fetch(lock, distribution, aside, [])
                except unpack_wheel.WheelError as error:
                    raise SetupError(str(error)) from error
    # Wheels keep programs in NAME.data/scripts, clang-format's in a folder bin/ of its package.
    found = [path for path in target.rglob(distribution) if path.parent.name in ("scripts", "bin")]
    programs = [path for path in found if path.read_bytes()[:4] == b"\x7fELF"]
    if len(programs) != 1:
        raise SetupError(f"the wheel {distribution} has {len(programs)} programs of that name")
    programs[0].chmod(0o755)
    return programs[0]


def buildifier(root: pathlib.Path) -> pathlib.Path:
    """buildifier, from its npm package."""
    package, lock = root / NPM / "package.json", root / NPM / "package-lock.json"
    cache = cache_folder()
    target = cache / f"buildifier-{digest(package, lock)}"
    progress = Progress("tools")
    with locked(cache / "tools.lock", progress):
        if not target.exists():
            if not shutil.which("npm"):
                raise SetupError("npm is missing; install it with: apt-get install -y npm")
            with progress.step("fetching buildifier"), folder_aside(target) as aside:
                shutil.copy(package, aside)
                shutil.copy(lock, aside)
                run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "npm", cwd=aside)
    return target / "node_modules/@bazel/buildifier/buildifier-linux_amd64"
