"""What becomes of the times of kernels."""

import json
import sys

import pytest

from benchmarks.kernels import report


def record(**changes):
    return {
        "shape": "small",
        "kernel": "qkv",
        "rows": 1,
        "launches": 6,
        "microseconds": 2.0,
        "bytes": 4.29e6,
        "operations": 1e6,
    } | changes


def test_share_of_the_nearer_limit():
    memory = report.with_share(record())
    assert (memory["limit"], memory["share"]) == ("bandwidth", 0.5)
    arithmetic = report.with_share(record(operations=807e6))
    assert arithmetic["share"] == 0.5
    arithmetic = report.with_share(record(operations=1614e6))
    assert (arithmetic["limit"], arithmetic["share"]) == ("tensor cores", 1.0)


def test_table_sums_launches():
    records = [report.with_share(each) for each in (record(), record(kernel="head", launches=1))]
    text = report.table(records)
    assert "small, 1 rows: 14 us together" in text
    assert "| head | 2.00 | 1 | 4.29 | 0.00 | 50 % | bandwidth |" in text


def test_writes_results(tmp_path, monkeypatch, capsys):
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{json.dumps([record(), record(rows=16)])}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(report.machine, "machine", lambda: {"gpus": ["GPU, 1"]})
    monkeypatch.setenv("SEQ2SEQ_COMMIT", "abc")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    report.main(["--program", str(program), "--output", "out"])
    written = json.loads((tmp_path / "out" / "kernels.json").read_text())
    assert written["machine"] == "GPU, 1"
    assert written["commit"] == "abc"
    assert [each["rows"] for each in written["kernels"]] == [1, 16]
    assert (tmp_path / "out" / "kernels.png").stat().st_size > 1000
    assert "small, 16 rows" in capsys.readouterr().out


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
