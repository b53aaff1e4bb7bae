"""The tensors of a T5-family checkpoint, as Hugging Face transformers names and shapes them."""

from tools.lib.model_config import ModelConfig

Shapes = dict[str, tuple[int, ...]]

# Names under which the embedding [vocab_size, d_model] may be stored; the first is the usual one.
EMBEDDING_NAMES = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
HEAD_NAME = "lm_head.weight"

# Old files carry it; transformers ignores it.
IGNORED_NAMES = frozenset(
    {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"}
)


def stack_tensors(config: ModelConfig) -> Shapes:
    """Every tensor of both stacks (neither embedding nor head) with its shape."""
    shapes: Shapes = {}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for layer in range(layers):
            block = f"{stack}.block.{layer}.layer"
            shapes |= _attention(config, f"{block}.0", "SelfAttention")
            if layer == 0 or config.position_bias_per_layer:
                shapes[f"{block}.0.SelfAttention.relative_attention_bias.weight"] = (
                    config.relative_buckets,
                    config.num_heads,
                )
            if stack == "decoder":
                shapes |= _attention(config, f"{block}.1", "EncDecAttention")
            shapes |= _ffn(config, f"{block}.{2 if stack == 'decoder' else 1}")
        shapes[f"{stack}.final_layer_norm.weight"] = (config.d_model,)
    return shapes


def _attention(config: ModelConfig, layer: str, kind: str) -> Shapes:
    into = (config.inner, config.d_model)
    return {
        f"{layer}.layer_norm.weight": (config.d_model,),
        f"{layer}.{kind}.q.weight": into,
        f"{layer}.{kind}.k.weight": into,
        f"{layer}.{kind}.v.weight": into,
        f"{layer}.{kind}.o.weight": (config.d_model, config.inner),
    }


def _ffn(config: ModelConfig, layer: str) -> Shapes:
    up = (config.d_ff, config.d_model)
    names = ("wi_0", "wi_1") if config.gated_ffn else ("wi",)
    return {
        f"{layer}.layer_norm.weight": (config.d_model,),
        **{f"{layer}.DenseReluDense.{name}.weight": up for name in names},
        f"{layer}.DenseReluDense.wo.weight": (config.d_model, config.d_ff),
    }
