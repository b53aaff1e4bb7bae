"""Times all kernels on this machine's GPU: a table, kernels.json and kernels.png.

A kernel's limit is what its bytes take at the memory's bandwidth or its operations at the tensor
cores' rate, whichever is longer; the share is the limit over the time it took. Both ceilings are
measured in the same run; --bandwidth names another one.

    ./bazelw run //benchmarks/kernels -- --output=DIR
    python3 -m benchmarks.kernels.report --program=BUILD_DIR/kernels_benchmark --output=DIR
"""

import argparse
import json
import pathlib
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tools.lib import paths, results

PROGRAM = "benchmarks/kernels/kernels_benchmark"  # among the runfiles

Record = dict[str, Any]

_COLUMNS = ("kernel", "us", "launches", "MB", "GFLOP", "share", "of")
_TEXTS = ("kernel", "of")
# What the program says a launch is a part of, and what its rows are there.
_UNITS = {"decode step": "rows", "encode": "tokens"}


def with_share(record: Record, ceilings: dict[str, float]) -> Record:
    """Adds what limits the kernel, and how much of that limit it reaches."""
    memory = record["bytes"] / ceilings["bytes_per_second"] * 1e6
    arithmetic = record["operations"] / ceilings["operations_per_second"] * 1e6
    return record | {
        "limit": "bandwidth" if memory >= arithmetic else "tensor cores",
        "limit_microseconds": round(max(memory, arithmetic), 3),
        "share": round(max(memory, arithmetic) / record["microseconds"], 4),
    }


def tables(records: Sequence[Record]) -> str:
    """Markdown, a table a shape, pass and number of rows."""
    parts: list[str] = []
    groups = dict.fromkeys((each["shape"], each["pass"], each["rows"]) for each in records)
    for group in groups:
        chosen = [each for each in records if (each["shape"], each["pass"], each["rows"]) == group]
        shape, kind, rows = group
        total = sum(each["microseconds"] * each["launches"] for each in chosen)
        parts.append(f"{shape}, {kind}, {rows} {_UNITS[kind]}: {total:.0f} us together\n")
        parts.append(results.markdown_table(_COLUMNS, [*map(_row, chosen)], _TEXTS) + "\n")
    return "\n".join(parts)


def _row(record: Record) -> tuple[str, ...]:
    return (
        record["kernel"],
        f"{record['microseconds']:.2f}",
        str(record["launches"]),
        f"{record['bytes'] / 1e6:.2f}",
        f"{record['operations'] / 1e9:.2f}",
        f"{100 * record['share']:.0f} %",
        record["limit"],
    )


def _figure(records: Sequence[Record], title: str) -> Figure:
    """The share of every kernel: a panel a shape and pass, a bar a number of rows."""
    groups = list(dict.fromkeys((each["shape"], each["pass"]) for each in records))
    figure = Figure(figsize=(13, 3.2 * len(groups)), layout="constrained")
    panels = figure.subplots(len(groups), 1, squeeze=False)
    for panel, (shape, kind) in zip(panels[:, 0], groups, strict=True):
        _draw(panel, [each for each in records if (each["shape"], each["pass"]) == (shape, kind)])
        panel.set_ylabel(f"{shape}, {kind}:\n% of the limit")
    figure.suptitle(title, fontsize=10)
    return figure


def _draw(panel: Axes, records: Sequence[Record]) -> None:
    names = list(dict.fromkeys(each["kernel"] for each in records))
    rows = list(dict.fromkeys(each["rows"] for each in records))
    width = 0.8 / len(rows)
    for index, count in enumerate(rows):
        shares = {each["kernel"]: each["share"] for each in records if each["rows"] == count}
        places = [place + index * width for place in range(len(names))]
        heights = [100 * shares.get(name, 0.0) for name in names]
        panel.bar(places, heights, width, label=f"{count} {_UNITS[records[0]['pass']]}")
    middles = [place + 0.4 - width / 2 for place in range(len(names))]
    panel.set_xticks(middles, names, fontsize=8, rotation=15, ha="right")
    panel.set_ylim(0, 110)
    panel.legend(fontsize=8)


def _measured(options: argparse.Namespace) -> Record:
    if options.measured:
        return json.loads(options.measured.read_text())
    command = [options.program, *map(str, options.rows)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return results.provenance() | json.loads(output)


def main(arguments: list[str]) -> None:
    """Runs the program and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", default=PROGRAM, help="kernels_benchmark, built")
    parser.add_argument(
        "--measured", type=paths.from_user, help="a kernels.json of before, instead of a run"
    )
    parser.add_argument("--bandwidth", type=float, help="of the memory in TB/s, read and written")
    parser.add_argument("--output", required=True, type=paths.from_user, help="a folder")
    parser.add_argument("rows", nargs="*", type=int, help="default: 1 16 64 256")
    options = parser.parse_args(arguments)
    values = _measured(options)
    ceilings = values["ceilings"]
    if options.bandwidth:
        ceilings["bytes_per_second"] = 1e12 * options.bandwidth
    values["kernels"] = records = [with_share(record, ceilings) for record in values["kernels"]]
    folder: pathlib.Path = options.output
    results.write_json(folder / "kernels.json", values)
    title = f"{results.device(values)}, commit {values['commit']}, {values['date'][:10]}"
    results.write_plot(folder / "kernels.png", _figure(records, title))
    print(
        f"{title}: memory {ceilings['bytes_per_second'] / 1e12:.2f} TB/s, "
        f"a bfloat16 product {ceilings['operations_per_second'] / 1e12:.0f} TFLOP/s\n"
    )
    print(tables(records))


if __name__ == "__main__":
    main(sys.argv[1:])
