"""The same weights as a CTranslate2 model.

CTranslate2's own converter reads torch modules. This one fills the library's public
`TransformerSpec` from arrays, with the same result: pre-norm layers with RMS norms, q, k and v in
one matrix for self-attention, k and v in one for cross-attention, no scaling of queries.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from ctranslate2.specs import common_spec, transformer_spec

from benchmarks.cpu.workload import UNKNOWN_ID
from tools.lib.checkpoint_writer import (
    EOS_ID,
    LAYER_NORM_EPSILON,
    PAD_ID,
    RELATIVE_MAX_DISTANCE,
)
from tools.lib.model_config import ModelConfig
from tools.lib.random_weights import EMBEDDING_NAME
from tools.lib.t5_tensors import HEAD_NAME

Weights = Mapping[str, np.ndarray]


def write_peer_model(
    directory: Path, config: ModelConfig, weights: Weights, dtype: str = "float32"
) -> None:
    """Writes a CTranslate2 model of a T5 into a new `directory`, its weights stored as `dtype`.

    Its vocabulary is the ids as decimal strings. Activations are as write_checkpoint's.
    """
    spec = transformer_spec.TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.num_heads,
        pre_norm=True,
        activation=(
            common_spec.Activation.GELUTanh if config.gated_ffn else common_spec.Activation.RELU
        ),
        relative_attention_bias=True,
        ffn_glu=config.gated_ffn,
        rms_norm=True,
    )
    embedding = weights[EMBEDDING_NAME]
    spec.encoder.embeddings[0].weight = embedding
    spec.decoder.embeddings.weight = embedding
    spec.decoder.projection.weight = embedding if config.tied_head else weights[HEAD_NAME]
    if config.scaled_head:
        spec.decoder.scale_outputs = config.d_model**-0.5
    _fill_stack(spec.encoder, "encoder", weights)
    _fill_stack(spec.decoder, "decoder", weights)

    vocabulary = [str(index) for index in range(config.vocab_size)]
    spec.register_source_vocabulary(vocabulary)
    spec.register_target_vocabulary(vocabulary)
    spec.config.bos_token = str(PAD_ID)
    spec.config.eos_token = str(EOS_ID)
    spec.config.unk_token = str(UNKNOWN_ID)
    spec.config.decoder_start_token = str(PAD_ID)
    # Sources come with their EOS.
    spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = LAYER_NORM_EPSILON

    spec.validate()
    spec.optimize(quantization=dtype)
    directory.mkdir(parents=True)
    spec.save(str(directory))


def _fill_stack(stack: Any, name: str, weights: Weights) -> None:
    stack.scale_embeddings = False
    stack.layer_norm.gamma = weights[f"{name}.final_layer_norm.weight"]
    bias = weights[f"{name}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    for index, layer in enumerate(stack.layer):
        block = f"{name}.block.{index}.layer"
        _fill_attention(layer.self_attention, f"{block}.0", "SelfAttention", weights)
        # Hugging Face keeps the table in layer 0, CTranslate2 wants it in every one.
        layer.self_attention.relative_attention_bias = bias
        layer.self_attention.relative_attention_max_distance = np.int32(RELATIVE_MAX_DISTANCE)
        last = 1
        if name == "decoder":
            _fill_attention(layer.attention, f"{block}.1", "EncDecAttention", weights)
            last = 2
        dense = f"{block}.{last}.DenseReluDense"
        layer.ffn.layer_norm.gamma = weights[f"{block}.{last}.layer_norm.weight"]
        if hasattr(layer.ffn, "linear_0_noact"):
            layer.ffn.linear_0.weight = weights[f"{dense}.wi_0.weight"]
            layer.ffn.linear_0_noact.weight = weights[f"{dense}.wi_1.weight"]
        else:
            layer.ffn.linear_0.weight = weights[f"{dense}.wi.weight"]
        layer.ffn.linear_1.weight = weights[f"{dense}.wo.weight"]


def _fill_attention(attention: Any, layer: str, kind: str, weights: Weights) -> None:
    q, k, v, o = (weights[f"{layer}.{kind}.{part}.weight"] for part in "qkvo")
    inputs = [[q, k, v]] if kind == "SelfAttention" else [[q], [k, v]]
    for linear, parts in zip(attention.linear, [*inputs, [o]], strict=True):
        linear.weight = np.concatenate(parts)
    attention.queries_scale = 1.0
    attention.layer_norm.gamma = weights[f"{layer}.layer_norm.weight"]
