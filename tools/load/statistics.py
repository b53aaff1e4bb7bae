"""From a trace to the figures that are reported."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tools.load.trace import Outcome, Trace


@dataclasses.dataclass(frozen=True)
class Window:
    """The measured span of time, [begin, end)."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin

    def holds(self, times: np.ndarray) -> np.ndarray:
        """Which of the times lie in it."""
        return (self.begin <= times) & (times < self.end)


@dataclasses.dataclass(frozen=True)
class Spread:
    """Percentiles and the largest, in milliseconds; None where nothing was measured."""

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None


@dataclasses.dataclass(frozen=True)
class Summary:
    """One load.

    Rates count what happened within the window. All else is about the requests that were to be
    sent within it, whenever they ended. Times are from the moment at which they were to be sent;
    requests that were refused or failed have none.

    Attributes:
      tokens_per_second: tokens that came.
      requests_per_second: requests that ended well.
      requests: how many were to be sent.
      answered, refused, failed, unfinished: of these, by Outcome.
      tokens: what the answered and the unfinished ones brought.
      first_token: to the first response with tokens.
      between_tokens: from a response with tokens to the next one of the same request.
      latency: to the end of the stream, of answered ones.
      between_ratio: p99 of between_tokens by its p50.
      tokens_per_response: 1 unless tokens are merged.
      send_lag: how much later than intended a request was sent; the clients' own fault.
    """

    tokens_per_second: float
    requests_per_second: float
    requests: int
    answered: int
    refused: int
    failed: int
    unfinished: int
    tokens: int
    first_token: Spread
    between_tokens: Spread
    latency: Spread
    between_ratio: float | None
    tokens_per_response: float | None
    send_lag: Spread
    errors: Mapping[str, int]


def spread(seconds: np.ndarray) -> Spread:
    """Of times in seconds."""
    if not len(seconds):
        return Spread(None, None, None, None)
    return Spread(*(float(ms) for ms in 1e3 * np.percentile(seconds, (50, 90, 99, 100))))


def summarize(trace: Trace, window: Window) -> Summary:
    """The figures of the requests of `trace` that belong to `window`."""
    chosen = window.holds(trace.intended)
    answered = chosen & (trace.outcome == Outcome.OK)
    ended_well = (trace.outcome == Outcome.OK) & window.holds(trace.ended)
    counts = {outcome: int(np.sum(chosen & (trace.outcome == outcome))) for outcome in Outcome}

    mine = (answered | (chosen & (trace.outcome == Outcome.UNFINISHED)))[trace.request]
    request, arrival = trace.request[mine], trace.arrival[mine]
    begins = np.diff(request, prepend=-1) != 0
    between = np.diff(arrival)[~begins[1:]]
    tokens = int(trace.tokens[mine].sum())
    gaps = spread(between)
    return Summary(
        tokens_per_second=float(trace.tokens[window.holds(trace.arrival)].sum()) / window.seconds,
        requests_per_second=float(ended_well.sum()) / window.seconds,
        requests=int(chosen.sum()),
        answered=counts[Outcome.OK],
        refused=counts[Outcome.REFUSED],
        failed=counts[Outcome.FAILED],
        unfinished=counts[Outcome.UNFINISHED],
        tokens=tokens,
        first_token=spread(arrival[begins] - trace.intended[request[begins]]),
        between_tokens=gaps,
        latency=spread(trace.ended[answered] - trace.intended[answered]),
        between_ratio=gaps.p99 / gaps.p50 if gaps.p50 else None,
        tokens_per_response=tokens / len(arrival) if len(arrival) else None,
        send_lag=spread(trace.sent[chosen] - trace.intended[chosen]),
        errors=dict(trace.errors),
    )
