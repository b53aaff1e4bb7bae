"""Measures engines in turns over one model and holds them against the floor."""

import dataclasses
import statistics
from collections.abc import Callable, Iterator, Sequence

from benchmarks.cpu.measurement import Measurement
from benchmarks.cpu.workload import random_sources
from benchmarks.engine.engines import TRANSLATORS, Participant
from benchmarks.engine.floor import floor
from tools.lib.errors import ToolError
from tools.lib.model_config import ModelConfig

# Of the call before the first round: enough to load, compile and allocate.
_WARM_UP_TOKENS = 8


@dataclasses.dataclass(frozen=True)
class Job:
    """Batches of equal requests; all counts are of tokens or sequences."""

    config: ModelConfig
    batches: tuple[int, ...]
    source_tokens: int
    new_tokens: int


@dataclasses.dataclass(frozen=True)
class Row:
    """One engine at one batch: medians over its rounds, or why there are none.

    Attributes:
      tokens_per_second: new tokens of all sequences by the whole time, encoder included.
      ratio: tokens_per_second by that of the better CTranslate2; None without one.
      first_token_ms: until every sequence has a token.
      step_ms: from there to the end, by the remaining steps.
      floor_share: the least possible time by the time that it took.
      equal_first: share of the sequences whose first token is the reference's: of the first
        engine that runs the model itself. None for one that stands in.
      equal_tokens: share of all tokens that are the reference's at the same place.
      spread: (slowest, fastest) round in tokens a second.
      error: why the engine could not be measured; all figures are None then.
    """

    batch: int
    engine: str
    tokens_per_second: float | None = None
    ratio: float | None = None
    first_token_ms: float | None = None
    step_ms: float | None = None
    floor_share: float | None = None
    equal_first: float | None = None
    equal_tokens: float | None = None
    spread: tuple[float, float] | None = None
    rounds: int = 0
    error: str | None = None


def compare(
    participants: Sequence[Participant],
    job: Job,
    progress: Callable[[str], None] = lambda _: None,
) -> Iterator[list[Row]]:
    """Yields the rows of each batch; a participant that fails is left out of the rest."""
    failures: dict[str, str] = {}
    for batch in job.batches:
        sources = random_sources(job.config.vocab_size, batch, job.source_tokens, seed=batch)
        taken = _rounds(participants, sources, job.new_tokens, failures, progress)
        yield _rows(participants, batch, job, taken, failures)


def _rounds(
    participants: Sequence[Participant],
    sources: list[list[int]],
    new_tokens: int,
    failures: dict[str, str],
    progress: Callable[[str], None],
) -> dict[str, list[Measurement]]:
    """Measurements by engine; each round begins with another one."""
    taken: dict[str, list[Measurement]] = {one.name: [] for one in participants}
    count = len(participants)
    for number in range(max(one.rounds for one in participants) + 1):
        for turn in range(count):
            one = participants[(number + turn) % count]
            if one.name in failures or number > one.rounds:
                continue
            tokens = new_tokens if number else min(new_tokens, _WARM_UP_TOKENS)
            try:
                measurement = _measured(one, sources, tokens)
            except ToolError as error:
                progress(f"batch {len(sources)}, {one.name}: {error}")
                # A traceback's end says what was wrong.
                failures[one.name] = str(error).strip().splitlines()[-1]
                continue
            progress(
                f"batch {len(sources)}, round {number}, {one.name}: {measurement.seconds:.3f} s"
            )
            if number:
                taken[one.name].append(measurement)
    return taken


def _measured(one: Participant, sources: list[list[int]], new_tokens: int) -> Measurement:
    measurement = one.measure(sources, new_tokens)
    lengths = {len(ids) for ids in measurement.ids}
    if len(measurement.ids) != len(sources) or lengths != {new_tokens}:
        raise ToolError(
            f"{len(measurement.ids)} sequences of {sorted(lengths)} tokens for {len(sources)} "
            f"of {new_tokens}"
        )
    return measurement


def _rows(
    participants: Sequence[Participant],
    batch: int,
    job: Job,
    taken: dict[str, list[Measurement]],
    failures: dict[str, str],
) -> list[Row]:
    rates = {
        name: [batch * job.new_tokens / one.seconds for one in measurements]
        for name, measurements in taken.items()
        if measurements and name not in failures
    }
    medians = {name: statistics.median(values) for name, values in rates.items()}
    peer = max((medians[name] for name in TRANSLATORS if name in medians), default=None)
    least = floor(job.config, batch, job.source_tokens, job.new_tokens).seconds(job.new_tokens)
    reference = next((taken[one.name] for one in participants if not one.stands_in), [])
    rows = []
    for one in participants:
        if one.name not in medians:
            rows.append(Row(batch, one.name, error=failures.get(one.name, "it had no round")))
            continue
        measurements = taken[one.name]
        first = statistics.median(m.first_token_seconds for m in measurements)
        steps = [(m.seconds - m.first_token_seconds) / (job.new_tokens - 1) for m in measurements]
        rate = medians[one.name]
        comparable = reference and not one.stands_in
        rows.append(
            Row(
                batch,
                one.name,
                tokens_per_second=rate,
                ratio=rate / peer if peer else None,
                first_token_ms=1e3 * first,
                step_ms=1e3 * statistics.median(steps),
                floor_share=least * rate / (batch * job.new_tokens),
                equal_first=_equal(measurements[0], reference[0], 1) if comparable else None,
                equal_tokens=_equal(measurements[0], reference[0], job.new_tokens)
                if comparable
                else None,
                spread=(min(rates[one.name]), max(rates[one.name])),
                rounds=len(measurements),
            )
        )
    return rows


def _equal(one: Measurement, other: Measurement, tokens: int) -> float:
    """The share of equal tokens among the first ones of all sequences."""
    pairs = [
        a == b
        for mine, theirs in zip(one.ids, other.ids, strict=True)
        for a, b in zip(mine[:tokens], theirs[:tokens], strict=True)
    ]
    return statistics.fmean(pairs)
