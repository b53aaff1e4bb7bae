"""A T5 checkpoint of few layers and many weights, all zero: to be loaded, not asked."""

import json
import math
import pathlib
import struct

_D_MODEL = 1024
_D_FF = 16384
_HEADS = 2
_D_KV = 64
_INNER = _HEADS * _D_KV
_VOCAB = 64
_BUCKETS = 32

# In float32: two feed-forward blocks make nearly all of it.
WEIGHT_BYTES = 4 * 2 * 2 * _D_MODEL * _D_FF


def _attention(prefix: str) -> dict[str, list[int]]:
    return {
        **{f"{prefix}.{name}.weight": [_INNER, _D_MODEL] for name in "qkv"},
        f"{prefix}.o.weight": [_D_MODEL, _INNER],
    }


def _feed_forward(prefix: str) -> dict[str, list[int]]:
    return {
        f"{prefix}.DenseReluDense.wi.weight": [_D_FF, _D_MODEL],
        f"{prefix}.DenseReluDense.wo.weight": [_D_MODEL, _D_FF],
        f"{prefix}.layer_norm.weight": [_D_MODEL],
    }


def _stack(name: str, *, cross: bool) -> dict[str, list[int]]:
    block = f"{name}.block.0.layer"
    bias = f"{block}.0.SelfAttention.relative_attention_bias.weight"
    shapes = {
        **_attention(f"{block}.0.SelfAttention"),
        bias: [_BUCKETS, _HEADS],
        f"{block}.0.layer_norm.weight": [_D_MODEL],
        **_feed_forward(f"{block}.{2 if cross else 1}"),
        f"{name}.final_layer_norm.weight": [_D_MODEL],
    }
    if cross:
        shapes |= _attention(f"{block}.1.EncDecAttention")
        shapes[f"{block}.1.layer_norm.weight"] = [_D_MODEL]
    return shapes


_CONFIG = {
    "model_type": "t5",
    "vocab_size": _VOCAB,
    "d_model": _D_MODEL,
    "d_kv": _D_KV,
    "d_ff": _D_FF,
    "num_heads": _HEADS,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "relative_attention_num_buckets": _BUCKETS,
    "relative_attention_max_distance": 128,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
    "eos_token_id": 1,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}


def write_wide_checkpoint(folder: pathlib.Path) -> pathlib.Path:
    """Writes the checkpoint, half of WEIGHT_BYTES as float16, into `folder`; returns the folder."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(_CONFIG))
    shapes = {"shared.weight": [_VOCAB, _D_MODEL]}
    shapes |= _stack("encoder", cross=False) | _stack("decoder", cross=True)
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(file.tell() + end)  # zeros that take no space
    return folder
