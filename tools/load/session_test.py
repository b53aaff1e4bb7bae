"""Which loads are measured, in which order, and at which rates."""

import itertools
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tools.lib.errors import ToolError
from tools.load.lengths import Lengths
from tools.load.measuring import ClosedLoad, Measured, OpenLoad, Plan
from tools.load.served import Target
from tools.load.session import Rate, Session, loads, parse_rate, run_session
from tools.load.workload import Workload
from tools.testing.fake_inference_server import answer, error, serving


@pytest.mark.parametrize(
    ("text", "rate"),
    [("25", Rate(25, False)), (" 0.5", Rate(0.5, False)), ("70%", Rate(0.7, True))],
)
def test_rates_in_text(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize("text", ["", "0", "0%", "-1", "fast", "1e400", "5 %x", "inf"])
def test_bad_rates_are_named(text: str) -> None:
    with pytest.raises(ToolError, match=r"rate .*: expected"):
        parse_rate(text)


def session(streams: list[int], rates: list[str], reference: int = 64) -> Session:
    return Session(streams, [parse_rate(rate) for rate in rates], reference, 1, Plan())


def test_closed_loops_first_then_shares_of_one_of_them() -> None:
    points = []
    order = []
    for load in loads(session([1, 64], ["5", "50%"]), points):
        order.append(load)
        points.append(SimpleNamespace(summary=SimpleNamespace(requests_per_second=10 * len(order))))
    assert order == [ClosedLoad(1), ClosedLoad(64), OpenLoad(5.0), OpenLoad(10.0, share=0.5)]
    assert [str(load) for load in order] == ["1 stream", "64 streams", "5/s", "10/s (50 %)"]


def test_what_cannot_be_measured_is_named() -> None:
    with pytest.raises(ToolError, match="nothing to measure"):
        session([], [])
    with pytest.raises(ToolError, match="each must be 1 or more"):
        session([0], [])
    with pytest.raises(ToolError, match=r"64 streams .*not among --streams"):
        session([1, 16], ["50%"])


def test_a_share_of_nothing_is_refused() -> None:
    loops = loads(
        session([64], ["50%"]), [SimpleNamespace(summary=SimpleNamespace(requests_per_second=0.0))]
    )
    assert next(loops) == ClosedLoad(64)
    with pytest.raises(ToolError, match=r"64 streams.*--reference_streams.*--seconds"):
        next(loops)


def test_a_bad_load_leaves_those_before() -> None:
    number = itertools.count()

    def script(_: Any) -> Iterator[Any]:
        yield answer([1], final=True) if next(number) < 4 else error("INTERNAL: broken")

    points: list[Measured] = []
    workload = Workload("m", 100, Lengths(5, 5), Lengths(1, 1))
    plan = Plan(warmup=0.0, requests=4)
    with (
        serving(script) as (_, url),
        pytest.raises(ToolError, match=r"2 streams: .*INTERNAL: broken"),
    ):
        run_session(Session([1, 2], [], 1, 1, plan), Target(url, "m", 100), workload, points)
    assert [(point.load, point.summary.answered) for point in points] == [(ClosedLoad(1), 4)]


def test_too_short_for_a_request_is_named() -> None:
    points: list[Measured] = []
    workload = Workload("m", 100, Lengths(5, 5), Lengths(1, 1))
    plan = Plan(warmup=0.0, seconds=0.1)
    rare = Session([], [parse_rate("0.001")], 1, 1, plan)
    with (
        serving(lambda _: iter(())) as (_, url),
        pytest.raises(ToolError, match=r"0\.001/s: .*--seconds"),
    ):
        run_session(rare, Target(url, "m", 100), workload, points)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
