"""What this machine offers: its tools, and whether its own Bazel can reach the public registry."""

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

from files import SetupError, digest, write_aside
from progress import Progress

VERSION_SECONDS = 60  # bazelisk may have to fetch Bazel first
REGISTRY_SECONDS = 60
CA_BUNDLE = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")
DEBIAN_KEYRING = pathlib.Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def missing_tools(private_bazel: bool) -> list[tuple[str, str]]:
    """(what is missing, the Debian package that has it), in the order in which to name them."""
    missing = []
    if not shutil.which("g++"):
        missing.append(("g++", "g++"))
    if not importlib.util.find_spec("pip"):
        missing.append((f"pip for {sys.executable}", "python3-pip"))
    if not private_bazel:
        return missing
    if sys.version_info[:2] != (3, 11):
        missing.append(("python3.11 on PATH", "python3.11"))
    for program, package in (
        ("tar", "tar"),
        ("dpkg-deb", "dpkg"),
        ("apt-get", "apt"),
    ):
        if not shutil.which(program):
            missing.append((program, package))
    if not ca_bundle().is_file():
        missing.append((str(ca_bundle()), "ca-certificates"))
    if not DEBIAN_KEYRING.is_file():
        missing.append((str(DEBIAN_KEYRING), "debian-archive-keyring"))
    return missing


def require_tools(private_bazel: bool) -> None:
    """Fails with one line a missing tool, each with the command that installs it."""
    missing = missing_tools(private_bazel)
    if missing:
        lines = [
            f"{what} is missing; install it with: apt-get install -y {package}"
            for what, package in missing
        ]
        raise SetupError("\nbazelw: ".join(lines))


def ca_bundle() -> pathlib.Path:
    """The certificates that this machine trusts."""
    return pathlib.Path(os.environ.get("SSL_CERT_FILE") or CA_BUNDLE)


def answers(command: list[str], folder: pathlib.Path, seconds: int) -> str | None:
    """The standard output of a command that succeeds in time, else None."""
    try:
        result = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def reaches_registry(bazel: str, version: str, cache: pathlib.Path) -> bool:
    """Asks `bazel` itself to resolve one public module, in an empty workspace of its own."""
    probe = cache / "registry_probe"
    shutil.rmtree(probe, ignore_errors=True)
    probe.mkdir(parents=True)
    (probe / ".bazelversion").write_text(version + "\n")
    (probe / "MODULE.bazel").write_text('bazel_dep(name = "platforms", version = "0.0.11")\n')
    if (answers([bazel, "--version"], probe, VERSION_SECONDS) or "").strip() != f"bazel {version}":
        return False
    startup = [bazel, f"--output_base={probe}/out", "--max_idle_secs=5"]
    reached = (
        answers([*startup, "mod", "graph", "--lockfile_mode=off"], probe, REGISTRY_SECONDS)
        is not None
    )
    answers([*startup, "shutdown"], probe, VERSION_SECONDS)
    return reached


def find_system_bazel(root: pathlib.Path, cache: pathlib.Path, progress: Progress) -> str | None:
    """The bazelisk or bazel on PATH if it can build this repository, else None.

    The answer is kept in CACHE/registry_answers, a file a program; remove that folder to ask again.
    """
    choice = os.environ.get("SEQ2SEQ_BAZEL", "auto")
    if choice not in ("auto", "system", "private"):
        raise SetupError(f"SEQ2SEQ_BAZEL is '{choice}'; allowed: auto, system, private")
    found = shutil.which("bazelisk") or shutil.which("bazel")
    if choice == "private" or (choice == "auto" and not found):
        return None
    if choice == "system":
        if not found:
            raise SetupError("SEQ2SEQ_BAZEL=system, but neither bazelisk nor bazel is on PATH")
        return found
    version = (root / ".bazelversion").read_text().strip()
    answer = cache / "registry_answers" / digest(found, version)
    if not answer.exists():
        with progress.step(f"asking {found} whether it reaches the public module registry"):
            write_aside(answer, "yes\n" if reaches_registry(found, version, cache) else "no\n")
    reached = answer.read_text() == "yes\n"
    progress.note(
        f"{found} reaches the registry and is used"
        if reached
        else f"{found} does not reach the registry; a private Bazel is used"
    )
    return found if reached else None
