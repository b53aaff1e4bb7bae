"""The demo: a trained model, from checkpoint to phones in the terminal, through a real server."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.client import RequestError, StreamClient, StreamRequest, StreamResponse
from tools.lib.config_writer import ModelConfigText
from tools.lib.errors import ToolError
from tools.lib.generating import print_text
from tools.lib.server_process import start_on_free_ports
from tools.lib.text import TextCodec

MODEL = "g2p_t5"

_READY_SECONDS = 120.0
# A crashing server closes its connections a little before it is gone.
_DYING_SECONDS = 2.0


def run_demo(
    text: str,
    checkpoint: Path,
    tritonserver: Path,
    backend_directory: Path,
    out: TextIO = sys.stdout,
) -> None:
    """Assembles `checkpoint`, serves it, streams the answer to `text` to `out`, stops the server.

    The repository is temporary, the ports are free loopback ones. Raises ToolError if any of it
    fails.
    """
    codec = TextCodec(checkpoint)
    ids = codec.encode(text)
    with tempfile.TemporaryDirectory(prefix="seq2seq-demo-") as folder:
        repository = Path(folder) / "repository"
        assemble(AssembleRequest(checkpoint, repository, ModelConfigText(MODEL)))
        with start_on_free_ports(
            tritonserver, backend_directory, repository, _READY_SECONDS
        ) as server:
            print(f"model {MODEL} on {server.options.grpc_address}: {text!r}", file=out, flush=True)
            request = StreamRequest(MODEL, ids, {"response_interval_ms": 0})
            with StreamClient(server.options.grpc_address) as client:
                client.connect(_READY_SECONDS)
                stopwatch = _Stopwatch()
                try:
                    print_text(stopwatch.watch(client.stream(request)), codec, out)
                except RequestError:
                    # A server that died says why, its connection does not.
                    server.check_alive(_DYING_SECONDS)
                    raise
            print(stopwatch.summary(), file=out, flush=True)


class _Stopwatch:
    """Times a stream from the moment it is made, just before the request is sent."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._first: float | None = None
        self._end = self._begin
        self._tokens = 0
        self._reason = "?"

    def watch(self, responses: Iterator[StreamResponse]) -> Iterator[StreamResponse]:
        for response in responses:
            self._end = time.monotonic()
            if response.output_ids and self._first is None:
                self._first = self._end
            self._tokens += len(response.output_ids)
            self._reason = str(response.parameters.get("finish_reason", self._reason))
            yield response

    def summary(self) -> str:
        if self._first is None:
            raise ToolError("the server answered without a single token")
        first, total = self._first - self._begin, self._end - self._begin
        return (
            f"first token after {1e3 * first:.1f} ms, {self._tokens} tokens in "
            f"{1e3 * total:.1f} ms ({self._tokens / total:.0f} tokens/s), "
            f"finish_reason {self._reason}"
        )
