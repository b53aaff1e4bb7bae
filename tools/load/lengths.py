"""Numbers of tokens: one for all requests, or drawn for each."""

import dataclasses
import re

import numpy as np

from tools.lib.errors import ToolError

_TEXT = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


@dataclasses.dataclass(frozen=True)
class Lengths:
    """Every number in [low, high] is as likely."""

    low: int
    high: int

    def draw(self, generator: np.random.Generator) -> int:
        """One number."""
        return int(generator.integers(self.low, self.high, endpoint=True))

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


def parse_lengths(what: str, text: str) -> Lengths:
    """From "128", or "64-256" for anything between; an error names `what` and the text."""
    match = _TEXT.fullmatch(text)
    low = int(match[1]) if match else 0
    high = int(match[2] or match[1]) if match else 0
    if not 1 <= low <= high:
        raise ToolError(f"{what} {text!r}: expected a number from 1, or a range such as 64-256")
    return Lengths(low, high)
