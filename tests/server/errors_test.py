"""Whatever is wrong with a request ends that request, with an error and FINAL, and no other."""

import math
import pathlib
from collections.abc import Callable, Iterator
from multiprocessing import shared_memory
from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tests.harness import golden, http_client
from tests.harness.client import Generation, OptionValue, SharedTensor, build_request
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import write_model

_MODEL = "t5"
_MAX_SOURCE = 64
_MAX_NEW = 300


def _write(repository: pathlib.Path) -> None:
    options = {"max_source_tokens": str(_MAX_SOURCE), "max_new_tokens": str(_MAX_NEW)}
    write_model(repository, _MODEL, "t5_v1_0", options=options)


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with one model of small limits."""
    with boot(module_folder, write=_write, load=[_MODEL]) as b:
        yield b


def _among_good(booted: Boot, bad: Callable[[], Generation]) -> Generation:
    """Runs `bad` amid eight good requests, which must be exact; returns it ended."""
    cases = golden.load("t5_v1_0").many[-8:]
    first = [booted.client.start(_MODEL, case.source) for case in cases[:4]]
    result = bad()
    second = [booted.client.start(_MODEL, case.source) for case in cases[4:]]
    for case, generation in zip(cases, first + second, strict=True):
        generation.wait().check_answer(case.answer)
    result.wait()
    assert result.status == grpc.StatusCode.OK  # the error is a message; the stream lives on
    return result


def _check_invalid(generation: Generation, *fragments: str) -> None:
    assert generation.error.startswith("INVALID_ARG: "), generation.error
    for fragment in fragments:
        assert fragment in generation.error, (fragment, generation.error)
    assert generation.ids == ()
    assert generation.finals == 1
    assert generation.messages_after_end == 0


# (option, value, what else the error must say: the value as given and the allowed range)
_BAD_OPTIONS: list[tuple[str, OptionValue, list[str]]] = [
    ("top_k", -1, ["-1"]),
    ("top_p", 0.0, ["0"]),
    ("top_p", math.nan, ["nan"]),
    ("top_p", 1.5, ["1.5"]),
    ("typical_p", 0.0, ["0"]),
    ("typical_p", -0.25, ["-0.25"]),
    ("min_p", -0.5, ["-0.5"]),
    ("min_p", 1.25, ["1.25"]),
    ("temperature", -1.0, ["-1"]),
    ("temperature", -1, ["-1"]),
    ("temperature", math.nan, ["nan"]),
    ("temperature", math.inf, ["inf"]),
    ("max_new_tokens", 0, ["0"]),
    ("max_new_tokens", -5, ["-5"]),
    ("max_new_tokens", _MAX_NEW + 1, [str(_MAX_NEW + 1), str(_MAX_NEW)]),
    ("max_new_tokens", 2**40, [str(2**40), str(_MAX_NEW)]),
    ("max_tokens", 0, ["0"]),
    ("max_length", 0, ["0"]),
    ("min_new_tokens", -1, ["-1"]),
    ("min_length", -1, ["-1"]),
    ("response_interval_ms", -1, ["-1"]),
    ("response_interval_ms", math.nan, ["nan"]),
    ("response_interval_ms", 60001, ["60001", "[0, 60000]"]),
    ("num_beams", 4, []),
    ("no_such_option", 1, []),
    ("temperature", "0.5", []),
    ("max_new_tokens", "5", []),
    ("max_new_tokens", 2.5, ["2.5"]),
    ("max_new_tokens", True, []),
    ("seed", 1.5, ["1.5"]),
    ("stream", 1, []),
    ("do_sample", "true", []),
    ("return_logprobs", 1, []),
]


@pytest.mark.parametrize(("name", "value", "said"), _BAD_OPTIONS)
def test_bad_option(booted: Boot, name: str, value: OptionValue, said: list[str]) -> None:
    """INVALID_ARG that names the option and its value."""
    source = golden.load("t5_v1_0").rows[0].source
    bad = _among_good(booted, lambda: booted.client.start(_MODEL, source, **{name: value}))
    error = bad.error.lower()
    _check_invalid(bad, name)
    assert all(s in error for s in said), (said, error)


_VOCAB = golden.load("t5_v1_0").vocab_size
_BAD_SOURCES: dict[str, tuple[list[int] | None, list[str]]] = {
    "too long": ([11] * _MAX_SOURCE + [1], [str(_MAX_SOURCE + 1), str(_MAX_SOURCE)]),
    "four megabytes": ([11] * (1 << 20), [str(1 << 20), str(_MAX_SOURCE)]),
    "empty": ([], []),
    "pads alone": ([0, 0, 0], []),
    "an id past the vocabulary": ([11, _VOCAB, 1], [str(_VOCAB)]),
    "a negative id": ([11, -1, 1], ["-1"]),
    "the least id": ([-(2**31), 1], [str(-(2**31))]),
    "missing": (None, []),
}


@pytest.mark.parametrize("kind", _BAD_SOURCES)
def test_bad_source(booted: Boot, kind: str) -> None:
    """INVALID_ARG that names the input, the value and the limit."""
    source, said = _BAD_SOURCES[kind]
    bad = _among_good(booted, lambda: booted.client.start(_MODEL, source))
    _check_invalid(bad, "input_ids", *said)


@pytest.mark.parametrize("prefix", [[0, _VOCAB], [0, -3]])
def test_bad_prefix(booted: Boot, prefix: list[int]) -> None:
    """The forced prefix must lie in the vocabulary."""
    source = golden.load("t5_v1_0").rows[0].source
    request = build_request(_MODEL, source, decoder_input_ids=prefix)
    bad = _among_good(booted, lambda: booted.client.send(request))
    _check_invalid(bad, "decoder_input_ids", str(prefix[1]))


def test_longest_source_is_served(booted: Boot) -> None:
    """max_source_tokens itself is allowed, and pads behind it do not count."""
    source = [11] * (_MAX_SOURCE - 1) + [1]
    exact = booted.client.generate(_MODEL, source)
    assert exact.errors == []
    assert exact.parameters["prompt_tokens"] == _MAX_SOURCE
    padded = booted.client.generate(_MODEL, source + [0] * 20)
    assert padded.ids == exact.ids


def _tensor_request(
    name: str, datatype: str, shape: list[int], data: bytes
) -> service_pb2.ModelInferRequest:
    request = build_request(_MODEL, None)
    request.inputs.add(name=name, datatype=datatype, shape=shape)
    request.raw_input_contents.append(data)
    return request


def _odd_requests() -> dict[str, service_pb2.ModelInferRequest]:
    """Requests that Triton's core or the backend refuses, by what is odd about them."""
    ids = np.asarray(golden.load("t5_v1_0").rows[0].source, np.int32)
    good = build_request(_MODEL, ids)
    twice = build_request(_MODEL, ids)
    twice.inputs.append(twice.inputs[0])
    twice.raw_input_contents.append(twice.raw_input_contents[0])
    extra = build_request(_MODEL, ids)
    extra.inputs.add(name="no_such_input", datatype="INT32", shape=[1])
    extra.raw_input_contents.append(b"\0" * 4)
    output = build_request(_MODEL, ids)
    output.outputs.add(name="no_such_output")
    model = service_pb2.ModelInferRequest()
    model.CopyFrom(good)
    model.model_name = "no_such_model"
    return {
        "dtype": _tensor_request("input_ids", "FP32", [len(ids)], ids.tobytes()),
        "dtype int64": _tensor_request("input_ids", "INT64", [2], b"\0" * 16),
        "rank": _tensor_request("input_ids", "INT32", [1, len(ids)], ids.tobytes()),
        "too few bytes": _tensor_request("input_ids", "INT32", [len(ids)], ids.tobytes()[:-4]),
        "too many bytes": _tensor_request("input_ids", "INT32", [2], ids.tobytes()),
        "huge shape": _tensor_request("input_ids", "INT32", [2**62], ids.tobytes()),
        "negative shape": _tensor_request("input_ids", "INT32", [-1], ids.tobytes()),
        "no bytes": _tensor_request("input_ids", "INT32", [4], b""),
        "duplicate input": twice,
        "extra input": extra,
        "unknown output": output,
        "unknown model": model,
        "megabyte option": build_request(_MODEL, ids, {"no_such_option": "x" * (1 << 20)}),
        "megabyte name": build_request(_MODEL, ids, {"x" * (1 << 20): 1}),
        "many options": build_request(_MODEL, ids, {f"option_{i}": i for i in range(5000)}),
        "megabytes of another input": _tensor_request(
            "decoder_input_ids", "INT32", [1 << 20], b"\1\0\0\0" * (1 << 20)
        ),
    }


