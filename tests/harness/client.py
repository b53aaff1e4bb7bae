"""A gRPC client for tests: every request has a stream of its own and keeps all that came back.

It speaks to the generated stubs rather than through tritonclient's stream class, which drops id and
FINAL of errors and allows one stream a client.
"""

import collections
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc

OptionValue = bool | int | float | str
WAIT_SECONDS = 60.0


@dataclasses.dataclass(frozen=True)
class Response:
    """One response that is not an error."""

    time_s: float  # time.monotonic() at arrival
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    parameters: dict[str, OptionValue]
    final: bool


@dataclasses.dataclass(frozen=True)
class SharedTensor:
    """Where a tensor lies instead of in the message: the first bytes of a registered region."""

    region: str
    byte_size: int

    def refer(self, tensor: Any) -> None:
        """Makes an input or a requested output refer to it."""
        set_parameter(tensor.parameters, "shared_memory_region", self.region)
        set_parameter(tensor.parameters, "shared_memory_byte_size", self.byte_size)


def _int32_input(request: service_pb2.ModelInferRequest, name: str, values: Sequence[int]) -> None:
    request.inputs.add(name=name, datatype="INT32", shape=[len(values)])
    request.raw_input_contents.append(np.asarray(values, np.int32).tobytes())


def set_parameter(target: Any, name: str, value: OptionValue) -> None:
    """Sets one request parameter with the type of `value`."""
    # bool first: it is an int, too.
    field = next(
        field
        for kind, field in (
            (bool, "bool_param"),
            (int, "int64_param"),
            (float, "double_param"),
            (str, "string_param"),
        )
        if isinstance(value, kind)
    )
    setattr(target[name], field, value)


def build_request(
    model: str,
    input_ids: Sequence[int] | None,
    options: Mapping[str, OptionValue] | None = None,
    *,
    decoder_input_ids: Sequence[int] | None = None,
    timeout_us: int = 0,
    shared_input: SharedTensor | None = None,
    shared_output: SharedTensor | None = None,
) -> service_pb2.ModelInferRequest:
    """The message of one request; None leaves an input out.

    `shared_input` holds input_ids, then given as None; `shared_output` takes output_ids.
    """
    request = service_pb2.ModelInferRequest(model_name=model)
    if input_ids is not None:
        _int32_input(request, "input_ids", input_ids)
    if shared_input:
        count = shared_input.byte_size // np.dtype(np.int32).itemsize
        shared_input.refer(request.inputs.add(name="input_ids", datatype="INT32", shape=[count]))
    if decoder_input_ids is not None:
        _int32_input(request, "decoder_input_ids", decoder_input_ids)
    for name, value in (options or {}).items():
        set_parameter(request.parameters, name, value)
    if timeout_us:
        set_parameter(request.parameters, "timeout", timeout_us)
    set_parameter(request.parameters, "triton_enable_empty_final_response", True)
    if shared_output:
        shared_output.refer(request.outputs.add(name="output_ids"))
    return request


def _parameters(message: service_pb2.ModelInferResponse) -> dict[str, OptionValue]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice"))
        for name, value in message.parameters.items()
    }


def _tensor(message: service_pb2.ModelInferResponse, name: str, dtype: type) -> tuple:
    """An output's values; empty when it is absent or lies in shared memory."""
    for index, output in enumerate(message.outputs):
        if output.name == name and index < len(message.raw_output_contents):
            return tuple(np.frombuffer(message.raw_output_contents[index], dtype).tolist())
    return ()


def is_final(message: service_pb2.ModelStreamInferResponse) -> bool:
    """Whether the message, an answer or an error, has FINAL."""
    parameters = message.infer_response.parameters
    return "triton_final_response" in parameters and parameters["triton_final_response"].bool_param


