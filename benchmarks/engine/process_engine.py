"""An engine behind standard input and output: a batch as a line of JSON, its measurement as one."""

import json
import select
import subprocess
from collections.abc import Sequence

from benchmarks.cpu.measurement import Measurement
from tools.lib.errors import ToolError

_STOP_SECONDS = 5.0


class ProcessEngine:
    """One process that answers as batch_measuring.h says. A context manager: leaving ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        """Starts nothing yet. What the process writes to standard error is passed on."""
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "ProcessEngine":
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
        except OSError as error:
            raise ToolError(f"{self._command[0]}: {error.strerror}") from error
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        try:
            process.stdin.close()
        except OSError:
            pass  # What it had not read yet; it has ended.
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def measure(self, sources: list[list[int]], new_tokens: int, seconds: float) -> Measurement:
        """Generates `new_tokens` for each source; ToolError if it fails or takes too long."""
        request = json.dumps({"sources": sources, "new_tokens": new_tokens})
        process = self._process
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
        except OSError as error:
            raise self._ended() from error
        # An answer comes in one piece and nothing follows it: none of it waits in the buffer.
        if not select.select([process.stdout], [], [], seconds)[0]:
            raise ToolError(f"a batch took more than {seconds:g} s")
        line = process.stdout.readline()
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise ToolError(answer["error"])
        return Measurement(answer["seconds"], answer["first_token_seconds"], answer["ids"])

    def _ended(self) -> ToolError:
        try:
            code = self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return ToolError("its process closed its output")
        return ToolError(f"its process ended with code {code}")
