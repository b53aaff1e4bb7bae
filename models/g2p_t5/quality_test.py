"""The trained model through the real server: held-out words, exactly as transformers has them."""

import json
import pathlib
from collections.abc import Iterator

import pytest

from models.g2p_t5.metrics import error_rates
from models.g2p_t5.sample import SampleWord, read_sample
from tests.harness.fixtures import Boot, boot, module_folder, report_server_log
from tests.harness.model_repository import exact_options, instance_kind
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText
from tools.lib.paths import room_file
from tools.lib.text import TextCodec

__all__ = ["module_folder", "report_server_log"]

_MODEL = "g2p_t5"
_ROOM = room_file("models/g2p_t5")
# The cap on rows in one batch is the model's; this many wait behind them.
_STREAMS = 64


def _write(repository: pathlib.Path) -> None:
    kind = instance_kind()
    config = ModelConfigText(_MODEL, instance_kind=kind, options=exact_options(kind))
    assemble(AssembleRequest(_ROOM / "checkpoint", repository, config))


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with the model as //tools:assemble writes it."""
    with boot(module_folder, write=_write, load=(_MODEL,)) as b:
        yield b


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    """The model's tokenizer."""
    return TextCodec(_ROOM / "checkpoint")


@pytest.fixture(scope="module")
def sample() -> list[SampleWord]:
    """The words with references and recorded answers."""
    return read_sample(_ROOM / "testdata")


@pytest.fixture(scope="module")
def answers(booted: Boot, codec: TextCodec, sample: list[SampleWord]) -> list[tuple[int, ...]]:
    """The server's ids for every word of the sample, with many streams at once."""
    ids: list[tuple[int, ...]] = []
    for begin in range(0, len(sample), _STREAMS):
        words = sample[begin : begin + _STREAMS]
        running = [booted.client.start(_MODEL, codec.encode(word.word)) for word in words]
        for generation in running:
            generation.wait()
            assert not generation.errors, generation.errors
            ids.append(generation.ids)
    return ids


def test_every_word_equals_transformers(
    answers: list[tuple[int, ...]], sample: list[SampleWord]
) -> None:
    """Token for token, in float32 over the stored float16 weights."""
    different = {
        word.word: (ids, word.golden_ids)
        for word, ids in zip(sample, answers, strict=True)
        if ids != word.golden_ids
    }
    assert different == {}


def test_error_rates_are_those_of_transformers(
    answers: list[tuple[int, ...]], sample: list[SampleWord], codec: TextCodec
) -> None:
    """PER and WER, with stress marks and without."""
    phones = [codec.decode(ids).split() for ids in answers]
    rates = error_rates(phones, [word.references for word in sample])
    golden = json.loads((_ROOM / "testdata" / "golden_rates.json").read_text(encoding="utf-8"))
    assert rates.per == pytest.approx(golden["per"])
    assert rates.wer == pytest.approx(golden["wer"])
    assert rates.per_no_stress == pytest.approx(golden["per_no_stress"])
    assert rates.wer_no_stress == pytest.approx(golden["wer_no_stress"])


@pytest.mark.parametrize(
    ("text", "phones"),
    [
        ("hello world", "HH EH1 L OW0 | W ER1 L D"),
        ("the quick brown fox", "DH AH0 | K W IH1 K | B R AW1 N | F AA1 K S"),
    ],
)
def test_phrases(booted: Boot, codec: TextCodec, text: str, phones: str) -> None:
    """Several words in one source."""
    generation = booted.client.generate(_MODEL, codec.encode(text))
    assert codec.decode(generation.ids) == phones
    assert generation.parameters["finish_reason"] == "eos"
