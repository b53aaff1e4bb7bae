"""Formatters, linters and the project's own rules over every tracked file, a line each."""

import argparse
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

import host_tools
import rules
from files import SetupError

CXX = (".cc", ".h", ".cu", ".cuh")
STARLARK = (".bazel", ".bzl")
PYTHON = (".py",)


def tracked_files(root: pathlib.Path) -> list[str]:
    """What git tracks or would track, relative to the root."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout
    names = sorted(set(filter(None, listed.split("\0"))))
    return [name for name in names if (root / name).is_file() and not (root / name).is_symlink()]


def call(root: pathlib.Path, command: list[str | pathlib.Path], files: list[str]) -> list[str]:
    """Runs a tool over files; returns its complaints, none when it is content."""
    if not files:
        return []
    result = subprocess.run(
        [*command, *files], cwd=root, capture_output=True, text=True, check=False
    )
    if result.returncode == 0:
        return []
    return (result.stdout + result.stderr).splitlines() or [f"ended with {result.returncode}"]


def clang_format(root: pathlib.Path, files: list[str], fix: bool) -> list[str]:
    """The format of C++ and CUDA sources."""
    mode = ["-i"] if fix else ["--dry-run", "--Werror"]
    chosen = [name for name in files if name.endswith(CXX)]
    return call(root, [host_tools.wheel_program(root, "clang-format"), *mode], chosen)


def ruff(root: pathlib.Path, files: list[str], fix: bool) -> list[str]:
    """The style and format of Python sources."""
    program = host_tools.wheel_program(root, "ruff")
    chosen = [name for name in files if name.endswith(PYTHON)]
    check = [
        program,
        "check",
        "--quiet",
        "--no-cache",
        "--output-format=concise",
        *(["--fix"] if fix else []),
    ]
    layout = [program, "format", "--quiet", "--no-cache", *([] if fix else ["--diff"])]
    # The layout first: mending it shortens lines that the check would name.
    return call(root, layout, chosen) + call(root, check, chosen)


def buildifier(root: pathlib.Path, files: list[str], fix: bool) -> list[str]:
    """The format of build files and Starlark, with buildifier's own lint."""
    mode = ["-mode=fix", "-lint=fix"] if fix else ["-mode=check", "-lint=warn"]
    chosen = [name for name in files if name.endswith(STARLARK)]
    return call(root, [host_tools.buildifier(root), *mode], chosen)


def project_rules(root: pathlib.Path, files: list[str], fix: bool) -> list[str]:
    """What no tool knows; see rules.py."""
    del fix  # Nothing here can be mended by a program.
    return rules.check(root, files)


def report(name: str, check: Callable[[], list[str]]) -> bool:
    """Runs one check, prints its line and what it found; tells whether it is content."""
    start = time.monotonic()
    found = check()
    seconds = time.monotonic() - start
    print(f"lint: {name:<14} {'FAILED' if found else 'ok'} ({seconds:.1f} s)", flush=True)
    for line in found:
        print(f"  {line}")
    return not found


def main() -> None:
    """Runs all checks, the later ones too when an earlier one fails."""
    parser = argparse.ArgumentParser(prog="tools/lint", description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--fix", action="store_true", help="mend what can be mended")
    args = parser.parse_args()
    files = tracked_files(args.root)
    tools = {
        "clang-format": clang_format,
        "ruff": ruff,
        "buildifier": buildifier,
        "project rules": project_rules,
    }
    try:
        content = [
            report(name, lambda tool=tool: tool(args.root, files, args.fix))
            for name, tool in tools.items()
        ]
    except SetupError as error:
        sys.exit(f"lint: {error}")
    sys.exit(0 if all(content) else 1)


if __name__ == "__main__":
    main()
