"""One client process of a run."""

import asyncio
import contextlib
import dataclasses
import gc
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from ctypes import Array, c_longlong

import numpy as np

from tools.load.load_client import Answer, LoadClient, to_trace
from tools.load.trace import Outcome, Trace
from tools.load.workload import Workload, make_requests

# Sources repeat after so many requests; servers keep nothing of them.
_DIFFERENT_REQUESTS = 256
# In a closed loop, a request that was turned away is followed by the next one after this.
_PAUSE_SECONDS = 0.05


@dataclasses.dataclass(frozen=True)
class ClosedJob:
    """`streams` requests are always under way: each answer's end is followed by the next request.

    They begin at `begin`, and no more after `end`, or after `requests` in all.
    """

    begin: float
    streams: int
    end: float = float("inf")
    requests: int | None = None
    give_up: float = float("inf")


@dataclasses.dataclass(frozen=True)
class OpenJob:
    """Requests are sent at `times`, whatever became of those before."""

    begin: float
    times: np.ndarray
    give_up: float = float("inf")


Job = ClosedJob | OpenJob


@dataclasses.dataclass(frozen=True)
class Finished:
    """What a job came to. `busy` is the share of one core that this process needed meanwhile."""

    trace: Trace
    cpu_seconds: float
    busy: float


class LoadWorker:
    """Sends requests as it is told; made within its process."""

    def __init__(
        self, address: str, workload: Workload, part: int, progress: "Array[c_longlong]"
    ) -> None:
        """Connects. `progress[part]` counts the responses that came."""
        self._part = part
        self._progress = progress
        self._requests = itertools.cycle(make_requests(workload, _DIFFERENT_REQUESTS, part))
        self._loop = asyncio.new_event_loop()
        self._client = self._loop.run_until_complete(LoadClient.connected(address))

    def ready(self) -> bool:
        """True; it was made, then."""
        return True

    def run(self, job: Job) -> Finished:
        """Runs a job until its last answer has ended, or is cancelled at job.give_up."""
        self._progress[self._part] = 0
        with _without_collections():
            answers, cpu_seconds, busy = self._loop.run_until_complete(self._run(job))
        return Finished(to_trace(answers), cpu_seconds, busy)

    async def _run(self, job: Job) -> tuple[list[Answer], float, float]:
        await _sleep_until(job.begin)
        cpu_begin, wall_begin = time.process_time(), time.monotonic()
        answers: list[Answer] = []
        if isinstance(job, ClosedJob):
            await self._closed(job, answers)
        else:
            await self._open(job, answers)
        cpu_seconds = time.process_time() - cpu_begin
        return answers, cpu_seconds, cpu_seconds / (time.monotonic() - wall_begin)

    async def _closed(self, job: ClosedJob, answers: list[Answer]) -> None:
        tickets = itertools.count() if job.requests is None else iter(range(job.requests))

        async def one_stream() -> None:
            while time.monotonic() < job.end and next(tickets, None) is not None:
                answer = await self._ask(answers, None)
                if answer.cancelled:
                    return
                if _turned_away(answer):
                    await asyncio.sleep(_PAUSE_SECONDS)

        await _finish([asyncio.ensure_future(one_stream()) for _ in range(job.streams)], job)

    async def _open(self, job: OpenJob, answers: list[Answer]) -> None:
        tasks = []
        for intended in job.times:
            await _sleep_until(intended)
            tasks.append(asyncio.ensure_future(self._ask(answers, float(intended))))
        await _finish(tasks, job)

    async def _ask(self, answers: list[Answer], intended: float | None) -> Answer:
        answer = await self._client.ask(next(self._requests), intended)
        answers.append(answer)
        self._progress[self._part] += len(answer.responses)
        return answer


async def _sleep_until(moment: float) -> None:
    # Also where the moment is past: others get their turn.
    await asyncio.sleep(max(0.0, moment - time.monotonic()))


async def _finish(tasks: Sequence[asyncio.Future], job: Job) -> None:
    """Waits for all tasks, and cancels those that run at job.give_up."""
    if not tasks:
        return
    patience = None if math.isinf(job.give_up) else max(0.0, job.give_up - time.monotonic())
    _, late = await asyncio.wait(tasks, timeout=patience)
    for task in late:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def _turned_away(answer: Answer) -> bool:
    return len(answer.responses) < 2 and to_trace([answer]).outcome[0] != Outcome.OK


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """What is kept of a run is much to look through for cycles, again and again."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
