"""Boots the real tritonserver over a model repository, and watches over it.

The server listens on free loopback ports. Whoever starts it gets an error with the server's log at
once when it dies or does not become ready; only processes started here are ever signalled.
"""

import json
import os
import pathlib
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.lib.server_process import free_ports

_READY_SECONDS = 60.0
_STOP_SECONDS = 20.0
_LOG_TAIL = 20_000


class ServerError(Exception):
    """The server died, did not start, or refused a control request."""


def wait_until(condition: Callable[[], Any], seconds: float, what: str, poll: float = 0.01) -> Any:
    """Returns the first true value of `condition`; TimeoutError naming `what` after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {seconds} s: {what} (last: {value!r})")
        time.sleep(poll)


class TritonServer:
    """One tritonserver process; a context manager that starts and stops it.

    Models are loaded explicitly: those in `load` at the start, others by load(). Thread-safe but
    for start and stop.
    """

    def __init__(
        self,
        binary: pathlib.Path,
        backend_dir: pathlib.Path,
        repository: pathlib.Path,
        log: pathlib.Path,
        *,
        load: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
    ) -> None:
        self._binary = binary
        self._backend_dir = backend_dir
        self._repository = repository
        self._log = log
        self._load = load
        self._environment = {**os.environ, **(environment or {})}
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = [0, 0, 0]

    def __enter__(self) -> "TritonServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def grpc_url(self) -> str:
        """host:port of gRPC."""
        return f"127.0.0.1:{self._ports[0]}"

    @property
    def http_url(self) -> str:
        """host:port of HTTP."""
        return f"127.0.0.1:{self._ports[1]}"

    @property
    def metrics_url(self) -> str:
        """The whole address of /metrics."""
        return f"http://127.0.0.1:{self._ports[2]}/metrics"

    def start(self) -> None:
        """Starts the process and returns once it and its models are ready."""
        for attempt in range(3):
            self._spawn()
            try:
                wait_until(self.ready, _READY_SECONDS, "tritonserver is ready", poll=0.02)
                return
            except (ServerError, TimeoutError) as error:
                self._kill()
                # Another process may have taken a port between the choice and the server's bind.
                if attempt < 2 and "already in use" in self.log():
                    continue
                raise ServerError(f"{error}\nThe server's log:\n{self.log()}") from error

    def _spawn(self) -> None:
        self._ports = free_ports(3)
        grpc, http, metrics = self._ports
        command = [
            str(self._binary),
            f"--model-repository={self._repository}",
            f"--backend-directory={self._backend_dir}",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in self._load),
            "--grpc-address=127.0.0.1",
            "--http-address=127.0.0.1",
            "--metrics-address=127.0.0.1",
            f"--grpc-port={grpc}",
            f"--http-port={http}",
            f"--metrics-port={metrics}",
            "--metrics-interval-ms=100",
            "--pinned-memory-pool-byte-size=33554432",
            "--exit-timeout-secs=5",
            *self._arguments,
        ]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                command, stdout=output, stderr=subprocess.STDOUT, env=self._environment
            )

    def ready(self) -> bool:
        """Whether the server and all its models are ready; ServerError when it has ended."""
        self.check_alive()
        try:
            with urllib.request.urlopen(f"http://{self.http_url}/v2/health/ready", timeout=5) as r:
                return r.status == 200
        except OSError:
            return False

    def check_alive(self) -> None:
        """Raises ServerError with the log when the process has ended."""
        code = self._process.poll() if self._process else None
        if self._process is None or code is not None:
            raise ServerError(f"tritonserver ended with status {code}; its log:\n{self.log()}")

    def log(self) -> str:
        """The end of what the server has printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-_LOG_TAIL:]

    def rss_bytes(self) -> int:
        """The resident memory of the process."""
        self.check_alive()
        status = pathlib.Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024

    def _control(self, path: str) -> Any:
        """POSTs to the repository API; ServerError carries the server's message."""
        self.check_alive()
        request = urllib.request.Request(f"http://{self.http_url}/v2/repository/{path}", b"{}")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                body = response.read()
        except urllib.error.HTTPError as error:
            raise ServerError(json.loads(error.read())["error"]) from error
        return json.loads(body) if body else None

    def load(self, model: str) -> None:
        """Loads a model; ServerError with the reason when that fails."""
        self._control(f"models/{model}/load")

    def unload(self, model: str) -> None:
        """Asks for an unload; it ends later, see wait_unloaded."""
        self._control(f"models/{model}/unload")

    def model_state(self, model: str) -> tuple[str, str]:
        """(state, reason) of the model's only version, empty when it was never loaded."""
        for entry in self._control("index"):
            if entry["name"] == model:
                return entry.get("state", ""), entry.get("reason", "")
        return "", ""

    def wait_unloaded(self, model: str, seconds: float) -> None:
        """Returns once the model is UNAVAILABLE because of an unload."""

        def done() -> bool:
            return self.model_state(model) == ("UNAVAILABLE", "unloaded")

        wait_until(done, seconds, f"{model} is unloaded")

    def stop(self) -> None:
        """Ends the process: politely, then for good."""
        if self._process and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._kill()

    def _kill(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
