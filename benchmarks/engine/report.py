"""A run as Markdown tables, as JSON with the machine that made it, and as a plot."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.engine.comparison import Job, Row
from benchmarks.engine.floor import floor
from tools.lib import results

_COLUMNS = (
    "batch",
    "engine",
    "tokens/s",
    "ratio",
    "first token ms",
    "step ms",
    "of the floor",
    "first equal",
    "all equal",
)
_FLOOR = "floor"


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """The rows of one model; `note` says what has to be known of them."""

    title: str
    job: Job
    rows: Sequence[Row]
    note: str | None = None

    @property
    def batches(self) -> list[int]:
        """Those that were measured."""
        return list(dict.fromkeys(row.batch for row in self.rows))


def text(result: CaseResult) -> str:
    """A heading and a table."""
    return f"{result.title}:\n\n{_table(result)}\n"


def _table(result: CaseResult) -> str:
    lines = []
    notes = [f"\n{result.note}"] if result.note else []
    for batch in result.batches:
        lines.append(_floor_line(result.job, batch))
        for row in result.rows:
            if row.batch != batch:
                continue
            lines.append(_line(row))
            if row.error:
                notes.append(f"\n{row.engine} at batch {batch}: {row.error}")
    return "\n".join([results.markdown_table(_COLUMNS, lines, texts={"engine"}), *notes])


def _floor_line(job: Job, batch: int) -> tuple[str, ...]:
    values = _floor_values(job, batch)
    step, encode = f"{values['step_ms']:.3f}", _digits(values["encode_ms"])
    return (str(batch), _FLOOR, f"{values['tokens_per_second']:.0f}", "", encode, step, "", "", "")


def _line(row: Row) -> tuple[str, ...]:
    if row.error:
        return (str(row.batch), row.engine, *["-"] * (len(_COLUMNS) - 2))
    return (
        str(row.batch),
        row.engine,
        f"{row.tokens_per_second:.0f}",
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        _digits(row.first_token_ms),
        f"{row.step_ms:.3f}",
        f"{100 * row.floor_share:.1f} %",
        _percent(row.equal_first),
        _percent(row.equal_tokens),
    )


def _digits(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.0f} %"


def _floor_values(job: Job, batch: int) -> dict[str, float]:
    least = floor(job.config, batch, job.source_tokens, job.new_tokens)
    return {
        "batch": batch,
        "tokens_per_second": batch * job.new_tokens / least.seconds(job.new_tokens),
        "encode_ms": 1e3 * least.encode_seconds,
        "step_ms": 1e3 * least.step_seconds,
    }


def facts(
    cases: Sequence[CaseResult],
    versions: Mapping[str, str],
    arguments: Mapping[str, Any],
) -> dict[str, Any]:
    """Everything that is worth keeping, as JSON values; `arguments` are the command's flags."""
    return {
        **results.provenance(),
        "versions": dict(versions),
        "arguments": dict(arguments),
        "models": [_model(case) for case in cases],
    }


def _model(result: CaseResult) -> dict[str, Any]:
    job = result.job
    return {
        "title": result.title,
        "shape": dataclasses.asdict(job.config),
        "source_tokens": job.source_tokens,
        "new_tokens": job.new_tokens,
        "floors": [_floor_values(job, batch) for batch in result.batches],
        "rows": [dataclasses.asdict(row) for row in result.rows],
        "note": result.note,
    }


def plot(path: Path, values: Mapping[str, Any]) -> None:
    """Draws `values`, as `facts` returns them, as the PNG `path`."""
    results.write_plot(path, _figure(values))


def _figure(values: Mapping[str, Any]) -> Figure:
    models = values["models"]
    engines = list(dict.fromkeys(row["engine"] for model in models for row in model["rows"]))
    figure = Figure(figsize=(11, 3.6 * len(models) + 1), layout="constrained")
    axes = figure.subplots(len(models), 2, squeeze=False)
    for model, (rates, firsts) in zip(models, axes, strict=True):
        _draw(rates, model, engines, "tokens_per_second", "tokens a second (more is better)")
        _draw(firsts, model, engines, "first_token_ms", "ms to the first token (less is better)")
        floors = model["floors"]
        batches = [least["batch"] for least in floors]
        style = {"color": "black", "linestyle": "--", "label": _FLOOR}
        rates.plot(batches, [least["tokens_per_second"] for least in floors], **style)
        firsts.plot(batches, [least["encode_ms"] + least["step_ms"] for least in floors], **style)
    figure.legend(*axes[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    figure.suptitle(f"{results.device(values)}, {values['date'][:10]}")
    return figure


def _draw(
    axis: Axes, model: Mapping[str, Any], engines: Sequence[str], key: str, title: str
) -> None:
    # An engine without a figure keeps its colour, and its place in the legend.
    for engine in engines:
        rows = [row for row in model["rows"] if row["engine"] == engine and not row["error"]]
        axis.plot([row["batch"] for row in rows], [row[key] for row in rows], "o-", label=engine)
    batches = [least["batch"] for least in model["floors"]]
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_xticks(batches, [str(batch) for batch in batches])
    axis.minorticks_off()
    axis.set_xlabel("batch")
    work = f"{model['source_tokens']} tokens in, {model['new_tokens']} out"
    axis.set_title(f"{model['title']}, {work}\n{title}", fontsize=10)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)
