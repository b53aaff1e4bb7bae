"""What Linux says of a running process."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

_POLL_SECONDS = 0.05
# The CPU time that a process which does nothing may take in one poll.
_IDLE_TICKS = 1


def peak_rss_bytes(pid: int) -> int:
    """The most memory that was resident, files that it mapped included."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise ValueError(f"/proc/{pid}/status: no VmHWM")


def cpu_seconds(pid: int) -> float:
    """The processor time that the process has used, in all its threads, children excluded."""
    return _ticks(pid) / os.sysconf("SC_CLK_TCK")


def family_cpu_seconds(pid: int) -> float:
    """The processor time of the process and all its descendants, also of those that have ended.

    Of a descendant that is ending just now it may be missing until its parent has waited for it.
    """
    stats = dict(_all_stats())
    family = [pid]
    for member in family:
        family.extend(child for child, fields in stats.items() if int(fields[1]) == member)
    # Its own time, and that of children it has waited for.
    ticks = sum(int(field) for member in family for field in stats[member][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _all_stats() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            # Processes come and go.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                yield int(folder.name), _stat(int(folder.name))


def _ticks(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12])


def _stat(pid: int) -> list[str]:
    # The fields after the name, which stands in parentheses and may hold anything.
    text = Path(f"/proc/{pid}/stat").read_bytes().decode(errors="replace")
    return text.rpartition(")")[2].split()


def wait_until_idle(pids: Iterable[int], seconds: float) -> bool:
    """Waits until none of the processes computes; False if some still does after so long.

    Worker threads of an engine spin a while after their last work.
    """
    pids = list(pids)
    deadline = time.monotonic() + seconds
    before = [_ticks(pid) for pid in pids]
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        now = [_ticks(pid) for pid in pids]
        if all(new - old <= _IDLE_TICKS for old, new in zip(before, now, strict=True)):
            return True
        before = now
    return False
