"""A server to load: one that runs, or one that is started for the measurement."""

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tools.lib import process_facts
from tools.lib.assemble import VERSION, AssembleRequest, assemble
from tools.lib.checkpoint_writer import write_checkpoint
from tools.lib.config_writer import ModelConfigText
from tools.lib.errors import ToolError
from tools.lib.model_config import ModelConfig, read_model_config
from tools.lib.random_weights import RandomWeights
from tools.lib.server_process import start_on_free_ports

MODEL = "bench"
ENGINES = ("seq2seq", "python_baseline")


@dataclasses.dataclass(frozen=True)
class Target:
    """A model that can be asked. `cpu_seconds` and `check_alive` where the server is our own."""

    address: str
    model: str
    vocab_size: int
    cpu_seconds: Callable[[], float] | None = None
    check_alive: Callable[[], None] = lambda: None


@dataclasses.dataclass(frozen=True)
class ServeRequest:
    """What to serve, from a checkpoint or (`shape`) with random weights of `dtype`.

    `engine` is one of ENGINES. `options` and `instance_count` are for config.pbtxt.
    """

    tritonserver: Path
    backend_directory: Path
    baseline: Path
    engine: str = "seq2seq"
    checkpoint: Path | None = None
    shape: ModelConfig | None = None
    dtype: str = "bfloat16"
    seed: int = 0
    instance_kind: str = "KIND_AUTO"
    instance_count: int = 1
    options: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ready_seconds: float = 300.0
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    server_flags: tuple[str, ...] = ()


@contextlib.contextmanager
def served(request: ServeRequest) -> Iterator[Target]:
    """Starts a server with the one model on free loopback ports; stops it afterwards."""
    with tempfile.TemporaryDirectory(prefix="seq2seq-bench-") as name:
        folder = Path(name)
        checkpoint = request.checkpoint or _random_checkpoint(request, folder / "checkpoint")
        repository = folder / "repository"
        _assemble(request, checkpoint, repository)
        with start_on_free_ports(
            request.tritonserver,
            request.backend_directory,
            repository,
            request.ready_seconds,
            environment=request.environment,
            extra_flags=request.server_flags,
        ) as server:
            yield Target(
                address=server.options.grpc_address,
                model=MODEL,
                vocab_size=read_model_config(checkpoint).vocab_size,
                cpu_seconds=lambda: process_facts.family_cpu_seconds(server.pid),
                check_alive=server.check_alive,
            )


def _random_checkpoint(request: ServeRequest, folder: Path) -> Path:
    if request.shape is None:
        raise ValueError("neither a checkpoint nor a shape")
    weights = RandomWeights(request.shape, request.seed)
    write_checkpoint(folder, request.shape, weights, request.dtype)
    return folder


def _assemble(request: ServeRequest, checkpoint: Path, repository: Path) -> None:
    if not checkpoint.is_dir():
        raise ToolError(f"{checkpoint}: no such folder")
    config = ModelConfigText(
        MODEL, request.instance_kind, request.instance_count, options=request.options
    )
    link = _can_link(checkpoint, repository.parent)
    model = assemble(AssembleRequest(checkpoint, repository, config, link=link))
    if request.engine == "python_baseline":
        _make_baseline(request, model)


def _can_link(checkpoint: Path, folder: Path) -> bool:
    """Whether files of the one can have a hard link in the other: only a try tells."""
    probe = folder / "probe"
    try:
        os.link(checkpoint / "config.json", probe)
    except OSError:
        return False
    probe.unlink()
    return True


def _make_baseline(request: ServeRequest, model: Path) -> None:
    """The same checkpoint, served by the Python backend instead."""
    if request.options:
        raise ToolError(f"the Python baseline takes no options: {', '.join(request.options)}")
    text = (request.baseline / "config.pbtxt").read_text(encoding="utf-8")
    text = text.replace("KIND_AUTO", request.instance_kind)
    (model / "config.pbtxt").write_text(text, encoding="utf-8")
    shutil.copyfile(request.baseline / "model.py", model / VERSION / "model.py")
