"""The tiny models to make: one entry a family, with the shape, dtype and task of each."""

import dataclasses
from typing import Any

# Shapes that catch mixed-up dimensions: the vocabulary is odd, heads x d_kv differs from d_model,
# and encoder and decoder have different depths where the family allows it.
_SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "d_model": 32,
    "d_kv": 12,
    "num_heads": 3,
    "d_ff": 40,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
    "initializer_factor": 1.0,
}


@dataclasses.dataclass(frozen=True)
class Family:
    """One checkpoint folder.

    Attributes:
      library_class: prefix of the transformers classes, as in <prefix>ForConditionalGeneration.
      dtype: the stored weights' dtype, a torch name. Goldens use float32 arithmetic over them.
      tied: whether the head is the shared embedding.
      config: the arguments of <prefix>Config.
      long_cases: whether expected.json holds source and target of more than 128 tokens.
      many_rows: how many further greedy rows expected.json holds, for tests with many streams.
      overflow_of: the folder whose weights are rescaled so that fp16 arithmetic overflows, or None.
    """

    library_class: str
    dtype: str
    tied: bool
    config: dict[str, Any]
    long_cases: bool = False
    many_rows: int = 0
    overflow_of: str | None = None


FAMILIES: dict[str, Family] = {
    "t5_v1_0": Family(
        "T5", "float32", True, _SHAPE | {"feed_forward_proj": "relu"}, long_cases=True, many_rows=64
    ),
    "t5_v1_1": Family("T5", "float16", False, _SHAPE | {"feed_forward_proj": "gated-gelu"}),
    "flan_silu": Family("T5", "bfloat16", False, _SHAPE | {"feed_forward_proj": "gated-silu"}),
    "mt5": Family(
        "MT5",
        "float16",
        False,
        _SHAPE | {"feed_forward_proj": "gated-gelu", "relative_attention_max_distance": 20},
    ),
    "byt5": Family(
        "T5",
        "float16",
        False,
        _SHAPE
        | {
            "feed_forward_proj": "gated-gelu",
            "vocab_size": 384,
            "num_layers": 3,
            "num_decoder_layers": 1,
        },
    ),
    "umt5": Family(
        "UMT5", "float16", False, _SHAPE | {"feed_forward_proj": "gated-gelu"}, long_cases=True
    ),
    "t5_fp16_overflow": Family(
        "T5",
        "float16",
        False,
        _SHAPE | {"feed_forward_proj": "gated-gelu"},
        overflow_of="t5_v1_1",
    ),
}
