"""Writes weights as a Hugging Face checkpoint of the T5 family."""

import json
import math
import os
import shutil
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tools.lib.model_config import ModelConfig
from tools.lib.random_weights import tensor_shapes
from tools.lib.t5_tensors import Shapes

RELATIVE_MAX_DISTANCE = 128
LAYER_NORM_EPSILON = 1e-6
PAD_ID = 0
EOS_ID = 1

_ALIGNMENT_BYTES = 8
_THREADS = min(16, os.cpu_count() or 1)

# By the names of the backend's weights_dtype: safetensors' name and bytes an element.
_DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}
DTYPES = tuple(_DTYPES)


def write_checkpoint(
    directory: Path,
    config: ModelConfig,
    weights: Mapping[str, np.ndarray],
    dtype: str = "float32",
) -> None:
    """Writes config.json, generation_config.json and model.safetensors into a new `directory`.

    `weights` are float32 arrays by tensor_shapes(config), stored as `dtype`, one of DTYPES; several
    threads ask for them. Activations are ReLU, or GELU where there is a gate. On any error, also an
    interrupt, `directory` is not there.
    """
    directory.mkdir(parents=True)
    try:
        _write_json(directory / "config.json", _config(config))
        _write_json(directory / "generation_config.json", _special_ids())
        write_safetensors(directory / "model.safetensors", tensor_shapes(config), weights, dtype)
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def _special_ids() -> dict[str, int]:
    return {"pad_token_id": PAD_ID, "eos_token_id": EOS_ID, "decoder_start_token_id": PAD_ID}


def _config(config: ModelConfig) -> dict[str, object]:
    return {
        "architectures": ["T5ForConditionalGeneration"],
        "model_type": config.model_type,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "d_kv": config.d_kv,
        "d_ff": config.d_ff,
        "num_heads": config.num_heads,
        "num_layers": config.encoder_layers,
        "num_decoder_layers": config.decoder_layers,
        "relative_attention_num_buckets": config.relative_buckets,
        "relative_attention_max_distance": RELATIVE_MAX_DISTANCE,
        "layer_norm_epsilon": LAYER_NORM_EPSILON,
        "feed_forward_proj": "gated-gelu" if config.gated_ffn else "relu",
        "tie_word_embeddings": config.tied_head,
        **_special_ids(),
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def write_safetensors(
    path: Path, shapes: Shapes, weights: Mapping[str, np.ndarray], dtype: str
) -> None:
    """Tensors in the order of `shapes`; no more are in memory than there are threads.

    `weights` and `dtype` as for write_checkpoint; `path` must be new.
    """
    dtype_name, element_bytes = _DTYPES[dtype]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begins = {}
    end = 0
    for name, shape in shapes.items():
        begins[name] = end
        end += element_bytes * math.prod(shape)
        header[name] = {"dtype": dtype_name, "shape": shape, "data_offsets": [begins[name], end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    prefix = struct.pack("<Q", len(text)) + text

    with path.open("xb") as file, ThreadPoolExecutor(_THREADS) as threads:
        file.write(prefix)
        file.flush()

        def write(name: str) -> None:
            data = memoryview(stored(weights[name], dtype)).cast("B")
            _write_at(file.fileno(), data, len(prefix) + begins[name])

        for _ in threads.map(write, begins):
            pass


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Finite float32 `values` rounded to `dtype`, in the file's order; bfloat16 as its bits."""
    if dtype == "float32":
        return np.ascontiguousarray(values, "<f4")
    if dtype == "float16":
        return values.astype("<f2")
    # The upper half of a float32, to the nearest, and of two as near to the even one.
    bits = np.ascontiguousarray(values, "<f4").view("<u4")
    bits = bits + (((bits >> 16) & 1) + 0x7FFF)
    return (bits >> 16).astype("<u2")


def _write_at(descriptor: int, data: memoryview, offset: int) -> None:
    """One call writes 2 GiB at most."""
    while data:
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
