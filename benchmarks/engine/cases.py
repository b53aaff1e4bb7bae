"""The models and batches that are measured."""

import dataclasses

from benchmarks.engine.bart import BART_LARGE
from tools.lib.model_config import ModelConfig
from tools.lib.model_shapes import FLAN_T5_XL, T5_1_5B, T5_SMALL


@dataclasses.dataclass(frozen=True)
class Case:
    """A model's shape and the batches at which it is measured.

    `missing` says why this project's engine has no figures, where it has none.
    """

    title: str
    config: ModelConfig
    batches: tuple[int, ...]
    missing: str | None = None


CASES = {
    "t5_1_5b": Case("T5, 1.57e9 parameters", T5_1_5B, (1, 16, 64, 256)),
    "t5_small": Case("T5-small", T5_SMALL, (1, 32)),
    "flan_t5_xl": Case("Flan-T5-XL", FLAN_T5_XL, (1, 32)),
    "bart_large": Case(
        "BART-large",
        BART_LARGE,
        (1, 32),
        missing="seq2seq does not load it yet: LayerNorm after the residual, biases everywhere",
    ),
}
