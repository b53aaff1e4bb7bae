"""config.json of a T5-family checkpoint: the sizes that decide which tensors must be there."""

import dataclasses
import re
from pathlib import Path
from typing import Any

from tools.lib.errors import ToolError
from tools.lib.json_file import is_integer, read_object

# ByT5 and Flan-T5 call themselves t5.
MODEL_TYPES = ("t5", "mt5", "umt5")
ACTIVATIONS = ("relu", "gelu", "gelu_new", "silu", "swish")

_INT32_MAX = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """What config.json says about shapes. Sizes are counts of elements."""

    model_type: str
    vocab_size: int
    d_model: int
    d_kv: int
    d_ff: int
    num_heads: int
    encoder_layers: int
    decoder_layers: int
    relative_buckets: int
    gated_ffn: bool
    tied_head: bool

    @property
    def inner(self) -> int:
        """Width of the attention's projections: heads x d_kv, which may differ from d_model."""
        return self.num_heads * self.d_kv

    @property
    def position_bias_per_layer(self) -> bool:
        """UMT5 has a table of relative positions in every layer, the others in layer 0 only."""
        return self.model_type == "umt5"


def read_model_config(directory: Path) -> ModelConfig:
    """Reads and checks <directory>/config.json; raises ToolError naming file, key and value."""
    path = directory / "config.json"
    values = read_object(path)
    model_type = values.get("model_type")
    if model_type not in MODEL_TYPES:
        raise ToolError(
            f"{path}: model_type is {model_type!r}; supported are {', '.join(MODEL_TYPES)}"
        )
    layers = _positive(path, values, "num_layers")
    buckets = _positive(path, values, "relative_attention_num_buckets", 32)
    if buckets % 4 != 0:
        raise ToolError(
            f"{path}: relative_attention_num_buckets is {buckets}; a multiple of 4 is expected"
        )
    _positive(path, values, "relative_attention_max_distance", 128)
    return ModelConfig(
        model_type=model_type,
        vocab_size=_positive(path, values, "vocab_size"),
        d_model=_positive(path, values, "d_model"),
        d_kv=_positive(path, values, "d_kv"),
        d_ff=_positive(path, values, "d_ff"),
        num_heads=_positive(path, values, "num_heads"),
        encoder_layers=layers,
        decoder_layers=_positive(path, values, "num_decoder_layers", layers),
        relative_buckets=buckets,
        gated_ffn=_gated(path, values.get("feed_forward_proj", "relu")),
        tied_head=_boolean(path, values, "tie_word_embeddings", True),
    )


def _positive(path: Path, values: dict[str, Any], key: str, default: int | None = None) -> int:
    value = values.get(key)
    if value is None:
        if default is None:
            raise ToolError(f"{path}: key {key} is missing")
        return default
    if not is_integer(value) or not 1 <= value <= _INT32_MAX:
        raise ToolError(f"{path}: {key} is {value!r}; an integer of 1 or more is expected")
    return value


def _boolean(path: Path, values: dict[str, Any], key: str, default: bool) -> bool:
    value = values.get(key)
    if value is None:
        return default
    if not isinstance(value, bool):
        raise ToolError(f"{path}: {key} is {value!r}; true or false is expected")
    return value


def _gated(path: Path, projection: object) -> bool:
    match = re.fullmatch(r"(gated-)?(\w+)", projection) if isinstance(projection, str) else None
    if match is None or match[2] not in ACTIVATIONS:
        raise ToolError(
            f"{path}: feed_forward_proj is {projection!r}; expected one of "
            f"{', '.join(ACTIVATIONS)}, or gated- and one of them"
        )
    return match[1] is not None
