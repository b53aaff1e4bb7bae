"""All sources to a server at once, over the client that costs little: both share the machine."""

import asyncio
import statistics
import time

import numpy as np

from benchmarks.cpu.measurement import Measurement
from tools.lib.errors import ToolError
from tools.load.load_client import Answer, LoadClient, Story, read
from tools.load.workload import LoadRequest, make_request

# A response a token.
_PARAMETERS = {"response_interval_ms": 0}


class StreamingClient:
    """Streams from one model of one server; every sequence has a stream of its own."""

    def __init__(self, address: str, model: str) -> None:
        """`address` is host:port of the server's gRPC endpoint."""
        self._model = model
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(LoadClient.connected(address))

    def measure(self, sources: list[list[int]], new_tokens: int) -> Measurement:
        """Sends all sources at once; each must come back as `new_tokens` tokens in a stream."""
        requests = [
            make_request(self._model, source, new_tokens, _PARAMETERS) for source in sources
        ]
        begin = time.monotonic()
        # Nothing is parsed before all is measured.
        answers = self._loop.run_until_complete(self._ask(requests))
        streams = [_checked(read(answer), new_tokens).came for answer in answers]
        seconds = max(came[-1][0] for came in streams) - begin
        first = statistics.fmean(came[0][0] for came in streams) - begin
        ids = [np.frombuffer(b"".join(part for _, part in came), "<i4") for came in streams]
        return Measurement(seconds, first, [each.tolist() for each in ids])

    async def _ask(self, requests: list[LoadRequest]) -> list[Answer]:
        return await asyncio.gather(*(self._client.ask(request) for request in requests))


def _checked(story: Story, new_tokens: int) -> Story:
    tokens = sum(len(part) for _, part in story.came) // 4
    if story.error or tokens != new_tokens:
        raise ToolError(f"the server answered: {story.error or f'{tokens} of {new_tokens} tokens'}")
    return story
