"""A client process's work, against a scripted server that speaks the real protocol."""

import dataclasses
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tools.lib.errors import ToolError
from tools.load.lengths import Lengths
from tools.load.load_worker import ClosedJob, LoadWorker, OpenJob
from tools.load.trace import Outcome
from tools.load.workload import Workload
from tools.testing.fake_inference_server import answer, error, serving

# Long enough for a request to be under way on a busy machine.
PATIENCE = 4.0
WORKLOAD = Workload("m", 100, Lengths(5, 5), Lengths(3, 6))


def worker(url: str) -> LoadWorker:
    return LoadWorker(url, WORKLOAD, 0, [0])


def tokens_one_by_one(request: Any) -> Iterator[Any]:
    count = request.parameters["max_new_tokens"].int64_param
    for token in range(count):
        yield answer([token])
    yield answer([], final=True, finish_reason="length")


def all_at_once(request: Any) -> Iterator[Any]:
    yield answer([7] * request.parameters["max_new_tokens"].int64_param, final=True)


def test_closed_loop_counts_every_token() -> None:
    with serving(tokens_one_by_one) as (fake, url):
        client = worker(url)
        begin = time.monotonic()
        finished = client.run(ClosedJob(begin, streams=3, requests=20))
    trace = finished.trace
    asked = [one.parameters["max_new_tokens"].int64_param for one in fake.requests]
    assert len(asked) == 20
    assert (trace.outcome == Outcome.OK).all()
    assert trace.tokens.sum() == sum(asked)
    # The empty final response is no token.
    assert (trace.tokens == 1).all()
    assert sorted(np.bincount(trace.request)) == sorted(asked)
    assert (trace.intended == trace.sent).all()
    assert (trace.sent >= begin).all()
    assert (trace.arrival >= trace.sent[trace.request]).all()
    assert (trace.arrival <= trace.ended[trace.request]).all()
    assert 0 < finished.busy <= 1.5


def test_as_many_streams_as_asked_for() -> None:
    together = threading.Barrier(4, timeout=30)

    def script(request: Any) -> Iterator[Any]:
        # Nobody is answered before all four have asked.
        together.wait()
        yield from all_at_once(request)

    with serving(script) as (fake, url):
        finished = worker(url).run(ClosedJob(time.monotonic(), streams=4, requests=8))
    assert (finished.trace.outcome == Outcome.OK).all()
    assert len(fake.requests) == 8


def test_refused_and_failed_are_told_apart() -> None:
    number = itertools.count()
    texts = ["UNAVAILABLE: the queue is full", "INTERNAL: the engine failed: ..."]

    def script(request: Any) -> Iterator[Any]:
        turn = next(number) % 4
        if turn < 2:
            yield error(texts[turn])
        else:
            yield from tokens_one_by_one(request)

    with serving(script) as (_, url):
        finished = worker(url).run(ClosedJob(time.monotonic(), streams=1, requests=8))
    counts = np.bincount(finished.trace.outcome, minlength=4).tolist()
    assert counts == [4, 2, 2, 0]
    assert finished.trace.errors == dict.fromkeys(texts, 2)


def without_final(request: Any) -> Iterator[Any]:
    *tokens, _ = tokens_one_by_one(request)
    yield from tokens


def one_token_less(request: Any) -> Iterator[Any]:
    _, *rest = tokens_one_by_one(request)
    yield from rest


def one_token_more(request: Any) -> Iterator[Any]:
    yield answer([1])
    yield from tokens_one_by_one(request)


def nothing(_: Any) -> Iterator[Any]:
    return iter(())


@pytest.mark.parametrize(
    ("script", "text"),
    [
        (without_final, "the stream ended without a final response"),
        (nothing, "the stream ended without a final response"),
        (one_token_less, "fewer tokens than were asked for"),
        (one_token_more, "more tokens than were asked for"),
    ],
)
def test_half_an_answer_has_failed(script: Any, text: str) -> None:
    with serving(script) as (_, url):
        finished = worker(url).run(ClosedJob(time.monotonic(), streams=1, requests=2))
    assert finished.trace.outcome.tolist() == [Outcome.FAILED] * 2
    assert finished.trace.errors == {text: 2}


def test_where_eos_may_end_it_a_short_answer_is_one() -> None:
    workload = dataclasses.replace(WORKLOAD, ban_eos=False)
    with serving(one_token_less) as (_, url):
        client = LoadWorker(url, workload, 0, [0])
        finished = client.run(ClosedJob(time.monotonic(), streams=1, requests=2))
    assert finished.trace.outcome.tolist() == [Outcome.OK] * 2


def test_open_loop_waits_for_nobody() -> None:
    """Answers take 50 ms, and the server works at four at a time: later ones queue up there.

    All were to be sent at once, so the last has waited for 250 ms whatever the clients did.
    """

    def script(request: Any) -> Iterator[Any]:
        time.sleep(0.05)
        yield from all_at_once(request)

    with serving(script) as (_, url):
        client = worker(url)
        begin = time.monotonic()
        finished = client.run(OpenJob(begin, np.full(20, begin)))
    trace = finished.trace
    assert (trace.outcome == Outcome.OK).all()
    assert (trace.intended == begin).all()
    assert (trace.ended - trace.intended).max() >= 0.25
    # Sending did not wait for answers.
    assert (trace.sent - begin).max() < (trace.ended - begin).max()


def test_times_are_from_the_intended_moment() -> None:
    with serving(tokens_one_by_one) as (_, url):
        client = worker(url)
        late = time.monotonic() - 5.0
        finished = client.run(OpenJob(late, np.array([late])))
    assert finished.trace.intended[0] == late
    assert finished.trace.sent[0] - finished.trace.intended[0] >= 5.0
    assert finished.trace.arrival[0] - finished.trace.intended[0] >= 5.0


def test_gives_up_what_does_not_end() -> None:
    release = threading.Event()

    def script(_: Any) -> Iterator[Any]:
        yield answer([1])
        release.wait(30)

    with serving(script) as (fake, url):
        client = worker(url)
        begin = time.monotonic()
        closed = client.run(ClosedJob(begin, streams=2, give_up=begin + PATIENCE)).trace
        begin = time.monotonic()
        opened = client.run(OpenJob(begin, np.array([begin]), give_up=begin + PATIENCE)).trace
        assert fake.cancelled.wait(30)
        release.set()
    assert closed.outcome.tolist() == [Outcome.UNFINISHED] * 2
    assert opened.outcome.tolist() == [Outcome.UNFINISHED]


def test_nobody_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.load.load_client._CONNECT_SECONDS", 0.2)
    with pytest.raises(ToolError, match=r"127\.0\.0\.1:1: no connection"):
        worker("127.0.0.1:1")


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
