"""What a reader of figures should know before believing them."""

import itertools
from collections.abc import Iterator

from tools.load.measuring import Measured

# A process that takes more of its core than this may be what is measured.
_BUSY = 0.8
_LATE_MS = 5.0
# With fewer, p99 lies between the two longest times.
_ENOUGH_REQUESTS = 100
_ERRORS = 3


def doubts(point: Measured) -> Iterator[str]:
    """Why the figures may say more of the clients, of chance or of errors than of the server."""
    yield from _of_clients(point)
    yield from _of_the_plan(point)
    summary = point.summary
    if summary.unfinished:
        yield (
            f"{summary.unfinished} of {summary.requests} requests did not end in time (--drain): "
            "they count with the time until they were cancelled, a lower bound"
        )
    for text, count in itertools.islice(summary.errors.items(), _ERRORS):
        yield f"{count} requests were answered: {text}"


def _of_clients(point: Measured) -> Iterator[str]:
    if point.busiest_client > _BUSY:
        yield (
            f"a client process was busy for {100 * point.busiest_client:.0f} % of the time: "
            "the clients may be the bottleneck; try more --processes"
        )
    lag = point.summary.send_lag.p99
    if lag is not None and lag > _LATE_MS:
        yield f"1 % of the requests were sent {lag:.1f} ms too late or more: clients too slow"


def _of_the_plan(point: Measured) -> Iterator[str]:
    summary = point.summary
    median = summary.latency.p50
    if median is not None and 1e3 * point.warmup < median:
        yield (
            f"the warm-up ({point.warmup:g} s) was shorter than the median latency "
            f"({median / 1e3:.3g} s): the load was not steady yet; more --warmup is needed"
        )
    timed = summary.answered + summary.unfinished
    if timed < _ENOUGH_REQUESTS:
        yield f"p99 is of {timed} requests, fewer than {_ENOUGH_REQUESTS}: measure for longer"
