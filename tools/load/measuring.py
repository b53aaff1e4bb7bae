"""Loads a server and sums up what came back."""

import dataclasses
import math
import time
from collections.abc import Callable, Iterator

import numpy as np

from tools.lib.errors import ToolError
from tools.load.arrivals import deal, poisson_times
from tools.load.fleet import Fleet
from tools.load.load_worker import ClosedJob, Finished, Job, OpenJob
from tools.load.statistics import Summary, Window, summarize
from tools.load.trace import Trace, join

# From the call to the first request: every process must have its job by then.
_LEAD_SECONDS = 0.3
# A given number of requests takes as long as it takes.
_LONGEST_SECONDS = 3600.0
# Parsing and handing over what came.
_REPORT_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class ClosedLoad:
    """So many streams, each with a request under way at all times."""

    streams: int

    def __str__(self) -> str:
        return f"{self.streams} stream{'s' * (self.streams > 1)}"


@dataclasses.dataclass(frozen=True)
class OpenLoad:
    """Poisson arrivals at so many requests a second; `share`: of the closed loop's, if so given."""

    rate: float
    share: float | None = None

    def __str__(self) -> str:
        share = f" ({100 * self.share:.4g} %)" if self.share else ""
        return f"{self.rate:.4g}/s{share}"


Load = ClosedLoad | OpenLoad


@dataclasses.dataclass(frozen=True)
class Plan:
    """How long a load is measured.

    Attributes:
      warmup: seconds of the same load before, which do not count.
      seconds: how long, unless `requests` says how many requests are sent.
      requests: as many as are sent.
      drain: seconds that answers have after the end; then they are cancelled.
      seed: of the arrival times.
    """

    warmup: float = 2.0
    seconds: float = 10.0
    requests: int | None = None
    drain: float = 60.0
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Measured:
    """One load. `busiest_client`: the share of a core that the busiest client process needed.

    `client_us_per_token` and `server_us_per_token` are processor time; the server's (with the
    processes that it starts) is known where the benchmark started it. `warmup` are the seconds of
    the same load before.
    """

    load: Load
    summary: Summary
    seconds: float
    busiest_client: float
    client_us_per_token: float | None
    server_us_per_token: float | None
    warmup: float


Tick = Callable[[float, int], None]


class Measurer:
    """Runs one load after the other on a fleet."""

    def __init__(self, fleet: Fleet, plan: Plan, server_cpu: Callable[[], float] | None) -> None:
        """`server_cpu` returns the processor time that the server has used, in seconds."""
        self._fleet = fleet
        self._plan = plan
        self._server_cpu = server_cpu

    def measure(self, load: Load, tick: Tick = lambda _seconds, _responses: None) -> Measured:
        """Warms up and measures. ToolError if nothing was asked, or not one token came."""
        plan = self._plan
        if plan.requests is not None and plan.warmup > 0:
            alone = dataclasses.replace(plan, requests=None, warmup=0.0, seconds=plan.warmup)
            self._run(load, alone, tick)
        cpu_before = self._server_seconds()
        begin, finished = self._run(load, plan, tick)
        server_seconds = self._server_seconds() - cpu_before
        trace = join([one.trace for one in finished])
        window = _window(plan, begin, trace)
        summary = summarize(trace, window)
        if not len(trace.intended):
            raise ToolError(f"{load}: no request came up in the time; more --seconds are needed")
        tokens = int(trace.tokens.sum())
        if not tokens:
            texts = "; ".join(summary.errors) or "none came to its first token in time"
            raise ToolError(f"{load}: no request was answered: {texts}")
        client_seconds = sum(one.cpu_seconds for one in finished)
        return Measured(
            load=load,
            summary=summary,
            seconds=window.seconds,
            busiest_client=max(one.busy for one in finished),
            client_us_per_token=1e6 * client_seconds / tokens,
            server_us_per_token=1e6 * server_seconds / tokens if self._server_cpu else None,
            warmup=plan.warmup,
        )

    def _server_seconds(self) -> float:
        return self._server_cpu() if self._server_cpu else 0.0

    def _run(self, load: Load, plan: Plan, tick: Tick) -> tuple[float, list[Finished]]:
        begin = time.monotonic() + _LEAD_SECONDS
        jobs = list(_jobs(load, plan, self._fleet.size, begin))
        longest = _LONGEST_SECONDS if plan.requests else plan.warmup + plan.seconds
        return begin, self._fleet.run(jobs, longest + plan.drain + _REPORT_SECONDS, tick)


def _jobs(load: Load, plan: Plan, size: int, begin: float) -> Iterator[Job]:
    """The load, dealt to at most `size` processes."""
    end = begin + plan.warmup + plan.seconds
    limits = {"end": end, "give_up": end + plan.drain}
    if plan.requests is not None:
        limits = {}
    if isinstance(load, ClosedLoad):
        size = min(size, load.streams)
        for part in range(size):
            streams = _share(load.streams, size, part)
            requests = plan.requests and _share(plan.requests, size, part)
            yield ClosedJob(begin=begin, streams=streams, requests=requests, **limits)
        return
    span = None if plan.requests else plan.warmup + plan.seconds
    times = begin + poisson_times(load.rate, plan.seed, seconds=span, count=plan.requests)
    for part in deal(times, size):
        yield OpenJob(begin=begin, times=part, give_up=limits.get("give_up", math.inf))


def _share(total: int, size: int, part: int) -> int:
    """Of `total`, dealt to `size` as evenly as can be."""
    return total // size + (part < total % size)


def _window(plan: Plan, begin: float, trace: Trace) -> Window:
    if plan.requests is not None:
        # The last answer is within.
        return Window(begin, float(np.nextafter(trace.ended.max(initial=begin), math.inf)))
    return Window(begin + plan.warmup, begin + plan.warmup + plan.seconds)
