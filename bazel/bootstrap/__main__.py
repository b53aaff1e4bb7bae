"""Prepares this machine to build the repository; `bazelw` runs it when its inputs have changed.

It leaves two things: the launcher CACHE/launchers/KEY, which execs Bazel, and ROOT/.bazelrc.local,
which tells Bazel where the CUDA compiler and the modules are. Nothing outside CACHE and that file
is touched.
"""

import argparse
import os
import pathlib
import sys

import cuda_toolkit
import debian_bazel
import host
import module_registry
import python_env
from files import SetupError, locked, write_aside
from progress import Progress


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True, help="the checkout")
    parser.add_argument(
        "--cache", type=pathlib.Path, required=True, help="where to keep everything"
    )
    parser.add_argument("--key", required=True, help="hash of the inputs, names the launcher")
    return parser.parse_args()


def system_launcher(bazel: str) -> str:
    """The launcher script for a Bazel that was already on PATH."""
    return f'#!/bin/sh\nexec "{bazel}" "$@"\n'


def local_rc(key: str, lines: list[str]) -> str:
    """The text of .bazelrc.local; bazelw compares its first line with the key."""
    header = [
        f"# bazelw {key}",
        "# Written by ./bazelw for this machine and this checkout; never committed.",
    ]
    return "\n".join(header + lines) + "\n"


def set_up(root: pathlib.Path, cache: pathlib.Path, key: str, progress: Progress) -> None:
    """Makes everything that the launcher and .bazelrc.local name, then writes the two."""
    system = host.find_system_bazel(root, cache, progress)
    host.require_tools(private_bazel=system is None)
    toolkit = cuda_toolkit.prepare(root, cache, progress)
    lines = [
        f"common --repo_env=CUDA_PATH={toolkit}",
        f"common --disk_cache={cache}/disk",
        "common --experimental_disk_cache_gc_max_size=20G",
    ]
    if system:
        launcher = system_launcher(system)
    else:
        prefix = debian_bazel.prepare(cache, progress)
        registry = module_registry.prepare(root, cache, prefix, progress)
        lines += [
            f"common --registry=file://{registry}",
            "common --lockfile_mode=off",
            "common --override_module=rules_cuda=%workspace%/third_party/rules_cuda",
            f"common --repository_cache={cache}/repository",
            f"common --repo_env=SEQ2SEQ_PYTHON={python_env.prepare(cache, progress)}",
            # The pip that rules_python brings knows only its own certificates.
            f"common --repo_env=PIP_CERT={os.environ.get('PIP_CERT') or host.ca_bundle()}",
        ]
        launcher = debian_bazel.launcher(prefix, cache)
    write_aside(cache / "launchers" / key, launcher, mode=0o755)
    write_aside(root / ".bazelrc.local", local_rc(key, lines))


def main() -> None:
    """Sets up under the cache's lock, so that two checkouts may start at once."""
    args = parse_arguments()
    args.cache.mkdir(parents=True, exist_ok=True)
    os.umask(0o022)
    progress = Progress("bazelw")
    try:
        with locked(args.cache / "lock", progress):
            set_up(args.root, args.cache, args.key, progress)
    except SetupError as error:
        sys.exit(f"bazelw: {error}")
    progress.done("ready")


if __name__ == "__main__":
    main()
