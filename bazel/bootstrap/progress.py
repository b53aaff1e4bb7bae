"""Progress lines: what is being done, and how long it took."""

import contextlib
import time
from collections.abc import Iterator


class Progress:
    """Prints one line when a step starts and its seconds when it ends."""

    def __init__(self, name: str) -> None:
        """`name` starts every line."""
        self._name = name
        self._start = time.monotonic()

    @contextlib.contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Names a step and times it; a step that fails prints no time."""
        print(f"{self._name}: {what} ...", flush=True)
        start = time.monotonic()
        yield
        print(f"{self._name}: {what}: {time.monotonic() - start:.1f} s", flush=True)

    def note(self, what: str) -> None:
        """Prints one line."""
        print(f"{self._name}: {what}", flush=True)

    def done(self, what: str) -> None:
        """Prints the last line, with the seconds since the start."""
        self.note(f"{what} after {time.monotonic() - self._start:.1f} s")
