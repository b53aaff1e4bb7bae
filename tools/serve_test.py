"""The command `serve`, as a process: banner, signals passed on, exit codes, failures told."""

import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.lib.paths import room_file
from tools.lib.server_process import free_ports


class Serve:
    """A running `serve` over a stand-in for the server."""

    def __init__(self, folder: Path, *arguments: str, fake: str = "") -> None:
        script = folder / "tritonserver"
        target = room_file("tools/testing/fake_tritonserver.py")
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{target}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        (folder / "models").mkdir()
        self.http, self.grpc, self.metrics = free_ports(3)
        environment = os.environ | {
            "FAKE_TRITONSERVER": fake,
            "BUILD_WORKING_DIRECTORY": str(folder),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        }
        command = [
            sys.executable,
            str(room_file("tools/serve.py")),
            "--repository=models",
            "--tritonserver=tritonserver",
            "--backend_directory=.",
            f"--http_port={self.http}",
            f"--grpc_port={self.grpc}",
            f"--metrics_port={self.metrics}",
            *arguments,
        ]
        self.process = subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )

    def banner(self) -> str:
        """What it wrote up to the banner's last line."""
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if line.startswith("Ctrl-C"):
                break
        return "".join(lines)

    def end(self) -> tuple[int, str]:
        """Exit code and what was written after what was read."""
        _, rest = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def wait_until(condition: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def port_is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


StartServe = Callable[..., Serve]


@pytest.fixture(name="serve")
def fixture_serve(tmp_path: Path) -> Iterator[StartServe]:
    started: list[Serve] = []

    def start(*arguments: str, fake: str = "") -> Serve:
        started.append(Serve(tmp_path, *arguments, fake=fake))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            # The second signal makes it kill the server, too.
            one.process.terminate()
            one.process.terminate()
            one.process.communicate()


def test_banner_says_where_it_is(serve: StartServe) -> None:
    running = serve()
    banner = running.banner()
    assert f"http://127.0.0.1:{running.http}\n" in banner
    assert f"127.0.0.1:{running.grpc}\n" in banner
    assert f"http://127.0.0.1:{running.metrics}/metrics\n" in banner
    assert "models   m\n" in banner
    (curl,) = [line for line in banner.splitlines() if "curl" in line]
    url = f"http://127.0.0.1:{running.http}/v2/models/m/generate_stream"
    assert shlex.split(curl) == ["curl", "-N", url, "-d", '{"input_ids": [5, 6, 7, 1]}']
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_on(serve: StartServe, number: int) -> None:
    running = serve()
    running.banner()
    running.process.send_signal(number)
    code, rest = running.end()
    assert code == 0
    assert f"fake server got signal {int(number)}\n" in rest


def test_the_end_of_the_terminal_ends_the_server_politely(serve: StartServe) -> None:
    running = serve()
    running.banner()
    running.process.send_signal(signal.SIGHUP)
    code, rest = running.end()
    assert code == 0
    assert f"fake server got signal {int(signal.SIGTERM)}\n" in rest


def test_nohup_is_honoured(serve: StartServe) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        running = serve()
    finally:
        signal.signal(signal.SIGHUP, before)
    running.banner()
    running.process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(0.5)
    running.process.send_signal(signal.SIGTERM)
    assert running.end()[0] == 0


def test_a_signal_while_models_load(serve: StartServe) -> None:
    running = serve(fake="never-ready")
    wait_until(lambda: port_is_open(running.http))
    running.process.send_signal(signal.SIGINT)
    assert running.end() == (0, "")


def test_a_signal_while_the_server_is_being_started(serve: StartServe) -> None:
    running = serve(fake="never-ready")
    pid = running.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children")
    wait_until(lambda: children.read_text().strip())
    running.process.send_signal(signal.SIGTERM)
    # The stand-in dies of the signal if it has not yet come to handle it.
    assert running.end()[0] in (0, 128 + signal.SIGTERM)


def test_a_second_signal_kills(serve: StartServe) -> None:
    running = serve(fake="stubborn")
    running.banner()
    running.process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(0.5)
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 128 + signal.SIGKILL


def test_flags_after_two_dashes_go_to_the_server(serve: StartServe) -> None:
    running = serve("--model_control_mode=explicit", "--", "--load-model=m", fake="die")
    code, rest = running.end()
    assert code == 1
    assert "--model-control-mode=explicit" in rest
    assert "--load-model=m" in rest


def test_a_server_that_dies_shows_its_log(serve: StartServe) -> None:
    code, rest = serve(fake="die").end()
    assert code == 1
    assert "ended with code 3" in rest
    assert "tensor x is missing" in rest
    assert "Traceback" not in rest


def test_a_server_that_does_not_get_ready_has_a_deadline(serve: StartServe) -> None:
    code, rest = serve("--ready_seconds=1", fake="never-ready").end()
    assert code == 1
    assert "not ready after 1 s" in rest


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))
