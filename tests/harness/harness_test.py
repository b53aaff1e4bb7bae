"""The harness itself: its readings, and that it never waits for a server that cannot come."""

import pathlib
import time

import pytest

from tests.harness import golden, metrics, safetensors_file
from tests.harness.fixtures import SERVER, environment_path
from tests.harness.server import ServerError, TritonServer, wait_until

_EXPOSITION = """\
# HELP seq2seq_requests_total Requests that have ended, by outcome
# TYPE seq2seq_requests_total counter
seq2seq_requests_total{model="a",outcome="ok"} 3
seq2seq_requests_total{model="a",outcome="failed"} 0
seq2seq_requests_total{model="b \\"quoted\\", {odd}",outcome="ok"} 4.5e+01
plain 1
"""


def test_metrics_are_parsed() -> None:
    """Comments are skipped; labels may hold what looks like syntax."""
    parsed = metrics.parse(_EXPOSITION)
    assert len(parsed.samples) == 4
    assert parsed.total("seq2seq_requests_total") == 48
    assert parsed.total("seq2seq_requests_total", model="a", outcome="ok") == 3
    assert parsed.total("plain") == 1
    assert parsed.matching("seq2seq_requests_total", model="c") == []


@pytest.mark.parametrize("name", sorted(p.name for p in golden.CHECKPOINTS.iterdir()))
def test_goldens_are_decided(name: str) -> None:
    """Every folder's answers end by EOS, differ from each other, and have their start token cut."""
    golden_ = golden.load(name)
    cases = [*golden_.rows, golden_.early_eos, golden_.padded[0]]
    assert all(case.finish_reason == "eos" for case in cases)
    assert all(golden_.start_id not in case.answer for case in cases)
    assert len({case.answer for case in cases}) == len(cases)
    assert golden_.row0_logits.shape == (len(cases[0].answer), golden_.vocab_size)
    assert tuple(golden_.row0_logits.argmax(axis=-1)) == cases[0].answer


def test_safetensors_edits(tmp_path: pathlib.Path) -> None:
    """An edit that changes nothing keeps every byte of data."""
    original = golden.CHECKPOINTS / "t5_v1_1" / "model.safetensors"
    copy = tmp_path / "model.safetensors"
    copy.write_bytes(original.read_bytes())
    safetensors_file.edit(copy)
    assert copy.read_bytes()[-90_000:] == original.read_bytes()[-90_000:]
    safetensors_file.edit(copy, drop="shared.weight")
    assert b'"shared.weight"' not in copy.read_bytes()


def test_wait_until_has_a_deadline() -> None:
    """It names what it waited for and returns what it got."""
    assert wait_until(lambda: "here", 1, "something") == "here"
    with pytest.raises(TimeoutError, match="never so"):
        wait_until(lambda: 0, 0.05, "never so")


def test_server_that_dies_is_reported_at_once(tmp_path: pathlib.Path) -> None:
    """The error holds the server's own words and does not take the time of a deadline."""
    binary = environment_path("SEQ2SEQ_SERVER_DIR", SERVER) / SERVER
    server = TritonServer(
        binary, tmp_path, tmp_path, tmp_path / "log", arguments=["--no-such-flag"]
    )
    started = time.monotonic()
    with pytest.raises(ServerError, match="no-such-flag"):
        server.start()
    assert time.monotonic() - started < 10


def test_server_with_a_broken_model_is_reported_at_once(tmp_path: pathlib.Path) -> None:
    """A model that cannot load at the start ends the server; the log says why."""
    model = tmp_path / "models" / "broken"
    model.mkdir(parents=True)
    (model / "config.pbtxt").write_text('backend: "no_such_backend"\n')
    binary = environment_path("SEQ2SEQ_SERVER_DIR", SERVER) / SERVER
    server = TritonServer(binary, tmp_path, model.parent, tmp_path / "log", load=["broken"])
    with pytest.raises(ServerError, match="broken"):
        server.start()
