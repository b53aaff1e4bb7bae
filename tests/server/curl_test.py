"""HTTP clients that go away, again and again, and many that stay.

A step takes 5 ms here: the 5,000 tokens that each killed request asks for would take 25 s.
"""

import concurrent.futures
import pathlib
from collections.abc import Iterator

import pytest

from tests.harness import golden, http_client
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_KILLS = 200
_AT_ONCE = 4
_TOKENS = "seq2seq_generated_tokens_total"


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server whose steps take 5 ms."""

    def write(repository: pathlib.Path) -> None:
        options = {"max_new_tokens": "6000", "max_active_sequences": "8"}
        write_model(repository, _MODEL, "t5_v1_0", options=options)

    with boot(module_folder, write=write, load=[_MODEL], step_delay_ms=5) as b:
        yield b


def _kill_after_three_tokens(url: str) -> None:
    body = {
        "input_ids": list(golden.load("t5_v1_0").rows[2].source),
        "max_new_tokens": 5000,
        "min_new_tokens": 5000,
        "response_interval_ms": 0,
    }
    with http_client.start_curl(url, _MODEL, body) as curl:
        seen = 0
        while seen < 3:
            line = curl.stdout.readline()
            assert line, curl.stderr.read()
            seen += line.startswith("data:")
        curl.kill()


def test_200_killed_curls(booted: Boot) -> None:
    """The server stays ready, every slot and block comes back, and decoding stops."""
    url = booted.server.http_url
    with concurrent.futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        jobs = [pool.submit(_kill_after_three_tokens, url) for _ in range(_KILLS)]
        for job in jobs:
            job.result()
    booted.wait_idle(1.0)
    metrics = booted.metrics()
    counted = metrics.total(_TOKENS)
    assert metrics.total("seq2seq_requests_total", outcome="cancelled") == _KILLS
    assert counted < _KILLS * 5000 / 10
    case = golden.load("t5_v1_0").rows[2]
    booted.client.generate(_MODEL, case.source).check_answer(case.answer)
    assert booted.metrics().total(_TOKENS) == counted + len(case.answer)
    assert booted.server.ready()
