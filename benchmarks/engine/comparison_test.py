"""The driver over this project's CPU engine and CTranslate2's, on a shape that takes no time."""

import dataclasses
import pathlib
import sys
from collections.abc import Iterator

import pytest

from benchmarks.cpu.measurement import Measurement
from benchmarks.cpu.peer_engine import PeerEngine
from benchmarks.engine.bart import BART_LARGE
from benchmarks.engine.comparison import Job, Row, compare
from benchmarks.engine.engines import Participant
from benchmarks.engine.models import prepare
from benchmarks.engine.process_engine import ProcessEngine
from tools.lib.errors import ToolError
from tools.lib.model_shapes import T5_1_5B, T5_SMALL
from tools.lib.paths import room_file

SIZES = {
    "vocab_size": 300,
    "d_model": 48,
    "d_kv": 16,
    "num_heads": 4,
    "d_ff": 80,
    "encoder_layers": 2,
    "decoder_layers": 3,
}
OURS = "seq2seq"
# The name by which the comparison knows its peer.
PEER = "CTranslate2 float16"


class Translator:
    """CTranslate2 in this process."""

    def __init__(self, model: pathlib.Path) -> None:
        self._engine = PeerEngine(str(model), threads=1)

    def measure(self, sources: list[list[int]], new_tokens: int, seconds: float) -> Measurement:
        assert seconds > 0
        return self._engine.measure(sources, new_tokens)


class Canned:
    """Says that it took `seconds`, or fails."""

    def __init__(self, seconds: float, ids: list[int], fails_at: int = 0) -> None:
        self._seconds = seconds
        self._ids = ids
        self._fails_at = fails_at
        self.calls: list[int] = []

    def measure(self, sources: list[list[int]], new_tokens: int, seconds: float) -> Measurement:
        assert seconds > 0
        self.calls.append(new_tokens)
        if len(sources) == self._fails_at:
            raise ToolError("out of memory")
        return Measurement(self._seconds, 0.5, [self._ids[:new_tokens]] * len(sources))


def all_rows(*arguments) -> list[Row]:
    return [row for rows in compare(*arguments) for row in rows]


@pytest.fixture(params=[T5_1_5B, T5_SMALL], ids=["gated", "relu"])
def job(request: pytest.FixtureRequest) -> Job:
    config = dataclasses.replace(request.param, **SIZES)
    return Job(config, batches=(1, 3), source_tokens=20, new_tokens=12)


@pytest.fixture
def rows(job: Job, tmp_path: pathlib.Path) -> Iterator[list[Row]]:
    folders = prepare(tmp_path, "tiny", job.config)
    assert prepare(tmp_path, "tiny", job.config) == folders
    worker = str(room_file("benchmarks/engine/engine_worker"))
    command = [worker, str(folders.checkpoint), "cpu", "float32"]
    with ProcessEngine(command) as engine:
        participants = [
            Participant(OURS, engine, rounds=2),
            Participant(PEER, Translator(folders.peer), rounds=1),
        ]
        yield all_rows(participants, job)


def test_engines_agree_on_every_token(job: Job, rows: list[Row]) -> None:
    expected = [(batch, name) for batch in job.batches for name in (OURS, PEER)]
    assert [(row.batch, row.engine) for row in rows] == expected
    for row in rows:
        assert row.error is None
        assert (row.equal_first, row.equal_tokens) == (1, 1)
        assert row.tokens_per_second > 0
        assert row.first_token_ms > 0
        assert 0 < row.floor_share < 1
        assert row.rounds == (2 if row.engine == OURS else 1)


def test_figures_and_failures() -> None:
    config = dataclasses.replace(T5_1_5B, **SIZES)
    ours = Canned(1.5, [5, 6, 7])
    slow = Canned(4.5, [5, 9, 7], fails_at=2)
    participants = [
        Participant(OURS, ours, rounds=3),
        Participant(PEER, slow, rounds=1),
        Participant("CTranslate2 bfloat16", Canned(3.0, [4, 4, 4]), rounds=1),
    ]
    job = Job(config, batches=(1, 2, 4), source_tokens=5, new_tokens=3)
    heard: list[str] = []
    rows = {(row.batch, row.engine): row for row in all_rows(participants, job, heard.append)}

    first = rows[1, OURS]
    assert first.tokens_per_second == pytest.approx(2)
    assert first.ratio == pytest.approx(2)
    assert (first.first_token_ms, first.step_ms) == pytest.approx((500, 500))
    assert rows[1, PEER].equal_first == 1
    assert rows[1, PEER].equal_tokens == pytest.approx(2 / 3)
    assert rows[1, "CTranslate2 bfloat16"].equal_tokens == 0
    # A warm-up and three rounds at each of three batches.
    assert len(ours.calls) == 12
    assert [rows[batch, PEER].error for batch in (1, 2, 4)] == [None, *["out of memory"] * 2]
    assert slow.calls == [3, 3, 3]
    assert any("out of memory" in text for text in heard)
    assert rows[4, OURS].ratio == pytest.approx(2)


def test_tokens_are_not_held_against_a_stand_in() -> None:
    config = dataclasses.replace(T5_1_5B, **SIZES)
    participants = [
        Participant(OURS, Canned(1.5, [5, 6, 7]), rounds=1, stands_in=True),
        Participant(PEER, Canned(3.0, [4, 4, 4]), rounds=1),
        Participant("CTranslate2 bfloat16", Canned(3.0, [4, 4, 5]), rounds=1),
    ]
    job = Job(config, batches=(2,), source_tokens=5, new_tokens=3)
    ours, peer, other = all_rows(participants, job)
    assert ours.ratio == pytest.approx(2)
    assert (ours.equal_first, ours.equal_tokens) == (None, None)
    assert peer.equal_tokens == 1
    assert (other.equal_first, other.equal_tokens) == (1, pytest.approx(2 / 3))


def test_a_stand_in_is_what_our_engine_loads(tmp_path: pathlib.Path) -> None:
    sizes = dataclasses.replace(BART_LARGE, **SIZES)
    stand_in = dataclasses.replace(sizes, model_type="t5", relative_buckets=32, scaled_head=True)
    folders = prepare(tmp_path, "bart", sizes, stand_in)
    worker = str(room_file("benchmarks/engine/engine_worker"))
    with ProcessEngine([worker, str(folders.stand_in), "cpu", "float32"]) as engine:
        measurement = engine.measure([[5, 6, 1]], 4, seconds=60)
    assert [len(ids) for ids in measurement.ids] == [4]
    assert prepare(tmp_path, "bart", sizes, stand_in) == folders


def test_too_few_tokens_are_a_failure() -> None:
    config = dataclasses.replace(T5_1_5B, **SIZES)
    job = Job(config, batches=(1,), source_tokens=5, new_tokens=3)
    (row,) = all_rows([Participant(OURS, Canned(1.0, [5]), rounds=1)], job)
    assert row.error == "1 sequences of [1] tokens for 1 of 3"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("import sys; sys.exit(3)", "ended with code 3"),
        ("input(); import time; time.sleep(60)", r"took more than 0\.5 s"),
        ("""input(); print('{"error": "no device"}', flush=True)""", "no device"),
    ],
)
def test_processes_that_do_not_answer(script: str, words: str) -> None:
    with (
        ProcessEngine([sys.executable, "-c", script]) as engine,
        pytest.raises(ToolError, match=words),
    ):
        engine.measure([[3, 1]], 2, seconds=0.5 if "sleep" in script else 30)


def test_program_that_is_not_there() -> None:
    with pytest.raises(ToolError, match="/absent/worker"), ProcessEngine(["/absent/worker"]):
        pass


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
