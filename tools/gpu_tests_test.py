"""The GPU tests' script finds programs and sources by itself."""

import json
import sys
from pathlib import Path

import pytest

from tools import gpu_tests

FILES = {
    "backend/cuda/engine_gpu_test.cc": '#include "backend/cuda/engine.h"\n#include <vector>\n',
    "backend/cuda/engine.h": '#include "backend/kernels/sum.h"\n#include "backend/core/status.h"\n',
    "backend/cuda/engine.cc": '#include "backend/cuda/engine.h"\n#include "backend/model/spec.h"\n',
    "backend/cuda/unused.cc": "",
    "backend/core/status.h": "",
    "backend/model/spec.h": "",
    "backend/model/spec.cc": "",
    "backend/model/spec_test.cc": "",
    "backend/kernels/sum.h": "",
    "backend/kernels/sum_few.cu": '#include "backend/kernels/math.cuh"\n',
    "backend/kernels/sum_wide.cu": "",
    "backend/kernels/math.cuh": "",
    "backend/kernels/sum_gpu_test.cc": '#include "backend/kernels/sum.h"\n',
    "backend/kernels/sum_test.cc": '#include "backend/kernels/sum.h"\n',
    "benchmarks/engine/worker_loop.h": "",
    "benchmarks/engine/sum_worker.cc": '#include "benchmarks/engine/worker_loop.h"\n',
    "benchmarks/kernels/sum_benchmark.cc": '#include "backend/kernels/sum.h"\n',
}


@pytest.fixture
def _tree(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_tests, "device_problem", lambda: "")
    gpu_tests.included.cache_clear()
    gpu_tests.neighbours.cache_clear()


@pytest.mark.usefixtures("_tree")
def test_finds_tests_and_on_demand_benchmarks():
    names = [each.name for each in gpu_tests.programs(benchmarks=False)]
    assert names == ["engine_gpu_test", "sum_gpu_test", "sum_test"]
    names = [each.name for each in gpu_tests.programs(benchmarks=True)]
    assert names[-2:] == ["sum_worker", "sum_benchmark"]


@pytest.mark.usefixtures("_tree")
def test_follows_includes_to_sources():
    found = gpu_tests.program(Path("backend/cuda/engine_gpu_test.cc"))
    assert {str(source) for source in found.sources} == {
        "backend/cuda/engine_gpu_test.cc",
        "backend/cuda/engine.cc",
        "backend/model/spec.cc",
        "backend/kernels/sum_few.cu",
        "backend/kernels/sum_wide.cu",
    }


def test_sanitize_without_names_means_all_tools():
    assert gpu_tests.parse(["--sanitize"]).sanitizers == list(gpu_tests.SANITIZERS)
    assert gpu_tests.parse(["--sanitize", "memcheck"]).sanitizers == ["memcheck"]
    assert gpu_tests.parse([]).sanitizers is None


def test_a_filter_may_start_with_a_minus():
    for arguments in (["--gtest-filter", "-A*"], ["--jobs", "2", "--gtest-filter=-A*"]):
        assert gpu_tests.parse(arguments).gtest_filter == "-A*"
    assert gpu_tests.parse([]).gtest_filter == "*"


def test_googletest_is_the_folder_or_within_it(tmp_path):
    (tmp_path / "googletest/src").mkdir(parents=True)
    (tmp_path / "googletest/src/gtest-all.cc").touch()
    for given in (tmp_path, tmp_path / "googletest"):
        assert gpu_tests.parse(["--googletest", str(given)]).googletest == tmp_path / "googletest"
    with pytest.raises(SystemExit):
        gpu_tests.parse(["--googletest", str(tmp_path / "googletest/src")])


def test_a_folder_without_the_header_is_refused(tmp_path):
    with pytest.raises(SystemExit):
        gpu_tests.parse(["--json", str(tmp_path)])


