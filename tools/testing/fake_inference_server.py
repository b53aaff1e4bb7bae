"""A gRPC server in the test's own process that speaks Triton's streaming protocol from a script."""

import contextlib
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc
from tritonclient.grpc import service_pb2, service_pb2_grpc

Answers = Callable[[service_pb2.ModelInferRequest], Iterator[service_pb2.ModelStreamInferResponse]]


def answer(
    ids: list[int] | None = None,
    *,
    final: bool = False,
    logprobs: list[float] | None = None,
    **parameters: int | float | bool | str,
) -> service_pb2.ModelStreamInferResponse:
    """A response as Triton sends it; without ids it has no outputs at all."""
    response = service_pb2.ModelInferResponse(model_name="m")
    if ids is not None:
        _add(response, "output_ids", "INT32", f"<{len(ids)}i", ids)
        _add(response, "logprobs", "FP32", f"<{len(logprobs or [])}f", logprobs or [])
    fields = {bool: "bool_param", int: "int64_param", float: "double_param", str: "string_param"}
    for name, value in (parameters | {"triton_final_response": final}).items():
        setattr(response.parameters[name], fields[type(value)], value)
    return service_pb2.ModelStreamInferResponse(infer_response=response)


def error(message: str) -> service_pb2.ModelStreamInferResponse:
    """An error as Triton sends it on a stream: text only."""
    return service_pb2.ModelStreamInferResponse(error_message=message)


def _add(
    response: service_pb2.ModelInferResponse, name: str, datatype: str, layout: str, values: list
) -> None:
    response.outputs.add(name=name, datatype=datatype, shape=[len(values)])
    response.raw_output_contents.append(struct.pack(layout, *values))


class FakeInferenceServer(service_pb2_grpc.GRPCInferenceServiceServicer):
    """Answers every request with what `answers` yields for it; keeps the requests.

    `cancelled` is set when a client cancels a stream or goes away before its end, `finished` when a
    stream came to its end.
    """

    def __init__(self, answers: Answers) -> None:
        """Serves nothing by itself: see `serving`."""
        self._answers = answers
        self.requests: list[service_pb2.ModelInferRequest] = []
        self.cancelled = threading.Event()
        self.finished = threading.Event()

    def ModelStreamInfer(  # noqa: N802, the protocol's name
        self,
        request_iterator: Iterator[service_pb2.ModelInferRequest],
        context: grpc.ServicerContext,
    ) -> Iterator[service_pb2.ModelStreamInferResponse]:
        """The protocol's streaming call."""
        context.add_callback(lambda: self.finished.is_set() or self.cancelled.set())
        for request in request_iterator:
            self.requests.append(request)
            yield from self._answers(request)
        self.finished.set()

    def ServerMetadata(self, *_: object) -> service_pb2.ServerMetadataResponse:  # noqa: N802
        """Who this is."""
        return service_pb2.ServerMetadataResponse(name="fake", version="0")

    def ModelReady(self, *_: object) -> service_pb2.ModelReadyResponse:  # noqa: N802
        """Every model is."""
        return service_pb2.ModelReadyResponse(ready=True)


@contextlib.contextmanager
def serving(answers: Answers) -> Iterator[tuple[FakeInferenceServer, str]]:
    """Runs a server on a free loopback port; yields it and its host:port."""
    fake = FakeInferenceServer(answers)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(fake, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield fake, f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()
