"""Measures engines in turns, so that what else the machine does hits all of them alike."""

import dataclasses
import statistics
from collections.abc import Callable, Sequence

from benchmarks.cpu.engines import Engine
from benchmarks.cpu.measurement import Measurement
from benchmarks.cpu.workload import Workload, random_sources
from tools.lib.errors import ToolError
from tools.lib.process_facts import peak_rss_bytes, wait_until_idle

_IDLE_SECONDS = 5.0
_MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class Row:
    """One engine at one number of sequences: medians over the rounds.

    Attributes:
      tokens_per_second: new tokens of all sequences by a round's whole time, encoder included.
      ratio: tokens_per_second by that of the first engine in the same round.
      token_ms: time between two tokens of a sequence, the first one excepted.
      first_token_ms: see Measurement.
      equal_rows: sequences with the same tokens as the first engine's, in the worst round.
      spread: (slowest, fastest) round in tokens a second.
    """

    sequences: int
    engine: str
    tokens_per_second: float
    ratio: float
    token_ms: float
    first_token_ms: float
    equal_rows: int
    spread: tuple[float, float]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All rows, and the peak of each engine's resident memory in MiB after all rounds."""

    rows: list[Row]
    peak_rss_mib: dict[str, float]


def compare(
    engines: Sequence[Engine],
    vocab_size: int,
    workload: Workload,
    progress: Callable[[str], None] = lambda _: None,
) -> Comparison:
    """Runs the workload; `progress` hears of every measurement."""
    rows: list[Row] = []
    for count in workload.counts:
        sources = random_sources(vocab_size, count, workload.source_tokens, seed=count)
        rounds: list[list[Measurement]] = []
        # Round 0 warms caches and pools.
        for number in range(workload.rounds + 1):
            taken = _round(engines, number, sources, workload.new_tokens, progress)
            if number:
                rounds.append(taken)
        for index, engine in enumerate(engines):
            rows.append(_row(engine.name, index, rounds, workload.new_tokens))
    peaks = {engine.name: peak_rss_bytes(engine.pid) / _MIB for engine in engines}
    return Comparison(rows, peaks)


def _round(
    engines: Sequence[Engine],
    number: int,
    sources: list[list[int]],
    new_tokens: int,
    progress: Callable[[str], None],
) -> list[Measurement]:
    """One measurement of each engine; each round begins with another one."""
    taken: dict[int, Measurement] = {}
    for turn in range(len(engines)):
        index = (number + turn) % len(engines)
        engine = engines[index]
        progress(f"{len(sources)} sequences, round {number}, {engine.name}")
        wait_until_idle((other.pid for other in engines), _IDLE_SECONDS)
        measurement = engine.measure(sources, new_tokens)
        lengths = {len(ids) for ids in measurement.ids}
        if lengths != {new_tokens}:
            raise ToolError(
                f"{engine.name}: sequences of {sorted(lengths)} tokens; {new_tokens} were asked for"
            )
        taken[index] = measurement
    return [taken[index] for index in range(len(engines))]


def _row(name: str, index: int, rounds: list[list[Measurement]], new_tokens: int) -> Row:
    mine = [taken[index] for taken in rounds]
    first = [taken[0] for taken in rounds]
    pairs = list(zip(mine, first, strict=True))
    sequences = len(mine[0].ids)
    rates = [sequences * new_tokens / one.seconds for one in mine]
    return Row(
        sequences=sequences,
        engine=name,
        tokens_per_second=statistics.median(rates),
        ratio=statistics.median(peer.seconds / one.seconds for one, peer in pairs),
        token_ms=1e3
        * statistics.median(
            (one.seconds - one.first_token_seconds) / (new_tokens - 1) for one in mine
        ),
        first_token_ms=1e3 * statistics.median(one.first_token_seconds for one in mine),
        equal_rows=min(_equal_rows(one, peer) for one, peer in pairs),
        spread=(min(rates), max(rates)),
    )


def _equal_rows(one: Measurement, other: Measurement) -> int:
    return sum(a == b for a, b in zip(one.ids, other.ids, strict=True))
