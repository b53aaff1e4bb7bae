"""A comparison as a table, as JSON with the machine that made it, and as a plot."""

import dataclasses
from importlib import metadata
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.cpu.comparison import Comparison
from benchmarks.cpu.workload import Workload
from tools.lib import results

_HEADINGS = (
    "sequences",
    "engine",
    "tokens/s",
    "ratio",
    "ms/token",
    "first token ms",
    "equal rows",
    "peak MiB",
)


def table(comparison: Comparison) -> str:
    """The rows as a Markdown table."""
    rows = []
    for row in comparison.rows:
        rows.append(
            (
                str(row.sequences),
                row.engine,
                f"{row.tokens_per_second:.0f}",
                f"{row.ratio:.2f}",
                f"{row.token_ms:.2f}",
                f"{row.first_token_ms:.0f}",
                f"{row.equal_rows}/{row.sequences}",
                f"{comparison.peak_rss_mib[row.engine]:.0f}",
            )
        )
    return results.markdown_table(_HEADINGS, rows, texts={"engine"})


def facts(
    comparison: Comparison, workload: Workload, threads: int, load_before: float
) -> dict[str, Any]:
    """Everything that is worth keeping of a run, as JSON values.

    `load_before` is the machine's load average before the run: other work spoils the figures.
    """
    return {
        **results.provenance(),
        "ctranslate2": metadata.version("ctranslate2"),
        "load_before": round(load_before, 2),
        "threads": threads,
        "workload": dataclasses.asdict(workload),
        "rows": [dataclasses.asdict(row) for row in comparison.rows],
        "peak_rss_mib": comparison.peak_rss_mib,
    }


def write(path: Path, values: dict[str, Any]) -> Path:
    """Writes `values`, as `facts` returns them, to `path`, and their plot beside it as a PNG."""
    plot = path.with_suffix(".png")
    results.write_json(path, values)
    results.write_plot(plot, _figure(values))
    return plot


def _figure(values: dict[str, Any]) -> Figure:
    rows = values["rows"]
    engines = list(dict.fromkeys(row["engine"] for row in rows))
    counts = list(dict.fromkeys(row["sequences"] for row in rows))
    width = 0.8 / len(engines)
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, key, title in (
        (axes[0], "tokens_per_second", "tokens a second (more is better)"),
        (axes[1], "first_token_ms", "ms to the first token (less is better)"),
    ):
        for index, engine in enumerate(engines):
            heights = [row[key] for row in rows if row["engine"] == engine]
            places = [
                place + (index - (len(engines) - 1) / 2) * width for place in range(len(counts))
            ]
            bars = axis.bar(places, heights, width, label=engine)
            axis.bar_label(bars, fmt="%.0f", fontsize=8)
        axis.set_title(title)
        axis.set_xticks(range(len(counts)), [str(count) for count in counts])
        axis.set_xlabel("sequences at once")
        axis.spines[["top", "right"]].set_visible(False)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    host = values["machine"]
    work = values["workload"]
    figure.suptitle(
        f"T5-small, {work['source_tokens']} tokens in, {work['new_tokens']} out, "
        f"{values['threads']} threads on {host['cpu']} ({host['cores']} cores)"
    )
    return figure
