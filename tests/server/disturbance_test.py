"""Clients that leave, deadlines, a full queue and unloads while the server decodes.

A step takes 50 ms here, so that a request of 500 tokens runs for 25 s undisturbed:
whatever ends sooner was ended by what the test did.
"""

import pathlib
import time
from collections.abc import Iterator
from multiprocessing import shared_memory

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.harness import golden, http_client, streaming_process
from tests.harness.client import Client, Generation, SharedTensor, build_request
from tests.harness.fixtures import Boot, boot
from tests.harness.metrics import wait_for
from tests.harness.model_repository import write_model
from tests.harness.server import ServerError

_MODEL = "t5"
_SMALL = "t5_small_queue"
_UNLOADED = "t5_unloaded"
_TWO = "t5_two_instances"
_SLOTS = 4
_QUEUE = 3
_AHEAD = 1  # an instance prepares up to a quarter of its slots ahead, outside the queue
_STEP_MS = 50
_STEP_S = _STEP_MS / 1e3
_LONG = {"max_new_tokens": 500, "min_new_tokens": 500, "response_interval_ms": 0}
_TOKENS = "seq2seq_generated_tokens_total"


def _write(repository: pathlib.Path) -> None:
    write_model(repository, _MODEL, "t5_v1_0")
    small = {"max_active_sequences": str(_SLOTS), "max_queue_size": str(_QUEUE)}
    write_model(repository, _SMALL, "t5_v1_0", options=small)
    write_model(repository, _UNLOADED, "t5_v1_0")
    write_model(repository, _TWO, "t5_v1_0", options={"max_active_sequences": "2"}, instances=2)


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """The slow server."""
    with boot(module_folder, write=_write, load=[_MODEL, _SMALL], step_delay_ms=_STEP_MS) as b:
        yield b


@pytest.fixture(autouse=True)
def idle_before_and_after(booted: Boot) -> Iterator[None]:
    """Every test leaves the server with no sequence and no block in use."""
    booted.wait_idle()
    yield
    booted.client.cancel_all()  # what a failed test has left behind
    booted.wait_idle(2.0)


def _case() -> golden.Case:
    return golden.load("t5_v1_0").long[0]


def _start_long(booted: Boot, model: str = _MODEL) -> Generation:
    return booted.client.start(model, _case().source, **_LONG)


def _outcomes(booted: Boot) -> dict[str, float]:
    samples = booted.metrics().matching("seq2seq_requests_total")
    outcomes: dict[str, float] = {}
    for s in samples:
        outcomes[s.labels["outcome"]] = outcomes.get(s.labels["outcome"], 0) + s.value
    return outcomes


def _check_stopped(booted: Boot, most_tokens: float) -> None:
    """Slots, blocks and queue are free within 1 s, and nothing decodes any more.

    That nothing does is shown by a request that is served alone: the counter grows by its tokens
    only.
    """
    booted.wait_idle(1.0)
    counted = booted.metrics().total(_TOKENS)
    assert counted <= most_tokens
    case = golden.load("t5_v1_0").rows[1]
    booted.client.generate(_MODEL, case.source).check_answer(case.answer)
    assert booted.metrics().total(_TOKENS) == counted + len(case.answer)


def test_cancel_at_token_5_of_500(booted: Boot) -> None:
    """Decoding stops within two steps, the outcome is cancelled, the slot serves again."""
    before = booted.metrics().total(_TOKENS)
    outcomes = _outcomes(booted)
    generation = _start_long(booted).wait_for_tokens(5)
    seen = len(generation.ids)
    generation.cancel()
    generation.wait()
    assert generation.status == grpc.StatusCode.CANCELLED
    _check_stopped(booted, before + seen + 2)
    assert _outcomes(booted)["cancelled"] == outcomes.get("cancelled", 0) + 1


