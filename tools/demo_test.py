"""The demo, as a process, on the real server with the real backend."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.lib.paths import room_file

# What transformers 5.24.0 generates greedily in float32.
HELLO_WORLD = "HH EH1 L OW0 | W ER1 L D"


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "TMPDIR": str(folder),
    }
    command = [sys.executable, str(room_file("tools/demo.py")), *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def servers_of(folder: Path) -> list[int]:
    """Processes whose command line names the temporary folder of a demo."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"--model-repository={folder}".encode() in words:
            found.append(int(path.parent.name))
    return found


@pytest.fixture(name="folder")
def fixture_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_streams_the_phones_and_leaves_nothing(folder: Path) -> None:
    process = start(folder, "--text=hello world")
    out, err = process.communicate(timeout=240)
    assert (process.returncode, err) == (0, "")
    model, phones, times = out.splitlines()
    assert "g2p_t5" in model
    assert "'hello world'" in model
    assert phones == HELLO_WORLD
    # Nine phones and separators, and EOS.
    assert re.fullmatch(
        r"first token after [\d.]+ ms, 10 tokens in [\d.]+ ms \(\d+ tokens/s\), finish_reason eos",
        times,
    )
    assert servers_of(folder) == []
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_server_too(folder: Path, number: int) -> None:
    process = start(folder)
    deadline = time.monotonic() + 60
    while not servers_of(folder):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(number)
    _out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    assert servers_of(folder) == []
    assert list(folder.iterdir()) == []


def test_a_failure_is_told_with_the_servers_log(folder: Path) -> None:
    (folder / "backends").mkdir()
    process = start(folder, f"--backend_directory={folder}/backends")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 1
    assert out == ""
    assert err.startswith("error: the server ended")
    assert "seq2seq" in err


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
