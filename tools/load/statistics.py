"""From a trace to the figures that are reported."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from tools.load.trace import Outcome, Trace

_NAMES = ("p50", "p90", "p99", "max")
_LEVELS = (50, 90, 99, 100)
_NO_TIMES = np.empty(0)


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
    """Percentiles and the largest, in milliseconds; None where nothing was measured.

    Those named in `lower_bounds` are at least that long: requests that did not end are among them.
    """

    p50: float | None
    p90: float | None
    p99: float | None
    max: float | None
    lower_bounds: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Summary:
    """One load.

    Rates count what happened within the window. All else is about the requests that were to be
    sent within it, whenever they ended. Times are from the moment at which they were to be sent;
    requests that were refused or failed have none. An unfinished one waited for as long as it was
    under way, or longer.

    Attributes:
      tokens_per_second: tokens that came.
      requests_per_second: requests that ended well.
      requests: how many were to be sent.
      answered, refused, failed, unfinished: of these, by Outcome.
      tokens: what the answered and the unfinished ones brought.
      first_token: to the first response with tokens, of answered and unfinished ones.
      between_tokens: from a response with tokens to the next one of the same request.
      latency: to the end of the stream, of answered and unfinished ones.
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


def spread(seconds: np.ndarray, at_least: np.ndarray = _NO_TIMES) -> Spread:
    """Of times in seconds; those in `at_least` would have been so long or longer.

    A time that is too short can only make percentiles too small. Up to the shortest such time the
    order is known, so percentiles below it are exact.
    """
    together = np.concatenate([seconds, at_least])
    if not len(together):
        return Spread(None, None, None, None)
    values = 1e3 * np.percentile(together, _LEVELS)
    # A percentile between two times needs both of them.
    needed = np.percentile(together, _LEVELS, method="higher")
    unsure = needed >= at_least.min(initial=np.inf)
    bounds = tuple(name for name, is_bound in zip(_NAMES, unsure, strict=True) if is_bound)
    return Spread(*map(float, values), lower_bounds=bounds)


def summarize(trace: Trace, window: Window) -> Summary:
    """The figures of the requests of `trace` that belong to `window`."""
    chosen = window.holds(trace.intended)
    answered = chosen & (trace.outcome == Outcome.OK)
    ended_well = (trace.outcome == Outcome.OK) & window.holds(trace.ended)
    counts = {outcome: int(np.sum(chosen & (trace.outcome == outcome))) for outcome in Outcome}

    unfinished = chosen & (trace.outcome == Outcome.UNFINISHED)
    mine = (answered | unfinished)[trace.request]
    request, arrival = trace.request[mine], trace.arrival[mine]
    begins = np.diff(request, prepend=-1) != 0
    between = np.diff(arrival)[~begins[1:]]
    tokens = int(trace.tokens[mine].sum())
    gaps = spread(between)
    whole = trace.ended - trace.intended
    silent = unfinished.copy()
    silent[request] = False
    return Summary(
        tokens_per_second=float(trace.tokens[window.holds(trace.arrival)].sum()) / window.seconds,
        requests_per_second=float(ended_well.sum()) / window.seconds,
        requests=int(chosen.sum()),
        answered=counts[Outcome.OK],
        refused=counts[Outcome.REFUSED],
        failed=counts[Outcome.FAILED],
        unfinished=counts[Outcome.UNFINISHED],
        tokens=tokens,
        first_token=spread(arrival[begins] - trace.intended[request[begins]], whole[silent]),
        between_tokens=gaps,
        latency=spread(whole[answered], whole[unfinished]),
        between_ratio=gaps.p99 / gaps.p50 if gaps.p50 else None,
        tokens_per_response=tokens / len(arrival) if len(arrival) else None,
        send_lag=spread(trace.sent[chosen] - trace.intended[chosen]),
        errors=dict(trace.errors),
    )
