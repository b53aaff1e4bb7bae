"""What is written can be read, is complete, and is the same every time."""

import dataclasses
import json
import math
import struct
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tools.lib import checkpoint_writer
from tools.lib.checkpoint import check_checkpoint
from tools.lib.checkpoint_writer import write_checkpoint
from tools.lib.model_config import ModelConfig, read_model_config
from tools.lib.model_shapes import T5_1_5B, T5_SMALL
from tools.lib.random_weights import RandomWeights, tensor_shapes

# Nothing has the size of something else.
TINY = dataclasses.replace(
    T5_SMALL,
    vocab_size=50,
    d_model=24,
    d_kv=16,
    d_ff=40,
    num_heads=2,
    encoder_layers=2,
    decoder_layers=3,
)
GATED = dataclasses.replace(TINY, gated_ffn=True, tied_head=False, scaled_head=False)
TYPES = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "BF16": np.dtype(ml_dtypes.bfloat16)}


def read(path: Path) -> dict[str, np.ndarray]:
    raw = path.read_bytes()
    (size,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + size])
    del header["__metadata__"]
    data = raw[8 + size :]
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(data)
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], TYPES[entry["dtype"]]).reshape(
            entry["shape"]
        )
        for name, entry in header.items()
    }


@pytest.mark.parametrize("config", [TINY, GATED])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_reads_back_as_it_was_asked_for(tmp_path: Path, config: ModelConfig, dtype: str) -> None:
    folder = tmp_path / "checkpoint"
    weights = RandomWeights(config, seed=3)
    write_checkpoint(folder, config, weights, dtype)
    check_checkpoint(folder)
    assert read_model_config(folder) == config
    written = read(folder / "model.safetensors")
    assert set(written) == set(weights)
    for name, values in written.items():
        # ml_dtypes and numpy round on their own.
        assert np.array_equal(values, weights[name].astype(values.dtype)), name


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def fail(path: Path, *_: object) -> None:
        path.write_bytes(b"half")
        raise error

    monkeypatch.setattr(checkpoint_writer, "write_safetensors", fail)
    with pytest.raises(type(error)):
        write_checkpoint(tmp_path / "c", TINY, RandomWeights(TINY, 0))
    assert list(tmp_path.iterdir()) == []


def test_the_same_seed_gives_the_same_weights() -> None:
    one, again, other = (RandomWeights(TINY, seed) for seed in (1, 1, 2))
    for name, values in one.items():
        assert np.array_equal(values, again[name])
        if values.ndim > 1:
            assert not np.array_equal(values, other[name])


def test_matrices_differ_and_keep_variances() -> None:
    weights = RandomWeights(dataclasses.replace(GATED, d_model=256, d_ff=512), seed=0)
    block = "encoder.block.{}.layer.1.DenseReluDense.wi_0.weight"
    first, second = (weights[block.format(layer)] for layer in (0, 1))
    assert not np.array_equal(first, second)
    inputs = np.random.default_rng(0).standard_normal((256, 100), dtype=np.float32)
    assert np.std(first @ inputs) == pytest.approx(1.0, rel=0.05)


def test_the_shape_of_one_and_a_half_billion_parameters() -> None:
    assert sum(math.prod(shape) for shape in tensor_shapes(T5_1_5B).values()) == 1_571_086_848


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
