"""A whole benchmark: closed loops first, then open ones at rates that may be shares of theirs."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from tools.lib.errors import ToolError
from tools.load.fleet import started_fleet
from tools.load.measuring import ClosedLoad, Load, Measured, Measurer, OpenLoad, Plan, Tick
from tools.load.served import Target
from tools.load.workload import Workload

_RATE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(%?)")


@dataclasses.dataclass(frozen=True)
class Rate:
    """Requests a second; with `is_share` a multiple of those of the closed loop."""

    value: float
    is_share: bool


def parse_rate(text: str) -> Rate:
    """From "25" or "70%"."""
    match = _RATE.fullmatch(text.strip())
    value = float(match[1]) if match else 0.0
    if not value:
        raise ToolError(f"rate {text!r}: expected requests a second, or a share such as 70%")
    return Rate(value / 100 if match[2] else value, bool(match[2]))


@dataclasses.dataclass(frozen=True)
class Session:
    """Loads in the order in which they are measured.

    Shares among `rates` are of the closed loop with `reference_streams`, which must then be among
    `streams`.
    """

    streams: Sequence[int]
    rates: Sequence[Rate]
    reference_streams: int
    processes: int
    plan: Plan

    def __post_init__(self) -> None:
        """Refuses what cannot be measured."""
        if not self.streams and not self.rates:
            raise ToolError("nothing to measure: --streams and --rates are empty")
        if any(count < 1 for count in self.streams):
            raise ToolError(f"streams {self.streams}: each must be 1 or more")
        shares = any(rate.is_share for rate in self.rates)
        if shares and self.reference_streams not in self.streams:
            raise ToolError(
                f"rates in % are of the closed loop with {self.reference_streams} streams "
                "(--reference_streams), which is not among --streams"
            )


def run_session(
    session: Session, target: Target, workload: Workload, points: list[Measured]
) -> None:
    """Measures every load, with a progress bar. A server that dies is told with its log.

    Every load is added to `points` once it is measured, so an error loses none of those before.
    """
    try:
        with (
            started_fleet(target.address, workload, session.processes) as fleet,
            _progress(session) as progress,
        ):
            measurer = Measurer(fleet, session.plan, target.cpu_seconds)
            for load in loads(session, points):
                points.append(measurer.measure(load, progress.start(load)))
    except ToolError:
        target.check_alive()
        raise


def loads(session: Session, points: Sequence[Measured]) -> Iterator[Load]:
    """What to measure, one after the other; `points` has what was measured of those before."""
    for count in session.streams:
        yield ClosedLoad(count)
    for rate in session.rates:
        if rate.is_share:
            yield OpenLoad(rate.value * _reference_rate(session, points), share=rate.value)
        else:
            yield OpenLoad(rate.value)


def _reference_rate(session: Session, points: Sequence[Measured]) -> float:
    index = list(session.streams).index(session.reference_streams)
    rate = points[index].summary.requests_per_second
    if rate == 0:
        raise ToolError(
            f"rates in % are of the closed loop with {session.reference_streams} streams, in which "
            "no request ended well in time; try fewer --reference_streams or more --seconds"
        )
    return rate


class _Progress:
    """A bar of seconds for all loads; nothing where standard error is no terminal."""

    def __init__(self, session: Session, bar: tqdm) -> None:
        plan = session.plan
        self._each = plan.warmup + plan.seconds
        self._bar = bar
        self._started = 0

    def start(self, load: Load) -> Tick:
        """The next load begins; returns what is to be told how it goes."""
        base = self._started * self._each
        self._started += 1

        def tick(seconds: float, responses: int) -> None:
            self._bar.set_description_str(str(load))
            self._bar.set_postfix_str(f"{responses} responses")
            self._bar.n = round(base + min(max(seconds, 0.0), self._each), 1)
            self._bar.refresh()

        return tick


@contextlib.contextmanager
def _progress(session: Session) -> Iterator[_Progress]:
    loads = len(session.streams) + len(session.rates)
    total = loads * (session.plan.warmup + session.plan.seconds)
    layout = "{desc} {bar} {n:.0f}/{total:.0f} s, {postfix}"
    with tqdm(total=total, bar_format=layout, leave=False, disable=None) as bar:
        yield _Progress(session, bar)