def test_cancel_does_not_touch_the_others(booted: Boot) -> None:
    """Of three streams with log-probabilities one is cancelled; the two go on, exactly."""
    golden_ = golden.load("t5_v1_0")
    cases = [golden_.rows[2], golden_.rows[3]]
    cancelled = booted.client.start(_MODEL, _case().source, return_logprobs=True, **_LONG)
    cancelled.wait_for_tokens(1)
    others = [booted.client.start(_MODEL, c.source, return_logprobs=True) for c in cases]
    for other in others:
        other.wait_for_tokens(3)
    cancelled.cancel()
    for case, other in zip(cases, others, strict=True):
        other.wait().check_answer(case.answer)
        alone = booted.client.generate(_MODEL, case.source, return_logprobs=True)
        np.testing.assert_allclose(other.logprobs, alone.logprobs, atol=1e-4)


def test_cancel_while_waiting(booted: Boot) -> None:
    """A request in the queue leaves it when its client goes."""
    running = [_start_long(booted, _SMALL).wait_for_tokens(1) for _ in range(_SLOTS)]
    waiting = _start_long(booted, _SMALL)
    _wait_for_waiting(booted, 1)
    outcomes = _outcomes(booted)
    waiting.cancel()
    _wait_for_waiting(booted, 0)
    assert _outcomes(booted)["cancelled"] == outcomes.get("cancelled", 0) + 1
    assert not any(g.done for g in running)
    for generation in running:
        generation.cancel()


def _wait_for_waiting(booted: Boot, count: int) -> None:
    name = "seq2seq_waiting_sequences"
    url = booted.server.metrics_url
    wait_for(url, lambda m: m.total(name, model=_SMALL) == count, 1.0, f"{name} is {count}")


def test_client_process_killed(booted: Boot) -> None:
    """SIGKILL of a client process with eight streams: as if it had cancelled each."""
    before = booted.metrics().total(_TOKENS)
    with streaming_process.start(
        booted.server.grpc_url, _MODEL, _case().source, _LONG, streams=8
    ) as process:
        seen = streaming_process.wait_for_tokens(process, 8 * 5)
        process.kill()
        process.wait()
    # What the client has printed may lag behind what was decoded by a step or two.
    _check_stopped(booted, before + seen + 8 * 4)


def test_curl_killed(booted: Boot) -> None:
    """The same for an HTTP client."""
    before = booted.metrics().total(_TOKENS)
    body = {"input_ids": list(_case().source), **_LONG}
    with http_client.start_curl(booted.server.http_url, _MODEL, body) as curl:
        seen = 0
        while seen < 5:
            seen += curl.stdout.readline().startswith("data:")
        curl.kill()
        curl.wait()
    _check_stopped(booted, before + seen + 4)


def test_client_closes_its_connection(booted: Boot) -> None:
    """Closing the channel ends all its streams."""
    before = booted.metrics().total(_TOKENS)
    with Client(booted.server.grpc_url) as client:
        generations = [client.start(_MODEL, _case().source, **_LONG) for _ in range(4)]
        seen = sum(len(g.wait_for_tokens(3).ids) for g in generations)
    _check_stopped(booted, before + seen + 4 * 4)


def test_timeout_while_running(booted: Boot) -> None:
    """The tokens so far, FINAL, finish_reason timeout."""
    outcomes = _outcomes(booted)
    request = build_request(_MODEL, _case().source, _LONG, timeout_us=600_000)
    started = time.monotonic()
    generation = booted.client.send(request).wait()
    took = time.monotonic() - started
    assert generation.errors == []
    assert generation.parameters["finish_reason"] == "timeout"
    assert generation.finals == 1
    count = len(generation.ids)
    assert 1 <= count <= 600 // 50
    assert generation.parameters["completion_tokens"] == count
    assert generation.ids == _case().answer[:count]
    assert 0.6 <= took < 0.6 + 4 * _STEP_S + 0.5
    assert _outcomes(booted)["timeout"] == outcomes.get("timeout", 0) + 1


