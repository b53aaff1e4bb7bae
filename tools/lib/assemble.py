"""Makes a model's folder in a Triton repository from a checkpoint: all of it, or nothing."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tqdm import tqdm

from tools.lib.checkpoint import CheckpointFiles, check_checkpoint
from tools.lib.config_writer import ModelConfigText, write_config
from tools.lib.errors import ToolError

VERSION = "1"

_CHUNK_BYTES = 8 << 20
_SECONDS_BEFORE_PROGRESS = 2.0


@dataclasses.dataclass(frozen=True)
class AssembleRequest:
    """What to assemble. `link`: hard links to the checkpoint's files instead of copies."""

    checkpoint: Path
    repository: Path
    config: ModelConfigText
    overwrite: bool = False
    link: bool = False


def assemble(request: AssembleRequest) -> Path:
    """Writes <repository>/<name>/config.pbtxt and <name>/1/; returns the model's folder.

    Everything is checked first, then written aside, then moved into place by a rename. On any
    error, also an interrupt, the repository is as it was before.
    """
    files = check_checkpoint(request.checkpoint)
    text = write_config(request.config)
    target = request.repository / request.config.name
    if os.path.lexists(target) and not request.overwrite:
        raise ToolError(f"{target}: exists already; --overwrite replaces it")
    if request.repository.exists() and not request.repository.is_dir():
        raise ToolError(f"{request.repository}: not a directory")
    try:
        with _folders_for(request.repository), _staging(request.repository) as staging:
            model = staging / request.config.name
            version = model / VERSION
            version.mkdir(parents=True)
            _bring(files, version, link=request.link)
            _write_text(model / "config.pbtxt", text)
            _move_into_place(model, target, staging / "replaced")
    except OSError as error:
        where = error.filename2 or error.filename or request.repository
        raise ToolError(f"{where}: {error.strerror or error}") from error
    return target


@contextlib.contextmanager
def _folders_for(repository: Path) -> Iterator[None]:
    """Makes the repository and takes away again, on failure, what was made."""
    made = [path for path in (repository, *repository.parents) if not path.exists()]
    repository.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for path in made:
            with contextlib.suppress(OSError):
                path.rmdir()
        raise


@contextlib.contextmanager
def _staging(repository: Path) -> Iterator[Path]:
    """A folder on the repository's file system, to write in.

    It is beside the repository where possible, since a polling server reads every folder inside.
    """
    resolved = repository.resolve()
    beside = resolved.parent
    same_device = beside.stat().st_dev == resolved.stat().st_dev
    home = beside if same_device and os.access(beside, os.W_OK) else resolved
    staging = Path(tempfile.mkdtemp(prefix=".assemble-", dir=home))
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _bring(files: CheckpointFiles, version: Path, *, link: bool) -> None:
    sources = [(files.directory / name).resolve(strict=True) for name in files.names]
    if link:
        for source, name in zip(sources, files.names, strict=True):
            os.link(source, version / name)
        return
    total = sum(source.stat().st_size for source in sources)
    with tqdm(
        total=total,
        unit="B",
        unit_scale=True,
        desc="copying",
        delay=_SECONDS_BEFORE_PROGRESS,
        leave=False,
    ) as progress:
        for source, name in zip(sources, files.names, strict=True):
            _copy(source, version / name, progress)


def _copy(source: Path, target: Path, progress: tqdm) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            progress.update(len(chunk))
        writer.flush()
        os.fsync(writer.fileno())


def _write_text(path: Path, text: str) -> None:
    with path.open("x", encoding="utf-8") as writer:
        writer.write(text)
        writer.flush()
        os.fsync(writer.fileno())


def _move_into_place(model: Path, target: Path, aside: Path) -> None:
    if not os.path.lexists(target):
        model.rename(target)
        return
    target.rename(aside)
    try:
        model.rename(target)
    except BaseException:
        aside.rename(target)
        raise
