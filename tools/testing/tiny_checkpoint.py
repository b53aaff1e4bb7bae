"""A tiny T5 checkpoint written by a test: the right tensors, no meaning."""

import json
import math
import struct
from pathlib import Path
from typing import Any

# d_model 8, 2 heads of 4, d_ff 16, one layer a stack, tied head, ReLU.
CONFIG: dict[str, Any] = {
    "model_type": "t5",
    "vocab_size": 12,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 16,
    "num_heads": 2,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "relative_attention_num_buckets": 4,
    "relative_attention_max_distance": 8,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}

GENERATION: dict[str, Any] = {"eos_token_id": 1, "pad_token_id": 0, "decoder_start_token_id": 0}

# The names and shapes, written out by hand as the published T5 v1.0 checkpoints have them.
SHAPES: dict[str, list[int]] = {
    "shared.weight": [12, 8],
    "encoder.block.0.layer.0.SelfAttention.q.weight": [8, 8],
    "encoder.block.0.layer.0.SelfAttention.k.weight": [8, 8],
    "encoder.block.0.layer.0.SelfAttention.v.weight": [8, 8],
    "encoder.block.0.layer.0.SelfAttention.o.weight": [8, 8],
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": [4, 2],
    "encoder.block.0.layer.0.layer_norm.weight": [8],
    "encoder.block.0.layer.1.DenseReluDense.wi.weight": [16, 8],
    "encoder.block.0.layer.1.DenseReluDense.wo.weight": [8, 16],
    "encoder.block.0.layer.1.layer_norm.weight": [8],
    "encoder.final_layer_norm.weight": [8],
    "decoder.block.0.layer.0.SelfAttention.q.weight": [8, 8],
    "decoder.block.0.layer.0.SelfAttention.k.weight": [8, 8],
    "decoder.block.0.layer.0.SelfAttention.v.weight": [8, 8],
    "decoder.block.0.layer.0.SelfAttention.o.weight": [8, 8],
    "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": [4, 2],
    "decoder.block.0.layer.0.layer_norm.weight": [8],
    "decoder.block.0.layer.1.EncDecAttention.q.weight": [8, 8],
    "decoder.block.0.layer.1.EncDecAttention.k.weight": [8, 8],
    "decoder.block.0.layer.1.EncDecAttention.v.weight": [8, 8],
    "decoder.block.0.layer.1.EncDecAttention.o.weight": [8, 8],
    "decoder.block.0.layer.1.layer_norm.weight": [8],
    "decoder.block.0.layer.2.DenseReluDense.wi.weight": [16, 8],
    "decoder.block.0.layer.2.DenseReluDense.wo.weight": [8, 16],
    "decoder.block.0.layer.2.layer_norm.weight": [8],
    "decoder.final_layer_norm.weight": [8],
}


def write_json(path: Path, value: object) -> None:
    """Writes a JSON file."""
    path.write_text(json.dumps(value), encoding="utf-8")


def write_safetensors(path: Path, shapes: dict[str, list[int]], fill: dict[str, int]) -> None:
    """Writes float32 tensors one after the other.

    `fill` gives the byte that a tensor is made of, else 0.
    """
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    data = b""
    for name, shape in shapes.items():
        size = 4 * math.prod(shape)
        header[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [len(data), len(data) + size],
        }
        data += bytes([fill.get(name, 0)]) * size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_checkpoint(
    directory: Path,
    config: dict[str, Any] | None = None,
    generation: dict[str, Any] | None = None,
    shapes: dict[str, list[int]] | None = None,
    fill: dict[str, int] | None = None,
) -> Path:
    """Writes a checkpoint into `directory`, made for it, with the tensors of `shapes`.

    CONFIG and GENERATION are updated with what is given; a None takes the key out.
    """
    directory.mkdir(parents=True)
    write_json(directory / "config.json", _updated(CONFIG, config))
    write_json(directory / "generation_config.json", _updated(GENERATION, generation))
    write_safetensors(directory / "model.safetensors", shapes or SHAPES, fill or {})
    return directory


def _updated(base: dict[str, Any], changes: dict[str, Any] | None) -> dict[str, Any]:
    merged = base | (changes or {})
    return {key: value for key, value in merged.items() if value is not None}
