"""A gRPC client that costs little for each token, so that it does not limit what it measures."""

import asyncio
import dataclasses
import re
import time
from collections import Counter
from collections.abc import Sequence

import grpc
from tritonclient.grpc import service_pb2

from tools.lib.errors import ToolError
from tools.load.trace import Outcome, Trace, make_trace
from tools.load.workload import LoadRequest

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_CONNECT_SECONDS = 30.0
_OPTIONS = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Channels of one process to one address would share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]
_FINAL = "triton_final_response"
_REFUSED = re.compile(r"UNAVAILABLE\b")
_ERROR_LENGTH = 300
_INT32_BYTES = 4


@dataclasses.dataclass
class Answer:
    """A request's answer as it came: every response with its time, unparsed.

    `error` is the text of a call that failed as such, `cancelled` says that this side ended it.
    """

    request: LoadRequest
    intended: float
    sent: float
    ended: float = 0.0
    responses: list[tuple[float, bytes]] = dataclasses.field(default_factory=list)
    error: str | None = None
    cancelled: bool = False


class LoadClient:
    """A connection to one server, for one event loop. Each request has a stream of its own."""

    def __init__(self, address: str) -> None:
        """`address` is host:port of the server's gRPC endpoint. See connected()."""
        self._channel = grpc.aio.insecure_channel(address, options=_OPTIONS)
        # Bytes in and out. One request a stream: on the wire this is a bidirectional call whose
        # sender is done after its first message.
        self._method = self._channel.unary_stream(_METHOD)

    @classmethod
    async def connected(cls, address: str) -> "LoadClient":
        """One that has its connection; ToolError if nobody answers."""
        client = cls(address)
        try:
            await asyncio.wait_for(client._channel.channel_ready(), _CONNECT_SECONDS)
        except TimeoutError as error:
            raise ToolError(f"{address}: no connection") from error
        return client

    async def ask(self, request: LoadRequest, intended: float | None = None) -> Answer:
        """Sends the request and waits for its end; without `intended`, it was to be sent now."""
        clock = time.monotonic
        sent = clock()
        answer = Answer(request, sent if intended is None else intended, sent)
        came = answer.responses
        end = grpc.aio.EOF
        call = self._method(request.message)
        try:
            while (data := await call.read()) is not end:
                came.append((clock(), data))
        except asyncio.CancelledError:
            call.cancel()
            answer.cancelled = True
        except grpc.aio.AioRpcError as error:
            answer.error = f"{error.code().name}: {error.details()}"
        answer.ended = clock()
        return answer


def to_trace(answers: Sequence[Answer]) -> Trace:
    """Parses what came; for after the measurement."""
    requests = []
    responses = []
    errors: Counter[str] = Counter()
    for index, answer in enumerate(answers):
        story = read(answer)
        responses.extend((index, arrival, _count(ids)) for arrival, ids in story.came)
        outcome, error = _judge(answer, story)
        if error:
            errors[error[:_ERROR_LENGTH]] += 1
        requests.append((answer.intended, answer.sent, answer.ended, outcome))
    return make_trace(requests, responses, errors)


@dataclasses.dataclass
class Story:
    """Responses with tokens, the first error, and whether the last response was marked so.

    `came`: when a response came, and its ids as little-endian int32.
    """

    came: list[tuple[float, bytes]] = dataclasses.field(default_factory=list)
    error: str | None = None
    final: bool = False


def read(answer: Answer) -> Story:
    """Parses an answer; for after the measurement."""
    story = Story(error=answer.error)
    for arrival, data in answer.responses:
        message = service_pb2.ModelStreamInferResponse.FromString(data)
        story.error = story.error or message.error_message
        story.final = _is_final(message.infer_response)
        if ids := _ids(message.infer_response):
            story.came.append((arrival, ids))
    return story


def _judge(answer: Answer, story: Story) -> tuple[Outcome, str | None]:
    """How the request ended, and the error if it went wrong."""
    if story.error:
        refused = _REFUSED.match(story.error)
        return Outcome.REFUSED if refused else Outcome.FAILED, story.error
    if answer.cancelled:
        return Outcome.UNFINISHED, None
    if not story.final:
        return Outcome.FAILED, "the stream ended without a final response"
    asked = answer.request.new_tokens
    tokens = sum(_count(ids) for _, ids in story.came)
    if asked is not None and tokens != asked:
        word = "fewer" if tokens < asked else "more"
        return Outcome.FAILED, f"{word} tokens than were asked for"
    return Outcome.OK, None


def _is_final(message: service_pb2.ModelInferResponse) -> bool:
    # Looking a name up in this map would add it.
    return _FINAL in message.parameters and message.parameters[_FINAL].bool_param


def _ids(message: service_pb2.ModelInferResponse) -> bytes:
    for index, output in enumerate(message.outputs):
        if output.name == "output_ids":
            return message.raw_output_contents[index]
    return b""


def _count(ids: bytes) -> int:
    return len(ids) // _INT32_BYTES
