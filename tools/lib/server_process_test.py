"""Starting, waiting for and stopping a server that behaves in various ways."""

import dataclasses
import io
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tools.lib.errors import ToolError
from tools.lib.paths import room_file
from tools.lib.server_process import (
    ServerError,
    ServerOptions,
    ServerProcess,
    free_ports,
)

FAKE = "tools/testing/fake_tritonserver.py"


@pytest.fixture(name="options")
def fixture_options(tmp_path: Path) -> ServerOptions:
    script = tmp_path / "tritonserver"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{room_file(FAKE)}" "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "repository").mkdir()
    http, grpc, metrics = free_ports(3)
    return ServerOptions(script, tmp_path, tmp_path / "repository", http, grpc, metrics)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_command_line(tmp_path: Path) -> None:
    options = ServerOptions(
        Path("/bin/tritonserver"),
        Path("/backends"),
        tmp_path,
        1,
        2,
        3,
        model_control_mode="explicit",
        extra_flags=("--load-model=m", "--log-verbose=1"),
    )
    assert options.command() == [
        "/bin/tritonserver",
        f"--model-repository={tmp_path}",
        "--backend-directory=/backends",
        "--http-address=127.0.0.1",
        "--grpc-address=127.0.0.1",
        "--metrics-address=127.0.0.1",
        "--http-port=1",
        "--grpc-port=2",
        "--metrics-port=3",
        "--model-control-mode=explicit",
        "--pinned-memory-pool-byte-size=268435456",
        "--load-model=m",
        "--log-verbose=1",
    ]


@pytest.mark.parametrize(
    ("host", "reachable"),
    [("0.0.0.0", "127.0.0.1"), ("10.0.0.7", "10.0.0.7"), ("::", "[::1]"), ("fe80::1", "[fe80::1]")],
)
def test_addresses_for_clients_on_this_machine(host: str, reachable: str, tmp_path: Path) -> None:
    options = ServerOptions(tmp_path, tmp_path, tmp_path, 1, 2, 3, host=host)
    assert options.http_address == f"{reachable}:1"
    assert options.grpc_address == f"{reachable}:2"
    assert options.metrics_address == f"{reachable}:3"


def test_ready_then_stopped(options: ServerOptions) -> None:
    with ServerProcess(options) as server:
        server.wait_until_ready(30)
        pid = server.pid
        assert server.poll() is None
        assert is_alive(pid)
    assert server.poll() == 0
    assert not is_alive(pid)
    assert "got signal 15" in server.log()


def test_a_dead_server_is_told_at_once_with_its_log(
    options: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRITONSERVER", "die")
    begin = time.monotonic()
    with ServerProcess(options) as server, pytest.raises(ServerError) as raised:
        server.wait_until_ready(300)
    assert time.monotonic() - begin < 60
    assert "code 3" in str(raised.value)
    assert "tensor x is missing" in str(raised.value)


def test_a_server_that_does_not_get_ready_has_a_deadline(
    options: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRITONSERVER", "never-ready")
    with ServerProcess(options) as server:
        with pytest.raises(ServerError, match=r"not ready after 0\.5 s"):
            server.wait_until_ready(0.5)
        pid = server.pid
    assert not is_alive(pid)


def test_a_server_that_died_later_is_told_with_its_log(options: ServerOptions) -> None:
    with ServerProcess(options) as server:
        server.wait_until_ready(30)
        server.check_alive()
        server.send_signal(signal.SIGTERM)
        with pytest.raises(ServerError, match=r"(?s)ended with code 0.*got signal 15") as raised:
            server.check_alive(30)
        assert "fake server with" in str(raised.value)


def test_a_started_server_is_not_started_twice(options: ServerOptions) -> None:
    server = ServerProcess(options)
    server.start()
    pid = server.pid
    with server:
        assert server.pid == pid
        server.wait_until_ready(30)
        with pytest.raises(ValueError, match="started before"):
            server.start()
    assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_starting_leaves_no_server(
    options: ServerOptions, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    started: list[int] = []
    popen = subprocess.Popen

    def interrupted(*arguments: object, **options: object) -> subprocess.Popen[str]:
        process = popen(*arguments, **options)
        started.append(process.pid)
        signal.raise_signal(number)
        return process

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(number)

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    before = signal.signal(number, leave)
    try:
        with pytest.raises(SystemExit), ServerProcess(options):
            pytest.fail("the signal came before")
    finally:
        signal.signal(number, before)
    assert not is_alive(started[0])


def test_a_stubborn_server_is_killed(
    options: ServerOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRITONSERVER", "stubborn")
    server = ServerProcess(options)
    server.start()
    server.wait_until_ready(30)
    assert server.stop(grace_seconds=0.2) == -signal.SIGKILL
    assert not is_alive(server.pid)


def test_the_log_can_be_followed(
    options: ServerOptions,
) -> None:
    out = io.StringIO()
    with ServerProcess(options) as server:
        server.wait_until_ready(30)
        server.follow_log(out)
    assert out.getvalue() == "fake server got signal 15\n"


def test_names_what_cannot_be_run_or_served(options: ServerOptions, tmp_path: Path) -> None:
    options.tritonserver.unlink()
    with pytest.raises(ToolError, match="tritonserver: No such file"):
        ServerProcess(options).start()
    (tmp_path / "repository").rmdir()
    with pytest.raises(ToolError, match="no such model repository"):
        ServerProcess(options).start()


def test_free_ports_differ() -> None:
    assert len(set(free_ports(20))) == 20


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-v", "-p", "no:cacheprovider"]))


@pytest.mark.parametrize("name", ["HTTP", "gRPC", "metrics"])
def test_taken_port_is_named_before_anything_starts(options: ServerOptions, name: str) -> None:
    port = options.ports[name]
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
        listener.listen()
        server = ServerProcess(options)
        with pytest.raises(ServerError, match=f"{name} port {port} on 127.0.0.1 is already in use"):
            server.start()
        assert server.pid is None


def test_port_given_twice(options: ServerOptions) -> None:
    twice = dataclasses.replace(options, grpc_port=options.http_port)
    with pytest.raises(ServerError, match=r"gRPC port .* is already in use"):
        ServerProcess(twice).start()
