"""Figures against plain loops over the same requests, and against numpy's percentiles."""

import random
import sys
from collections import Counter

import numpy as np
import pytest

from tools.load.statistics import Spread, Window, spread, summarize
from tools.load.trace import Outcome, Trace, join, make_trace

WINDOW = Window(100.0, 110.0)


class Story:
    """One request, told in full."""

    def __init__(self, source: random.Random) -> None:
        self.intended = source.uniform(95.0, 112.0)
        self.sent = self.intended + source.uniform(0.0, 0.01)
        self.outcome = source.choice([*[Outcome.OK] * 6, *Outcome])
        self.came = []
        now = self.sent
        for _ in range(source.randint(1, 30)):
            now += source.expovariate(20.0)
            self.came.append((now, source.randint(1, 3)))
        self.ended = now + source.uniform(0.0, 0.2)


def tell(count: int, seed: int) -> list[Story]:
    source = random.Random(seed)
    return [Story(source) for _ in range(count)]


def trace_of(stories: list[Story]) -> Trace:
    return make_trace(
        [(one.intended, one.sent, one.ended, one.outcome) for one in stories],
        [(index, *came) for index, one in enumerate(stories) for came in one.came],
        Counter({"UNAVAILABLE: full": len(stories)}),
    )


def expected(seconds: list[float]) -> tuple[float, ...]:
    return (*np.percentile(np.array(seconds) * 1e3, [50, 90, 99]), 1e3 * max(seconds))


def values(found: Spread) -> tuple[float | None, ...]:
    return found.p50, found.p90, found.p99, found.max


def test_every_figure() -> None:
    stories = tell(400, seed=1)
    summary = summarize(trace_of(stories), WINDOW)

    begun = [one for one in stories if 100 <= one.intended < 110]
    served = [one for one in begun if one.outcome in (Outcome.OK, Outcome.UNFINISHED)]
    assert summary.requests == len(begun)
    for name, outcome in (
        ("answered", Outcome.OK),
        ("refused", Outcome.REFUSED),
        ("failed", Outcome.FAILED),
        ("unfinished", Outcome.UNFINISHED),
    ):
        assert getattr(summary, name) == sum(one.outcome == outcome for one in begun)
    assert summary.tokens == sum(tokens for one in served for _, tokens in one.came)

    in_time = [t for one in stories for when, t in one.came if 100 <= when < 110]
    assert summary.tokens_per_second == pytest.approx(sum(in_time) / 10)
    ended = [one for one in stories if one.outcome == Outcome.OK and 100 <= one.ended < 110]
    assert summary.requests_per_second == pytest.approx(len(ended) / 10)

    first = [one.came[0][0] - one.intended for one in served]
    gaps = [
        later[0] - earlier[0]
        for one in served
        for earlier, later in zip(one.came, one.came[1:], strict=False)
    ]
    whole = [one.ended - one.intended for one in served]
    lag = [one.sent - one.intended for one in begun]
    assert values(summary.first_token) == pytest.approx(expected(first))
    assert values(summary.between_tokens) == pytest.approx(expected(gaps))
    assert values(summary.latency) == pytest.approx(expected(whole))
    assert values(summary.send_lag) == pytest.approx(expected(lag))
    p50, _, p99, _ = expected(gaps)
    assert summary.between_ratio == pytest.approx(p99 / p50)
    responses = sum(len(one.came) for one in served)
    assert summary.tokens_per_response == pytest.approx(summary.tokens / responses)


def test_joined_traces_are_as_one() -> None:
    stories = tell(90, seed=2)
    parts = [trace_of(stories[begin : begin + 30]) for begin in (0, 30, 60)]
    assert summarize(join(parts), WINDOW) == summarize(trace_of(stories), WINDOW)


def test_processes_without_requests() -> None:
    empty = make_trace([], [], Counter())
    stories = tell(20, seed=3)
    joined = join([empty, trace_of(stories), empty])
    assert summarize(joined, WINDOW) == summarize(trace_of(stories), WINDOW)


def test_nothing_measured_is_no_number() -> None:
    summary = summarize(make_trace([], [], Counter()), WINDOW)
    assert values(summary.first_token) == (None,) * 4
    assert (summary.between_ratio, summary.tokens_per_response) == (None, None)
    assert (summary.requests, summary.tokens_per_second) == (0, 0.0)


def test_answers_of_one_response_have_no_gaps() -> None:
    trace = make_trace(
        [(101.0, 101.0, 102.0, Outcome.OK), (101.0, 101.0, 103.0, Outcome.OK)],
        [(0, 101.5, 8), (1, 101.6, 8)],
        Counter(),
    )
    summary = summarize(trace, WINDOW)
    assert summary.between_tokens == Spread(None, None, None, None)
    assert summary.first_token.max == pytest.approx(600)
    assert summary.tokens_per_response == 8


def test_who_never_had_a_token_waited_longest() -> None:
    """One answer after 10 ms; 99 requests were cancelled after 5 s without a token."""
    requests = [
        (101.0, 101.0, 101.01, Outcome.OK),
        *[(102.0, 102.0, 107.0, Outcome.UNFINISHED)] * 99,
    ]
    summary = summarize(make_trace(requests, [(0, 101.01, 1)], Counter()), WINDOW)
    for found in (summary.first_token, summary.latency):
        assert values(found) == pytest.approx((5000.0,) * 4)
        assert found.lower_bounds == ("p50", "p90", "p99", "max")
    assert (summary.answered, summary.unfinished) == (1, 99)


def test_a_first_token_before_the_cancellation_is_known() -> None:
    trace = make_trace(
        [(101.0, 101.0, 102.0, Outcome.OK), (101.0, 101.0, 106.0, Outcome.UNFINISHED)],
        [(0, 101.5, 1), (1, 101.2, 1)],
        Counter(),
    )
    summary = summarize(trace, WINDOW)
    assert summary.first_token.lower_bounds == ()
    assert summary.first_token.max == pytest.approx(500)
    assert summary.latency.max == pytest.approx(5000)
    assert summary.latency.lower_bounds == ("p50", "p90", "p99", "max")


@pytest.mark.parametrize("patience", [0.2, 0.8, 2.0, 5.0, 100.0])
def test_percentiles_are_exact_or_marked(patience: float) -> None:
    """Against the times that there would have been, had nobody lost patience."""
    truth = np.random.default_rng(5).exponential(1.0, 300)
    known = truth[truth <= patience]
    found = spread(known, np.full(len(truth) - len(known), patience))
    exact = dict(zip(("p50", "p90", "p99", "max"), expected(truth.tolist()), strict=True))
    for name, time in exact.items():
        if name in found.lower_bounds:
            assert getattr(found, name) <= time
        else:
            assert getattr(found, name) == pytest.approx(time)
        assert (name in found.lower_bounds) == (time > 1e3 * patience)


def test_spread_of_one() -> None:
    assert spread(np.array([0.25])) == Spread(250.0, 250.0, 250.0, 250.0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
