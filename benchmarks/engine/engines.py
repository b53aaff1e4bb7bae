"""This project's engine and its peers over one model, each in a process of its own."""

import contextlib
import dataclasses
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.cpu.measurement import Measurement
from benchmarks.cpu.peer_engine import PeerEngine
from benchmarks.engine import cublas
from benchmarks.engine.models import ModelFolders
from benchmarks.engine.process_engine import ProcessEngine
from tools.lib.errors import ToolError
from tools.lib.paths import room_file
from tools.lib.worker import Worker

OURS = "seq2seq bfloat16"
OURS_STANDING_IN = f"{OURS}, T5 of the same sizes"
TRANSLATORS = {"CTranslate2 float16": "float16", "CTranslate2 bfloat16": "bfloat16"}
TRANSFORMERS = "transformers bfloat16"
ENGINES = (OURS, *TRANSLATORS, TRANSFORMERS)

# Loading a model is part of the first call.
_CALL_SECONDS = 180.0
_PROBE_SECONDS = 60.0
_PROBE = "from importlib.metadata import version as v; print(v('torch'), v('transformers'))"


class Engine(Protocol):
    """Something that generates greedily, all sources in one batch, and says how long it took."""

    def measure(self, sources: list[list[int]], new_tokens: int, seconds: float) -> Measurement:
        """ToolError if it fails or takes more than `seconds`."""


@dataclasses.dataclass(frozen=True)
class Participant:
    """An engine that takes part in the first `rounds` rounds.

    `stands_in`: it runs another model than the others, whose tokens mean nothing beside theirs.
    """

    name: str
    engine: Engine
    rounds: int
    stands_in: bool = False

    def measure(self, sources: list[list[int]], new_tokens: int) -> Measurement:
        """See Engine."""
        return self.engine.measure(sources, new_tokens, seconds=_CALL_SECONDS)


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """Which engines, by their names, and what starts them.

    `worker` is the built engine_worker; `python` an interpreter with torch and transformers,
    which need so long a step that they have rounds of their own number.
    """

    names: Sequence[str]
    worker: Path | None
    python: str
    rounds: int
    transformers_rounds: int


class _Translator:
    """CTranslate2 in a worker process."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def measure(self, sources: list[list[int]], new_tokens: int, seconds: float) -> Measurement:
        return self._worker.call("measure", sources, new_tokens, seconds=seconds)


@contextlib.contextmanager
def started(options: EngineOptions, folders: ModelFolders) -> Iterator[list[Participant]]:
    """The engines, in the order of ENGINES; ends them all."""
    participants = []
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="seq2seq-bench-")))
        for name in ENGINES:
            if name not in options.names:
                continue
            rounds = options.rounds
            label = name
            stands_in = name == OURS and folders.stand_in is not None
            if name in TRANSLATORS:
                arguments = (str(folders.peer), 1, "cuda", TRANSLATORS[name])
                with cublas.on_library_path(scratch):
                    worker = stack.enter_context(Worker(PeerEngine, *arguments))
                engine = _Translator(worker)
            elif name == TRANSFORMERS:
                script = str(room_file("benchmarks/engine/transformers_worker.py"))
                command = [options.python, script, str(folders.checkpoint), "cuda", "bfloat16"]
                engine = stack.enter_context(ProcessEngine(command))
                rounds = options.transformers_rounds
            else:
                checkpoint = folders.stand_in or folders.checkpoint
                label = OURS_STANDING_IN if stands_in else OURS
                command = [str(options.worker), str(checkpoint), "cuda", "bfloat16"]
                engine = stack.enter_context(ProcessEngine(command))
            participants.append(Participant(label, engine, rounds, stands_in))
        yield participants


def transformers_versions(python: str) -> dict[str, str]:
    """Versions by package; ToolError if this interpreter has not both of them."""
    command = [python, "-c", _PROBE]
    try:
        output = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_PROBE_SECONDS
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"{python} has no torch or no transformers") from error
    return dict(zip(("torch", "transformers"), output.split(), strict=True))
