"""Weights of a T5 that nobody trained, scaled so that what it generates is not degenerate."""

import numpy as np

from tools.lib.model_config import ModelConfig
from tools.lib.t5_tensors import EMBEDDING_NAMES, stack_tensors

Weights = dict[str, np.ndarray]

EMBEDDING_NAME = EMBEDDING_NAMES[0]

# Small beside what the layers add to the residual stream: with a tied head, a larger embedding
# would make every token predict itself.
_EMBEDDING_SCALE = 0.05
# Attention scores have this standard deviation, so that a few positions matter rather than the mean
# of all of them, which is much the same for every source.
_SCORE_SCALE = 3.0


def random_weights(config: ModelConfig, seed: int) -> Weights:
    """Float32 arrays by the names of Hugging Face transformers; the same seed gives the same.

    Matrices keep the variance of what goes through them, and the decoder's last norm undoes the
    embedding's scale, so that logits have a variance of one, too.
    """
    generator = np.random.default_rng(seed)

    def normal(shape: tuple[int, ...], scale: float) -> np.ndarray:
        values = generator.standard_normal(shape, dtype=np.float32)
        values *= np.float32(scale)
        return values

    weights = {EMBEDDING_NAME: normal((config.vocab_size, config.d_model), _EMBEDDING_SCALE)}
    for name, shape in stack_tensors(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, np.float32)
        elif name.endswith("relative_attention_bias.weight"):
            weights[name] = normal(shape, 1.0)
        elif name.endswith(".q.weight"):
            weights[name] = normal(shape, _SCORE_SCALE * (shape[1] * config.d_kv) ** -0.5)
        else:
            weights[name] = normal(shape, shape[1] ** -0.5)
        if name.endswith(".wo.weight"):
            # What comes out of a ReLU has a mean; passed on, it would be the same for every token.
            weights[name] -= weights[name].mean(axis=1, keepdims=True)
    weights["decoder.final_layer_norm.weight"] /= np.float32(_EMBEDDING_SCALE)
    return weights
