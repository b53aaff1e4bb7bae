"""Times all kernels on this machine's GPU: a table, kernels.json and kernels.png.

A kernel's limit is what its bytes take at the memory's bandwidth or its operations at the tensor
cores' rate, whichever is longer; the share is the limit over the time it took.

    ./bazelw run //benchmarks/kernels -- --output=DIR
    python3 -m benchmarks.kernels.report --program=BUILD_DIR/kernels_benchmark --output=DIR
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
from typing import Any

from matplotlib.figure import Figure

from tools.lib import machine, paths

# Measured on an H200: a device-to-device copy, and cuBLASLt's best bfloat16 product.
BYTES_PER_SECOND = 4.29e12
OPERATIONS_PER_SECOND = 807e12

PROGRAM = "benchmarks/kernels/kernels_benchmark"  # among the runfiles

Record = dict[str, Any]


def with_share(record: Record) -> Record:
    """Adds what limits the kernel, and how much of that limit it reaches."""
    memory = record["bytes"] / BYTES_PER_SECOND * 1e6
    arithmetic = record["operations"] / OPERATIONS_PER_SECOND * 1e6
    return record | {
        "limit": "bandwidth" if memory >= arithmetic else "tensor cores",
        "limit_microseconds": round(max(memory, arithmetic), 3),
        "share": round(max(memory, arithmetic) / record["microseconds"], 4),
    }


def table(records: list[Record]) -> str:
    """Markdown, a table a shape and number of rows."""
    lines: list[str] = []
    groups = dict.fromkeys((record["shape"], record["rows"]) for record in records)
    for shape, rows in groups:
        chosen = [each for each in records if (each["shape"], each["rows"]) == (shape, rows)]
        total = sum(each["microseconds"] * each["launches"] for each in chosen)
        lines += [f"\n{shape}, {rows} rows: {total:.0f} us together\n"]
        lines += [
            "| kernel | us | a step | MB | GFLOP | share | of |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {each['kernel']} | {each['microseconds']:.2f} | {each['launches']} "
            f"| {each['bytes'] / 1e6:.2f} | {each['operations'] / 1e9:.2f} "
            f"| {100 * each['share']:.0f} % | {each['limit']} |"
            for each in chosen
        ]
    return "\n".join(lines)


def plot(records: list[Record], title: str, path: pathlib.Path) -> None:
    """The share of every kernel, a panel a shape, a bar a number of rows."""
    shapes = list(dict.fromkeys(record["shape"] for record in records))
    rows = list(dict.fromkeys(record["rows"] for record in records))
    figure = Figure(figsize=(11, 3.2 * len(shapes)), layout="constrained")
    panels = figure.subplots(len(shapes), 1, squeeze=False)
    for panel, shape in zip(panels[:, 0], shapes, strict=True):
        chosen = [each for each in records if each["shape"] == shape]
        names = list(dict.fromkeys(each["kernel"] for each in chosen))
        width = 0.8 / len(rows)
        for index, count in enumerate(rows):
            of_rows = {each["kernel"]: each["share"] for each in chosen if each["rows"] == count}
            places = [place + index * width for place in range(len(names))]
            heights = [100 * of_rows.get(name, 0.0) for name in names]
            panel.bar(places, heights, width, label=f"{count} rows")
        panel.set_xticks(
            [place + 0.4 - width / 2 for place in range(len(names))], names, fontsize=8
        )
        panel.set_ylabel(f"{shape}: % of the limit")
        panel.set_ylim(0, 110)
        panel.legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=110)


def main(arguments: list[str]) -> None:
    """Runs the program and writes the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--program", default=PROGRAM, help="kernels_benchmark, built")
    parser.add_argument("--output", required=True, type=paths.from_user, help="a folder")
    parser.add_argument("rows", nargs="*", type=int, help="default: 1 16 64 256")
    options = parser.parse_args(arguments)
    command = [options.program, *map(str, options.rows)]
    output = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    records = [with_share(record) for record in json.loads(output)]
    facts = {
        "machine": ", ".join(machine.machine()["gpus"]) or "no GPU",
        "commit": machine.commit(),
        "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    limits = {"bytes": BYTES_PER_SECOND, "operations": OPERATIONS_PER_SECOND}
    # A record a line, so that results can be compared line by line.
    lines = ",\n".join(f"    {json.dumps(record)}" for record in records)
    head = json.dumps(facts | {"per_second": limits}, indent=2)[:-2]
    text = f'{head},\n  "kernels": [\n{lines}\n  ]\n}}\n'
    (options.output / "kernels.json").write_text(text)
    title = f"{facts['machine']}, commit {facts['commit']}, {facts['date']}"
    plot(records, title, options.output / "kernels.png")
    print(title)
    print(table(records))


if __name__ == "__main__":
    main(sys.argv[1:])
