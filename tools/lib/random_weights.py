"""Weights of a T5 that nobody trained, scaled so that what it generates is not degenerate."""

import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from tools.lib.model_config import ModelConfig
from tools.lib.t5_tensors import EMBEDDING_NAMES, HEAD_NAME, Shapes, stack_tensors

EMBEDDING_NAME = EMBEDDING_NAMES[0]

# Small beside what the layers add to the residual stream: with a tied head, a larger embedding
# would make every token predict itself.
_EMBEDDING_SCALE = 0.05
# Attention scores have this standard deviation, so that a few positions matter rather than the mean
# of all of them, which is much the same for every source.
_SCORE_SCALE = 3.0


def tensor_shapes(config: ModelConfig) -> Shapes:
    """The name and shape of every tensor of a checkpoint, embedding first."""
    table = (config.vocab_size, config.d_model)
    head = {} if config.tied_head else {HEAD_NAME: table}
    return {EMBEDDING_NAME: table, **stack_tensors(config), **head}


class RandomWeights(Mapping[str, np.ndarray]):
    """Float32 arrays by the names of Hugging Face transformers; the same seed gives the same.

    Matrices keep the variance of what goes through them, and the decoder's last norm undoes the
    scale of a tied embedding, so that logits have a variance of one, too. An array is made each
    time that it is asked for, from its own generator: all of them at once need not fit into memory,
    and threads may make them side by side.
    """

    def __init__(self, config: ModelConfig, seed: int) -> None:
        """Makes no array yet."""
        self._config = config
        self._seed = seed
        self._shapes = tensor_shapes(config)

    def __len__(self) -> int:
        return len(self._shapes)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __getitem__(self, name: str) -> np.ndarray:
        shape = self._shapes[name]
        if len(shape) == 1:
            return np.full(shape, self._norm(name), np.float32)
        generator = np.random.default_rng([self._seed, zlib.crc32(name.encode())])
        values = generator.standard_normal(shape, dtype=np.float32)
        values *= np.float32(self._deviation(name, shape))
        if name.endswith(".wo.weight") and not self._config.gated_ffn:
            # What comes out of a ReLU has a mean; passed on, it would be the same for every token.
            values -= values.mean(axis=1, keepdims=True)
        return values

    def _norm(self, name: str) -> float:
        undoes_embedding = self._config.tied_head and name == "decoder.final_layer_norm.weight"
        return 1 / _EMBEDDING_SCALE if undoes_embedding else 1.0

    def _deviation(self, name: str, shape: tuple[int, ...]) -> float:
        if name == EMBEDDING_NAME:
            return _EMBEDDING_SCALE
        if name.endswith("relative_attention_bias.weight"):
            return 1.0
        if name.endswith(".q.weight"):
            return _SCORE_SCALE * (shape[1] * self._config.d_kv) ** -0.5
        return shape[1] ** -0.5
