"""An engine that fails: requests that it hits get INTERNAL and FINAL, and the server lives on."""

import pathlib

from tests.harness import golden
from tests.harness.client import Generation
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_BAD_TOKEN = 49
_LONG = {"max_new_tokens": 300, "min_new_tokens": 300}


def _write(repository: pathlib.Path) -> None:
    write_model(repository, _MODEL, "t5_v1_0")


def _check_failed(generation: Generation) -> None:
    generation.wait()
    assert generation.error.startswith("INTERNAL: ")
    assert generation.finals == 1
    assert generation.messages_after_end == 0


def _failed(booted: Boot) -> float:
    return booted.metrics().total("seq2seq_requests_total", outcome="failed")


def test_a_source_that_cannot_be_encoded(module_folder: pathlib.Path) -> None:
    """Only the requests with that source fail, whoever else is encoded with them."""
    folder = module_folder / "encode"
    folder.mkdir()
    faults = {"SEQ2SEQ_TEST_FAIL_ENCODE_TOKEN": str(_BAD_TOKEN)}
    good = [c for c in golden.load("t5_v1_0").many if _BAD_TOKEN not in c.source]
    with boot(folder, write=_write, load=[_MODEL], step_delay_ms=0, environment=faults) as booted:
        generations = []
        for case in good:
            generations.append(booted.client.start(_MODEL, case.source))
            generations.append(booted.client.start(_MODEL, [11, _BAD_TOKEN, 1]))
        for case, served, failed in zip(good, generations[::2], generations[1::2], strict=True):
            served.wait().check_answer(case.answer)
            _check_failed(failed)
        booted.wait_idle()
        assert _failed(booted) == len(good)


def test_a_step_that_fails(module_folder: pathlib.Path) -> None:
    """All that ran fails, later requests are refused, and a new load serves again."""
    folder = module_folder / "step"
    folder.mkdir()
    faults = {"SEQ2SEQ_TEST_FAIL_STEP": "100"}
    source = golden.load("t5_v1_0").long[0].source
    with boot(folder, write=_write, load=[_MODEL], step_delay_ms=5, environment=faults) as booted:
        running = [booted.client.start(_MODEL, source, **_LONG) for _ in range(8)]
        for generation in running:
            _check_failed(generation)
        assert _failed(booted) == len(running)
        booted.wait_idle()
        refused = booted.client.generate(_MODEL, source)
        assert refused.error.startswith("UNAVAILABLE: ")
        assert refused.finals == 1
        booted.server.unload(_MODEL)
        booted.server.wait_unloaded(_MODEL, 5.0)
        booted.server.load(_MODEL)
        case = golden.load("t5_v1_0").rows[2]
        booted.client.generate(_MODEL, case.source).check_answer(case.answer)
