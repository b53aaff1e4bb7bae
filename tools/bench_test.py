"""The command `bench`, as a process, on the real server with the real backend."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tools.lib import installation
from tools.lib.assemble import AssembleRequest, assemble
from tools.lib.config_writer import ModelConfigText
from tools.lib.paths import room_file
from tools.lib.server_process import start_on_free_ports
from tools.load.arrivals import poisson_times
from tools.testing.fake_inference_server import answer, error, serving

CHECKPOINT = room_file("tests/data/checkpoints/t5_v1_0")
SERVED = (f"--checkpoint={CHECKPOINT}", "--option=max_source_tokens=32")
SHORT = ("--warmup=0", "--source_tokens=4-20", "--processes=2")


def started(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "BUILD_WORKING_DIRECTORY": str(folder),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    command = [sys.executable, str(room_file("tools/bench.py")), *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def bench(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    with started(folder, *arguments) as process:
        output, errors = process.communicate(timeout=240)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def results(folder: Path, *arguments: str) -> dict[str, Any]:
    result = bench(folder, "--output=out/result.json", *arguments)
    assert result.returncode == 0, result.stderr
    return json.loads((folder / "out" / "result.json").read_text())


@pytest.fixture(name="url", scope="module")
def fixture_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    repository = tmp_path_factory.mktemp("served") / "repository"
    assemble(AssembleRequest(CHECKPOINT, repository, ModelConfigText("tiny")))
    with start_on_free_ports(
        installation.tritonserver(None), installation.backend_directory(None), repository, 120.0
    ) as server:
        yield server.options.grpc_address


def test_counts_tokens_of_closed_and_open_loops(tmp_path: Path) -> None:
    loads = ("--streams=1,4", "--reference_streams=4", "--rates=40,50%", "--requests=12")
    values = results(tmp_path, *SERVED, *SHORT, *loads, "--new_tokens=5")
    points = values["points"]
    assert [point["load"]["loop"] for point in points] == ["closed", "closed", "open", "open"]
    assert [point["load"]["streams"] for point in points[:2]] == [1, 4]
    assert points[2]["load"] == {"loop": "open", "rate": 40.0, "share": None}
    half = points[1]["requests_per_second"] / 2
    assert points[3]["load"] == {"loop": "open", "rate": pytest.approx(half), "share": 0.5}
    for point in points:
        assert (point["requests"], point["answered"]) == (12, 12)
        assert (point["refused"], point["failed"], point["unfinished"]) == (0, 0, 0)
        assert point["tokens"] == 12 * 5
        # Everything is within the measured time, as that is how long the requests took.
        assert point["tokens_per_second"] * point["seconds"] == pytest.approx(60)
        assert point["requests_per_second"] * point["seconds"] == pytest.approx(12)
        first, whole = point["first_token"], point["latency"]
        assert 0 < first["p50"] <= first["p90"] <= first["p99"] <= first["max"] <= whole["max"]
        assert point["server_us_per_token"] >= 0
    assert values["machine"]["cores"] >= 1
    assert values["server"]["version"]
    assert values["arguments"]["new_tokens"] == "5"
    for loop in ("closed", "open"):
        plot = tmp_path / "out" / f"result_{loop}.png"
        assert plot.read_bytes().startswith(b"\x89PNG")


def test_table_for_a_running_server(tmp_path: Path, url: str) -> None:
    flags = (f"--url={url}", "--model=tiny", "--vocab_size=90", "--streams=3", "--requests=9")
    result = bench(tmp_path, *flags, *SHORT, "--new_tokens=2-4", "--param=stream=false")
    assert result.returncode == 0, result.stderr
    heading, _, row = (line.split("|") for line in result.stdout.splitlines())
    cells = dict(zip((cell.strip() for cell in heading), map(str.strip, row), strict=True))
    assert cells["load"] == "3 streams"
    assert (cells["refused"], cells["failed"]) == ("0", "0")
    # One response each leaves nothing between them, and the server is not ours to look into.
    assert cells["between tokens ms"] == "- / - / -"
    assert cells["server us/token"] == "-"
    assert list(tmp_path.iterdir()) == []


def test_measures_for_a_time(tmp_path: Path, url: str) -> None:
    flags = (f"--url={url}", "--model=tiny", "--streams=2", "--rates=30", "--seconds=1", "--seed=5")
    closed, opened = results(tmp_path, *flags, *SHORT, "--warmup=0.2", "--new_tokens=4")["points"]
    for point in (closed, opened):
        assert point["seconds"] == pytest.approx(1)
        assert point["answered"] == point["requests"] > 0
        assert point["tokens"] == 4 * point["answered"]
    # The seed says when requests arrive.
    times = poisson_times(30.0, seed=5, seconds=0.2 + 1.0)
    assert opened["requests"] == np.sum(times >= 0.2)
    assert any("p99 is of" in text for text in opened["warnings"])


def test_a_bad_load_leaves_the_results_before(tmp_path: Path) -> None:
    number = itertools.count()

    def script(_: Any) -> Iterator[Any]:
        yield answer([1], final=True) if next(number) < 4 else error("INTERNAL: broken")

    with serving(script) as (_, url):
        flags = (f"--url={url}", "--model=m", "--streams=1,2", "--requests=4", "--new_tokens=1")
        result = bench(tmp_path, *flags, *SHORT, "--output=result.json")
    assert result.returncode == 1
    assert "error: 2 streams: " in result.stderr
    assert "INTERNAL: broken" in result.stderr
    (row,) = result.stdout.splitlines()[2:]
    assert row.startswith("| 1 stream ")
    values = json.loads((tmp_path / "result.json").read_text())
    assert [point["load"]["streams"] for point in values["points"]] == [1]
    assert "INTERNAL: broken" in values["failure"]


def test_a_signal_leaves_the_results_before(tmp_path: Path) -> None:
    number = itertools.count()
    second_load, end = threading.Event(), threading.Event()

    def script(_: Any) -> Iterator[Any]:
        if next(number) >= 4:
            second_load.set()
            end.wait(60)
        yield answer([1], final=True)

    with serving(script) as (_, url):
        flags = (f"--url={url}", "--model=m", "--streams=1,2", "--requests=4", "--new_tokens=1")
        with started(tmp_path, *flags, *SHORT, "--output=result.json") as process:
            assert second_load.wait(120)
            process.terminate()
            output, _ = process.communicate(timeout=60)
        end.set()
    assert process.returncode == 128 + signal.SIGTERM
    assert output.splitlines()[-1].startswith("| 1 stream ")
    values = json.loads((tmp_path / "result.json").read_text())
    assert [point["load"]["streams"] for point in values["points"]] == [1]
    assert values["failure"] == "interrupted"


def test_a_full_queue_is_counted(tmp_path: Path) -> None:
    small = ("--option=max_active_sequences=1", "--option=max_queue_size=1")
    loads = ("--streams=16", "--requests=48", "--new_tokens=200")
    (point,) = results(tmp_path, *SERVED, *small, *SHORT, *loads)["points"]
    assert point["requests"] == 48
    assert point["refused"] > 0
    assert point["answered"] + point["refused"] == 48
    assert point["tokens"] == 200 * point["answered"]
    assert all(text.startswith("UNAVAILABLE: ") for text in point["errors"])
    assert sum(point["errors"].values()) == point["refused"]
    assert any("UNAVAILABLE" in text for text in point["warnings"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ["--url", "--checkpoint", "--shape"]),
        (("--url=localhost:1",), ["--model"]),
        (("--url=localhost:1", "--model=m", "--shape=t5_small"), ["--shape", "--url"]),
        (("--url=localhost:1", "--model=m", "--engine=seq2seq"), ["--engine", "--url"]),
        (("--url=localhost:1", "--model=m", "--dtype=float32"), ["--dtype", "--shape"]),
        (("--url=localhost:1", "--model=m", "--instance_kind=KIND_CPU"), ["--instance_kind"]),
        (("--url=localhost:1", "--model=m", "--instance_count=1"), ["--instance_count"]),
        (("--url=localhost:1", "--model=m", "--tritonserver=t"), ["--tritonserver", "--url"]),
        (("--url=localhost:1", "--model=m", "--backend_directory=b"), ["--backend_directory"]),
        (("--url=localhost:1", "--model=m", "--ready_seconds=9"), ["--ready_seconds", "--url"]),
        ((*SERVED, "--model=m"), ["--model is for --url"]),
        ((*SERVED, "--dtype=float32"), ["--dtype is for --shape"]),
        ((*SERVED, "--engine=python_baseline"), ["--option is for --engine=seq2seq"]),
        ((*SERVED, "--requests=2", "--seconds=1"), ["--seconds", "--requests"]),
        ((*SERVED, "--requests=2", "--drain=1"), ["--drain", "--requests"]),
        ((*SERVED, "--reference_streams=4", "--streams=4"), ["--reference_streams", "in %"]),
        (("--url=127.0.0.1:1", "--model=m"), ["127.0.0.1:1", "UNAVAILABLE"]),
        (("--shape=large",), ["'large'", "t5_small", "config.json"]),
        (("--checkpoint=absent",), ["absent: no such folder"]),
        ((*SERVED, "--option=beams=4"), ["beams"]),
        ((*SERVED, "--streams=one"), ["'one'"]),
        ((*SERVED, "--rates=70%", "--streams=1"), ["64 streams", "--reference_streams"]),
        ((*SERVED, "--rates=fast"), ["'fast'"]),
        ((*SERVED, "--server_env=X"), ["'X'"]),
        ((*SERVED, "--requests=2", "--new_tokens=no"), ["new_tokens 'no'"]),
        ((*SERVED, "--requests=2", "--param=top_p=2"), ["no request was answered", "top_p"]),
        ((*SERVED, "--", "--no-such-flag"), ["the server ended with code 1"]),
    ],
)
def test_an_error_names_what_is_wrong(
    tmp_path: Path, arguments: tuple[str, ...], words: list[str]
) -> None:
    result = bench(tmp_path, "--processes=1", "--warmup=0", "--source_tokens=4", *arguments)
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert all(word in result.stderr for word in words), result.stderr


def test_help_shows_how_to_call_it(tmp_path: Path) -> None:
    result = bench(tmp_path, "--help")
    assert "bench --url=localhost:8001 --model=NAME" in result.stdout
    for flag in ("streams", "rates", "shape", "new_tokens", "processes", "output"):
        assert f"--{flag}" in result.stdout


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
