"""Runs a server in the foreground: banner, signals passed on, exit code."""

import json
import signal
import sys
import time
import urllib.request
from types import FrameType

from tools.lib import signals
from tools.lib.errors import ToolError
from tools.lib.server_process import ServerError, ServerOptions, ServerProcess
from tools.lib.text import TextCodec

# Triton waits 30 s for requests in flight; streams that clients keep open can hold it for ever.
KILL_AFTER_SECONDS = 40.0

_TICK_SECONDS = 0.2


class ForegroundServer:
    """One server for the life of a command."""

    def __init__(
        self, options: ServerOptions, kill_after_seconds: float = KILL_AFTER_SECONDS
    ) -> None:
        """A server that is asked to end gets `kill_after_seconds` for it."""
        self._server = ServerProcess(options)
        self._kill_after_seconds = kill_after_seconds
        self._stop_at: float | None = None
        self._too_early: int | None = None

    def run(self, ready_seconds: float) -> int:
        """Starts the server, says where it is, and returns its exit code when it has ended.

        The code is 128 + signal if a signal ended it. Signals that ask for the end are passed on; a
        second one kills, as does a server that does not end in time. Must run in the main thread.
        """
        before = {
            number: signal.signal(number, self._on_signal)
            for number in signals.END_SIGNALS
            if signals.is_heard(number)
        }
        started = time.monotonic()
        try:
            with self._server:
                if self._too_early is not None:
                    self._server.send_signal(self._too_early)
                try:
                    self._server.wait_until_ready(ready_seconds)
                except ServerError:
                    if self._stop_at is not None:
                        return self._wait()
                    raise
                print(banner(self._server, time.monotonic() - started), file=sys.stderr, flush=True)
                self._server.follow_log()
                return self._wait()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._stop_at is not None:
            self._server.send_signal(signal.SIGKILL)
            return
        self._stop_at = time.monotonic()
        if number == signal.SIGHUP:
            number = signal.SIGTERM  # the server would die of the other at once
        if self._server.pid is None:
            self._too_early = number
        else:
            self._server.send_signal(number)

    def _wait(self) -> int:
        while (code := self._server.wait(_TICK_SECONDS)) is None:
            stop_at = self._stop_at
            if stop_at is not None and time.monotonic() - stop_at > self._kill_after_seconds:
                print(
                    f"the server did not end within {self._kill_after_seconds:g} s; killing it",
                    file=sys.stderr,
                )
                self._server.send_signal(signal.SIGKILL)
        if code < 0 and self._stop_at is None:
            print(f"error: the server was ended by signal {-code}", file=sys.stderr)
        return code if code >= 0 else 128 - code


def banner(server: ServerProcess, seconds: float) -> str:
    """What the user needs to know of a server that is ready."""
    options = server.options
    models = _models(options)
    lines = [
        f"Server ready after {seconds:.1f} s (process {server.pid}).",
        f"  HTTP     http://{options.http_address}",
        f"  gRPC     {options.grpc_address}",
        f"  metrics  http://{options.metrics_address}/metrics",
        f"  models   {', '.join(models) if models else 'none loaded'}",
    ]
    if models:
        url = f"http://{options.http_address}/v2/models/{models[0]}/generate_stream"
        body = json.dumps({"input_ids": _example_ids(options, models[0])})
        lines += [
            "Try:",
            f"  curl -N {url} -d '{body}'",
        ]
    return "\n".join([*lines, "Ctrl-C stops it."])


def _models(options: ServerOptions) -> list[str]:
    request = urllib.request.Request(
        f"http://{options.http_address}/v2/repository/index", data=b"{}", method="POST"
    )
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            index = json.load(response)
        return sorted({entry["name"] for entry in index if entry.get("state") == "READY"})
    except (OSError, ValueError):
        return []


def _example_ids(options: ServerOptions, model: str) -> list[int]:
    try:
        versions = sorted(path for path in (options.repository / model).iterdir() if path.is_dir())
        return TextCodec(versions[-1]).encode("hello")
    except (OSError, IndexError, ToolError):
        return [5, 6, 7, 1]
