"""When the requests of an open loop are sent: a Poisson process, whatever the answers do."""

from collections.abc import Iterator

import numpy as np


def poisson_times(
    rate: float, seed: int, *, seconds: float | None = None, count: int | None = None
) -> np.ndarray:
    """Seconds from the begin at which requests arrive, ascending, `rate` a second on average.

    Either all that arrive within `seconds`, or the first `count`. Gaps are independent and
    exponential, so bursts and lulls come as with many clients that know nothing of each other.
    """
    generator = np.random.default_rng(seed)
    if count is not None:
        return np.cumsum(generator.exponential(1 / rate, count))
    # The number in a span of time is Poisson's, and given the number, the times are uniform.
    number = generator.poisson(rate * seconds)
    return np.sort(generator.uniform(0.0, seconds, number))


def deal(times: np.ndarray, hands: int) -> Iterator[np.ndarray]:
    """Gives the times to so many senders in turns."""
    for hand in range(hands):
        yield times[hand::hands]
