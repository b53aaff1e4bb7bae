"""Plots of a benchmark's JSON values, as PNG files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from tools.lib import results

_LATENCIES = (
    ("first_token", "time to the first token, ms"),
    ("between_tokens", "time between tokens, ms"),
)
_PERCENTILES = ("p50", "p90", "p99")


def plot(path: Path, values: dict[str, Any]) -> list[Path]:
    """One figure for each kind of loop that was measured, named after the JSON file `path`."""
    made = []
    for loop, key, label in (
        ("closed", "streams", "concurrent streams"),
        ("open", "rate", "requests a second (Poisson)"),
    ):
        points = [point for point in values["points"] if point["load"]["loop"] == loop]
        points.sort(key=lambda point: point["load"][key])
        if points:
            made.append(path.with_name(f"{path.stem}_{loop}.png"))
            figure = _figure(points, key, label)
            figure.suptitle(_title(values))
            results.write_plot(made[-1], figure)
    return made


def _figure(points: Sequence[dict[str, Any]], key: str, label: str) -> Figure:
    figure = Figure(figsize=(13, 4), layout="constrained")
    axes = figure.subplots(1, 1 + len(_LATENCIES))
    loads = [point["load"][key] for point in points]
    axes[0].plot(loads, [point["tokens_per_second"] for point in points], marker="o")
    axes[0].set_title("tokens a second")
    axes[0].set_ylim(bottom=0)
    for axis, (name, title) in zip(axes[1:], _LATENCIES, strict=True):
        for percentile in _PERCENTILES:
            times = [_known(point[name], percentile) for point in points]
            axis.plot(loads, times, "o-", label=percentile)
        axis.set_title(title)
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.legend()
    for axis in axes:
        _dress(axis, loads, key, label)
    return figure


def _known(spread: dict[str, Any], percentile: str) -> float | None:
    """A lower bound would look like a time that was measured."""
    return None if percentile in spread["lower_bounds"] else spread[percentile]


def _dress(axis: Axes, loads: Sequence[float], key: str, label: str) -> None:
    axis.set_xlabel(label)
    if key == "streams":
        axis.set_xscale("log", base=2)
    axis.set_xticks(loads, [f"{load:.4g}" for load in loads])
    axis.minorticks_off()
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.3)


def _title(values: dict[str, Any]) -> str:
    arguments = values["arguments"]
    model = arguments["shape"] or arguments["checkpoint"] or arguments["model"]
    where = f"{results.device(values)}, {values['machine']['cores']} cores"
    return (
        f"{arguments['engine']}, {Path(model).name}: {arguments['source_tokens']} tokens in, "
        f"{arguments['new_tokens']} out; {where}"
    )
