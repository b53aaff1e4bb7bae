"""Arrivals are a Poisson process: exponential gaps, counts that vary as much as their mean."""

import sys

import numpy as np
import pytest

from tools.load.arrivals import deal, poisson_times

# With 40,000 arrivals these deviations are five times the standard error, or more.
COUNT = 40_000


def test_gaps_are_exponential() -> None:
    times = poisson_times(50.0, seed=1, count=COUNT)
    gaps = np.diff(times, prepend=0.0)
    assert len(times) == COUNT
    assert (gaps >= 0).all()
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.03)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.05)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        expected = -np.log1p(-quantile) / 50
        assert np.mean(gaps <= expected) == pytest.approx(quantile, abs=0.015)


def test_counts_vary_as_their_mean() -> None:
    times = poisson_times(40.0, seed=2, seconds=1000.0)
    assert (np.diff(times) >= 0).all()
    assert times[0] >= 0
    assert times[-1] < 1000
    counts = np.bincount(times.astype(int), minlength=1000)
    assert counts.mean() == pytest.approx(40, rel=0.03)
    assert counts.var() == pytest.approx(40, rel=0.25)
    # What comes in one second says nothing of the next.
    assert abs(np.corrcoef(counts[:-1], counts[1:])[0, 1]) < 0.16


def test_the_number_itself_is_random() -> None:
    numbers = [len(poisson_times(100.0, seed, seconds=1.0)) for seed in range(400)]
    assert np.mean(numbers) == pytest.approx(100, abs=2.5)
    assert np.var(numbers) == pytest.approx(100, rel=0.36)


def test_the_same_seed_gives_the_same_times() -> None:
    assert np.array_equal(
        poisson_times(5.0, seed=3, count=20), poisson_times(5.0, seed=3, count=20)
    )
    assert not np.array_equal(
        poisson_times(5.0, seed=3, count=20), poisson_times(5.0, seed=4, count=20)
    )


def test_dealing_loses_nothing() -> None:
    times = poisson_times(5.0, seed=3, count=23)
    hands = list(deal(times, 4))
    assert [len(hand) for hand in hands] == [6, 6, 6, 5]
    assert np.array_equal(np.sort(np.concatenate(hands)), times)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
