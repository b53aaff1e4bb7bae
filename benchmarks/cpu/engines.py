"""The engines of a comparison, each with its own processes, all alive at once."""

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cpu.measurement import Measurement
from benchmarks.cpu.peer_engine import PeerEngine
from benchmarks.cpu.peer_model import write_peer_model
from benchmarks.cpu.streaming_client import StreamingClient
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.checkpoint_writer import write_checkpoint
from tools.lib.config_writer import ModelConfigText
from tools.lib.model_config import ModelConfig
from tools.lib.random_weights import RandomWeights
from tools.lib.server_process import ServerProcess, start_on_free_ports
from tools.lib.worker import Worker

PEER = "CTranslate2 float32"
# The engines of this project by the weights_dtype that makes them.
SERVED = {"float32": "seq2seq float32", "bfloat16": "seq2seq bfloat16"}

_SEED = 20
_READY_SECONDS = 120.0
_CALL_SECONDS = 300.0
# What these variables say would change an engine's threads or its choice of kernels.
_TUNING_PREFIXES = ("CT2_", "DNNL_", "GOMP_", "GOTO_", "KMP_", "MKL_", "NVPL_", "OMP_", "OPENBLAS_")


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """`model` is measured with `threads` threads an engine, at most `most_sequences` at once."""

    model: ModelConfig
    tritonserver: Path
    backend_directory: Path
    threads: int
    most_sequences: int


@dataclasses.dataclass(frozen=True)
class Engine:
    """One engine that is ready: `worker` has its method `measure`, `pid` is what computes."""

    name: str
    worker: Worker
    pid: int

    def measure(self, sources: list[list[int]], new_tokens: int) -> Measurement:
        """See Measurement."""
        return self.worker.call("measure", sources, new_tokens, seconds=_CALL_SECONDS)


def drop_tuning_variables() -> list[str]:
    """Takes what tunes an engine out of the environment, for all of them; the names found."""
    found = sorted(name for name in os.environ if name.startswith(_TUNING_PREFIXES))
    for name in found:
        del os.environ[name]
    return found


@contextlib.contextmanager
def started_engines(options: EngineOptions) -> Iterator[list[Engine]]:
    """The peer and both engines of this project, over the same random weights; ends them all."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seq2seq-bench-")))
        weights = RandomWeights(options.model, _SEED)
        write_checkpoint(folder / "checkpoint", options.model, weights)
        write_peer_model(folder / "peer", options.model, weights)
        peer = stack.enter_context(Worker(PeerEngine, str(folder / "peer"), options.threads))
        engines = [Engine(PEER, peer, peer.pid)]
        for dtype, name in SERVED.items():
            server = stack.enter_context(_served(options, folder, dtype))
            client = Worker(StreamingClient, server.options.grpc_address, dtype)
            engines.append(Engine(name, stack.enter_context(client), server.pid))
        yield engines


@contextlib.contextmanager
def _served(options: EngineOptions, folder: Path, dtype: str) -> Iterator[ServerProcess]:
    """A server of its own with the one model `dtype`."""
    repository = folder / f"repository_{dtype}"
    settings = {
        "weights_dtype": dtype,
        "max_active_sequences": str(options.most_sequences),
        "cpu_threads": str(options.threads),
    }
    config = ModelConfigText(dtype, options=settings)
    assemble(AssembleRequest(folder / "checkpoint", repository, config, link=True))
    with start_on_free_ports(
        options.tritonserver, options.backend_directory, repository, _READY_SECONDS
    ) as server:
        yield server
