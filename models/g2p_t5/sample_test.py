"""The committed sample is whole, and its recorded answers score what is recorded beside them."""

import dataclasses
import hashlib
import json
import sys
from pathlib import Path

import pytest

from models.g2p_t5.metrics import error_rates
from models.g2p_t5.sample import read_sample
from tools.lib.paths import room_file
from tools.lib.text import TextCodec

TESTDATA = room_file("models/g2p_t5/testdata")


def test_all_words_are_held_out() -> None:
    words = [word.word for word in read_sample(TESTDATA)]
    assert len(set(words)) == len(words) == 500
    assert all(int(hashlib.sha256(word.encode()).hexdigest(), 16) % 1000 < 100 for word in words)


def test_recorded_rates_follow_from_recorded_answers() -> None:
    sample = read_sample(TESTDATA)
    codec = TextCodec(room_file("models/g2p_t5/checkpoint"))
    phones = [codec.decode(word.golden_ids).split() for word in sample]
    rates = dataclasses.asdict(error_rates(phones, [word.references for word in sample]))
    recorded = json.loads((TESTDATA / "golden_rates.json").read_text(encoding="utf-8"))
    assert {name: recorded[name] for name in rates} == pytest.approx(rates)


def test_answers_end_with_eos_and_hold_no_other() -> None:
    for word in read_sample(TESTDATA):
        assert word.golden_ids.index(1) == len(word.golden_ids) - 1


def test_refuses_files_that_do_not_match(tmp_path: Path) -> None:
    (tmp_path / "sample.tsv").write_text("a\tAH0\n")
    (tmp_path / "golden.tsv").write_text("b\t35 1\n")
    with pytest.raises(ValueError, match="same words"):
        read_sample(tmp_path)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
