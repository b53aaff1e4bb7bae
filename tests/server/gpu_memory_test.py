"""Device memory: what cannot be had fails the load, what was had comes back, weights are shared."""

import pathlib
from collections.abc import Iterator

import pytest

from tests.harness import golden
from tests.harness.cuda_device import CudaDevice
from tests.harness.fixtures import Boot, boot
from tests.harness.model_repository import GPU, write_model
from tests.harness.server import ServerError
from tests.harness.wide_checkpoint import WEIGHT_BYTES, write_wide_checkpoint

_SERVING = "serving"
_SMALL = {
    "max_active_sequences": "4",
    "max_source_tokens": "64",
    "max_new_tokens": "64",
    "kv_cache_bytes": str(4 << 20),
}


@pytest.fixture(scope="module")
def booted(module_folder: pathlib.Path) -> Iterator[Boot]:
    """A server with one model of few slots; tests write others beside it."""

    def write(repository: pathlib.Path) -> None:
        write_model(repository, _SERVING, "t5_v1_0", kind=GPU, options=_SMALL)

    with boot(module_folder, write=write, load=[_SERVING]) as b:
        yield b


def _check_serving(booted: Boot, model: str = _SERVING) -> None:
    case = golden.load("t5_v1_0").rows[0]
    booted.client.generate(model, case.source).check_answer(case.answer)


def _unload(booted: Boot, model: str) -> None:
    booted.server.unload(model)
    booted.server.wait_unloaded(model, 5.0)


@pytest.mark.parametrize("kv_cache_bytes", [1 << 42, (1 << 63) - 1])
def test_cache_that_does_not_fit(booted: Boot, device: CudaDevice, kv_cache_bytes: int) -> None:
    """More than the device has fails the load by the option's name; others serve, none is lost."""
    name = f"too_large_{kv_cache_bytes}"
    options = {**_SMALL, "kv_cache_bytes": str(kv_cache_bytes)}
    write_model(booted.repository, name, "t5_v1_0", kind=GPU, options=options)
    with pytest.raises(ServerError, match="kv_cache_bytes"):
        booted.server.load(name)
    free = device.free_bytes()
    with pytest.raises(ServerError, match="kv_cache_bytes"):
        booted.server.load(name)
    assert device.free_bytes() >= free
    _check_serving(booted)
    write_model(booted.repository, name + "_not", "t5_v1_0", kind=GPU, options=_SMALL)
    booted.server.load(name + "_not")
    _check_serving(booted, name + "_not")
    _unload(booted, name + "_not")


def test_load_and_unload_20_times(booted: Boot, device: CudaDevice) -> None:
    """The device's free memory is that after the first rounds, and the process has not grown."""
    pool = 256 << 20
    options = {**_SMALL, "kv_cache_bytes": str(pool)}
    write_model(booted.repository, "again", "t5_v1_0", kind=GPU, options=options, instances=2)

    def rounds(count: int) -> None:
        for _ in range(count):
            before = device.free_bytes()
            booted.server.load("again")
            assert before - device.free_bytes() > 2 * pool
            _check_serving(booted, "again")
            _unload(booted, "again")

    rounds(4)
    free, resident = device.free_bytes(), booted.server.rss_bytes()
    rounds(16)
    # The driver hands out memory in pieces of 2 MiB: losing 256 KiB a round takes two of them.
    assert free - device.free_bytes() <= 2 << 20
    assert booted.server.rss_bytes() - resident < 32 << 20


def test_instances_share_weights(booted: Boot, device: CudaDevice, tmp_path: pathlib.Path) -> None:
    """A second instance on the device costs much less than a second copy of the weights."""
    checkpoint = write_wide_checkpoint(tmp_path / "wide")

    def cost(instances: int) -> int:
        name = f"wide_{instances}"
        write_model(
            booted.repository, name, checkpoint, kind=GPU, options=_SMALL, instances=instances
        )
        before = device.free_bytes()
        booted.server.load(name)
        used = before - device.free_bytes()
        _unload(booted, name)
        return used

    one, two = cost(1), cost(2)
    assert one > WEIGHT_BYTES
    assert two - one < WEIGHT_BYTES / 2
