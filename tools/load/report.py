"""Loads that were measured: as a table, as JSON, and as plots."""

import dataclasses
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from tools.lib import results
from tools.load.doubts import doubts
from tools.load.measuring import ClosedLoad, Load, Measured
from tools.load.statistics import Spread

_COLUMNS = (
    "load",
    "tokens/s",
    "requests/s",
    "first token ms",
    "between tokens ms",
    "p99/p50",
    "latency ms",
    "refused",
    "failed",
    "server us/token",
    "clients",
)
_PACKAGES = ("grpcio", "numpy", "protobuf", "tritonclient")


def table(points: Sequence[Measured]) -> str:
    """A Markdown table; three times in a cell are p50, p90 and p99, "> 5" a lower bound."""
    return results.markdown_table(_COLUMNS, [*map(_row, points)], texts={"load"})


def _row(point: Measured) -> tuple[str, ...]:
    summary = point.summary
    return (
        str(point.load),
        f"{summary.tokens_per_second:.0f}",
        f"{summary.requests_per_second:.1f}",
        _times(summary.first_token),
        _times(summary.between_tokens),
        _number(summary.between_ratio, 1),
        _times(summary.latency),
        str(summary.refused),
        str(summary.failed + summary.unfinished),
        _number(point.server_us_per_token, 0),
        f"{100 * point.busiest_client:.0f} %",
    )


def _times(spread: Spread) -> str:
    # Three digits say enough.
    digits = 2 if (spread.p50 or 0) < 10 else 0
    return " / ".join(_time(spread, name, digits) for name in ("p50", "p90", "p99"))


def _time(spread: Spread, name: str, digits: int) -> str:
    more = "> " * (name in spread.lower_bounds)
    return more + _number(getattr(spread, name), digits)


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def facts(
    points: Iterable[Measured],
    arguments: dict[str, Any],
    server: dict[str, Any],
    failure: str | None = None,
) -> dict[str, Any]:
    """Everything that is worth keeping, as JSON values.

    `arguments` are the command's flags, `server` what the server says of itself, `failure` why
    loads are missing.
    """
    return {
        **results.provenance(),
        "server": server,
        "client_packages": {name: _version(name) for name in _PACKAGES},
        "arguments": arguments,
        "failure": failure,
        "points": [_point(point) for point in points],
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _point(point: Measured) -> dict[str, Any]:
    values = dataclasses.asdict(point)
    return {
        **values.pop("summary"),
        **values,
        "load": describe(point.load),
        "warnings": list(doubts(point)),
    }


def describe(load: Load) -> dict[str, Any]:
    """The load as JSON values; `loop` is "closed" or "open"."""
    loop = "closed" if isinstance(load, ClosedLoad) else "open"
    return {"loop": loop, **dataclasses.asdict(load)}


def write(path: Path, values: dict[str, Any]) -> list[Path]:
    """Writes `values`, as `facts` returns them, to `path`, and plots beside it; all their paths."""
    # Slow to import, and heard of on standard error where there is no home to write to: only those
    # who want plots shall have that.
    from tools.load.plots import plot

    results.write_json(path, values)
    return [path, *plot(path, values)]
