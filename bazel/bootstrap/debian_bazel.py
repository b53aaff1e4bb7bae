"""A private Bazel: Debian's packages, unpacked into the cache and made to run from there.

apt-get resolves and verifies the packages, with a configuration of its own: another suite, another
state, so that the system's package database is neither read nor changed.
"""

import os
import pathlib
import re
import shutil
import subprocess

import relocate
from files import SetupError, digest, folder_aside, run
from host import DEBIAN_KEYRING, ca_bundle
from progress import Progress

BAZEL_VERSION = "7.7"  # newer patch releases of the suite are as good
JAVA_VERSIONS = (21, 25)
# libblake3-0 is a dependency that the Bazel package does not declare.
PACKAGES = ["bazel-bootstrap", "bazel-rules-shell", "libblake3-0", "googletest", "patchelf"]
# What the closure must not drag in: the host has it, or Bazel never runs it.
PROVIDED = [
    "build-essential",
    "default-jdk-headless",
    "default-jre-headless",
    "default-jre",
    "ca-certificates-java",
    "java-common",
    "python3",
    "unzip",
    "libjs-jquery",
    "node-core-js",
    "node-html5shiv",
    "util-linux",
    "debconf",
    "perl",
    "sensible-utils",
]
NOT_UNPACKED = ["./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/include"]
NOT_UNPACKED += ["./usr/lib/x86_64-linux-gnu/gconv", "./usr/share/maven-repo/*.pom"]


def suite() -> str:
    """The Debian suite that carries Bazel."""
    return os.environ.get("SEQ2SEQ_SUITE") or "forky"


def mirror() -> str:
    """The Debian mirror that this machine's apt uses already."""
    if os.environ.get("SEQ2SEQ_MIRROR"):
        return os.environ["SEQ2SEQ_MIRROR"]
    apt = pathlib.Path("/etc/apt")
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        for line in path.read_text().splitlines() if path.is_file() else []:
            match = re.match(r"(?:deb\s+(?:\[[^]]*\]\s+)?|URIs:\s*)(\S+?)/?(?:\s|$)", line)
            if match and match.group(1).endswith("/debian"):
                return match.group(1)
    raise SetupError("no Debian mirror stands in /etc/apt; name one in SEQ2SEQ_MIRROR")


def apt_environment(folder: pathlib.Path) -> dict[str, str]:
    """Writes apt's private configuration; returns the environment that selects it."""
    for name in (
        "state/lists/partial",
        "cache/archives/partial",
        "etc/apt.conf.d",
        "etc/preferences.d",
    ):
        (folder / name).mkdir(parents=True)
    (folder / "etc/sources.list").write_text(
        f"deb [signed-by={DEBIAN_KEYRING}] {mirror()} {suite()} main\n"
    )
    (folder / "state/status").write_text(
        "".join(
            f"Package: {name}\nStatus: install ok installed\nArchitecture: all\n"
            "Multi-Arch: foreign\nVersion: 999:999\nMaintainer: none <none@localhost>\n"
            "Description: provided\n\n"
            for name in PROVIDED
        )
    )
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "state/status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc": folder / "etc",
        "Dir::Etc::Trusted": "/etc/apt/trusted.gpg",
        "Dir::Etc::TrustedParts": "/etc/apt/trusted.gpg.d",
        "APT::Architecture": "amd64",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::Retries": "3",
        "APT::Update::Error-Mode": "any",
        # The lists of a frozen mirror may have expired; their signatures are still checked.
        "Acquire::Check-Valid-Until": "false",
        "Acquire::Check-Date": "false",
    }
    path = folder / "apt.conf"
    path.write_text("".join(f'{key} "{value}";\n' for key, value in settings.items()))
    return dict(os.environ, APT_CONFIG=str(path), DEBIAN_FRONTEND="noninteractive")


def download(folder: pathlib.Path) -> list[pathlib.Path]:
    """Fetches the packages and what they depend on; returns the .deb files."""
    environment = apt_environment(folder)
    run(
        ["apt-get", "-qq", "update"],
        f"reading the package lists of Debian {suite()}",
        env=environment,
    )
    policy = run(["apt-cache", "policy", "bazel-bootstrap"], "apt-cache policy", env=environment)
    candidate = re.search(r"Candidate: (\S+)", policy)
    offered = candidate.group(1) if candidate else "none"
    if not re.match(rf"{re.escape(BAZEL_VERSION)}\.\d", offered):
        raise SetupError(
            f"Debian {suite()} offers bazel-bootstrap {offered}, wanted {BAZEL_VERSION}.x: name a "
            "suite or a frozen mirror that has it in SEQ2SEQ_SUITE or SEQ2SEQ_MIRROR, or put "
            "bazelisk on PATH"
        )
    names = run(
        ["apt-cache", "pkgnames", "openjdk-"], "apt-cache pkgnames", env=environment
    ).split()
    java = [
        f"openjdk-{v}-jre-headless" for v in JAVA_VERSIONS if f"openjdk-{v}-jre-headless" in names
    ]
    if not java:
        raise SetupError(f"Debian {suite()} has no openjdk-N-jre-headless for N in {JAVA_VERSIONS}")
    command = ["apt-get", "-qq", "install", "-y", "--download-only", *PACKAGES, java[0]]
    run(command, "fetching Debian packages", env=environment)
    return sorted((folder / "cache/archives").glob("*.deb"))


def unpack(debs: list[pathlib.Path], root: pathlib.Path) -> None:
    """Unpacks packages over one merged-/usr tree."""
    (root / "usr").mkdir(parents=True)
    for name in ("lib", "bin", "sbin", "lib64"):
        (root / "usr" / name).mkdir()
        (root / name).symlink_to(f"usr/{name}")
    options = [
        "--keep-directory-symlink",
        "--no-same-owner",
        *(f"--exclude={p}" for p in NOT_UNPACKED),
    ]
    for deb in debs:
        with subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE
        ) as archive:
            run(
                ["tar", "-C", str(root), "-xf", "-", *options],
                f"unpacking {deb.name}",
                stdin=archive.stdout,
            )
        if archive.returncode:
            raise SetupError(f"{deb.name} cannot be read: dpkg-deb ended with {archive.returncode}")


def prepare(cache: pathlib.Path, progress: Progress) -> pathlib.Path:
    """Returns the folder of the unpacked packages, ready to run."""
    here = pathlib.Path(__file__)
    made_from = digest(
        here, here.with_name("relocate.py"), suite(), os.environ.get("SEQ2SEQ_MIRROR", "")
    )
    target = cache / f"bazel-{made_from}"
    if target.exists():
        return target
    with folder_aside(target) as aside:
        with progress.step("Debian's Bazel: packages (190 MB)"):
            debs = download(aside / "apt")
        with progress.step("Debian's Bazel: unpacking and relocating"):
            unpack(debs, aside)
            shutil.rmtree(aside / "apt")
            relocate.relocate(aside, target)
    return target


def launcher(prefix: pathlib.Path, cache: pathlib.Path) -> str:
    """The script that execs the private Bazel."""
    key_store = relocate.key_store(ca_bundle(), cache / "key_stores")
    return f"""#!/bin/sh
exec {prefix}/usr/bin/bazel --nosystem_rc \\
  --install_base={prefix}/usr/share/bazel --trust_install_base \\
  --server_javabase={relocate.java_home(prefix)} --output_user_root={cache}/output \\
  --host_jvm_args=-Djavax.net.ssl.trustStore={key_store} "$@"
"""
