"""BART for the peers: random weights as a Hugging Face checkpoint and as a CTranslate2 model."""

import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from tools.lib.checkpoint_writer import write_safetensors
from tools.lib.model_config import ModelConfig
from tools.lib.t5_tensors import Shapes

MODEL_TYPE = "bart"

# What the fields mean for a T5 they mean here, too; there are no relative positions.
BART_LARGE = ModelConfig(
    model_type=MODEL_TYPE,
    vocab_size=50265,
    d_model=1024,
    d_kv=64,
    d_ff=4096,
    num_heads=16,
    encoder_layers=12,
    decoder_layers=12,
    relative_buckets=0,
    gated_ffn=False,
    tied_head=True,
    scaled_head=False,
)

_POSITIONS = 1024
# The first rows of the table of positions are never read.
_POSITION_OFFSET = 2
_BOS_ID, _PAD_ID, _EOS_ID, _UNKNOWN_ID = 0, 1, 2, 3
_DEVIATION = 0.02
_EMBEDDING = "model.shared.weight"


class RandomWeights(Mapping[str, np.ndarray]):
    """Float32 arrays by the names of Hugging Face transformers, each made when it is asked for."""

    def __init__(self, config: ModelConfig, seed: int) -> None:
        """Makes no array yet; the same seed gives the same ones."""
        self._seed = seed
        self._shapes = _tensor_shapes(config)

    def __len__(self) -> int:
        return len(self._shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        shape = self._shapes[name]
        if _is_norm(name) and name.endswith(".weight"):
            return np.ones(shape, np.float32)
        generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        deviation = _DEVIATION if len(shape) == 1 or "embed" in name else shape[1] ** -0.5
        return generator.standard_normal(shape, dtype=np.float32) * np.float32(deviation)


def _is_norm(name: str) -> bool:
    return "layer_norm" in name or "layernorm" in name


def _tensor_shapes(config: ModelConfig) -> Shapes:
    width = config.d_model
    shapes: Shapes = {_EMBEDDING: (config.vocab_size, width)}

    def linear(name: str, outputs: int, inputs: int) -> None:
        shapes[f"{name}.weight"] = (outputs, inputs)
        shapes[f"{name}.bias"] = (outputs,)

    def norm(name: str) -> None:
        shapes[f"{name}.weight"] = (width,)
        shapes[f"{name}.bias"] = (width,)

    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        shapes[f"model.{stack}.embed_positions.weight"] = (_POSITIONS + _POSITION_OFFSET, width)
        norm(f"model.{stack}.layernorm_embedding")
        for index in range(layers):
            layer = f"model.{stack}.layers.{index}"
            for attention in _attentions(stack):
                for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                    linear(f"{layer}.{attention}.{part}", width, width)
                norm(f"{layer}.{attention}_layer_norm")
            linear(f"{layer}.fc1", config.d_ff, width)
            linear(f"{layer}.fc2", width, config.d_ff)
            norm(f"{layer}.final_layer_norm")
    return shapes


def _attentions(stack: str) -> tuple[str, ...]:
    return ("self_attn", "encoder_attn") if stack == "decoder" else ("self_attn",)


def write_checkpoint(
    directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: str
) -> None:
    """Writes a checkpoint for transformers into a new `directory`."""
    directory.mkdir(parents=True)
    ids = {
        "bos_token_id": _BOS_ID,
        "pad_token_id": _PAD_ID,
        "eos_token_id": _EOS_ID,
        "decoder_start_token_id": _EOS_ID,
    }
    values = {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": MODEL_TYPE,
        "is_encoder_decoder": True,
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "max_position_embeddings": _POSITIONS,
        "scale_embedding": False,
        "activation_function": "gelu",
        "tie_word_embeddings": True,
        "forced_eos_token_id": None,
        **ids,
    }
    for stack in ("encoder", "decoder"):
        values[f"{stack}_layers"] = getattr(config, f"{stack}_layers")
        values[f"{stack}_attention_heads"] = config.num_heads
        values[f"{stack}_ffn_dim"] = config.d_ff
    for name, content in (("config.json", values), ("generation_config.json", ids)):
        (directory / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    shapes = _tensor_shapes(config)
    write_safetensors(directory / "model.safetensors", shapes, weights, dtype)


def write_peer_model(
    directory: Path, config: ModelConfig, weights: Mapping[str, np.ndarray], dtype: str
) -> None:
    """Writes a CTranslate2 model into a new `directory`; its vocabulary is the ids as strings."""
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=False,
        activation=common_spec.Activation.GELU,
        layernorm_embedding=True,
    )
    embedding = weights[_EMBEDDING]
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding
    for name, stack in (("encoder", spec.encoder), ("decoder", spec.decoder)):
        _fill_stack(stack, name, weights)
    vocabulary = [str(index) for index in range(config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token = str(_BOS_ID)
    spec.config.eos_token = str(_EOS_ID)
    spec.config.unk_token = str(_UNKNOWN_ID)
    spec.config.decoder_start_token = str(_EOS_ID)
    spec.config.add_source_eos = False
    spec.validate()
    spec.optimize(quantization=dtype)
    directory.mkdir(parents=True)
    spec.save(str(directory))


def _fill_stack(stack: Any, name: str, weights: Mapping[str, np.ndarray]) -> None:
    prefix = f"model.{name}"
    stack.scale_embeddings = False
    positions = weights[f"{prefix}.embed_positions.weight"]
    stack.position_encodings.encodings = positions[_POSITION_OFFSET:]
    _fill_norm(stack.layernorm_embedding, f"{prefix}.layernorm_embedding", weights)
    for index, layer in enumerate(stack.layer):
        place = f"{prefix}.layers.{index}"
        for attention in _attentions(name):
            spec = layer.self_attention if attention == "self_attn" else layer.attention
            kinds = ["qkv"] if attention == "self_attn" else ["q", "kv"]
            groups = [[f"{place}.{attention}.{kind}_proj" for kind in group] for group in kinds]
            groups.append([f"{place}.{attention}.out_proj"])
            for linear, parts in zip(spec.linear, groups, strict=True):
                _fill_linear(linear, parts, weights)
            _fill_norm(spec.layer_norm, f"{place}.{attention}_layer_norm", weights)
        _fill_linear(layer.ffn.linear_0, [f"{place}.fc1"], weights)
        _fill_linear(layer.ffn.linear_1, [f"{place}.fc2"], weights)
        _fill_norm(layer.ffn.layer_norm, f"{place}.final_layer_norm", weights)


def _fill_linear(linear: Any, parts: list[str], weights: Mapping[str, np.ndarray]) -> None:
    linear.weight = np.concatenate([weights[f"{part}.weight"] for part in parts])
    linear.bias = np.concatenate([weights[f"{part}.bias"] for part in parts])


def _fill_norm(norm: Any, name: str, weights: Mapping[str, np.ndarray]) -> None:
    norm.gamma = weights[f"{name}.weight"]
    norm.beta = weights[f"{name}.bias"]
