"""What every main shares: errors become one line and an exit code, signals end a run tidily."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from absl import app

from tools.lib import signals
from tools.lib.errors import ToolError


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Runs `main` with the arguments that are no flags, as absl does, and exits.

    Exit codes: what `main` returns (None: 0), 1 for a ToolError and, by absl, for wrong flags and
    --help, 128 + n for signal n.
    """
    app.run(lambda argv: _guarded(main, argv))


def _guarded(main: Callable[[Sequence[str]], int | None], argv: Sequence[str]) -> int:
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signals.is_heard(number):
            signal.signal(number, _leave)
    try:
        return main(argv[1:]) or 0
    except ToolError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader (head, less) has left; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(128 + number)


def refuse_arguments(arguments: Sequence[str]) -> None:
    """For mains that take flags only."""
    if arguments:
        raise ToolError(f"unexpected argument {arguments[0]!r}; see --help")