def test_timeout_over_http(booted: Boot) -> None:
    """On generate, timeout is a field of the body."""
    body = {"input_ids": list(_case().source), "stream": False, "timeout": 500_000, **_LONG}
    status, answer = http_client.generate(booted.server.http_url, _MODEL, body)
    assert status == 200, answer
    assert answer["finish_reason"] == "timeout"
    ids = tuple(http_client.ids_of(answer))
    assert ids == _case().answer[: len(ids)]
    assert len(ids) == answer["completion_tokens"] <= 10


def test_timeout_while_waiting(booted: Boot) -> None:
    """UNAVAILABLE and FINAL; the running ones do not notice."""
    running = [_start_long(booted, _SMALL).wait_for_tokens(1) for _ in range(_SLOTS)]
    request = build_request(_SMALL, _case().source, _LONG, timeout_us=300_000)
    waiting = booted.client.send(request).wait(5.0)
    assert waiting.error.startswith("UNAVAILABLE: ")
    assert "timeout" in waiting.error
    assert waiting.ids == ()
    assert not any(g.done for g in running)
    for generation in running:
        generation.cancel()


def test_full_queue(booted: Boot) -> None:
    """Slots and queue taken: the next is refused at once, by name; those that wait are served."""
    running = [_start_long(booted, _SMALL).wait_for_tokens(1) for _ in range(_SLOTS)]
    case = golden.load("t5_v1_0").rows[1]
    waiting = []
    for count in range(1, _AHEAD + _QUEUE + 1):
        waiting.append(booted.client.start(_SMALL, case.source))
        _wait_for_waiting(booted, count)
    refused = booted.client.start(_SMALL, case.source).wait(2.0)
    assert refused.error.startswith("UNAVAILABLE: ")
    assert "max_queue_size" in refused.error
    assert str(_QUEUE) in refused.error
    assert refused.finals == 1
    assert not any(g.done for g in [*running, *waiting])
    for generation in running:
        generation.cancel()
    for generation in waiting:
        generation.wait().check_answer(case.answer)


def test_unload_while_streaming(booted: Boot) -> None:
    """Streams finish, newcomers are refused, the model ends unloaded, and loads again."""
    booted.server.load(_UNLOADED)
    options = {"max_new_tokens": 40, "min_new_tokens": 40, "response_interval_ms": 0}
    source = _case().source
    generations = [booted.client.start(_UNLOADED, source, **options) for _ in range(3)]
    for generation in generations:
        generation.wait_for_tokens(3)
    booted.server.unload(_UNLOADED)
    late = booted.client.generate(_UNLOADED, source)
    assert late.error or late.status != grpc.StatusCode.OK
    assert not any(g.done for g in generations)
    for generation in generations:
        generation.wait().check_answer(_case().answer[:40])
    booted.server.wait_unloaded(_UNLOADED, 5.0)
    booted.server.load(_UNLOADED)
    case = golden.load("t5_v1_0").rows[1]
    booted.client.generate(_UNLOADED, case.source).check_answer(case.answer)
    booted.server.unload(_UNLOADED)
    booted.server.wait_unloaded(_UNLOADED, 5.0)


def test_loaded_again_while_streaming(booted: Boot) -> None:
    """Streams of the last load finish, and gauges are the sum of both loads meanwhile."""
    config = booted.repository / _UNLOADED / "config.pbtxt"
    before = config.read_text()

    def blocks() -> float:
        return booted.metrics().total("seq2seq_kv_blocks_total", model=_UNLOADED)

    booted.server.load(_UNLOADED)
    total = blocks()
    options = {"max_new_tokens": 40, "min_new_tokens": 40, "response_interval_ms": 0}
    old = booted.client.start(_UNLOADED, _case().source, **options).wait_for_tokens(3)
    config.write_text(before + 'parameters { key: "max_queue_size" value { string_value: "7" } }\n')
    booted.server.load(_UNLOADED)
    new = booted.client.start(_UNLOADED, _case().source, **options).wait_for_tokens(3)
    assert not old.done
    assert blocks() == 2 * total
    assert booted.metrics().total("seq2seq_active_sequences", model=_UNLOADED) == 2
    old.wait().check_answer(_case().answer[:40])
    wait_for(
        booted.server.metrics_url,
        lambda m: m.total("seq2seq_kv_blocks_total", model=_UNLOADED) == total,
        5.0,
        "the last load is gone",
    )
    new.wait().check_answer(_case().answer[:40])
    config.write_text(before)
    booted.server.unload(_UNLOADED)
    booted.server.wait_unloaded(_UNLOADED, 5.0)


