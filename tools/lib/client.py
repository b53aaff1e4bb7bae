"""Streams a model's answer over Triton's gRPC protocol."""

import dataclasses
import re
import struct
from collections.abc import Iterator, Mapping, Sequence

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tools.lib import signals
from tools.lib.errors import ToolError
from tools.lib.parameters import Parameter

_FINAL = "triton_final_response"
_EMPTY_FINAL = "triton_enable_empty_final_response"
# A stream carries an error's text alone; this backend begins it with the code.
_CODED_ERROR = re.compile(r"(?P<code>[A-Z_]+): (?P<message>.*)", re.DOTALL)


class RequestError(ToolError):
    """The server's answer was an error. `code` is INVALID_ARG, UNAVAILABLE, ... or UNKNOWN."""

    def __init__(self, code: str, message: str) -> None:
        """The text is both, as the server sends them."""
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclasses.dataclass(frozen=True)
class StreamRequest:
    """One request.

    `parameters` are the backend's options; Triton's own `timeout` (microseconds) may be among them.
    """

    model: str
    input_ids: Sequence[int]
    parameters: Mapping[str, Parameter] = dataclasses.field(default_factory=dict)
    decoder_input_ids: Sequence[int] | None = None
    version: str = ""


@dataclasses.dataclass(frozen=True)
class StreamResponse:
    """One response: the ids that are new in it, and their log-probabilities if asked for."""

    output_ids: list[int]
    logprobs: list[float]
    parameters: dict[str, Parameter]
    final: bool


class StreamClient:
    """A connection to one server. A context manager; safe to use from several threads."""

    def __init__(self, url: str) -> None:
        """`url` is host:port of the gRPC endpoint. Nothing is sent yet."""
        if not re.fullmatch(r"\S+:\d+", url) or "//" in url:
            raise ToolError(f"url {url!r}: expected host:port of the server's gRPC endpoint")
        self._url = url
        unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self._channel = grpc.insecure_channel(url, options=unlimited)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> "StreamClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; requests that still run are cancelled."""
        # A channel that a signal has closed halfway waits for ever when it is deleted.
        with signals.held_back():
            self._channel.close()

    def connect(self, seconds: float) -> None:
        """Waits until the server answers; RequestError if it does not within so many seconds.

        Needed only by those who measure: `stream` connects by itself.
        """
        try:
            grpc.channel_ready_future(self._channel).result(seconds)
        except grpc.FutureTimeoutError as error:
            raise RequestError("UNAVAILABLE", f"{self._url}: no connection") from error

    def stream(self, request: StreamRequest) -> Iterator[StreamResponse]:
        """Sends the request and yields its responses up to the final one, which may be empty.

        Raises RequestError when the server answers with an error or cannot be reached. Leaving the
        iteration early, by an exception (Ctrl-C) or by closing the generator, cancels the request.
        """
        call = self._stub.ModelStreamInfer(iter([to_message(request)]))
        try:
            for answer in call:
                if answer.error_message:
                    _read_to_end(call)
                    raise _to_error(answer.error_message)
                response = _to_response(answer.infer_response)
                yield response
                if response.final:
                    _read_to_end(call)
                    return
        except grpc.RpcError as error:
            raise RequestError(error.code().name, f"{self._url}: {error.details()}") from error
        finally:
            call.cancel()
        raise RequestError("INTERNAL", f"{self._url}: the stream ended without a final response")


def _read_to_end(call: Iterator[service_pb2.ModelStreamInferResponse]) -> None:
    """Lets the server close the stream, which it does now that all of it is sent.

    A cancel that crosses a request's last message can leave the server with a stream that never
    ends, and the model with it when it is unloaded.
    """
    for _ in call:
        pass


def to_message(request: StreamRequest) -> service_pb2.ModelInferRequest:
    """The request as the protocol has it."""
    message = service_pb2.ModelInferRequest(model_name=request.model, model_version=request.version)
    _add_ids(message, "input_ids", request.input_ids)
    if request.decoder_input_ids is not None:
        _add_ids(message, "decoder_input_ids", request.decoder_input_ids)
    message.parameters[_EMPTY_FINAL].bool_param = True
    for name, value in request.parameters.items():
        # A Python bool is an int, too: it is asked for first.
        if isinstance(value, bool):
            message.parameters[name].bool_param = value
        elif isinstance(value, int):
            message.parameters[name].int64_param = value
        elif isinstance(value, float):
            message.parameters[name].double_param = value
        else:
            message.parameters[name].string_param = value
    return message


def _add_ids(message: service_pb2.ModelInferRequest, name: str, ids: Sequence[int]) -> None:
    message.inputs.add(name=name, datatype="INT32", shape=[len(ids)])
    message.raw_input_contents.append(struct.pack(f"<{len(ids)}i", *ids))


def _to_response(message: service_pb2.ModelInferResponse) -> StreamResponse:
    parameters = {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in message.parameters.items()
    }
    final = bool(parameters.pop(_FINAL, False))
    return StreamResponse(
        output_ids=_output(message, "output_ids", np.int32),
        logprobs=_output(message, "logprobs", np.float32),
        parameters=parameters,
        final=final,
    )


def _output(message: service_pb2.ModelInferResponse, name: str, dtype: type) -> list:
    for index, output in enumerate(message.outputs):
        if output.name == name and index < len(message.raw_output_contents):
            return np.frombuffer(message.raw_output_contents[index], dtype=dtype).tolist()
    return []


def _to_error(text: str) -> RequestError:
    match = _CODED_ERROR.fullmatch(text)
    return RequestError(match["code"], match["message"]) if match else RequestError("UNKNOWN", text)
