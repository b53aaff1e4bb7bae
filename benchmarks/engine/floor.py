"""The least time that a batch can take: what is read and multiplied, at the chip's ceilings."""

import dataclasses

from tools.lib.model_config import ModelConfig

# Measured on an NVIDIA H200: a device copy, read and written bytes together, and what a dense
# bfloat16 product gets near to.
BYTES_PER_SECOND = 4.29e12
OPERATIONS_PER_SECOND = 800e12

# Of a number in float16 or bfloat16.
_BYTES = 2
# A product and a sum for each parameter and token.
_OPERATIONS = 2


@dataclasses.dataclass(frozen=True)
class Floor:
    """Seconds for encoding the whole batch and for an average decode step."""

    encode_seconds: float
    step_seconds: float

    def seconds(self, new_tokens: int) -> float:
        """Of the whole batch, `new_tokens` a sequence."""
        return self.encode_seconds + new_tokens * self.step_seconds


def floor(config: ModelConfig, batch: int, source_tokens: int, new_tokens: int) -> Floor:
    """`batch` equal requests, all decoded together in 16-bit numbers.

    A step reads the decoder's matrices and the head once, and every sequence's keys and values: all
    of its source, and on average half of its new tokens. Encoding multiplies every source token by
    the encoder's matrices and by those of the decoder's cross keys and values.
    """
    width = config.d_model * config.inner
    ffn = (3 if config.gated_ffn else 2) * config.d_model * config.d_ff
    # q, k, v, o of self-attention, q and o of cross-attention.
    decoder = config.decoder_layers * (6 * width + ffn)
    head = config.vocab_size * config.d_model
    positions = source_tokens + (new_tokens + 1) / 2
    keys_and_values = 2 * config.inner * config.decoder_layers * positions

    encoder = config.encoder_layers * (4 * width + ffn) + config.decoder_layers * 2 * width
    return Floor(
        encode_seconds=_OPERATIONS * encoder * batch * source_tokens / OPERATIONS_PER_SECOND,
        step_seconds=_BYTES * (decoder + head + batch * keys_and_values) / BYTES_PER_SECOND,
    )
