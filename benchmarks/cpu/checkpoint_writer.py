"""Writes weights as a Hugging Face checkpoint of a T5."""

import json
import struct
from pathlib import Path

from benchmarks.cpu.random_weights import Weights
from benchmarks.cpu.workload import EOS_ID, PAD_ID
from tools.lib.model_config import ModelConfig

RELATIVE_MAX_DISTANCE = 128
LAYER_NORM_EPSILON = 1e-6

_ALIGNMENT_BYTES = 8


def write_checkpoint(directory: Path, config: ModelConfig, weights: Weights) -> None:
    """Writes config.json, generation_config.json and model.safetensors into a new `directory`.

    `config` must be of a T5 v1.0: ReLU without a gate, tied and scaled head.
    """
    directory.mkdir(parents=True)
    _write_json(directory / "config.json", _config(config))
    _write_json(directory / "generation_config.json", _special_ids())
    _write_safetensors(directory / "model.safetensors", weights)


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
        "feed_forward_proj": "relu",
        "tie_word_embeddings": True,
        **_special_ids(),
    }


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _write_safetensors(path: Path, weights: Weights) -> None:
    """Float32 tensors one after the other, without a copy of all of them in memory."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in weights.items():
        end = offset + values.nbytes
        header[name] = {"dtype": "F32", "shape": values.shape, "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % _ALIGNMENT_BYTES)
    with path.open("xb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for values in weights.values():
            file.write(values.astype("<f4", copy=False).tobytes())
