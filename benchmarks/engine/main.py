"""This project's CUDA engine beside CTranslate2 and Hugging Face transformers.

  ./bazelw run -c opt //benchmarks/engine -- [--case=t5_1_5b] [--batch=16] [--rounds=5] ...

or, on a machine without Bazel, from the repository's root, with a built engine_worker:

  python -m benchmarks.engine.main --worker=FILE

Prints a table a model and writes all as JSON with a plot beside it. docs/benchmarks.md says what is
measured and how.
"""

import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from absl import flags

from benchmarks.engine import report
from benchmarks.engine.cases import CASES
from benchmarks.engine.comparison import Job, Row, compare
from benchmarks.engine.engines import (
    ENGINES,
    OURS,
    TRANSFORMERS,
    EngineOptions,
    started,
    transformers_versions,
)
from benchmarks.engine.models import prepare
from tools.lib import command, paths, results
from tools.lib.errors import ToolError

_BUILT_WORKER = "benchmarks/engine/engine_worker"

_CASES = flags.DEFINE_multi_enum("case", list(CASES), list(CASES), "Models; repeatable.")
_BATCHES = flags.DEFINE_multi_integer(
    "batch", None, "Batches instead of the case's own; repeatable.", lower_bound=1
)
_ENGINES = flags.DEFINE_multi_enum("engine", None, list(ENGINES), "Engines; by default all.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds that count.", lower_bound=1)
_TRANSFORMERS_ROUNDS = flags.DEFINE_integer(
    "transformers_rounds", 2, "Rounds of transformers, which is slow.", lower_bound=1
)
_SOURCE_TOKENS = flags.DEFINE_integer("source_tokens", 512, "Tokens in.", lower_bound=1)
_NEW_TOKENS = flags.DEFINE_integer("new_tokens", 128, "Tokens out.", lower_bound=2)
_WORKER = flags.DEFINE_string("worker", None, "Another engine_worker than the built one.")
_PYTHON = flags.DEFINE_string(
    "transformers_python", None, "An interpreter with torch and transformers."
)
_MODELS = flags.DEFINE_string(
    "models", None, "A folder in which the models stay, and from which they are taken again."
)
_PREPARE_ONLY = flags.DEFINE_boolean(
    "prepare_only", False, "Write the models to --models, no more."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, "The JSON file; by default benchmarks/results/DATE-DEVICE/engine.json."
)


def main(arguments: Sequence[str]) -> None:
    """Measures and reports."""
    command.refuse_arguments(arguments)
    if _PREPARE_ONLY.value and not _MODELS.value:
        raise ToolError("--prepare_only needs --models")
    with tempfile.TemporaryDirectory(prefix="seq2seq-bench-") as scratch:
        models = paths.from_user(_MODELS.value) if _MODELS.value else Path(scratch) / "models"
        if _PREPARE_ONLY.value:
            for name in _CASES.value:
                _say(f"writing {name}")
                prepare(models, name, CASES[name].config, CASES[name].stand_in)
            return
        _measure(models)


def _measure(models: Path) -> None:
    options, versions = _options()
    output = _output()
    cases: list[report.CaseResult] = []
    begin = time.monotonic()

    def progress(text: str) -> None:
        _say(f"{time.monotonic() - begin:6.1f} s  {text}")

    for name in _CASES.value:
        case = CASES[name]
        progress(f"{case.title}: model")
        folders = prepare(models, name, case.config, case.stand_in)
        job = Job(
            config=case.config,
            batches=tuple(_BATCHES.value or case.batches),
            source_tokens=_SOURCE_TOKENS.value,
            new_tokens=_NEW_TOKENS.value,
        )
        rows: list[Row] = []
        cases.append(report.CaseResult(case.title, job, rows, case.note))
        try:
            with started(options, folders) as participants:
                for more in compare(participants, job, progress):
                    if all(row.error for row in more):
                        raise ToolError(f"{case.title}: no engine ran: {more[0].error}")
                    rows += more
                    # What is measured is kept, whatever comes next.
                    results.write_json(output, report.facts(cases, versions, _arguments()))
        finally:
            if rows:
                facts = report.facts(cases, versions, _arguments())
                report.plot(output.with_suffix(".png"), facts)
                print(report.text(cases[-1]), flush=True)
    _say(f"written: {output}, {output.with_suffix('.png')}")


def _options() -> tuple[EngineOptions, dict[str, str]]:
    """The engines that can run here, and the versions of the peers' packages.

    Without transformers a run of all engines goes on, and says so.
    """
    names = [name for name in ENGINES if not _ENGINES.value or name in _ENGINES.value]
    versions = {"ctranslate2": metadata.version("ctranslate2")}
    if OURS in names and not _worker().is_file():
        raise ToolError(f"{_worker()} is not there; --worker names the built one")
    python = _PYTHON.value or _default_python()
    if TRANSFORMERS in names:
        try:
            versions |= transformers_versions(python)
        except ToolError as error:
            if _ENGINES.value:
                raise
            _say(f"{TRANSFORMERS} is left out: {error}; --transformers_python names another one")
            names.remove(TRANSFORMERS)
    return (
        EngineOptions(names, _worker(), python, _ROUNDS.value, _TRANSFORMERS_ROUNDS.value),
        versions,
    )


def _worker() -> Path:
    return paths.from_user(_WORKER.value) if _WORKER.value else paths.room_file(_BUILT_WORKER)


def _default_python() -> str:
    """This interpreter if it has transformers, else the one on PATH."""
    found = importlib.util.find_spec("torch") and importlib.util.find_spec("transformers")
    return sys.executable if found else "python3"


def _arguments() -> dict[str, object]:
    return {
        flag.name: flag.value
        for flag in (
            _CASES,
            _BATCHES,
            _ROUNDS,
            _TRANSFORMERS_ROUNDS,
            _SOURCE_TOKENS,
            _NEW_TOKENS,
        )
    }


def _output() -> Path:
    if _OUTPUT.value:
        return paths.from_user(_OUTPUT.value)
    checkout = os.environ.get("BUILD_WORKSPACE_DIRECTORY") or paths.room_file("")
    return Path(checkout) / results.default_folder() / "engine.json"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    command.run(main)
