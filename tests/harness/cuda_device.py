"""A CUDA device as a client uses it, through the driver's own library: no toolkit, no package."""

import ctypes
from collections.abc import Sequence

import numpy as np

_DRIVER = "libcuda.so.1"
_IPC_HANDLE_BYTES = 64


def has_gpu() -> bool:
    """Whether this process, and so a server that it starts, can use a GPU."""
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return False
    count = ctypes.c_int()
    return (
        driver.cuInit(ctypes.c_uint(0)) == 0
        and driver.cuDeviceGetCount(ctypes.byref(count)) == 0
        and count.value > 0
    )


class CudaError(Exception):
    """A call of the driver failed."""


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _IPC_HANDLE_BYTES),)


class CudaDevice:
    """The first device's primary context, current in the thread that made this object."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL(_DRIVER)
        self._device = ctypes.c_int()
        context = ctypes.c_void_p()
        self.call("cuInit", ctypes.c_uint(0))
        self.call("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device)
        self.call("cuCtxSetCurrent", context)

    def call(self, name: str, *arguments: object) -> None:
        """Calls a function of the driver; CudaError names it and the reason."""
        code = getattr(self._driver, name)(*arguments)
        if code:
            reason = ctypes.c_char_p()
            self._driver.cuGetErrorName(code, ctypes.byref(reason))
            raise CudaError(f"{name}: {(reason.value or b'unknown').decode()}")

    def close(self) -> None:
        """Lets go of the context; what was allocated in it goes, too."""
        self.call("cuDevicePrimaryCtxRelease_v2", self._device)

    def free_bytes(self) -> int:
        """What no process uses of the device's memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value


class CudaMemory:
    """Memory on a device, that of int32 numbers. It lives until its device is closed."""

    def __init__(self, device: CudaDevice, values: Sequence[int]) -> None:
        self._device = device
        self._count = len(values)
        self._address = ctypes.c_uint64()
        device.call("cuMemAlloc_v2", ctypes.byref(self._address), ctypes.c_size_t(self.byte_size))
        self.write(values)

    @property
    def byte_size(self) -> int:
        """Its size."""
        return self._count * np.dtype(np.int32).itemsize

    def write(self, values: Sequence[int]) -> None:
        """Overwrites all of it."""
        data = np.asarray(values, np.int32).tobytes()
        assert len(data) == self.byte_size
        self._device.call("cuMemcpyHtoD_v2", self._address, data, ctypes.c_size_t(len(data)))

    def read(self) -> tuple[int, ...]:
        """What it holds now."""
        values = np.empty(self._count, np.int32)
        destination = values.ctypes.data_as(ctypes.c_void_p)
        size = ctypes.c_size_t(self.byte_size)
        self._device.call("cuMemcpyDtoH_v2", destination, self._address, size)
        return tuple(values.tolist())

    def ipc_handle(self) -> bytes:
        """What another process opens the memory with."""
        handle = _IpcHandle()
        self._device.call("cuIpcGetMemHandle", ctypes.byref(handle), self._address)
        return bytes(memoryview(handle))
