"""A client in a process of its own, for tests to kill; it prints how many tokens came."""

import contextlib
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence

from tests.harness.client import Client, OptionValue


@contextlib.contextmanager
def start(
    url: str,
    model: str,
    source: Sequence[int],
    options: Mapping[str, OptionValue],
    *,
    streams: int,
) -> Iterator[subprocess.Popen[str]]:
    """Starts the process, with `streams` equal requests at once; kills it at the end."""
    job = json.dumps([url, model, list(source), dict(options), streams])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = [sys.executable, "-m", "tests.harness.streaming_process", job]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def wait_for_tokens(process: subprocess.Popen[str], count: int) -> int:
    """Reads until `count` tokens were printed; returns the number read."""
    seen = 0
    while seen < count:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with {process.wait()} after {seen} tokens")
        seen += int(line)
    return seen


def _run(job: str) -> None:
    url, model, source, options, streams = json.loads(job)
    with Client(url) as client:
        generations = [client.start(model, source, **options) for _ in range(streams)]
        printed = 0
        for round_ in itertools.count(1):
            generations[0].wait_for_tokens(round_)
            total = sum(len(g.ids) for g in generations)
            print(total - printed, flush=True)
            printed = total


if __name__ == "__main__":
    _run(sys.argv[1])
