"""name=value settings and lists of ids."""

import math
import sys

import pytest

from tools.lib.errors import ToolError
from tools.lib.parameters import parse_ids, parse_parameters


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-1", -1),
        ("0.5", 0.5),
        ("1e-3", 0.001),
        ("inf", math.inf),
        ("true", True),
        ("false", False),
        ("True", "True"),
        ("hello", "hello"),
        ('"5"', "5"),
        ('""', ""),
        ("", ""),
        ("a=b", "a=b"),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_types_values(text: str, value: object) -> None:
    parsed = parse_parameters([f"x={text}"])["x"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_nan_is_a_double() -> None:
    assert math.isnan(parse_parameters(["top_p=nan"])["top_p"])


@pytest.mark.parametrize("settings", [["x"], ["=1"], ["x=1", "x=2"], ["x=9223372036854775808"]])
def test_refuses_what_is_no_setting(settings: list[str]) -> None:
    with pytest.raises(ToolError):
        parse_parameters(settings)


def test_ids() -> None:
    assert parse_ids("1, 2,-3") == [1, 2, -3]


@pytest.mark.parametrize("text", ["", "1,,2", "1;2", "a", "2147483648"])
def test_refuses_what_is_no_list_of_ids(text: str) -> None:
    with pytest.raises(ToolError, match="token ids"):
        parse_ids(text)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
