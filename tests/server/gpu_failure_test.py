"""A GPU that is lost at work: every request gets its end, and the server lives on."""

import pathlib

import pytest

from tests.harness import golden
from tests.harness.client import Generation
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import GPU, write_model
from tests.harness.server import ServerError

_MODEL = "t5"
_NEIGHBOUR = "t5_neighbour"
_CPU_MODEL = "t5_cpu"
_LONG = {"max_new_tokens": 300, "min_new_tokens": 300}


def _write(repository: pathlib.Path) -> None:
    write_model(repository, _MODEL, "t5_v1_0", kind=GPU)
    write_model(repository, _NEIGHBOUR, "t5_v1_0", kind=GPU)
    write_model(repository, _CPU_MODEL, "t5_v1_0", kind="KIND_CPU")


def _check_failed(generation: Generation, code: str) -> None:
    generation.wait()
    assert generation.error.startswith(f"{code}: "), generation.error
    assert generation.finals == 1
    assert generation.messages_after_end == 0


def _check_cpu_serves(booted: Boot) -> None:
    case = golden.load("t5_v1_0").rows[2]
    booted.client.generate(_CPU_MODEL, case.source).check_answer(case.answer)


def test_a_kernel_that_traps(module_folder: pathlib.Path) -> None:
    """What runs fails, what comes is refused, models leave, and CPU instances serve on.

    The trap takes the process' device along: other models on it fail at their next request, and a
    new load is refused. A new process is the way back.
    """
    source = golden.load("t5_v1_0").long[0].source
    faults = {"SEQ2SEQ_TEST_TRAP_STEP": "50"}
    models = [_MODEL, _NEIGHBOUR, _CPU_MODEL]
    with boot(
        module_folder, write=_write, load=models, step_delay_ms=5, environment=faults
    ) as booted:
        running = [booted.client.start(_MODEL, source, **_LONG) for _ in range(8)]
        for generation in running:
            _check_failed(generation, "INTERNAL")
            assert len(generation.ids) < 60
        failed = booted.metrics().total("seq2seq_requests_total", model=_MODEL, outcome="failed")
        assert failed == len(running)
        for _ in range(2):
            _check_failed(booted.client.generate(_MODEL, source), "UNAVAILABLE")
        _check_failed(booted.client.generate(_NEIGHBOUR, source), "INTERNAL")
        _check_failed(booted.client.generate(_NEIGHBOUR, source), "UNAVAILABLE")
        booted.wait_idle()
        _check_cpu_serves(booted)
        for name in (_MODEL, _NEIGHBOUR):
            booted.server.unload(name)
            booted.server.wait_unloaded(name, 5.0)
        with pytest.raises(ServerError, match="CUDA"):
            booted.server.load(_MODEL)
        _check_cpu_serves(booted)
