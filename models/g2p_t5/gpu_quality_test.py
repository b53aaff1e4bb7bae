"""The trained model on the GPU in half precision: nearly every word as in float32."""

import pathlib
from collections.abc import Iterator

import pytest

from models.g2p_t5.metrics import error_rates
from models.g2p_t5.sample import read_sample
from tests.harness.fixtures import Boot, boot, module_folder, report_server_log
from tests.harness.model_repository import GPU
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText
from tools.lib.paths import room_file
from tools.lib.text import TextCodec

__all__ = ["module_folder", "report_server_log"]

_ROOM = room_file("models/g2p_t5")
_DTYPES = ("bfloat16", "float16")
_MODELS = (*_DTYPES, "float32")  # named by their type
_STREAMS = 128


def _write(repository: pathlib.Path) -> None:
    for dtype in _MODELS:
        config = ModelConfigText(dtype, instance_kind=GPU, options={"weights_dtype": dtype})
        assemble(AssembleRequest(_ROOM / "checkpoint", repository, config))


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with the model once a type."""
    with boot(module_folder, write=_write, load=_MODELS) as b:
        yield b


def test_the_types_compute_differently(booted: Boot) -> None:
    """Log-probabilities tell them apart, so that the words below are no other type's."""
    source = TextCodec(_ROOM / "checkpoint").encode("hello")
    answers = [booted.client.generate(dtype, source, return_logprobs=True) for dtype in _MODELS]
    assert len({answer.logprobs for answer in answers}) == len(_MODELS)


@pytest.mark.parametrize("dtype", _DTYPES)
def test_words_equal_transformers(booted: Boot, dtype: str) -> None:
    """At least 99 % of the held-out words are those of transformers in float32, token for token."""
    codec = TextCodec(_ROOM / "checkpoint")
    sample = read_sample(_ROOM / "testdata")
    answers: list[tuple[int, ...]] = []
    for begin in range(0, len(sample), _STREAMS):
        words = sample[begin : begin + _STREAMS]
        running = [booted.client.start(dtype, codec.encode(word.word)) for word in words]
        for generation in running:
            generation.wait()
            assert not generation.errors, generation.errors
            answers.append(generation.ids)
    different = [w.word for w, ids in zip(sample, answers, strict=True) if ids != w.golden_ids]
    phones = [codec.decode(ids).split() for ids in answers]
    rates = error_rates(phones, [word.references for word in sample])
    print(f"{dtype}: {len(different)} of {len(sample)} words differ: {different}; {rates}")
    assert len(different) <= len(sample) // 100
