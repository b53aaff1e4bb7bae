"""This project's CPU engine, through the real server, beside CTranslate2.

  ./bazelw run -c opt //benchmarks/cpu -- [--rounds=5] [--threads=2] [--quick] [--output=FILE]

Prints a table and writes it to FILE (benchmarks/results/cpu.json) with a plot beside it.
docs/benchmarks.md says what is measured and how.
"""

import dataclasses
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from absl import flags

from benchmarks.cpu import report
from benchmarks.cpu.comparison import compare
from benchmarks.cpu.engines import EngineOptions, drop_tuning_variables, started_engines
from benchmarks.cpu.workload import Workload
from tools.lib import command, installation, paths
from tools.lib.model_shapes import T5_SMALL

_RESULT = "benchmarks/results/cpu.json"
# Above this load average, something else computes.
_QUIET_LOAD = 0.3

_ROUNDS = flags.DEFINE_integer("rounds", 5, "Rounds that count.", lower_bound=1)
_THREADS = flags.DEFINE_integer("threads", 2, "Threads of each engine.", lower_bound=1)
_SEQUENCES = flags.DEFINE_multi_integer(
    "sequences", [1, 8, 32], "Sequences at once; repeatable.", lower_bound=1
)
_QUICK = flags.DEFINE_boolean(
    "quick", False, "One round of 1 and 8 sequences, 16 new tokens: shows that it works."
)
_OUTPUT = flags.DEFINE_string(
    "output", None, f"The JSON file; by default {_RESULT}, and none with --quick."
)
_TRITONSERVER = flags.DEFINE_string(
    "tritonserver", None, "Another tritonserver than the pinned one."
)
_BACKENDS = flags.DEFINE_string(
    "backend_directory",
    None,
    "Another folder with seq2seq/libtriton_seq2seq.so than the built one.",
)


def main(arguments: Sequence[str]) -> None:
    """Measures and reports."""
    command.refuse_arguments(arguments)
    workload = Workload(counts=tuple(_SEQUENCES.value), rounds=_ROUNDS.value)
    if _QUICK.value:
        workload = dataclasses.replace(workload, new_tokens=16, counts=(1, 8), rounds=1)
    if found := drop_tuning_variables():
        _say(f"unset for all engines: {', '.join(found)}")
    options = EngineOptions(
        model=T5_SMALL,
        tritonserver=installation.tritonserver(_TRITONSERVER.value),
        backend_directory=installation.backend_directory(_BACKENDS.value),
        threads=_THREADS.value,
        most_sequences=max(workload.counts),
    )
    load_before = os.getloadavg()[0]
    if load_before > _QUIET_LOAD:
        _say(f"the machine is busy (load average {load_before:.1f}): do not trust the figures")
    _say("making the weights, starting the engines")
    begin = time.monotonic()
    with started_engines(options) as engines:
        comparison = compare(
            engines,
            T5_SMALL.vocab_size,
            workload,
            lambda text: _say(f"{time.monotonic() - begin:6.1f} s  {text}"),
        )
    print(report.table(comparison))
    if output := _output():
        facts = report.facts(comparison, workload, _THREADS.value, load_before)
        plot = report.write(output, facts)
        _say(f"written: {output}, {plot}")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _output() -> Path | None:
    if _OUTPUT.value:
        return paths.from_user(_OUTPUT.value)
    checkout = os.environ.get("BUILD_WORKSPACE_DIRECTORY")
    return None if _QUICK.value or not checkout else Path(checkout) / _RESULT


if __name__ == "__main__":
    command.run(main)
