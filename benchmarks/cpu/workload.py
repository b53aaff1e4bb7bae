"""What the benchmark runs: a model's shape and the requests that it is asked."""

import dataclasses

import numpy as np

from tools.lib.model_config import ModelConfig

PAD_ID = 0
EOS_ID = 1
UNKNOWN_ID = 2
_FIRST_ORDINARY_ID = 3

# T5 v1.0, small: ReLU, one matrix for both embeddings and the scaled head.
T5_SMALL = ModelConfig(
    model_type="t5",
    vocab_size=32128,
    d_model=512,
    d_kv=64,
    d_ff=2048,
    num_heads=8,
    encoder_layers=6,
    decoder_layers=6,
    relative_buckets=32,
    gated_ffn=False,
    tied_head=True,
    scaled_head=True,
)


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
