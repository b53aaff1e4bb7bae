#!/usr/bin/env python3
"""Builds and runs the tests that need a GPU, on a machine with nvcc and g++ but no Bazel.

Nothing is listed here: every backend/**/*_gpu_test.cc is a test, and its other sources are found
by following its #include lines (a header's source has the header's name; of a folder called kernels
all sources belong). It needs a CUDA toolkit, g++ from 12 on, the sources of GoogleTest and
nlohmann's json.hpp; Python's standard library is enough. What is missing is said before anything is
built.

    tools/gpu_tests.py --googletest DIR --json DIR
    tools/gpu_tests.py --googletest DIR --json DIR --sanitize --only projection
    tools/gpu_tests.py --no-build --build-dir DIR --parallel 4 --output FOLDER
"""

import argparse
import concurrent.futures
import ctypes
import dataclasses
import functools
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # started by its name, this file's folder stands there

from tools.lib import results  # noqa: E402

INCLUDE = re.compile(r'^#include "((?:backend|benchmarks|tests)/[^"]+)"', re.MULTILINE)
# The flags of backend/cpu/kernels/BUILD.bazel: each source there is for one instruction set.
AVX2 = ["-mavx2", "-mfma", "-mf16c"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
INSTRUCTION_SETS = {"kernels_avx2.cc": AVX2, "kernels_avx512.cc": AVX512}
# Sources that include it need the instructions of compute capability 9.0a, whatever --arch says.
HOPPER = pathlib.Path("backend/kernels/hopper.cuh")
HOPPER_ARCH = "-gencode=arch=compute_90a,code=sm_90a"
# Ends of the names of what --benchmarks builds; a worker is what a benchmark's driver starts.
BENCHMARKS = ("benchmark", "worker")
JSON_HEADER = pathlib.Path("nlohmann/json.hpp")
# Where g++ looks by itself.
SYSTEM_INCLUDES = (pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include"))
NO_TEST = re.compile(r"(_test|_benchmark|_worker|_main)\.cc$")

SANITIZERS = ("memcheck", "racecheck", "initcheck", "synccheck")
# Sanitizers make kernels some hundred times slower: racecheck alone took more than 70 s for one
# sampler over a whole vocabulary. So tests of large shapes stay out; small ones of the same suite
# take every branch, several blocks and both sides of each border. Out are also tests that kill the
# device on purpose (an error is what they want) and those that measure time.
NOT_SANITIZED = "-*Large*:*DeathTest*:*Timing*"
# racecheck and initcheck follow single accesses of kernels: an engine runs the same kernels behind
# cuBLASLt's, whose accesses are not ours to mend.
KERNEL_SANITIZERS = frozenset({"racecheck", "initcheck"})


@dataclasses.dataclass(frozen=True)
class Program:
    """A test or a benchmark and the sources that it is linked from."""

    name: str
    main: pathlib.Path
    sources: frozenset[pathlib.Path]

    @property
    def is_test(self) -> bool:
        """Whether GoogleTest brings its main()."""
        return self.name.endswith("_test")


@functools.cache
def included(path: pathlib.Path) -> list[pathlib.Path]:
    """The project's headers that a file includes."""
    text = (ROOT / path).read_text()
    return [pathlib.Path(name) for name in INCLUDE.findall(text) if (ROOT / name).exists()]


@functools.cache
def neighbours(header: pathlib.Path) -> list[pathlib.Path]:
    """The sources that define what a header declares."""
    if header.parent.name == "kernels":
        found = [*(ROOT / header.parent).glob("*.cu"), *(ROOT / header.parent).glob("*.cc")]
    else:
        found = [ROOT / header.with_suffix(suffix) for suffix in (".cc", ".cu")]
    return [
        path.relative_to(ROOT) for path in found if path.exists() and not NO_TEST.search(path.name)
    ]


def program(main: pathlib.Path) -> Program:
    """Follows the includes of a main source."""
    seen = {main}
    waiting = [main]
    while waiting:
        path = waiting.pop()
        reached = included(path)
        if path.suffix in (".h", ".cuh"):
            reached = [*reached, *neighbours(path)]
        for other in reached:
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    sources = frozenset(path for path in seen if path.suffix in (".cc", ".cu"))
    return Program(main.stem, main, sources)


def programs(benchmarks: bool) -> list[Program]:
    """The GPU tests, the other tests of backend/kernels, and on demand the benchmarks."""
    mains = {*ROOT.glob("backend/**/*_gpu_test.cc"), *ROOT.glob("backend/kernels/*_test.cc")}
    if benchmarks:
        mains |= {path for kind in BENCHMARKS for path in ROOT.glob(f"benchmarks/*/*_{kind}.cc")}
    return [program(path.relative_to(ROOT)) for path in sorted(mains)]


class Build:
    """Compiles sources to objects and links programs, all in one folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        """Takes the parsed command line."""
        self.folder = options.build_dir.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.jobs = options.jobs
        self.cuda = options.cuda
        self.googletest = options.googletest
        self.includes = ["-I.", f"-I{self.cuda}/include"]
        if self.googletest:
            self.includes += ["-isystem", f"{self.googletest}/include"]
        if options.json:
            self.includes += ["-isystem", str(options.json)]
        self.arch = f"-arch={options.arch}"
        self.nvcc = [f"{self.cuda}/bin/nvcc", "-std=c++20", "-O3", "-lineinfo", "-I."]

    def object_of(self, source: pathlib.Path) -> pathlib.Path:
        """Where a source's object goes."""
        return self.folder / (str(source).replace("/", "+") + ".o")

    def compile_command(self, source: pathlib.Path) -> list[str]:
        """The compiler's command line."""
        output = ["-c", str(source), "-o", str(self.object_of(source))]
        if source.suffix == ".cu":
            return [*self.nvcc, HOPPER_ARCH if HOPPER in included(source) else self.arch, *output]
        flags = ["g++", "-std=c++23", "-O2", "-Wall", "-Wextra", *self.includes]
        if self.googletest and self.googletest in source.parents:
            flags.append(f"-I{self.googletest}")
        if source.parent == pathlib.Path("backend/cpu/kernels"):
            flags += ["-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]
            flags += INSTRUCTION_SETS.get(source.name, [])
        return [*flags, *output]

    def googletest_sources(self) -> list[pathlib.Path]:
        """GoogleTest and its main()."""
        return [self.googletest / "src" / name for name in ("gtest-all.cc", "gtest_main.cc")]

    def link_command(self, linked: Program) -> list[str]:
        """The linker's command line."""
        sources = sorted(linked.sources)
        if linked.is_test:
            sources += self.googletest_sources()
        objects = [str(self.object_of(source)) for source in sources]
        libraries = [f"-L{self.cuda}/lib64", "-lcudart_static", "-ldl", "-lpthread", "-lrt"]
        return ["g++", *objects, "-o", str(self.folder / linked.name), *libraries]

    def run(self, commands: dict[pathlib.Path, list[str]]) -> set[pathlib.Path]:
        """Runs compilers side by side, by what each makes; says and returns which failed."""
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            done = pool.map(
                lambda command: subprocess.run(
                    command, cwd=ROOT, capture_output=True, text=True, check=False
                ),
                commands.values(),
            )
            failed = set()
            for (made, command), result in zip(commands.items(), done, strict=True):
                print(result.stderr, end="", file=sys.stderr)
                if result.returncode != 0:
                    failed.add(made)
                    print("failed:", shlex.join(command), file=sys.stderr)
        return failed

    def make(self, wanted: list[Program]) -> list[Program]:
        """Compiles and links everything, slow sources first; returns what could be linked."""
        sources = {source for each in wanted for source in each.sources}
        if any(each.is_test for each in wanted):
            sources |= set(self.googletest_sources())
        ordered = sorted(sources, key=lambda source: (source.suffix != ".cu", str(source)))
        begin = time.monotonic()
        broken = self.run({source: self.compile_command(source) for source in ordered})
        whole = [each for each in wanted if not broken & each.sources]
        unlinked = self.run({each.main: self.link_command(each) for each in whole})
        built = [each for each in whole if each.main not in unlinked]
        seconds = time.monotonic() - begin
        print(f"built {len(built)} of {len(wanted)} programs in {seconds:.0f} s", flush=True)
        return built


@dataclasses.dataclass(frozen=True)
class Run:
    """A program to run: `alone` if nothing else may use the device meanwhile."""

    name: str
    command: list[str]
    alone: bool = False
    environment: dict[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a run ended. `said` are the counts and summaries that it printed."""

    name: str
    outcome: str
    seconds: float
    said: str
    failures: list[str]

    def __str__(self) -> str:
        lines = [
            f"{self.outcome:8} {self.name:58} {self.seconds:6.1f} s  {self.said}",
            *self.failures,
        ]
        return "\n         ".join(lines)


def runs_alone(test: Program) -> bool:
    """Whether Bazel runs it alone, too: its rule has the tag `exclusive`."""
    build = ROOT / test.main.parent / "BUILD.bazel"
    text = build.read_text() if build.exists() else ""
    rule = re.search(
        rf'^cc_test\(\n    name = "{test.name}",.*?^\)', text, re.MULTILINE | re.DOTALL
    )
    return rule is not None and '"exclusive"' in rule[0]


def run_all(runs: list[Run], options: argparse.Namespace) -> bool:
    """Runs the programs, options.parallel at a time, then one by one those that need be alone."""
    options.logs.mkdir(parents=True, exist_ok=True)
    outcomes: list[Outcome] = []
    for workers, alone in ((options.parallel, False), (1, True)):
        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            started = [pool.submit(run_logged, run, options) for run in runs if run.alone == alone]
            for done in concurrent.futures.as_completed(started):
                outcomes.append(done.result())
                print(outcomes[-1], flush=True)
                # Each time: what is known is kept if this is ended before its end.
                if options.output:
                    write_results(sorted(outcomes, key=lambda one: one.name), options)
    good = all(one.outcome == "ok" for one in outcomes)
    if not good:
        print(f"what the programs said is in {options.logs}")
    return good


def write_results(outcomes: list[Outcome], options: argparse.Namespace) -> None:
    """tests.json and tests.log (sanitizer.json, sanitizer.log) in the folder options.output."""
    name = "tests" if options.sanitizers is None else "sanitizer"
    values = results.provenance() | {"runs": [dataclasses.asdict(one) for one in outcomes]}
    results.write_json(options.output / f"{name}.json", values)
    with (options.output / f"{name}.log").open("w") as log:
        print(f"{results.device(values)}; commit {values['commit']}, {values['date']}", file=log)
        print(*outcomes, sep="\n", file=log)
        for one in outcomes:
            text = (options.logs / f"{one.name}.log").read_text(errors="replace")
            print(f"\n== {one.name}\n{text}", file=log)


def run_logged(run: Run, options: argparse.Namespace) -> Outcome:
    """Runs one program with a deadline; its output goes to a log."""
    log = options.logs / f"{run.name}.log"
    begin = time.monotonic()
    with log.open("w") as output:
        try:
            code = subprocess.run(
                run.command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=options.timeout,
                env=os.environ | run.environment,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = None
    text = log.read_text(errors="replace")
    counts = re.findall(r"^\[  PASSED  \] \d+ tests?\.", text, re.MULTILINE)
    summary = re.findall(r"^=+ (?:ERROR|RACECHECK) SUMMARY.*", text, re.MULTILINE)
    outcome = {0: "ok", None: f"did not end in {options.timeout} s"}.get(code, "FAILED")
    failures = []
    if code != 0:
        # GoogleTest names each failed test twice: when it ends, with its time, and in the end.
        failures = re.findall(r"^\[  FAILED  \] \S+\.\S+(?:, where .*)?$", text, re.MULTILINE)
        failures = [failure for failure in failures if not failure.endswith(" ms)")]
        failures = [*dict.fromkeys(failures), f"see {log.name} in --logs"]
    seconds = round(time.monotonic() - begin, 1)
    return Outcome(run.name, outcome, seconds, " ".join([*counts, *summary]), failures)


def plain_runs(build: Build, tests: list[Program], options: argparse.Namespace) -> Iterator[Run]:
    """The tests as they are."""
    environment = {}
    if options.checkpoints:
        folders = os.pathsep.join(str(folder.resolve()) for folder in options.checkpoints)
        environment["SEQ2SEQ_PARITY_CHECKPOINTS"] = folders
    for test in tests:
        command = [str(build.folder / test.name), f"--gtest_filter={options.gtest_filter}"]
        command.append(f"--gtest_output=xml:{options.logs.resolve()}/{test.name}.xml")
        yield Run(test.name, command, runs_alone(test), environment)


def sanitizer(options: argparse.Namespace) -> str:
    """The path of compute-sanitizer."""
    return shutil.which("compute-sanitizer") or f"{options.cuda}/bin/compute-sanitizer"


def sanitizer_runs(
    build: Build, tests: list[Program], options: argparse.Namespace
) -> Iterator[Run]:
    """The tests under each of compute-sanitizer's tools."""
    for tool in options.sanitizers:
        for test in tests:
            if tool in KERNEL_SANITIZERS and test.main.parent.name != "kernels":
                continue
            command = [sanitizer(options), "--tool", tool, "--error-exitcode", "1"]
            command += [str(build.folder / test.name), f"--gtest_filter={NOT_SANITIZED}"]
            yield Run(f"{test.name}.{tool}", command, runs_alone(test))


def needs_json(source: pathlib.Path) -> bool:
    """Whether a source or a header that it includes itself includes nlohmann's json.hpp."""
    return any(
        "#include <nlohmann/json.hpp>" in (ROOT / path).read_text()
        for path in (source, *included(source))
    )


def missing_for_build(options: argparse.Namespace, wanted: list[Program]) -> Iterator[str]:
    """What the build needs and does not find, and how to mend that."""
    if not (options.cuda / "bin/nvcc").exists():
        yield f"--cuda: {options.cuda} holds no bin/nvcc; name the folder of a CUDA toolkit"
    if shutil.which("g++") is None:
        yield "g++ is not on PATH; version 12 or later is needed"
    if options.googletest is None and any(each.is_test for each in wanted):
        yield (
            "--googletest: name a folder with GoogleTest's sources, a checkout of it or"
            " /usr/src/googletest of Debian's package libgtest-dev"
        )
    sources = {source for each in wanted for source in each.sources}
    installed = any((folder / JSON_HEADER).exists() for folder in SYSTEM_INCLUDES)
    if options.json is None and not installed and any(map(needs_json, sources)):
        yield (
            f"--json: name a folder that holds {JSON_HEADER}, or install Debian's package"
            " nlohmann-json3-dev"
        )


def missing_for_run(options: argparse.Namespace) -> Iterator[str]:
    """What the tests need and do not find."""
    if problem := device_problem():
        yield f"{problem}; --build-only builds without one, --arch sm_90 says for which"
    if options.sanitizers is not None and not pathlib.Path(sanitizer(options)).exists():
        yield (
            f"--sanitize: compute-sanitizer is neither on PATH nor in {options.cuda}/bin;"
            " it comes with the CUDA toolkit"
        )


def device_problem() -> str:
    """Why no test can run on this machine; empty if it has a GPU."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no GPU: NVIDIA's driver (libcuda.so.1) is not installed"
    count = ctypes.c_int()
    error = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if error or not count.value:
        return f"no GPU: NVIDIA's driver finds none (error {error}); nvidia-smi may say more"
    return ""


def googletest_folder(given: pathlib.Path, parser: argparse.ArgumentParser) -> pathlib.Path:
    """The folder that holds src/ and include/: the given one, or googletest/ in it."""
    for folder in (given.resolve(), given.resolve() / "googletest"):
        if (folder / "src/gtest-all.cc").exists():
            return folder
    return parser.error(
        f"--googletest: {given} holds no src/gtest-all.cc: it is no folder of GoogleTest's sources"
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def folder(name: str, text: str, default: str | None = None) -> None:
        parser.add_argument(
            name,
            type=pathlib.Path,
            default=default and pathlib.Path(default),
            metavar="DIR",
            help=f"{text} (default: {default})" if default else text,
        )

    folder("--googletest", "GoogleTest's sources, such as Debian's /usr/src/googletest")
    folder("--json", f"holds {JSON_HEADER}; not needed if that is installed")
    folder("--cuda", "the CUDA toolkit", "/usr/local/cuda")
    parser.add_argument(
        "--arch", default="native", help="nvcc's -arch, such as sm_90 (default: this machine's GPU)"
    )
    folder("--build-dir", "for objects and programs", "/tmp/seq2seq_gpu_tests")
    folder("--logs", "for each program's output and XML (default: logs in --build-dir)")
    folder("--output", "for outcomes and output, as JSON and a log")
    parser.add_argument(
        "--parallel",
        type=int,
        default=1,
        metavar="N",
        help="programs that run at once, if Bazel may, too (default: 1)",
    )
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), metavar="N", help="compilers that run at once"
    )
    parser.add_argument(
        "--only", default="", metavar="REGEX", help="programs whose names hold it (default: all)"
    )
    parser.add_argument(
        "--gtest-filter", default="*", metavar="FILTER", help="GoogleTest's; -A leaves A out"
    )
    parser.add_argument(
        "--timeout", type=int, default=300, metavar="SECONDS", help="a program's (default: 300)"
    )
    parser.add_argument(
        "--checkpoints",
        type=pathlib.Path,
        metavar="DIR",
        nargs="+",
        help="more folders with an expected.json for the parity test, in every number format",
    )
    parser.add_argument(
        "--sanitize",
        dest="sanitizers",
        nargs="*",
        choices=SANITIZERS,
        metavar="TOOL",
        help=f"run under compute-sanitizer instead: {', '.join(SANITIZERS)}; all if none is named",
    )
    parser.add_argument("--benchmarks", action="store_true", help="build benchmarks/ too")
    parser.add_argument("--build-only", action="store_true", help="run nothing")
    parser.add_argument("--no-build", action="store_true", help="run what was built before")
    parser.add_argument(
        "--list", action="store_true", help="print programs and sources, that's all"
    )
    # argparse takes a value that starts with '-' for an option, unless '=' joins the two.
    joined = re.sub("\n--gtest-filter\n", "\n--gtest-filter=", "\n".join(["", *arguments]))
    options = parser.parse_args(joined.split("\n")[1:])
    options.logs = options.logs or options.build_dir / "logs"
    if options.googletest:
        options.googletest = googletest_folder(options.googletest, parser)
    if options.json:
        options.json = options.json.resolve()
        if not (options.json / JSON_HEADER).exists():
            parser.error(f"--json: {options.json} holds no {JSON_HEADER}")
    try:
        re.compile(options.only)
    except re.error as error:
        parser.error(f"--only: '{options.only}' is no regular expression: {error}")
    if options.sanitizers == []:
        options.sanitizers = list(SANITIZERS)
    return options


def main(arguments: list[str]) -> int:
    """Builds, then runs; 0 if everything passed."""
    options = parse(arguments)
    known = programs(options.benchmarks)
    if not known:
        sys.exit(f"{ROOT} holds no tests: {sys.argv[0]} must stay in the repository's tools/")
    wanted = [each for each in known if re.search(options.only, each.name)]
    if options.list:
        for each in wanted:
            print(each.name, *sorted(map(str, each.sources)), sep="\n    ")
        return 0
    if not wanted:
        sys.exit(f"no program's name matches '{options.only}'; --list shows them all")
    missing = [] if options.no_build else list(missing_for_build(options, wanted))
    if not options.build_only:
        missing += missing_for_run(options)
    elif options.arch == "native" and (problem := device_problem()):
        missing.append(f"--arch: name the GPU's architecture, such as sm_90 ({problem})")
    if missing:
        sys.exit("\n".join(missing))
    build = Build(options)
    if options.no_build:
        built = [each for each in wanted if (build.folder / each.name).exists()]
        if not built:
            sys.exit(f"--no-build: {build.folder} holds none of the programs; build them first")
    else:
        built = build.make(wanted)
    good = len(built) == len(wanted)
    for each in wanted:
        if each not in built:
            print(f"FAILED   {each.name}: not built")
    if options.build_only:
        return 0 if good else 1
    tests = [each for each in built if each.is_test]
    runs = plain_runs if options.sanitizers is None else sanitizer_runs
    return 0 if run_all(list(runs(build, tests, options)), options) and good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
