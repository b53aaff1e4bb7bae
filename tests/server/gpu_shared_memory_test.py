"""Tensors that stay on the GPU: registered CUDA memory as input and as output, in place."""

import contextlib
import pathlib
from collections.abc import Iterator

import pytest
from tritonclient.grpc import service_pb2

from tests.harness import golden
from tests.harness.client import Generation, SharedTensor, build_request
from tests.harness.cuda_device import CudaDevice, CudaMemory
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import GPU, write_model

_MODEL = "t5"
_CPU_MODEL = "t5_cpu"
_UNWRITTEN = -7
_MOST = 64


def _write(repository: pathlib.Path) -> None:
    write_model(repository, _MODEL, "t5_v1_0", kind=GPU)
    write_model(repository, _CPU_MODEL, "t5_v1_0", kind="KIND_CPU")


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with a GPU instance, and a CPU instance beside it."""
    with boot(module_folder, write=_write, load=[_MODEL, _CPU_MODEL]) as b:
        yield b


@contextlib.contextmanager
def _registered(booted: Boot, name: str, memory: CudaMemory) -> Iterator[SharedTensor]:
    """Makes the memory known to the server as a region."""
    stub = booted.client.stub
    stub.CudaSharedMemoryRegister(
        service_pb2.CudaSharedMemoryRegisterRequest(
            name=name, raw_handle=memory.ipc_handle(), device_id=0, byte_size=memory.byte_size
        )
    )
    try:
        yield SharedTensor(name, memory.byte_size)
    finally:
        stub.CudaSharedMemoryUnregister(service_pb2.CudaSharedMemoryUnregisterRequest(name=name))


def _output(device: CudaDevice, count: int = _MOST) -> CudaMemory:
    return CudaMemory(device, [_UNWRITTEN] * count)


def _check_served(case: golden.Case, generation: Generation, memory: CudaMemory) -> None:
    """The answer lies in the region, nothing behind it was touched, and the message has no ids."""
    generation.wait()
    assert generation.errors == []
    assert generation.finals == 1
    assert generation.ids == ()
    assert generation.parameters["completion_tokens"] == len(case.answer)
    written, behind = memory.read()[: len(case.answer)], memory.read()[len(case.answer) :]
    assert written == case.answer
    assert set(behind) == {_UNWRITTEN}


def test_input_and_output_stay_on_the_gpu(booted: Boot, device: CudaDevice) -> None:
    """Neither the source nor the answer is in a message."""
    for number, case in enumerate(golden.load("t5_v1_0").rows):
        source, answer = CudaMemory(device, case.source), _output(device)
        with (
            _registered(booted, f"source_{number}", source) as shared_input,
            _registered(booted, f"answer_{number}", answer) as shared_output,
        ):
            request = build_request(
                _MODEL,
                None,
                {"stream": False},
                shared_input=shared_input,
                shared_output=shared_output,
            )
            _check_served(case, booted.client.send(request), answer)


def test_many_regions_at_once(booted: Boot, device: CudaDevice) -> None:
    """Each of 32 requests in one batch finds its own memory."""
    cases = golden.load("t5_v1_0").many[:32]
    sources = [CudaMemory(device, case.source) for case in cases]
    answers = [_output(device) for _ in cases]
    with contextlib.ExitStack() as regions:
        requests = [
            build_request(
                _MODEL,
                None,
                {"stream": False},
                shared_input=regions.enter_context(_registered(booted, f"in_{i}", sources[i])),
                shared_output=regions.enter_context(_registered(booted, f"out_{i}", answers[i])),
            )
            for i in range(len(cases))
        ]
        generations = [booted.client.send(request) for request in requests]
        for case, generation, answer in zip(cases, generations, answers, strict=True):
            _check_served(case, generation, answer)


def test_streamed_from_gpu_memory(booted: Boot, device: CudaDevice) -> None:
    """Only the source lies on the GPU; the tokens are streamed."""
    case = golden.load("t5_v1_0").rows[2]
    with _registered(booted, "streamed", CudaMemory(device, case.source)) as shared_input:
        request = build_request(
            _MODEL, None, {"response_interval_ms": 0}, shared_input=shared_input
        )
        booted.client.send(request).wait().check_answer(case.answer)


def test_output_region_that_is_too_small(booted: Boot, device: CudaDevice) -> None:
    """That request alone ends with an error; nothing is written."""
    case = golden.load("t5_v1_0").rows[2]
    assert len(case.answer) > 2
    answer = _output(device, 2)
    with _registered(booted, "small", answer) as shared_output:
        other = booted.client.start(_MODEL, case.source)
        request = build_request(_MODEL, case.source, {"stream": False}, shared_output=shared_output)
        generation = booted.client.send(request).wait()
        assert "shared memory" in generation.error
        assert generation.finals == 1
        other.wait().check_answer(case.answer)
    assert set(answer.read()) == {_UNWRITTEN}
    booted.wait_idle()


def test_cpu_instance_cannot_reach_it(booted: Boot, device: CudaDevice) -> None:
    """It says so, and what to do."""
    case = golden.load("t5_v1_0").rows[2]
    with _registered(booted, "for_the_cpu", CudaMemory(device, case.source)) as shared_input:
        generation = booted.client.send(
            build_request(_CPU_MODEL, None, shared_input=shared_input)
        ).wait()
    assert "use host memory" in generation.error
    assert generation.finals == 1
    booted.client.generate(_CPU_MODEL, case.source).check_answer(case.answer)
