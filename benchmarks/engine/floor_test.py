import dataclasses
import sys

import pytest

from benchmarks.engine.floor import floor
from tools.lib.model_shapes import T5_1_5B, T5_SMALL


# Worked out before by hand, to three digits, for 512 tokens in, 128 out.
@pytest.mark.parametrize(
    ("batch", "tokens_per_second", "step_ms"),
    [(1, 2540, 0.386), (16, 19980, 0.683), (64, 30400, 1.63), (256, 35000, 5.44)],
)
def test_known_floors(batch: int, tokens_per_second: float, step_ms: float) -> None:
    least = floor(T5_1_5B, batch, source_tokens=512, new_tokens=128)
    assert f"{batch * 128 / least.seconds(128):.3g}" == f"{tokens_per_second:.3g}"
    assert f"{least.step_seconds * 1e3:.3g}" == f"{step_ms:.3g}"


def test_small_shape_by_counting() -> None:
    least = floor(T5_SMALL, 1, source_tokens=1, new_tokens=1)
    # 6 layers of 6 square matrices and 2 of the feed-forward, the head, 2 positions of keys and
    # values; the encoder's 4 square matrices and the cross keys and values.
    square, wide = 512 * 512, 512 * 2048
    read = 6 * (6 * square + 2 * wide) + 32128 * 512 + 6 * 2 * 2 * 512
    multiplied = 6 * (4 * square + 2 * wide) + 6 * 2 * square
    assert least.step_seconds == pytest.approx(2 * read / 4.29e12)
    assert least.encode_seconds == pytest.approx(2 * multiplied / 800e12)


def test_encoding_grows_with_tokens_and_a_step_with_positions() -> None:
    one = floor(T5_1_5B, 1, 100, 10)
    more = floor(T5_1_5B, 3, 200, 10)
    assert more.encode_seconds == pytest.approx(6 * one.encode_seconds)
    deeper = dataclasses.replace(T5_1_5B, decoder_layers=48)
    assert floor(deeper, 1, 100, 10).step_seconds > one.step_seconds


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
