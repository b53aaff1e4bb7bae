"""When and how tokens leave: over time, merged as asked, with one FINAL that says how it ended."""

import itertools
import pathlib
from collections.abc import Iterator

import pytest

from tests.harness import golden, http_client
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_STEP_MS = 10
_STEP_S = _STEP_MS / 1e3
_TOKENS = 100


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server whose decoding steps take 10 ms."""

    def write(repository: pathlib.Path) -> None:
        write_model(repository, _MODEL, "t5_v1_0")

    with boot(module_folder, write=write, load=[_MODEL], step_delay_ms=_STEP_MS) as b:
        yield b


def _answer() -> tuple[int, ...]:
    return golden.load("t5_v1_0").long[0].answer[:_TOKENS]


def _options(**more: int) -> dict[str, int]:
    """A hundred tokens, EOS banned as in the golden, so that they are equal."""
    return {"max_new_tokens": _TOKENS, "min_new_tokens": _TOKENS, **more}


def _source() -> tuple[int, ...]:
    return golden.load("t5_v1_0").long[0].source


def test_one_response_a_token(booted: Boot) -> None:
    """Interval 0: each token leaves alone, as soon as it is chosen."""
    generation = booted.client.generate(_MODEL, _source(), **_options(response_interval_ms=0))
    generation.check_answer(_answer())
    with_tokens = [r for r in generation.responses if r.ids]
    assert [len(r.ids) for r in with_tokens] == [1] * _TOKENS
    times = [r.time_s for r in with_tokens]
    # Spread over the run, not delivered at its end: half of the tokens need half of the steps.
    assert times[-1] - times[_TOKENS // 2] > 0.8 * _STEP_S * (_TOKENS // 2 - 1)
    assert times[_TOKENS // 2] - times[0] > 0.8 * _STEP_S * (_TOKENS // 2 - 1)


def test_first_token_comes_at_once(booted: Boot) -> None:
    """However long the interval, the first token does not wait for it."""
    generation = booted.client.start(_MODEL, _source(), **_options(response_interval_ms=500))
    generation.wait_for_tokens(1)
    assert not generation.done
    assert len(generation.ids) < _TOKENS // 2
    generation.wait().check_answer(_answer())


@pytest.mark.parametrize("interval_ms", [50, 200])
def test_interval_merges_tokens(booted: Boot, interval_ms: float) -> None:
    """Tokens that come sooner than the interval leave together; the end does not wait."""
    options = _options(response_interval_ms=interval_ms)
    generation = booted.client.generate(_MODEL, _source(), **options)
    generation.check_answer(_answer())
    times = [r.time_s for r in generation.responses]
    whole = times[-1] - times[0]
    # First and last may come whenever they are ready; the others keep the distance.
    assert len(times) <= whole / (interval_ms / 1e3) + 3
    assert len(times) >= 3
    assert max(len(r.ids) for r in generation.responses) > 1


def test_default_interval_allows_every_token_here(booted: Boot) -> None:
    """5 ms is less than a step of this server: nothing needs merging."""
    generation = booted.client.generate(_MODEL, _source(), **_options())
    generation.check_answer(_answer())
    assert sum(len(r.ids) == 1 for r in generation.responses) > 0.8 * _TOKENS


def test_one_shot_equals_stream(booted: Boot) -> None:
    """Not streamed, streamed and generate_stream: the same tokens; streamed ones only ever grow."""
    streamed = booted.client.start(_MODEL, _source(), **_options(response_interval_ms=0))
    one_shot = booted.client.generate(_MODEL, _source(), **_options(stream=False))
    streamed.wait().check_answer(_answer())
    one_shot.check_answer(_answer())
    assert len(one_shot.responses) == 1
    prefixes = itertools.accumulate(r.ids for r in streamed.responses)
    assert all(one_shot.ids[: len(p)] == p for p in prefixes)
    body = {"input_ids": list(_source()), **_options(response_interval_ms=0)}
    events = http_client.generate_stream(booted.server.http_url, _MODEL, body)
    assert tuple(i for e in events for i in http_client.ids_of(e)) == _answer()


@pytest.mark.parametrize("stream", [True, False])
def test_final_says_how_it_ended(booted: Boot, stream: bool) -> None:
    """Only the last response has FINAL and the parameters."""
    generation = booted.client.generate(_MODEL, _source(), **_options(stream=stream))
    *before, last = generation.responses
    assert last.final
    assert not any(r.final or r.parameters for r in before)
    assert last.parameters == {
        "finish_reason": "length",
        "prompt_tokens": len(_source()),
        "completion_tokens": _TOKENS,
    }
    sampled = booted.client.generate(_MODEL, _source(), seed=7, temperature=0.5, **_options())
    assert sampled.parameters["seed"] == 7
    assert set(sampled.parameters) == {*last.parameters, "seed"}


def test_newcomers_join_a_running_batch(booted: Boot) -> None:
    """A short request that comes later ends long before a long one, which it does not disturb."""
    long = booted.client.start(_MODEL, _source(), **_options()).wait_for_tokens(10)
    case = golden.load("t5_v1_0").rows[1]
    short = booted.client.generate(_MODEL, case.source)
    short.check_answer(case.answer)
    assert not long.done
    long.wait().check_answer(_answer())


def test_slow_reader_gets_everything(booted: Boot) -> None:
    """A curl that reads only at the end: tokens wait for it merged, the others go on."""
    body = {"input_ids": list(_source()), **_options(response_interval_ms=0)}
    with http_client.start_curl(booted.server.http_url, _MODEL, body) as curl:
        other = booted.client.generate(_MODEL, _source(), **_options())
        other.check_answer(_answer())
        text, errors = curl.communicate(timeout=60)
    assert curl.returncode == 0, errors
    assert tuple(i for e in http_client.events(text) for i in http_client.ids_of(e)) == _answer()
