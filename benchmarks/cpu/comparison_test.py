import json
import pathlib
import sys

import pytest

from benchmarks.cpu import report
from benchmarks.cpu.comparison import Comparison, compare
from benchmarks.cpu.engines import (
    PEER,
    SERVED,
    EngineOptions,
    drop_tuning_variables,
    started_engines,
)
from benchmarks.cpu.workload import Workload
from tools.lib import installation
from tools.lib.model_config import ModelConfig

# Deeper in the decoder, heads wider than d_model: nothing has the size of something else.
TINY = ModelConfig(
    model_type="t5",
    vocab_size=200,
    d_model=24,
    d_kv=16,
    d_ff=40,
    num_heads=2,
    encoder_layers=2,
    decoder_layers=3,
    relative_buckets=32,
    gated_ffn=False,
    tied_head=True,
    scaled_head=True,
)
WORKLOAD = Workload(source_tokens=20, new_tokens=12, counts=(1, 4), rounds=2)


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    drop_tuning_variables()
    options = EngineOptions(
        model=TINY,
        tritonserver=installation.tritonserver(None),
        backend_directory=installation.backend_directory(None),
        threads=1,
        most_sequences=max(WORKLOAD.counts),
    )
    with started_engines(options) as engines:
        return compare(engines, TINY.vocab_size, WORKLOAD)


def test_every_engine_at_every_count(comparison: Comparison) -> None:
    names = [PEER, *SERVED.values()]
    assert [(row.sequences, row.engine) for row in comparison.rows] == [
        (count, name) for count in WORKLOAD.counts for name in names
    ]
    assert list(comparison.peak_rss_mib) == names


def test_both_engines_choose_the_same_tokens(comparison: Comparison) -> None:
    for row in comparison.rows:
        if row.engine in (PEER, SERVED["float32"]):
            assert row.equal_rows == row.sequences, row


def test_figures_hang_together(comparison: Comparison) -> None:
    for row in comparison.rows:
        slowest, fastest = row.spread
        assert 0 < slowest <= row.tokens_per_second <= fastest
        assert row.token_ms > 0
        assert row.first_token_ms > 0
        assert row.ratio == 1 or row.engine != PEER
    assert all(1 < peak < 4096 for peak in comparison.peak_rss_mib.values())


def test_report(comparison: Comparison, tmp_path: pathlib.Path) -> None:
    lines = report.table(comparison).splitlines()
    assert len(lines) == 2 + len(comparison.rows)
    assert len({len(line) for line in lines}) == 1
    assert all(row.engine in line for row, line in zip(comparison.rows, lines[2:], strict=True))

    output = tmp_path / "results" / "cpu.json"
    plot = report.write(output, report.facts(comparison, WORKLOAD, 1, load_before=0.0))
    values = json.loads(output.read_text())
    assert [row["engine"] for row in values["rows"]] == [row.engine for row in comparison.rows]
    assert values["workload"]["new_tokens"] == WORKLOAD.new_tokens
    assert values["machine"]["cpu"]
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_tuning_variables_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("UNRELATED", "stays")
    assert drop_tuning_variables() == ["OMP_NUM_THREADS", "OPENBLAS_CORETYPE"]


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
