"""What a table says of measurements, and what it warns of."""

import json
import sys
from collections import Counter

import pytest

from tools.load import report
from tools.load.doubts import doubts
from tools.load.measuring import ClosedLoad, Measured
from tools.load.statistics import Window, summarize
from tools.load.trace import Outcome, make_trace


def measured(answered: int, unfinished: int = 0, warmup: float = 2.0) -> Measured:
    """Answers of one token after 1 s, and requests that were cancelled after 5 s."""
    requests = [(1.0, 1.0, 2.0, Outcome.OK)] * answered
    requests += [(1.0, 1.0, 6.0, Outcome.UNFINISHED)] * unfinished
    responses = [(index, 2.0, 1) for index in range(answered)]
    summary = summarize(make_trace(requests, responses, Counter()), Window(0.0, 10.0))
    return Measured(ClosedLoad(4), summary, 10.0, 0.1, 1.0, None, warmup)


def cells(point: Measured) -> dict[str, str]:
    heading, _, row = (line.split("|") for line in report.table([point]).splitlines())
    return dict(zip((cell.strip() for cell in heading), map(str.strip, row), strict=True))


def test_lower_bounds_are_marked() -> None:
    row = cells(measured(80, 20))
    assert row["first token ms"] == row["latency ms"] == "1000 / > 5000 / > 5000"
    assert row["failed"] == "20"
    assert cells(measured(100))["latency ms"] == "1000 / 1000 / 1000"


def test_values_are_json_and_name_the_bounds() -> None:
    values = json.loads(json.dumps(report.facts([measured(80, 20)], {}, {}, "2 streams: broken")))
    (point,) = values["points"]
    assert point["latency"]["lower_bounds"] == ["p90", "p99", "max"]
    assert values["failure"] == "2 streams: broken"


def test_nothing_to_doubt() -> None:
    assert list(doubts(measured(100))) == []


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (measured(99, 1), "1 of 100 requests did not end"),
        (measured(99), "p99 is of 99 requests"),
        (measured(100, warmup=0.9), "warm-up (0.9 s) was shorter than the median latency (1 s)"),
    ],
)
def test_what_is_doubtful_is_named(point: Measured, words: str) -> None:
    (text,) = doubts(point)
    assert words in text


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
