"""Makes the lock files from their .in files. Neither hosts nor local paths get into them."""

import argparse
import pathlib
import sys

import host_tools
from files import SetupError, run

# Lock -> (its input, uv's further options). Native wheels need nothing of what they declare.
LOCKS = {
    "requirements_lock.txt": ("requirements.in", []),
    "third_party/cuda.lock": ("third_party/cuda.in", ["--no-deps", "--no-annotate"]),
    "third_party/wheels.lock": ("third_party/wheels.in", ["--no-deps", "--no-annotate"]),
    "third_party/host_tools.lock": ("third_party/host_tools.in", ["--no-deps", "--no-annotate"]),
}
OPTIONS = ["--generate-hashes", "--python-version=3.11", "--no-emit-index-url", "--no-header"]


def main() -> None:
    """Reads the command line and runs uv once a lock, npm for its own."""
    parser = argparse.ArgumentParser(prog="tools/update_locks", description=__doc__)
    parser.add_argument("--root", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions allowed")
    args = parser.parse_args()
    try:
        uv = str(host_tools.wheel_program(args.root, "uv"))
        for lock, (source, options) in LOCKS.items():
            more = [*options, *(["--upgrade"] if args.upgrade else [])]
            command = [
                uv,
                "pip",
                "compile",
                source,
                *OPTIONS,
                *more,
                "--quiet",
                "--output-file",
                lock,
            ]
            run(command, f"uv for {lock}", cwd=args.root)
            print(f"update_locks: {lock}", flush=True)
        command = ["npm", "install", "--package-lock-only", "--omit-lockfile-registry-resolved"]
        run(command, "npm", cwd=args.root / host_tools.NPM)
        print(f"update_locks: {host_tools.NPM}/package-lock.json")
    except SetupError as error:
        sys.exit(f"update_locks: {error}")


if __name__ == "__main__":
    main()
