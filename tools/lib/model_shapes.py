"""Shapes of models by name, for measurements that need no trained weights."""

import dataclasses

from tools.lib.errors import ToolError
from tools.lib.model_config import ModelConfig, read_model_config
from tools.lib.paths import from_user

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

# In the manner of T5 v1.1: gated GELU, a head of its own. 1,521,738,240 parameters without the
# table of embeddings (49,348,608 more), of which a token takes one row.
T5_1_5B = ModelConfig(
    model_type="t5",
    vocab_size=32128,
    d_model=1536,
    d_kv=64,
    d_ff=3584,
    num_heads=24,
    encoder_layers=24,
    decoder_layers=24,
    relative_buckets=32,
    gated_ffn=True,
    tied_head=False,
    scaled_head=False,
)

FLAN_T5_XL = dataclasses.replace(T5_1_5B, d_model=2048, num_heads=32, d_ff=5120)

SHAPES = {"t5_small": T5_SMALL, "t5_1_5b": T5_1_5B, "flan_t5_xl": FLAN_T5_XL}


def shape(text: str) -> ModelConfig:
    """The shape of that name, or the one that config.json in the folder `text` describes.

    ToolError for anything else.
    """
    if text in SHAPES:
        return SHAPES[text]
    folder = from_user(text)
    if not (folder / "config.json").is_file():
        raise ToolError(
            f"shape {text!r}: neither one of {', '.join(SHAPES)} nor a folder with a config.json"
        )
    return read_model_config(folder)
