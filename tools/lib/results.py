"""What measurements become: a Markdown table, and files that say where and when they were made."""

import contextlib
import datetime
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.lib import machine
from tools.lib.errors import ToolError

if TYPE_CHECKING:
    # Slow to import: only those who plot shall have that.
    from matplotlib.figure import Figure

_DOTS_PER_INCH = 120


def markdown_table(
    headings: Sequence[str], rows: Sequence[Sequence[str]], texts: Collection[str]
) -> str:
    """Columns as wide as their longest cell; those named in `texts` to the left, numbers right."""
    marks = [":--" if heading in texts else "--:" for heading in headings]
    lines = [headings, marks, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def justified(line: Sequence[str]) -> Iterator[str]:
        for heading, cell, width in zip(headings, line, widths, strict=True):
            yield cell.ljust(width) if heading in texts else cell.rjust(width)

    return "\n".join(f"| {' | '.join(justified(line))} |" for line in lines)


def provenance() -> dict[str, Any]:
    """Date, commit and machine, as JSON values: the first ones of every file of results."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.machine(),
    }


def device(values: Mapping[str, Any]) -> str:
    """The GPUs, else the processor, of what `provenance` returned."""
    host = values["machine"]
    return ", ".join(host["gpus"]) or host["cpu"]


def default_folder() -> str:
    """benchmarks/results/<date>-<device>, from the repository's root."""
    gpus = machine.machine()["gpus"]
    # "NVIDIA H200, 580.0"
    name = gpus[0].partition(",")[0].split()[-1].lower() if gpus else "cpu"
    return f"benchmarks/results/{datetime.datetime.now(datetime.UTC).date().isoformat()}-{name}"


def write_json(path: Path, values: Mapping[str, Any]) -> None:
    """Writes `values` to `path`, whose folder is made; ToolError names what cannot be written."""
    with _write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")


def write_plot(path: Path, figure: "Figure") -> None:
    """Writes the figure as a PNG that is the same for the same figure; ToolError likewise."""
    with _write_errors(path):
        figure.savefig(path, dpi=_DOTS_PER_INCH, metadata={"Software": None})


@contextlib.contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ToolError(f"{error.filename or path}: {error.strerror}") from error
