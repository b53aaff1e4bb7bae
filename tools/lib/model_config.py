"""config.json of a T5-family checkpoint: the sizes that decide which tensors must be there."""

import dataclasses
import re
from pathlib import Path

from tools.lib.errors import ToolError
from tools.lib.json_file import is_integer, is_number, read_object

# ByT5 and Flan-T5 call themselves t5.
MODEL_TYPES = ("t5", "mt5", "umt5")
ACTIVATIONS = ("relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu", "swish")

# Far above any model there is; larger numbers are mistakes.
_MAX_TOKENS = 1 << 24
_MAX_WIDTH = 1 << 20
_MAX_HEAD_WIDTH = 4096
_MAX_HEADS = 1024
_MAX_LAYERS = 1024
_MAX_BUCKETS = 65536


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
    scaled_head: bool

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
    keys = _Keys(directory / "config.json")
    model_type = keys.values.get("model_type")
    if model_type not in MODEL_TYPES:
        raise keys.bad("model_type", f"supported are {', '.join(MODEL_TYPES)}")
    if not keys.boolean("is_encoder_decoder", True):
        raise keys.bad("is_encoder_decoder", "true is expected")
    if keys.values.get("quantization_config") is not None:
        raise keys.bad("quantization_config", "float32, float16 or bfloat16 weights are expected")
    layers = keys.integer("num_layers", 1, _MAX_LAYERS)
    tied = keys.boolean("tie_word_embeddings", True)
    scaled = keys.boolean("scale_decoder_outputs", tied)
    vocab_size = keys.integer("vocab_size", 1, _MAX_TOKENS)
    keys.integer("pad_token_id", 0, vocab_size - 1, 0)
    keys.check_epsilon()
    return ModelConfig(
        model_type=model_type,
        vocab_size=vocab_size,
        d_model=keys.integer("d_model", 1, _MAX_WIDTH),
        d_kv=keys.integer("d_kv", 1, _MAX_HEAD_WIDTH),
        d_ff=keys.integer("d_ff", 1, _MAX_WIDTH),
        num_heads=keys.integer("num_heads", 1, _MAX_HEADS),
        encoder_layers=layers,
        decoder_layers=keys.integer("num_decoder_layers", 1, _MAX_LAYERS, layers),
        relative_buckets=keys.relative_buckets(),
        gated_ffn=keys.gated("relu" if model_type == "t5" else "gated-gelu"),
        tied_head=tied,
        scaled_head=scaled and model_type != "mt5",
    )


class _Keys:
    """The keys of one config.json; null is as good as absent."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values = read_object(path)

    def bad(self, key: str, expected: str) -> ToolError:
        """The error for a value that cannot be."""
        return ToolError(f"{self.path}: {key} is {self.values.get(key)!r}; {expected}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in [low, high]; required where there is no default."""
        value = self.values.get(key)
        if value is None:
            if default is None:
                raise ToolError(f"{self.path}: key {key} is missing")
            return default
        if not is_integer(value) or not low <= value <= high:
            raise self.bad(key, f"an integer from {low} to {high} is expected")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        """A JSON boolean."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.bad(key, "true or false is expected")
        return default if value is None else value

    def check_epsilon(self) -> None:
        """layer_norm_epsilon, where it is given."""
        value = self.values.get("layer_norm_epsilon")
        if value is not None and not (is_number(value) and 0 < value <= 1):
            raise self.bad("layer_norm_epsilon", "a number in (0, 1] is expected")

    def relative_buckets(self) -> int:
        """The number of buckets, checked against the distance that they span."""
        buckets = self.integer("relative_attention_num_buckets", 4, _MAX_BUCKETS, 32)
        distance = self.integer("relative_attention_max_distance", 2, _MAX_TOKENS, 128)
        if distance <= buckets // 2:
            raise self.bad(
                "relative_attention_max_distance",
                f"more than half of relative_attention_num_buckets ({buckets}) is expected",
            )
        return buckets

    def gated(self, default: str) -> bool:
        """Whether the feed-forward layers have a gate.

        dense_act_fn and is_gated_act, which transformers derives and saves, win over
        feed_forward_proj, as they do there.
        """
        projection = self.values.get("feed_forward_proj")
        text = default if projection is None else projection
        match = re.fullmatch(r"(gated-)?(\w+)", text) if isinstance(text, str) else None
        if match is None or match[2] not in ACTIVATIONS:
            raise self.bad(
                "feed_forward_proj",
                f"one of {', '.join(ACTIVATIONS)}, or gated- and one of them, is expected",
            )
        activation = self.values.get("dense_act_fn")
        if activation is not None and activation not in ACTIVATIONS:
            raise self.bad("dense_act_fn", f"one of {', '.join(ACTIVATIONS)} is expected")
        return self.boolean("is_gated_act", match[1] is not None)
