"""The pinned CUDA compiler, put together from wheels."""

import concurrent.futures
import pathlib
import sys

from files import SetupError, digest, folder_aside
from progress import Progress

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))
import unpack_wheel

LOCK = "third_party/cuda.lock"


def prepare(root: pathlib.Path, cache: pathlib.Path, progress: Progress) -> pathlib.Path:
    """Returns the toolkit's folder, which holds bin/, include/, lib/ and nvvm/."""
    lock = root / LOCK
    target = cache / f"cuda-{digest(lock, pathlib.Path(__file__))}"
    if not target.exists():
        with progress.step("the CUDA compiler from pinned wheels (105 MB)"):
            assemble(lock, target)
    return target / "nvidia/cu13"


def assemble(lock: pathlib.Path, target: pathlib.Path) -> None:
    """Fetches the lock's wheels and makes the links that compilers expect."""
    names = list(unpack_wheel.locked_requirements(lock.read_text()))
    with folder_aside(target) as aside, concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(unpack_wheel.fetch, lock, name, aside, ["nvidia/"]) for name in names]
        try:
            for job in jobs:
                job.result()
        except unpack_wheel.WheelError as error:
            raise SetupError(str(error)) from error
        toolkit = aside / "nvidia/cu13"
        (toolkit / "lib64").symlink_to("lib")
        (toolkit / "lib/libcudart.so").symlink_to("libcudart.so.13")