@pytest.mark.parametrize("kind", list(_odd_requests()))
def test_odd_request(booted: Boot, kind: str) -> None:
    """Refused with one error, and the requests around it do not notice."""
    request = _odd_requests()[kind]
    bad = _among_good(booted, lambda: booted.client.send(request))
    assert bad.error
    assert bad.ids == ()


def test_shared_output_region_that_is_too_small(booted: Boot) -> None:
    """That request alone ends with an error."""
    region = shared_memory.SharedMemory(create=True, size=8)
    booted.client.stub.SystemSharedMemoryRegister(
        service_pb2.SystemSharedMemoryRegisterRequest(
            name="small", key=f"/{region.name.lstrip('/')}", byte_size=8
        )
    )
    try:
        source = golden.load("t5_v1_0").rows[2].source
        request = build_request(
            _MODEL, source, {"stream": False}, shared_output=SharedTensor("small", 8)
        )
        bad = _among_good(booted, lambda: booted.client.send(request))
        assert "shared memory" in bad.error
        assert bad.finals == 1
        assert bad.messages_after_end == 0
    finally:
        booted.client.stub.SystemSharedMemoryUnregister(
            service_pb2.SystemSharedMemoryUnregisterRequest(name="small")
        )
        region.close()
        region.unlink()


def test_error_texts_stay_short(booted: Boot) -> None:
    """A long value is not sent back whole."""
    source = golden.load("t5_v1_0").rows[0].source
    bad = booted.client.generate(_MODEL, source, no_such_option="x" * 100_000)
    assert len(bad.error) < 4096