def test_fewer_instances_while_streaming(booted: Boot) -> None:
    """An instance that a load takes away serves its streams to their end."""
    config = booted.repository / _TWO / "config.pbtxt"
    booted.server.load(_TWO)
    options = {"max_new_tokens": 40, "min_new_tokens": 40, "response_interval_ms": 0}
    generations = [booted.client.start(_TWO, _case().source, **options) for _ in range(4)]
    for generation in generations:
        generation.wait_for_tokens(3)
    text = config.read_text()
    config.write_text(text.replace("count: 2", "count: 1"))
    booted.server.load(_TWO)
    assert not any(g.done for g in generations)
    for generation in generations:
        generation.wait().check_answer(_case().answer[:40])
    wait_for(
        booted.server.metrics_url,
        lambda m: len({s.labels["instance"] for s in m.matching(_TOKENS, model=_TWO)}) == 1,
        5.0,
        "one instance is left",
    )
    case = golden.load("t5_v1_0").rows[1]
    booted.client.generate(_TWO, case.source).check_answer(case.answer)
    booted.server.unload(_TWO)
    booted.server.wait_unloaded(_TWO, 5.0)


def test_unload_right_after_cancel(booted: Boot) -> None:
    """An unload that meets requests on their way out ends as well."""
    booted.server.load(_UNLOADED)
    source = _case().source
    generations = [booted.client.start(_UNLOADED, source, **_LONG) for _ in range(20)]
    generations[0].wait_for_tokens(1)
    for generation in generations:
        generation.cancel()
    booted.server.unload(_UNLOADED)
    booted.server.wait_unloaded(_UNLOADED, 5.0)


def test_shared_output_region_unregistered_while_streaming(booted: Boot) -> None:
    """The server refuses while the region is in use, or that request alone ends; others go on."""
    stub = booted.client.stub
    other = booted.client.start(_MODEL, _case().source, max_new_tokens=60, min_new_tokens=60)
    region = shared_memory.SharedMemory(create=True, size=4096)
    try:
        stub.SystemSharedMemoryRegister(
            service_pb2.SystemSharedMemoryRegisterRequest(
                name="region", key=f"/{region.name.lstrip('/')}", byte_size=region.size
            )
        )
        request = build_request(
            _MODEL,
            _case().source,
            {"max_new_tokens": 40, "min_new_tokens": 40, "response_interval_ms": 0},
            shared_output=SharedTensor("region", region.size),
        )
        generation = booted.client.send(request)
        wait_for(
            booted.server.metrics_url,
            lambda m: m.total("seq2seq_active_sequences") == 2,
            5.0,
            "both requests run",
        )
        unregister = service_pb2.SystemSharedMemoryUnregisterRequest(name="region")
        try:
            stub.SystemSharedMemoryUnregister(unregister)
        except grpc.RpcError as error:
            assert "in use" in error.details()  # noqa: PT017
        generation.wait()
        assert generation.finals == 1
        stub.SystemSharedMemoryUnregister(unregister)
    finally:
        region.close()
        region.unlink()
    other.wait().check_answer(_case().answer[:60])
    booted.server.check_alive()


def test_failed_load_leaves_running_streams_alone(booted: Boot) -> None:
    """A model that cannot load does not disturb one that decodes."""
    running = booted.client.start(_MODEL, _case().source, max_new_tokens=40, min_new_tokens=40)
    running.wait_for_tokens(2)
    version = write_model(booted.repository, "t5_broken", "t5_v1_0")
    (version / "model.safetensors").write_bytes(b"\xff" * 100)
    with pytest.raises(ServerError, match=r"model\.safetensors"):
        booted.server.load("t5_broken")
    running.wait().check_answer(_case().answer[:40])
