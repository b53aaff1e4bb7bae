"""A gRPC client that costs little: it shares the machine with the server that it measures."""

import asyncio
import statistics
import struct
import time
from collections.abc import Sequence

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

from benchmarks.cpu.measurement import Measurement
from tools.lib.errors import ToolError

_METHOD = "/inference.GRPCInferenceService/ModelStreamInfer"
_CONNECT_SECONDS = 30.0


class StreamingClient:
    """Streams from one model of one server; every sequence has a stream of its own."""

    def __init__(self, address: str, model: str) -> None:
        """`address` is host:port of the server's gRPC endpoint."""
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._channel = self._loop.run_until_complete(_connect(address))

    def measure(self, sources: list[list[int]], new_tokens: int) -> Measurement:
        """Sends all sources at once; each must come back as `new_tokens` tokens in a stream."""
        requests = [_request(self._model, source, new_tokens) for source in sources]
        return self._loop.run_until_complete(self._measure(requests))

    async def _measure(self, requests: list[bytes]) -> Measurement:
        # Bytes in and out: nothing is parsed before all is measured.
        method = self._channel.stream_stream(_METHOD)
        begin = time.perf_counter()
        streams = await asyncio.gather(*(_read(method, request) for request in requests))
        seconds = max(arrivals[-1][0] for arrivals in streams) - begin
        first = statistics.fmean(arrivals[0][0] for arrivals in streams) - begin
        return Measurement(seconds, first, [_ids(arrivals) for arrivals in streams])


async def _connect(address: str) -> grpc.aio.Channel:
    channel = grpc.aio.insecure_channel(address)
    await asyncio.wait_for(channel.channel_ready(), _CONNECT_SECONDS)
    return channel


def _request(model: str, source: Sequence[int], new_tokens: int) -> bytes:
    message = service_pb2.ModelInferRequest(model_name=model)
    message.inputs.add(name="input_ids", datatype="INT32", shape=[len(source)])
    message.raw_input_contents.append(struct.pack(f"<{len(source)}i", *source))
    parameters = message.parameters
    parameters["min_new_tokens"].int64_param = new_tokens
    parameters["max_new_tokens"].int64_param = new_tokens
    # A response a token.
    parameters["response_interval_ms"].int64_param = 0
    return message.SerializeToString()


async def _read(
    method: grpc.aio.StreamStreamMultiCallable, request: bytes
) -> list[tuple[float, bytes]]:
    """Every response of a new stream with the time of its arrival."""
    call = method(iter([request]))
    return [(time.perf_counter(), response) async for response in call]


def _ids(arrivals: list[tuple[float, bytes]]) -> list[int]:
    ids: list[int] = []
    for _, data in arrivals:
        response = service_pb2.ModelStreamInferResponse.FromString(data)
        if response.error_message:
            raise ToolError(f"the server answered: {response.error_message}")
        for output, content in zip(
            response.infer_response.outputs,
            response.infer_response.raw_output_contents,
            strict=True,
        ):
            if output.name == "output_ids":
                ids += np.frombuffer(content, np.int32).tolist()
    return ids