_BAD_BODIES: dict[str, Any] = {
    "option": {"input_ids": [11, 1], "stream": False, "top_p": 2.0},
    "string for a number": {"input_ids": [11, 1], "stream": False, "temperature": "hot"},
    "list for a number": {"input_ids": [11, 1], "stream": False, "temperature": [1]},
    "object": {"input_ids": [11, 1], "stream": False, "temperature": {"a": 1}},
    "null": {"input_ids": [11, 1], "stream": False, "temperature": None},
    "nested ids": {"input_ids": [[11, 1], [12, 1]], "stream": False},
    "float ids": {"input_ids": [11.5, 1], "stream": False},
    "text ids": {"input_ids": ["a"], "stream": False},
    "no source": {"stream": False},
    "not an object": [1, 2],
}


@pytest.mark.parametrize("kind", _BAD_BODIES)
def test_bad_http_body(booted: Boot, kind: str) -> None:
    """HTTP answers with a client error and the text; the next request is served."""
    path = f"/v2/models/{_MODEL}/generate"
    status, text = http_client.post(booted.server.http_url, path, _BAD_BODIES[kind])
    assert status in (400, 500), text
    assert "error" in text
    case = golden.load("t5_v1_0").rows[0]
    body = {"input_ids": list(case.source), "stream": False}
    status, answer = http_client.generate(booted.server.http_url, _MODEL, body)
    assert status == 200
    assert tuple(http_client.ids_of(answer)) == case.answer


def test_http_error_begins_with_its_code(booted: Boot) -> None:
    """HTTP always says 400, so the text carries the code."""
    body = _BAD_BODIES["option"]
    status, answer = http_client.generate(booted.server.http_url, _MODEL, body)
    assert status == 400
    assert answer["error"].startswith("INVALID_ARG: ")
    assert "top_p" in answer["error"]


def test_refused_requests_are_counted(booted: Boot) -> None:
    """The outcome invalid, and no other, counts a bad option; nothing stays behind."""
    before = booted.metrics()
    source = golden.load("t5_v1_0").rows[0].source
    for _ in range(20):
        booted.client.generate(_MODEL, source, top_p=0.0)
    booted.wait_idle()
    after = booted.metrics()
    name = "seq2seq_requests_total"
    for outcome in ("ok", "timeout", "invalid", "refused", "cancelled", "failed"):
        grown = after.total(name, outcome=outcome) - before.total(name, outcome=outcome)
        assert grown == (20 if outcome == "invalid" else 0), outcome
