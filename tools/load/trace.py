"""What happened to the requests of a run, in a form that is quick to count in and to send."""

import dataclasses
import enum
from collections import Counter
from collections.abc import Sequence

import numpy as np


class Outcome(enum.IntEnum):
    """How a request ended."""

    OK = 0
    REFUSED = 1  # UNAVAILABLE: the queue was full, or there was no memory
    FAILED = 2
    UNFINISHED = 3  # cancelled here, long after the end of the measurement


@dataclasses.dataclass(frozen=True)
class Trace:
    """Times are those of time.monotonic(), which all processes of a machine share.

    Attributes:
      intended: when each request should have been sent.
      sent: when it was.
      ended: when its stream ended.
      outcome: an Outcome each.
      request: for each response that carried tokens the index of its request, ascending.
      arrival: when the response came; ascending within a request.
      tokens: how many it carried.
      errors: the texts of errors and how often each came.
    """

    intended: np.ndarray
    sent: np.ndarray
    ended: np.ndarray
    outcome: np.ndarray
    request: np.ndarray
    arrival: np.ndarray
    tokens: np.ndarray
    errors: Counter[str] = dataclasses.field(default_factory=Counter)


def make_trace(
    requests: Sequence[tuple[float, float, float, Outcome]],
    responses: Sequence[tuple[int, float, int]],
    errors: Counter[str],
) -> Trace:
    """From (intended, sent, ended, outcome) and (request, arrival, tokens)."""
    about = np.array(requests, np.float64).reshape(-1, 4)
    came = np.array(responses, np.float64).reshape(-1, 3)
    return Trace(
        intended=about[:, 0],
        sent=about[:, 1],
        ended=about[:, 2],
        outcome=about[:, 3].astype(np.int8),
        request=came[:, 0].astype(np.int64),
        arrival=came[:, 1],
        tokens=came[:, 2].astype(np.int64),
        errors=errors,
    )


def join(traces: Sequence[Trace]) -> Trace:
    """The traces of several processes as one."""
    counts = [len(trace.intended) for trace in traces]
    firsts = np.cumsum([0, *counts])[:-1]

    def together(name: str) -> np.ndarray:
        return np.concatenate([getattr(trace, name) for trace in traces])

    shifted = [trace.request + first for trace, first in zip(traces, firsts, strict=True)]
    names = ("intended", "sent", "ended", "outcome", "arrival", "tokens")
    return Trace(
        **{name: together(name) for name in names},
        request=np.concatenate(shifted),
        errors=sum((trace.errors for trace in traces), Counter()),
    )
