"""What becomes of the times of kernels."""

import json
import sys

import pytest

from benchmarks.kernels import report

CEILINGS = {"bytes_per_second": 4.29e12, "operations_per_second": 807e12}


def record(**changes):
    return {
        "shape": "small",
        "pass": "decode step",
        "kernel": "qkv",
        "rows": 1,
        "launches": 6,
        "microseconds": 2.0,
        "bytes": 4.29e6,
        "operations": 1e6,
    } | changes


def test_share_of_the_nearer_limit():
    memory = report.with_share(record(), CEILINGS)
    assert (memory["limit"], memory["share"]) == ("bandwidth", 0.5)
    arithmetic = report.with_share(record(operations=807e6), CEILINGS)
    assert arithmetic["share"] == 0.5
    arithmetic = report.with_share(record(operations=1614e6), CEILINGS)
    assert (arithmetic["limit"], arithmetic["share"]) == ("tensor cores", 1.0)
    faster_device = CEILINGS | {"bytes_per_second": 8.58e12}
    assert report.with_share(record(), faster_device)["share"] == 0.25


def test_tables_sum_launches():
    records = [
        report.with_share(each, CEILINGS)
        for each in (
            record(),
            record(kernel="head", launches=1),
            record(kernel="sample", launches=0),
            record(kernel="norm", rows=512, **{"pass": "encode"}),
        )
    ]
    text = report.tables(records)
    assert "small, decode step, 1 rows: 14 us together" in text
    assert "small, encode, 512 tokens: 12 us together" in text
    assert "| head   | 2.00 |        1 | 4.29 |  0.00 |  50 % | bandwidth |" in text


def test_writes_results(tmp_path, monkeypatch, capsys):
    program = tmp_path / "program"
    measured = {"ceilings": CEILINGS, "kernels": [record(), record(rows=16)]}
    program.write_text(f"#!/bin/sh\necho '{json.dumps(measured)}'\n")
    program.chmod(0o755)
    monkeypatch.setattr(report.results.machine, "machine", lambda: {"gpus": ["GPU, 1"], "cpu": ""})
    monkeypatch.setenv("SEQ2SEQ_COMMIT", "abc")
    monkeypatch.setenv("BUILD_WORKING_DIRECTORY", str(tmp_path))
    report.main(["--program", str(program), "--output", "out"])
    written = json.loads((tmp_path / "out" / "kernels.json").read_text())
    assert written["machine"]["gpus"] == ["GPU, 1"]
    assert written["commit"] == "abc"
    assert written["ceilings"] == CEILINGS
    assert [each["rows"] for each in written["kernels"]] == [1, 16]
    assert (tmp_path / "out" / "kernels.png").stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "small, decode step, 16 rows" in printed
    assert "4.29 TB/s" in printed
    # The same figures against another ceiling, of the machine and commit where they were taken.
    monkeypatch.setenv("SEQ2SEQ_COMMIT", "later")
    again = ["--measured", "out/kernels.json", "--bandwidth", "8.58", "--output", "again"]
    report.main(again)
    shared = json.loads((tmp_path / "again" / "kernels.json").read_text())
    assert shared["commit"] == "abc"
    assert [each["share"] for each in shared["kernels"]] == [0.25, 0.25]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
