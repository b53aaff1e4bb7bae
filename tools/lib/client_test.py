"""The streaming client against a scripted server that speaks the real protocol."""

import contextlib
import signal
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from tools.lib.client import RequestError, StreamClient, StreamRequest
from tools.lib.errors import ToolError
from tools.lib.server_process import free_ports
from tools.testing.fake_inference_server import answer, error, serving

REQUEST = StreamRequest("m", [4, 5, 1])


def test_yields_responses_up_to_an_empty_final_one() -> None:
    script = [
        answer([7]),
        answer([8, 9], logprobs=[-0.5, -1.5]),
        answer(None, final=True, finish_reason="eos", prompt_tokens=3, score=0.5, cut=False),
    ]
    with serving(lambda _: iter(script)) as (_, url), StreamClient(url) as client:
        responses = list(client.stream(REQUEST))
    assert [response.output_ids for response in responses] == [[7], [8, 9], []]
    assert [response.final for response in responses] == [False, False, True]
    assert responses[1].logprobs == [-0.5, -1.5]
    assert responses[2].parameters == {
        "finish_reason": "eos",
        "prompt_tokens": 3,
        "score": 0.5,
        "cut": False,
    }


def test_a_signal_does_not_leave_the_connection_half_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = StreamClient("127.0.0.1:1")
    close = client._channel.close
    closed: list[bool] = []

    def interrupted() -> None:
        signal.raise_signal(signal.SIGINT)
        close()
        closed.append(True)

    monkeypatch.setattr(client._channel, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert closed


def test_sends_ids_and_typed_parameters() -> None:
    request = StreamRequest(
        "m",
        [4, 5, 1],
        {"max_new_tokens": 5, "temperature": 0.5, "stream": True, "note": "5", "timeout": 100},
        decoder_input_ids=[0, 9],
        version="2",
    )
    script = [answer([1], final=True)]
    with serving(lambda _: iter(script)) as (fake, url), StreamClient(url) as client:
        list(client.stream(request))
    (sent,) = fake.requests
    assert (sent.model_name, sent.model_version) == ("m", "2")
    tensors = {
        tensor.name: (tensor.datatype, list(tensor.shape), raw)
        for tensor, raw in zip(sent.inputs, sent.raw_input_contents, strict=True)
    }
    assert tensors == {
        "input_ids": ("INT32", [3], struct.pack("<3i", 4, 5, 1)),
        "decoder_input_ids": ("INT32", [2], struct.pack("<2i", 0, 9)),
    }
    choices = {
        name: value.WhichOneof("parameter_choice") for name, value in sent.parameters.items()
    }
    assert choices == {
        "max_new_tokens": "int64_param",
        "temperature": "double_param",
        "stream": "bool_param",
        "note": "string_param",
        "timeout": "int64_param",
        "triton_enable_empty_final_response": "bool_param",
    }


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("INVALID_ARG: top_p is 2, allowed (0, 1]", "INVALID_ARG", "top_p is 2, allowed (0, 1]"),
        ("UNAVAILABLE: queue full", "UNAVAILABLE", "queue full"),
        ("Request for unknown model: 'x'", "UNKNOWN", "Request for unknown model: 'x'"),
    ],
)
def test_an_error_becomes_an_exception_with_its_code(text: str, code: str, message: str) -> None:
    script = [answer([7]), error(text)]
    with serving(lambda _: iter(script)) as (_, url), StreamClient(url) as client:
        stream = client.stream(REQUEST)
        assert next(stream).output_ids == [7]
        with pytest.raises(RequestError) as raised:
            next(stream)
    assert (raised.value.code, raised.value.message) == (code, message)


def test_a_stream_without_a_final_response_is_an_error() -> None:
    script = [answer([7])]
    with serving(lambda _: iter(script)) as (_, url), StreamClient(url) as client:
        stream = client.stream(REQUEST)
        assert next(stream).output_ids == [7]
        with pytest.raises(RequestError, match="without a final response"):
            next(stream)


def test_a_server_that_is_not_there_is_an_error() -> None:
    (port,) = free_ports(1)
    with (
        StreamClient(f"127.0.0.1:{port}") as client,
        pytest.raises(RequestError, match=str(port)) as raised,
    ):
        next(client.stream(REQUEST))
    assert raised.value.code == "UNAVAILABLE"


@pytest.mark.parametrize("last", [answer([7], final=True), error("INTERNAL: broken")])
def test_an_answered_request_is_not_cancelled(
    last: service_pb2.ModelStreamInferResponse,
) -> None:
    hold = threading.Event()

    def answers(_: object) -> Iterator[Any]:
        yield last
        # Long enough for a cancel to come.
        hold.wait(0.3)

    with serving(answers) as (fake, url), StreamClient(url) as client:
        with contextlib.suppress(RequestError):
            list(client.stream(REQUEST))
        assert fake.finished.wait(10)
        assert not fake.cancelled.is_set()


def test_connecting_has_a_deadline() -> None:
    (port,) = free_ports(1)
    with (
        StreamClient(f"127.0.0.1:{port}") as client,
        pytest.raises(RequestError, match=f"{port}: no connection"),
    ):
        client.connect(0.2)
    with serving(lambda _: iter([])) as (_, url), StreamClient(url) as client:
        client.connect(30)


@pytest.mark.parametrize("how", ["close", "interrupt"])
def test_leaving_early_cancels_the_request(how: str) -> None:
    hold = threading.Event()

    def answers(_: object) -> Iterator[Any]:
        yield answer([7])
        hold.wait(30)

    with serving(answers) as (fake, url), StreamClient(url) as client:
        stream = client.stream(REQUEST)
        assert next(stream).output_ids == [7]
        assert not fake.cancelled.is_set()
        if how == "close":
            stream.close()
        else:
            with pytest.raises(KeyboardInterrupt):
                stream.throw(KeyboardInterrupt())
        assert fake.cancelled.wait(10)
        hold.set()


@pytest.mark.parametrize("url", ["localhost", "http://localhost:8001", "", "localhost:port"])
def test_names_a_url_that_is_none(url: str) -> None:
    with pytest.raises(ToolError, match="host:port"):
        StreamClient(url)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
