"""Fetches one wheel by hash and unpacks chosen parts of it; run by repository rules and by bazelw.

    unpack_wheel.py LOCK NAME DESTINATION [PREFIX ...]

LOCK is a requirements file with hashes. pip does the download from whatever index this machine
uses, so no host is named here. Of the wheel, files under one of the PREFIXes are unpacked (all,
where none is given) and keep their names. ELF files under a bin/ folder become executable: wheels
lose that bit.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile


class WheelError(Exception):
    """A wheel that cannot be had; the text says which and why."""


def normalized(name: str) -> str:
    """A distribution's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked_requirements(text: str) -> dict[str, str]:
    """Distribution name -> its requirement with hashes, on one line."""
    logical = re.sub(r"\\\n\s*", "", text)
    found = {}
    for line in logical.splitlines():
        match = re.match(
            r"([A-Za-z0-9][A-Za-z0-9._-]*)==\S+(\s+--hash=sha256:[0-9a-f]{64})+\s*$", line
        )
        if match:
            found[normalized(match.group(1))] = line.strip()
        elif line.strip() and not line.lstrip().startswith("#"):
            raise WheelError(f"the lock has a line that pins nothing by hash: {line.strip()!r}")
    return found


def download(requirement: str, folder: pathlib.Path) -> pathlib.Path:
    """Lets pip fetch exactly the wheel that `requirement` pins."""
    lock = folder / "requirements.txt"
    lock.write_text(requirement + "\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    command += [
        "--only-binary=:all:",
        "--retries=5",
        "--dest",
        str(folder),
        "--requirement",
        str(lock),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        raise WheelError(f"pip cannot fetch {requirement.split()[0]}: {result.stderr.strip()}")
    return wheels[0]


def unpack(wheel: pathlib.Path, destination: pathlib.Path, prefixes: list[str]) -> int:
    """Unpacks the wheel's files under `prefixes`; returns how many."""
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            wanted = not prefixes or any(entry.filename.startswith(prefix) for prefix in prefixes)
            if entry.is_dir() or not wanted:
                continue
            path = pathlib.Path(archive.extract(entry, destination))
            mode = entry.external_attr >> 16
            with path.open("rb") as file:
                is_program = path.parent.name == "bin" and file.read(4) == b"\x7fELF"
            if is_program or mode & 0o111:
                path.chmod(0o755)
            count += 1
    if not count:
        raise WheelError(f"{wheel.name} has nothing under {prefixes}")
    return count


def fetch(lock: pathlib.Path, name: str, destination: pathlib.Path, prefixes: list[str]) -> None:
    """Fetches the distribution `name` of the lock and unpacks it into `destination`."""
    requirement = locked_requirements(lock.read_text()).get(normalized(name))
    if not requirement:
        raise WheelError(f"{lock.name} pins no '{name}'")
    with tempfile.TemporaryDirectory(prefix="wheel-") as folder:
        unpack(download(requirement, pathlib.Path(folder)), destination, prefixes)


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lock", type=pathlib.Path)
    parser.add_argument("name")
    parser.add_argument("destination", type=pathlib.Path)
    parser.add_argument("prefixes", nargs="*")
    args = parser.parse_args()
    try:
        fetch(args.lock, args.name, args.destination, args.prefixes)
    except WheelError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
