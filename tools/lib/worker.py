"""An object that lives in a process of its own."""

import multiprocessing
import signal
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tools.lib.errors import ToolError

_STOP_SECONDS = 2.0


class Worker:
    """Makes `factory(*arguments)` in a new process and calls its methods, one at a time.

    A context manager; leaving it ends the process. The process is started afresh rather than
    forked, so it shares neither threads nor memory with this one.
    """

    def __init__(self, factory: Callable[..., Any], *arguments: Any) -> None:
        """Starts nothing yet; both `factory` and `arguments` must be picklable."""
        context = multiprocessing.get_context("spawn")
        self._name = factory.__name__
        self._connection, self._child_connection = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(self._child_connection, factory, arguments), daemon=True
        )

    def __enter__(self) -> "Worker":
        self._process.start()
        # The child has its own; with this one open its death would not be seen.
        self._child_connection.close()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join(_STOP_SECONDS)
        self._process.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        """The process id, once it is started."""
        return self._process.pid

    def call(self, method: str, *arguments: Any, seconds: float) -> Any:
        """What `method` returns; ToolError if it raises, takes too long or the process dies.

        The first call also waits for the object to be made.
        """
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(seconds):
                raise ToolError(f"{self._name}: {method} took more than {seconds:g} s")
            result, error = self._connection.recv()
        except (EOFError, OSError) as error:
            self._process.join(_STOP_SECONDS)
            raise ToolError(
                f"{self._name}: its process ended with code {self._process.exitcode}"
            ) from error
        if error:
            raise ToolError(f"{self._name}: {method}: {error}")
        return result


def _serve(connection: Connection, factory: Callable[..., Any], arguments: tuple) -> None:
    """The process: makes the object, then answers calls until the other side hangs up."""
    # A Ctrl-C reaches every process of the terminal; the starter ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    served = None
    while True:
        try:
            method, values = connection.recv()
        except EOFError:
            return
        try:
            served = served or factory(*arguments)
            answer = (getattr(served, method)(*values), None)
        except Exception:
            answer = (None, traceback.format_exc())
        connection.send(answer)