class Generation:
    """One request on its way. A thread of its own collects; all members may be read at any time."""

    def __init__(self, call: Any) -> None:
        self.started_s = time.monotonic()
        self.responses: list[Response] = []
        self.errors: list[str] = []
        self.finals = 0  # messages with FINAL, errors included
        self.status: grpc.StatusCode | None = None  # how the stream itself ended
        self.messages_after_end = 0
        self._call = call
        self._changed = threading.Condition()
        self._done = False
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    def _collect(self) -> None:
        try:
            for message in self._call:
                self._add(message)
            status = grpc.StatusCode.OK
        except grpc.RpcError as error:
            status = error.code()
        with self._changed:
            self.status = status
            self._done = True
            self._changed.notify_all()

    def _add(self, message: service_pb2.ModelStreamInferResponse) -> None:
        with self._changed:
            self.messages_after_end += bool(self.errors or self.finals)
            self.finals += is_final(message)
            if message.error_message:
                self.errors.append(message.error_message)
            else:
                self.responses.append(_read_response(message.infer_response))
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, seconds):
                raise TimeoutError(
                    f"not within {seconds} s: {what}; {len(self.ids)} tokens, errors {self.errors}"
                )

    def wait(self, seconds: float = WAIT_SECONDS) -> "Generation":
        """Returns once the stream has ended."""
        self._wait(lambda: self._done, seconds, "the stream ends")
        return self

    def wait_for_tokens(self, count: int, seconds: float = WAIT_SECONDS) -> "Generation":
        """Returns once `count` tokens are here; AssertionError when the stream ends before."""
        self._wait(lambda: self._done or len(self.ids) >= count, seconds, f"{count} tokens")
        assert len(self.ids) >= count, (self.ids, self.errors, self.status)
        return self

    def cancel(self) -> None:
        """Cancels the call, as a client that lost interest does."""
        self._call.cancel()

    @property
    def done(self) -> bool:
        """Whether the stream has ended."""
        return self._done

    @property
    def ids(self) -> tuple[int, ...]:
        """All new tokens so far."""
        return tuple(i for r in list(self.responses) for i in r.ids)

    @property
    def logprobs(self) -> tuple[float, ...]:
        """Their log-probabilities, where asked for."""
        return tuple(p for r in list(self.responses) for p in r.logprobs)

    @property
    def parameters(self) -> dict[str, OptionValue]:
        """The parameters of the last response."""
        assert self.responses, self.errors
        return self.responses[-1].parameters

    @property
    def error(self) -> str:
        """The one error; AssertionError when there is none or more."""
        assert len(self.errors) == 1, (self.errors, self.ids, self.status)
        return self.errors[0]

    def check_answer(self, answer: Sequence[int]) -> None:
        """Asserts that the request was served with exactly these tokens and ended once."""
        assert not self.errors, self.errors
        assert self.ids == tuple(answer), (self.ids, tuple(answer))
        assert self.finals == 1
        assert self.messages_after_end == 0
        assert self.parameters["completion_tokens"] == len(answer)


def _read_response(body: service_pb2.ModelInferResponse) -> Response:
    parameters = _parameters(body)
    final = bool(parameters.pop("triton_final_response", False))
    ids = _tensor(body, "output_ids", np.int32)
    logprobs = _tensor(body, "logprobs", np.float32)
    return Response(time.monotonic(), ids, logprobs, parameters, final)


class Exchange:
    """What came back for many requests that shared one stream, by request id."""

    def __init__(self) -> None:
        self.responses: dict[str, list[Response]] = collections.defaultdict(list)
        self.errors: dict[str, list[str]] = collections.defaultdict(list)
        self.finals: dict[str, int] = collections.Counter()  # messages with FINAL, errors included

    def add(self, message: service_pb2.ModelStreamInferResponse) -> None:
        """Takes one message in."""
        body = message.infer_response
        self.finals[body.id] += is_final(message)
        if message.error_message:
            self.errors[body.id].append(message.error_message)
        else:
            self.responses[body.id].append(_read_response(body))

    def ids(self, request_id: str) -> tuple[int, ...]:
        """All tokens of one request."""
        return tuple(i for r in self.responses[request_id] for i in r.ids)


class Client:
    """One connection to a server, for any number of requests at once. Thread-safe."""

    def __init__(self, url: str) -> None:
        options = [
            ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
        ]
        self._channel = grpc.insecure_channel(url, options)
        self._generations: weakref.WeakSet[Generation] = weakref.WeakSet()
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; what still runs is cancelled."""
        self._channel.close()

    def send(self, request: service_pb2.ModelInferRequest) -> Generation:
        """Sends one message on a stream of its own."""
        generation = Generation(self.stub.ModelStreamInfer(iter([request])))
        self._generations.add(generation)
        return generation

    def cancel_all(self) -> None:
        """Cancels what this client has sent and what still runs."""
        for generation in list(self._generations):
            if not generation.done:
                generation.cancel()

    def exchange(
        self, requests: Sequence[service_pb2.ModelInferRequest], seconds: float = WAIT_SECONDS
    ) -> Exchange:
        """Sends all messages, which carry ids, on one stream and returns all that came back."""
        result = Exchange()
        for message in self.stub.ModelStreamInfer(iter(requests), timeout=seconds):
            result.add(message)
        return result

    def start(
        self, model: str, input_ids: Sequence[int] | None, /, **options: OptionValue
    ) -> Generation:
        """Starts a request with these options; everything special goes through build_request."""
        return self.send(build_request(model, input_ids, options))

    def generate(
        self, model: str, input_ids: Sequence[int] | None, /, **options: OptionValue
    ) -> Generation:
        """Starts a request and waits for its end."""
        return self.start(model, input_ids, **options).wait()
