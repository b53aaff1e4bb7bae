import os
import sys

import pytest

from tools.lib.errors import ToolError
from tools.lib.worker import Worker


class Counter:
    """Lives in the other process."""

    def __init__(self, start: int) -> None:
        if start < 0:
            raise ValueError(f"start {start} is negative")
        self._value = start

    def add(self, amount: int) -> tuple[int, int]:
        self._value += amount
        return self._value, os.getpid()

    def hang(self) -> None:
        while True:
            pass

    def die(self) -> None:
        os._exit(7)


def test_keeps_its_object_in_another_process() -> None:
    with Worker(Counter, 10) as worker:
        assert worker.call("add", 5, seconds=60) == (15, worker.pid)
        assert worker.call("add", 1, seconds=60) == (16, worker.pid)
        assert worker.pid != os.getpid()


def test_errors_name_the_call() -> None:
    with Worker(Counter, -3) as worker, pytest.raises(ToolError, match="start -3 is negative"):
        worker.call("add", 5, seconds=60)


def test_process_that_dies() -> None:
    with Worker(Counter, 0) as worker, pytest.raises(ToolError, match="ended with code 7"):
        worker.call("die", seconds=60)


def test_call_that_does_not_end() -> None:
    with Worker(Counter, 0) as worker:
        worker.call("add", 0, seconds=60)
        with pytest.raises(ToolError, match=r"hang took more than 0\.1 s"):
            worker.call("hang", seconds=0.1)
    with pytest.raises(ProcessLookupError):
        os.kill(worker.pid, 0)


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
