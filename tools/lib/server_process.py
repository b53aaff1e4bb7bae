"""A tritonserver process: started, waited for, stopped; its log kept for when it fails."""

import collections
import contextlib
import dataclasses
import errno
import http.client
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from tools.lib import signals
from tools.lib.errors import ToolError

PINNED_POOL_BYTES = 256 << 20
CONTROL_MODES = ("none", "poll", "explicit")

_LOG_LINES = 200
_PORT_ATTEMPTS = 3
_POLL_SECONDS = 0.02


@dataclasses.dataclass(frozen=True)
class ServerOptions:
    """How to start the server.

    `host` is the address that all three ports are bound to, `environment` what the server finds in
    its environment beside what is in ours.
    """

    tritonserver: Path
    backend_directory: Path
    repository: Path
    http_port: int = 8000
    grpc_port: int = 8001
    metrics_port: int = 8002
    host: str = "127.0.0.1"
    model_control_mode: str = "none"
    extra_flags: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def http_address(self) -> str:
        """host:port at which a client on this machine reaches the HTTP endpoint."""
        return f"{self._reachable_host}:{self.http_port}"

    @property
    def grpc_address(self) -> str:
        """The same for gRPC."""
        return f"{self._reachable_host}:{self.grpc_port}"

    @property
    def metrics_address(self) -> str:
        """The same for the metrics."""
        return f"{self._reachable_host}:{self.metrics_port}"

    @property
    def ports(self) -> dict[str, int]:
        """The three ports by what they are called."""
        return {"HTTP": self.http_port, "gRPC": self.grpc_port, "metrics": self.metrics_port}

    @property
    def _reachable_host(self) -> str:
        if self.host == "0.0.0.0":
            return "127.0.0.1"
        if self.host == "::":
            return "[::1]"
        return f"[{self.host}]" if ":" in self.host else self.host

    def command(self) -> list[str]:
        """The server's command line; `extra_flags` come last, so they win."""
        return [
            str(self.tritonserver),
            f"--model-repository={self.repository}",
            f"--backend-directory={self.backend_directory}",
            f"--http-address={self.host}",
            f"--grpc-address={self.host}",
            f"--metrics-address={self.host}",
            f"--http-port={self.http_port}",
            f"--grpc-port={self.grpc_port}",
            f"--metrics-port={self.metrics_port}",
            f"--model-control-mode={self.model_control_mode}",
            f"--pinned-memory-pool-byte-size={PINNED_POOL_BYTES}",
            *self.extra_flags,
        ]


class ServerError(ToolError):
    """The server died or did not become ready. The message ends with the last lines of its log."""


