"""Many requests of every kind: each ends once, memory stays, the model can leave afterwards."""

import concurrent.futures
import pathlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.harness import golden, http_client
from tests.harness.client import Client, build_request
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_CURL_TOKENS = 1280
# Four times the requests that are promised: a leak grows with them, the heap's own ups and downs of
# some 100 KB do not.
_REQUESTS = 20_000
_WARM_UP = 1000
_STREAMS = 4
_ROUND = 50
_BYTES_A_REQUEST = 150


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with one model of two instances."""

    def write(repository: pathlib.Path) -> None:
        write_model(repository, _MODEL, "t5_v1_0", instances=2)

    # Each of malloc's arenas grows on its own; few of them make the resident size a steady measure.
    arenas = {"MALLOC_ARENA_MAX": "2"}
    with boot(module_folder, write=write, load=[_MODEL], environment=arenas) as b:
        yield b


def test_eight_curls_of_1280_tokens(booted: Boot, tmp_path: pathlib.Path) -> None:
    """generate_stream at full speed, eight at once: every client gets every token and its end."""
    case, _ = golden.load("t5_v1_0").long
    body = {
        "input_ids": list(case.source),
        "max_new_tokens": _CURL_TOKENS,
        "min_new_tokens": _CURL_TOKENS,
    }
    expected = booted.client.generate(
        _MODEL,
        case.source,
        max_new_tokens=_CURL_TOKENS,
        min_new_tokens=_CURL_TOKENS,
    )
    assert expected.ids[: len(case.answer)] == case.answer
    assert len(expected.ids) == _CURL_TOKENS
    outputs = [tmp_path / f"curl_{i}" for i in range(8)]
    curls = [http_client.start_curl(booted.server.http_url, _MODEL, body, o) for o in outputs]
    for curl, output in zip(curls, outputs, strict=True):
        _, errors = curl.communicate(timeout=120)
        assert curl.returncode == 0, errors
        events = http_client.events(output.read_text())
        assert tuple(i for e in events for i in http_client.ids_of(e)) == expected.ids
        assert events[-1]["finish_reason"] == "length"
        assert events[-1]["completion_tokens"] == _CURL_TOKENS
    booted.wait_idle()


# (options, whether the request is refused)
_KINDS: Sequence[tuple[dict[str, Any], bool]] = (
    ({}, False),
    ({"stream": False}, False),
    ({"response_interval_ms": 0}, False),
    ({"return_logprobs": True}, False),
    ({"temperature": 2.0, "seed": 11}, False),
    ({"max_new_tokens": 1}, False),
    ({"top_p": 0.0}, True),
    ({"no_such_option": True}, True),
)


def _round(client: Client, seed: int) -> int:
    """_ROUND mixed requests on one stream; returns how many FINALs came, one each."""
    draw = random.Random(seed)
    cases = golden.load("t5_v1_0").many
    requests = []
    exact: dict[str, tuple[int, ...]] = {}
    refused: set[str] = set()
    for number in range(_ROUND):
        options, is_refused = draw.choice(_KINDS)
        case = draw.choice(cases)
        request = build_request(_MODEL, case.source, options)
        request.id = str(number)
        requests.append(request)
        if is_refused:
            refused.add(request.id)
        elif "temperature" not in options:
            exact[request.id] = case.answer[: options.get("max_new_tokens")]
    exchange = client.exchange(requests)
    assert exchange.errors.keys() == refused, exchange.errors
    assert all(exchange.finals[request.id] == 1 for request in requests)
    assert all(exchange.ids(i) == answer for i, answer in exact.items())
    return sum(exchange.finals.values())


def _run(url: str, requests: int, seed: int) -> int:
    """Mixed requests from several streams at once; returns how many ended."""

    def one_client(number: int) -> int:
        with Client(url) as client:
            rounds = requests // (_STREAMS * _ROUND)
            return sum(_round(client, seed + 1000 * number + r) for r in range(rounds))

    with concurrent.futures.ThreadPoolExecutor(_STREAMS) as pool:
        return sum(pool.map(one_client, range(_STREAMS)))


def test_20000_mixed_requests(booted: Boot) -> None:
    """FINAL for each; the server grows by less than 150 bytes a request after the first 1,000.

    With the streams closed, an unload ends within 5 s, and the model loads and serves again.
    """
    url = booted.server.grpc_url
    assert _run(url, _WARM_UP, 0) == _WARM_UP
    booted.wait_idle()
    first = booted.server.rss_bytes()
    assert _run(url, _REQUESTS - _WARM_UP, 10_000) == _REQUESTS - _WARM_UP
    booted.wait_idle()
    growth = booted.server.rss_bytes() - first
    assert growth < _BYTES_A_REQUEST * (_REQUESTS - _WARM_UP), growth
    booted.client.close()
    booted.server.unload(_MODEL)
    booted.server.wait_unloaded(_MODEL, 5.0)
    booted.server.load(_MODEL)
    case = golden.load("t5_v1_0").rows[0]
    with Client(url) as client:
        client.generate(_MODEL, case.source).check_answer(case.answer)


def test_unload_right_after_inference(booted: Boot) -> None:
    """Twenty times: serve, unload at once, load."""
    case = golden.load("t5_v1_0").rows[0]
    for _ in range(20):
        with Client(booted.server.grpc_url) as client:
            client.generate(_MODEL, case.source).check_answer(case.answer)
        booted.server.unload(_MODEL)
        booted.server.wait_unloaded(_MODEL, 5.0)
        booted.server.load(_MODEL)
