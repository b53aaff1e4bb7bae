"""What a result has to say about where it was measured."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_COMMAND_SECONDS = 20.0
# Set where the sources are no checkout, as after copying them to a machine without git.
_COMMIT_VARIABLE = "SEQ2SEQ_COMMIT"


def machine() -> dict[str, Any]:
    """Processor, memory, system and GPUs, as JSON values."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": platform.platform(),
        "gpus": _gpus(),
    }


def commit() -> str:
    """The checkout's commit, marked if files differ from it; "unknown" where there is none.

    SEQ2SEQ_COMMIT says it for sources that were copied out of a checkout.
    """
    checkout = os.environ.get("BUILD_WORKSPACE_DIRECTORY") or str(Path(__file__).parents[2])
    text = _output("git", "-C", checkout, "describe", "--always", "--dirty", "--abbrev=12")
    return os.environ.get(_COMMIT_VARIABLE) or text or "unknown"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def _gpus() -> list[str]:
    query = ("--query-gpu=name,driver_version", "--format=csv,noheader")
    return _output("nvidia-smi", *query).splitlines()


def _output(*command: str) -> str:
    """What the command prints; empty if it cannot be run or fails."""
    try:
        return subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_COMMAND_SECONDS
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""
