"""Two instances on one GPU work side by side."""

import pathlib
import statistics
import time
from collections.abc import Iterator

import pytest

from tests.harness import golden
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import GPU, write_model

_ONE = "one_instance"
_TWO = "two_instances"
_REQUESTS = 32
_ROUNDS = 5


def _write(repository: pathlib.Path) -> None:
    # One slot an instance: requests run one after the other unless instances overlap.
    options = {"max_active_sequences": "1"}
    for name, instances in ((_ONE, 1), (_TWO, 2)):
        write_model(repository, name, "t5_v1_0", kind=GPU, options=options, instances=instances)


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with the same model twice, on one and on two instances."""
    with boot(module_folder, write=_write, load=[_ONE, _TWO]) as b:
        yield b


def _round_seconds(booted: Boot, model: str) -> float:
    """How long many long requests take together; all must be exact."""
    case, tokens = golden.load("t5_v1_0").long
    options = {"max_new_tokens": tokens, "min_new_tokens": tokens, "stream": False}
    started = time.monotonic()
    generations = [booted.client.start(model, case.source, **options) for _ in range(_REQUESTS)]
    for generation in generations:
        generation.wait().check_answer(case.answer)
    return time.monotonic() - started


def test_two_instances_overlap(booted: Boot) -> None:
    """Rounds in turn: two instances take clearly less time; both have worked and are counted."""
    for model in (_ONE, _TWO):
        _round_seconds(booted, model)
    pairs = [(_round_seconds(booted, _ONE), _round_seconds(booted, _TWO)) for _ in range(_ROUNDS)]
    ratio = statistics.median(one / two for one, two in pairs)
    print(f"two instances are {ratio:.2f} times as fast as one: {pairs}")
    metrics = booted.metrics()
    for name in ("seq2seq_generated_tokens_total", "seq2seq_source_tokens_total"):
        samples = metrics.matching(name, model=_TWO)
        assert len({s.labels["instance"] for s in samples}) == 2
        # Equal requests and equal instances: each does a fair share.
        assert min(s.value for s in samples) > 0.25 * sum(s.value for s in samples)
    assert ratio > 1.3
