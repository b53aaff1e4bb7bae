"""The client processes of a benchmark."""

import contextlib
import dataclasses
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from ctypes import c_longlong

from tools.lib.worker import Worker
from tools.load.load_worker import Finished, Job, LoadWorker
from tools.load.workload import Workload

_START_SECONDS = 120.0
_TICK_SECONDS = 0.2


@dataclasses.dataclass(frozen=True)
class Fleet:
    """Processes that are connected to the server. Calls are for one thread."""

    workers: Sequence[Worker]
    progress: Sequence[int]

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.workers)

    def run(
        self, jobs: Sequence[Job], seconds: float, tick: Callable[[float, int], None]
    ) -> list[Finished]:
        """Runs at most `size` jobs side by side, each for at most `seconds`.

        `tick` hears of the seconds since the jobs' begin and of the responses that came. Raises
        ToolError for a process that fails.
        """
        threads = ThreadPoolExecutor(len(jobs))
        calls = [
            threads.submit(worker.call, "run", job, seconds=seconds)
            for worker, job in zip(self.workers, jobs, strict=False)
        ]
        try:
            while wait(calls, _TICK_SECONDS).not_done:
                tick(time.monotonic() - jobs[0].begin, sum(self.progress[: len(jobs)]))
            return [call.result() for call in calls]
        finally:
            # After a signal no call is waited for: each ends with its process.
            threads.shutdown(wait=False)


@contextlib.contextmanager
def started_fleet(address: str, workload: Workload, size: int) -> Iterator[Fleet]:
    """So many processes, ended afterwards."""
    progress = multiprocessing.get_context("spawn").RawArray(c_longlong, size)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(Worker(LoadWorker, address, workload, part, progress))
            for part in range(size)
        ]
        with ThreadPoolExecutor(size) as threads:
            for _ in threads.map(lambda one: one.call("ready", seconds=_START_SECONDS), workers):
                pass
        yield Fleet(workers, progress)