@pytest.mark.usefixtures("_tree")
def test_what_was_not_built_is_a_failure(tmp_path, capsys):
    folder = tmp_path / "build"
    folder.mkdir()
    passing = folder / "sum_test"
    passing.write_text("#!/bin/sh\necho '[  PASSED  ] 3 tests.'\n")
    passing.chmod(0o755)
    arguments = ["--no-build", "--build-dir", str(folder), "--only"]
    assert gpu_tests.main([*arguments, "sum_test"]) == 0
    assert gpu_tests.main([*arguments, "sum"]) == 1
    said = capsys.readouterr().out
    assert "FAILED   sum_gpu_test: not built" in said
    assert said.count("ok       sum_test") == 2


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.usefixtures("_tree")
def test_some_run_side_by_side_and_some_alone(tmp_path, capsys):
    rules = [
        f'cc_test(\n    name = "{name}",\n    tags = [{tags}],\n)\n'
        for name, tags in (("sum_test", '"gpu"'), ("sum_gpu_test", '"exclusive"'))
    ]
    (tmp_path / "backend/kernels/BUILD.bazel").write_text("\n".join(rules))
    folder = tmp_path / "build"
    folder.mkdir()
    # Each of the first two waits for the other; the third one sees whether either still runs.
    for own, other in (("sum_test", "engine_gpu_test"), ("engine_gpu_test", "sum_test")):
        wait = f"touch {folder}/{own}.on; until [ -e {folder}/{other}.on ]; do sleep 0.01; done"
        script(folder / own, f"{wait}; sleep 0.2; touch {folder}/{own}.off")
    script(
        folder / "sum_gpu_test", f"test -e {folder}/sum_test.off -a -e {folder}/engine_gpu_test.off"
    )
    arguments = ["--no-build", "--build-dir", str(folder), "--parallel", "2", "--timeout", "20"]
    assert gpu_tests.main([*arguments, "--output", str(tmp_path / "results")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ok       sum_gpu_test")
    written = json.loads((tmp_path / "results/tests.json").read_text())
    assert {run["name"]: run["outcome"] for run in written["runs"]} == dict.fromkeys(
        ("engine_gpu_test", "sum_gpu_test", "sum_test"), "ok"
    )


@pytest.mark.usefixtures("_tree")
def test_results_hold_failures_and_output(tmp_path):
    folder = tmp_path / "build"
    folder.mkdir()
    script(folder / "sum_test", "echo '[  FAILED  ] Sum.Few'; exit 1")
    arguments = ["--no-build", "--build-dir", str(folder), "--only", "^sum_test"]
    assert gpu_tests.main([*arguments, "--output", str(tmp_path)]) == 1
    (run,) = json.loads((tmp_path / "tests.json").read_text())["runs"]
    assert (run["outcome"], run["failures"][0]) == ("FAILED", "[  FAILED  ] Sum.Few")
    log = (tmp_path / "tests.log").read_text()
    assert "\n== sum_test\n[  FAILED  ] Sum.Few\n" in log


@pytest.mark.usefixtures("_tree")
def test_sanitizers_run_beside_each_other(tmp_path, monkeypatch):
    folder = tmp_path / "build"
    folder.mkdir()
    script(folder / "sum_test", "")
    script(folder / "compute-sanitizer", "echo '========= ERROR SUMMARY: 0 errors'")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    arguments = ["--no-build", "--build-dir", str(folder), "--only", "^sum_test", "--parallel", "4"]
    assert gpu_tests.main([*arguments, "--output", str(tmp_path), "--sanitize"]) == 0
    runs = json.loads((tmp_path / "sanitizer.json").read_text())["runs"]
    assert [run["name"] for run in runs] == sorted(
        f"sum_test.{tool}" for tool in gpu_tests.SANITIZERS
    )
    assert {run["said"] for run in runs} == {"========= ERROR SUMMARY: 0 errors"}


@pytest.mark.usefixtures("_tree")
def test_one_broken_source_leaves_the_other_programs(tmp_path, capsys):
    options = gpu_tests.parse(["--build-dir", str(tmp_path / "build")])
    build = gpu_tests.Build(options)
    build.compile_command = lambda source: ["test", source.name, "!=", "sum_test.cc"]
    build.googletest_sources = list
    build.link_command = lambda _linked: ["true"]
    built = build.make(gpu_tests.programs(benchmarks=False))
    assert [each.name for each in built] == ["engine_gpu_test", "sum_gpu_test"]
    assert "failed: test sum_test.cc" in capsys.readouterr().err


@pytest.mark.usefixtures("_tree")
def test_an_unknown_name_ends_with_a_message():
    with pytest.raises(SystemExit, match="no program's name matches 'nothing'; --list shows"):
        gpu_tests.main(["--only", "nothing"])


def refusal(arguments: list[str]) -> list[str]:
    """The lines that the script ends with."""
    with pytest.raises(SystemExit) as ended:
        gpu_tests.main(arguments)
    return str(ended.value).splitlines()


@pytest.mark.usefixtures("_tree")
def test_all_that_the_machine_lacks_is_named_at_once(tmp_path, monkeypatch):
    (tmp_path / "backend/model/spec.h").write_text("#include <nlohmann/json.hpp>\n")
    gpu_tests.included.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gpu_tests, "SYSTEM_INCLUDES", (tmp_path,))
    monkeypatch.setattr(gpu_tests, "device_problem", lambda: "no GPU: none")
    lines = refusal(["--cuda", str(tmp_path), "--sanitize"])
    wanted = ["--cuda", "g++", "--googletest", "--json", "no GPU", "--sanitize"]
    assert [line.split(":")[0].split(" is")[0] for line in lines] == wanted
    assert not (tmp_path / "build").exists()
    # What is not needed is not asked for.
    for found in ("bin/nvcc", "g++"):
        path = tmp_path / found
        path.parent.mkdir(exist_ok=True)
        script(path, "")
    arguments = ["--cuda", str(tmp_path), "--build-only", "--only", "^sum_test"]
    (line,) = refusal([*arguments, "--arch", "sm_90"])
    assert line.startswith("--googletest")
    assert [line.split(":")[0] for line in refusal(arguments)] == ["--googletest", "--arch"]


@pytest.mark.usefixtures("_tree")
def test_wrong_folders_and_patterns_are_named(tmp_path, capsys, monkeypatch):
    (line,) = refusal(["--no-build", "--build-dir", str(tmp_path / "build")])
    assert line.startswith(f"--no-build: {tmp_path / 'build'} holds none")
    with pytest.raises(SystemExit):
        gpu_tests.parse(["--only", "("])
    assert "--only: '(' is no regular expression" in capsys.readouterr().err
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path / "elsewhere")
    assert "holds no tests" in refusal([])[0]


def test_a_machine_without_a_driver_is_told_so(monkeypatch):
    def missing(_name: str) -> None:
        raise OSError

    monkeypatch.setattr(gpu_tests.ctypes, "CDLL", missing)
    assert "driver (libcuda.so.1) is not installed" in gpu_tests.device_problem()


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-p", "no:cacheprovider"]))
