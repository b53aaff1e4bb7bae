"""The models and batches that are measured."""

import dataclasses

from benchmarks.engine.bart import BART_LARGE
from tools.lib.model_config import ModelConfig
from tools.lib.model_shapes import FLAN_T5_XL, T5_1_5B, T5_SMALL


@dataclasses.dataclass(frozen=True)
class Case:
    """A model's shape and the batches at which it is measured.

    `stand_in` is what this project's engine runs where it does not load the model itself, and
    `note` says so.
    """

    title: str
    config: ModelConfig
    batches: tuple[int, ...]
    stand_in: ModelConfig | None = None
    note: str | None = None


# In the order of interest: what comes late is lost first where time ends.
CASES = {
    "t5_1_5b": Case("T5, 1.52e9 parameters", T5_1_5B, (1, 16, 64, 256)),
    "bart_large": Case(
        "BART-large",
        BART_LARGE,
        (1, 32),
        stand_in=dataclasses.replace(
            BART_LARGE, model_type="t5", relative_buckets=32, scaled_head=True
        ),
        note="seq2seq: T5 of the same sizes (widths, layers, vocabulary, plain feed-forward, tied "
        "head): RMSNorm, no biases, since it does not load BART. The others: BART.",
    ),
    "t5_small": Case("T5-small", T5_SMALL, (1, 32)),
    "flan_t5_xl": Case("Flan-T5-XL", FLAN_T5_XL, (1, 32)),
}
