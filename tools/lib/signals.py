"""The signals that ask a process to end, and how to hold them back for a moment."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# SIGHUP: the terminal, or the connection to it, is gone.
END_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def is_heard(number: int) -> bool:
    """Whether the signal means anything here: under nohup SIGHUP does not."""
    return number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Handlers of END_SIGNALS run after the block rather than within it.

    They may raise, and what the block does must not end halfway. Only the main thread runs
    handlers; in others there is nothing to do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _frame: held.append(number))
        for number in END_SIGNALS
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in held:
            signal.raise_signal(number)