class ServerProcess:
    """One server. A context manager: leaving it stops the server.

    The server is in a process group of its own, so that a Ctrl-C in the terminal reaches it once,
    through `send_signal`. All methods are for one thread, but for `send_signal`, which may run in a
    signal handler.
    """

    def __init__(self, options: ServerOptions) -> None:
        """Starts nothing yet."""
        self.options = options
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._log = _Log()

    def __enter__(self) -> "ServerProcess":
        """Starts the server unless it was started before."""
        try:
            if self._process is None:
                self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def pid(self) -> int | None:
        """The server's process id, None before `start`."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Starts the process; raises ToolError naming the file if it cannot be run.

        A port that is taken is a ServerError, before anything is started: the server that has it
        would answer in this one's place, and look ready.
        """
        if not self.options.repository.is_dir():
            raise ToolError(f"{self.options.repository}: no such model repository")
        if self._process is not None:
            raise ValueError("started before")
        _check_ports(self.options)
        with signals.held_back():
            try:
                self._process = subprocess.Popen(
                    self.options.command(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                    env={**os.environ, **self.options.environment},
                )
            except OSError as error:
                raise ToolError(f"{self.options.tritonserver}: {error.strerror}") from error
            self._reader = threading.Thread(
                target=self._log.read, args=(self._process.stdout,), daemon=True
            )
            self._reader.start()

    def wait_until_ready(self, seconds: float) -> None:
        """Returns when every model is loaded.

        Raises ServerError with the server's log if it dies first or is not ready after so many
        seconds.
        """
        deadline = time.monotonic() + seconds
        url = f"http://{self.options.http_address}/v2/health/ready"
        while time.monotonic() < deadline:
            self.check_alive()
            if _answers(url):
                return
            time.sleep(_POLL_SECONDS)
        raise ServerError(f"the server was not ready after {seconds:g} s; its log:\n{self.log()}")

    def check_alive(self, grace_seconds: float = 0.0) -> None:
        """Raises ServerError with the server's log if it has ended, or does so within the grace."""
        code = self.wait(grace_seconds)
        if code is not None:
            self._reader.join()
            raise ServerError(f"the server ended with code {code}; its log:\n{self.log()}")

    def poll(self) -> int | None:
        """The exit code (negative: the signal), or None while the server runs."""
        return self._process.poll() if self._process else None

    def wait(self, seconds: float | None = None) -> int | None:
        """Waits for the server's end, at most so long; the exit code, or None if it still runs."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Passes a signal on to the server, if it runs."""
        if self._process is not None:
            self._process.send_signal(number)

    def stop(self, grace_seconds: float = 10.0) -> int | None:
        """Asks the server to end and kills it if it has not after the grace; the exit code."""
        if self._process is None:
            return None
        self.send_signal(signal.SIGTERM)
        try:
            self.wait(grace_seconds)
        finally:
            # Nothing is left behind, not even by a Ctrl-C while waiting; nor are processes that the
            # server has started, as Triton's Python backend does.
            self.send_signal(signal.SIGKILL)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        code = self._process.wait()
        self._reader.join()
        return code

    def log(self) -> str:
        """The last lines that the server wrote."""
        return self._log.tail()

    def follow_log(self, out: TextIO = sys.stderr) -> None:
        """From now on what the server writes appears on `out`, too."""
        self._log.follow(out)


class _Log:
    """Keeps the last lines of a stream, reading in a thread so that the server never blocks."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: collections.deque[str] = collections.deque(maxlen=_LOG_LINES)
        self._out: TextIO | None = None

    def read(self, stream: TextIO) -> None:
        with stream:
            for line in stream:
                with self._lock:
                    self._lines.append(line)
                    out = self._out
                if out is not None:
                    with contextlib.suppress(OSError, ValueError):
                        out.write(line)
                        out.flush()

    def follow(self, out: TextIO) -> None:
        with self._lock:
            self._out = out

    def tail(self) -> str:
        with self._lock:
            return "".join(self._lines).rstrip("\n")


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1):
            return True
    except (OSError, ValueError, http.client.HTTPException):
        return False


def _check_ports(options: ServerOptions) -> None:
    family = socket.AF_INET6 if ":" in options.host else socket.AF_INET
    # Held until all are probed, so that one number given twice is noticed, too.
    with contextlib.ExitStack() as stack:
        for name, port in options.ports.items():
            probe = stack.enter_context(socket.socket(family))
            # As the server does: a port whose last connections linger is free.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((options.host, port))
                probe.listen()
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise ServerError(
                        f"{name} port {port} on {options.host} is already in use; choose another, "
                        "or stop what listens there"
                    ) from error
                raise ToolError(
                    f"{name} port {port} on {options.host} cannot be bound: {error.strerror}"
                ) from error


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """So many different TCP ports that nobody listens on now.

    Another process may take one before its use, so starting on them may have to be tried again.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((host, 0))
        return [one.getsockname()[1] for one in sockets]


def start_on_free_ports(
    tritonserver: Path,
    backend_directory: Path,
    repository: Path,
    ready_seconds: float,
    **settings: Any,
) -> ServerProcess:
    """A server that is ready within `ready_seconds`, on loopback; the caller stops it.

    Ports that were free may be taken by the time the server binds them; then others are tried.
    `settings` are further ServerOptions.
    Raises ServerError, with nothing left running.
    """
    attempt = 1
    while True:
        ports = free_ports(3)
        options = ServerOptions(tritonserver, backend_directory, repository, *ports, **settings)
        server = ServerProcess(options)
        try:
            server.start()
            server.wait_until_ready(ready_seconds)
            return server
        except BaseException as error:
            server.stop()
            taken = isinstance(error, ServerError) and "already in use" in str(error)
            if not taken or attempt == _PORT_ATTEMPTS:
                raise
        attempt += 1
