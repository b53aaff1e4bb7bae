"""The project's own rules, each a pattern that must not stand in some of the files."""

import dataclasses
import pathlib
import re
import subprocess
import sys

LOCKS = r"(\.lock|requirements_lock\.txt|package-lock\.json)$"
SOURCES = r"\.(cc|h|cu|cuh|py|bzl|bazel|sh)$"
LARGEST_FILE = 2_000_000


@dataclasses.dataclass(frozen=True)
class Rule:
    """A pattern, where it is looked for and why it must not be there; all regular expressions."""

    reason: str
    pattern: str
    within: str = ""
    but_not: str = r"^$"


RULES = [
    Rule("a path of one machine", r"(?:^|[^\w.])/(?:work|root|home|farm)/\w", but_not=LOCKS),
    Rule("left open", r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b", within=SOURCES),
    Rule(
        "a test that may not run",
        r"GTEST_" r"SKIP|pytest\.(?:skip|importorskip|mark\.(?:skip|xfail))|@unittest\.skip",
        within=r"(_test\.(cc|py)|^tests/.*\.py)$",
    ),
    Rule("a target that nobody builds", r'tags\s*=\s*\[[^]]*"manual"', within=r"\.(bazel|bzl)$"),
    Rule(
        "the default stream, or a wait for the whole device; name the stream",
        r"\bcuda(?:(?:Device|Thread)Synchronize|DeviceReset|StreamLegacy|StreamPerThread|StreamDefault"
        r"|Memcpy(?:2D|3D|Peer|(?:To|From)Symbol)?|Memset(?:2D|3D)?)\b(?!Kind)"
        r"|\bcudaStreamCreate\b"  # a stream that waits for the default one
        r"|\bcuda\w+Async\(.*,\s*(?:0|nullptr)\)"
        r"|<<<[^,>]*,[^,>]*(?:,[^,>]*)?>>>|<<<[^>]*,\s*(?:0|nullptr)>>>",
        within=r"^backend/(cuda|kernels)/",
        but_not=r"_test(_util\.h|\.cc)$",
    ),
    Rule(
        "a default stream for each thread, which hides that a stream has no name",
        r"CUDA_API_PER_THREAD_DEFAULT_" r"STREAM|--default-" r"stream",
    ),
]


def registry_hosts(root: pathlib.Path) -> list[str]:
    """The hosts that this machine's package clients are set up with, read from them."""
    texts = []
    pip = "from pip._internal.models.index import PyPI; print(PyPI.url, PyPI.file_storage_domain)"
    for command in (
        [sys.executable, "-c", pip],
        [sys.executable, "-m", "pip", "config", "list"],
        ["npm", "config", "get", "registry"],
    ):
        try:
            result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            continue
        texts.append(result.stdout)
    apt = pathlib.Path("/etc/apt")
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        texts.append(path.read_text() if path.is_file() else "")
    urls = re.findall(r"https?://(?:[^@/\s']*@)?([a-z0-9.-]+\.[a-z]+)", "\n".join(texts))
    bare = re.findall(r"(?<![\w./@-])((?:[a-z0-9-]+\.){2,}[a-z]+)(?![\w./])", texts[0])
    return sorted({host for host in [*urls, *bare] if "." in host})


def check_file(name: str, text: str, chosen: list[Rule]) -> list[str]:
    """The places in one file that break a rule."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        found += [
            f"{name}:{number}: {rule.reason}: {line.strip()[:100]}"
            for rule in chosen
            if re.search(rule.pattern, line)
        ]
    return found


def check(root: pathlib.Path, files: list[str]) -> list[str]:
    """Everything in `files` that breaks a rule, one line each."""
    hosts = "|".join(re.escape(host) for host in registry_hosts(root))
    active = [*RULES, Rule("the host of a package registry", hosts)] if hosts else RULES
    found = []
    for name in files:
        data = (root / name).read_bytes()
        if len(data) > LARGEST_FILE and not name.endswith(".safetensors"):
            found.append(f"{name}: {len(data)} bytes, more than {LARGEST_FILE}")
        if b"\0" in data[:8000]:
            continue
        chosen = [
            rule
            for rule in active
            if re.search(rule.within, name) and not re.search(rule.but_not, name)
        ]
        found += check_file(name, data.decode(errors="replace"), chosen)
    return found
