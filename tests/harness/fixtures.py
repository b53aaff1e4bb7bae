"""Pytest fixtures that boot servers. tests/server/conftest.py offers them to every test file.

Where the server and the backends lie comes from the environment, which Bazel sets and which a
person without Bazel sets by hand (docs/testing.md):
  SEQ2SEQ_SERVER_DIR        the unpacked server: pytriton/tritonserver/bin/tritonserver and so on
  SEQ2SEQ_BACKEND_DIR       <here>/seq2seq/libtriton_seq2seq.so
  SEQ2SEQ_TEST_BACKEND_DIR  the same, with the testonly backend that can delay its steps
"""

import contextlib
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from tests.harness import metrics
from tests.harness.client import Client
from tests.harness.cuda_device import CudaDevice
from tests.harness.server import TritonServer

SERVER = "pytriton/tritonserver/bin/tritonserver"
LIBRARY = "seq2seq/libtriton_seq2seq.so"
GAUGES = ("seq2seq_active_sequences", "seq2seq_waiting_sequences", "seq2seq_kv_blocks_used")


def environment_path(variable: str, file: str) -> pathlib.Path:
    """The folder that `variable` names; it must hold `file`.

    Bazel knows files rather than folders: the variable may list files, one of which is `file` in
    the folder.
    """
    value = os.environ.get(variable)
    if not value:
        raise pytest.UsageError(f"{variable} is not set; it names the folder that holds {file}")
    listed = [word for word in value.split() if word.endswith(f"/{file}")]
    folder = pathlib.Path(listed[0].removesuffix(file) if listed else value).absolute()
    if not (folder / file).exists():
        raise pytest.UsageError(f"{variable}: {folder / file} does not exist")
    return folder


class Boot:
    """A running server with a client of its own."""

    def __init__(self, server: TritonServer, repository: pathlib.Path) -> None:
        self.server = server
        self.repository = repository
        self.client = Client(server.grpc_url)

    def metrics(self) -> metrics.Metrics:
        """One scrape of /metrics."""
        return metrics.fetch(self.server.metrics_url)

    def wait_idle(self, seconds: float = 1.0) -> None:
        """Returns once no sequence runs or waits and no block is used, of any model."""
        metrics.wait_for(
            self.server.metrics_url,
            lambda m: all(m.total(g) == 0 for g in GAUGES),
            seconds,
            f"{', '.join(GAUGES)} are 0",
        )


BootServer = Callable[..., contextlib.AbstractContextManager[Boot]]


@contextlib.contextmanager
def boot(
    folder: pathlib.Path,
    *,
    write: Callable[[pathlib.Path], None],
    load: Sequence[str],
    step_delay_ms: int | None = None,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Iterator[Boot]:
    """Boots a server over the models that `write` puts into a repository under `folder`.

    With step_delay_ms, even 0, the testonly backend runs, whose steps take at least that long;
    backend/testing/faulty_engine.h names further faults for `environment`.
    """
    repository = folder / "models"
    repository.mkdir()
    write(repository)
    variable = "SEQ2SEQ_BACKEND_DIR" if step_delay_ms is None else "SEQ2SEQ_TEST_BACKEND_DIR"
    extra = dict(environment or {})
    if step_delay_ms is not None:
        extra["SEQ2SEQ_TEST_STEP_DELAY_MS"] = str(step_delay_ms)
    server = TritonServer(
        environment_path("SEQ2SEQ_SERVER_DIR", SERVER) / SERVER,
        environment_path(variable, LIBRARY),
        repository,
        folder / "server.log",
        load=load,
        environment=extra,
        arguments=arguments,
    )
    with server:
        booted = Boot(server, repository)
        try:
            yield booted
            server.check_alive()
        finally:
            booted.client.close()


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    """The GPU, in this process; for tests that need one."""
    device_ = CudaDevice()
    yield device_
    device_.close()


@pytest.fixture(scope="module")
def module_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A scratch folder for the whole test file."""
    return tmp_path_factory.mktemp("server")


@pytest.fixture(autouse=True)
def report_server_log(request: pytest.FixtureRequest) -> Iterator[None]:
    """Prints the server's log when a test fails."""
    failures = request.session.testsfailed
    yield
    if request.session.testsfailed > failures and "booted" in request.fixturenames:
        print(request.getfixturevalue("booted").server.log())
