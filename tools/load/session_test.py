"""Which loads are measured, in which order, and at which rates."""

import sys
from types import SimpleNamespace

import pytest

from tools.lib.errors import ToolError
from tools.load.measuring import ClosedLoad, OpenLoad, Plan
from tools.load.session import Rate, Session, loads, parse_rate


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


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
