"""What the benchmark asks of a model."""

import dataclasses

import numpy as np

from tools.lib.checkpoint_writer import EOS_ID

UNKNOWN_ID = 2
_FIRST_ORDINARY_ID = 3


@dataclasses.dataclass(frozen=True)
class Workload:
    """Sequences of equal lengths, in tokens, so that no engine computes on padding.

    `counts` are the numbers of sequences that are sent at once. Every count is measured `rounds`
    times, all engines in every round, after one round of each count that does not count.
    """

    source_tokens: int = 128
    new_tokens: int = 64
    counts: tuple[int, ...] = (1, 8, 32)
    rounds: int = 5


def random_sources(vocab_size: int, count: int, tokens: int, seed: int) -> list[list[int]]:
    """`count` sources of ordinary ids with EOS behind, `tokens` ids each."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(_FIRST_ORDINARY_ID, vocab_size, size=(count, tokens - 1))
    return [[*row, EOS_ID] for row in ids.tolist()]
