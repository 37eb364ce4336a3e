"""The calls of `libcuda.so.1` that a tenant needs, through ctypes, and a kernel with a fixed amount of work.

ctypes finds symbols with dlsym, which HAMi-core interposes: a tenant is limited like any CUDA program. The kernel
counts operations, not time: time passes while another tenant has the card, and would make a limited tenant look faster.
"""

import ctypes
from typing import Any

SUCCESS, OUT_OF_MEMORY, NOT_READY = 0, 2, 600
_DISABLE_TIMING = 2
_MANAGED_GLOBAL = 1
_SM_COUNT = 16

PTX = b"""
.version 6.0
.target sm_70
.address_size 64

.visible .entry work(.param .u32 rounds, .param .u64 out)
{
    .reg .pred %more, %stores;
    .reg .u32 %left, %value;
    .reg .u64 %place;

    ld.param.u32 %left, [rounds];
    ld.param.u64 %place, [out];
    mov.u32 %value, %tid.x;
AGAIN:
    mad.lo.u32 %value, %value, 1664525, 1013904223;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra AGAIN;
    setp.ne.u64 %stores, %place, 0;
    @%stores st.global.u32 [%place], %value;
    ret;
}
\0"""


class CudaError(RuntimeError):
    """A call returned another code than 0."""

    def __init__(self, call: str, code: int) -> None:
        self.call, self.code = call, code
        super().__init__(f"{call} answered {code}")


class Cuda:
    """One context on the first card that this process sees."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        """
        Raises:
            OSError: the library cannot be loaded.
            CudaError: it does not start.
        """
        self._library = ctypes.CDLL(library)
        self._device = ctypes.c_int()
        self._context = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        self._check("cuInit", ctypes.c_uint(0))
        self._check("cuDeviceGet", ctypes.byref(self._device), ctypes.c_int(0))
        self._check("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), self._device)
        self._check("cuCtxSetCurrent", self._context)

    def total(self) -> int:
        """The result of `cuDeviceTotalMem`, in bytes."""
        total = ctypes.c_size_t()
        self._check("cuDeviceTotalMem_v2", ctypes.byref(total), self._device)
        return total.value

    def memory(self) -> tuple[int, int]:
        """Free and total bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._check("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def multiprocessors(self) -> int:
        count = ctypes.c_int()
        self._check("cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_SM_COUNT), self._device)
        return count.value

    def allocate(self, size: int, kind: str = "device") -> tuple[int, int]:
        """The call's answer and the address; kinds are device, managed and host (pinned)."""
        place = ctypes.c_void_p()
        target = ctypes.c_size_t(size)
        if kind == "managed":
            code = self._call("cuMemAllocManaged", ctypes.byref(place), target, ctypes.c_uint(_MANAGED_GLOBAL))
        else:
            name = "cuMemAllocHost_v2" if kind == "host" else "cuMemAlloc_v2"
            code = self._call(name, ctypes.byref(place), target)
        return code, place.value or 0

    def free(self, place: int, kind: str = "device") -> int:
        """The call's answer. HAMi-core answers -1 for pinned memory, which it does not count."""
        return self._call("cuMemFreeHost" if kind == "host" else "cuMemFree_v2", ctypes.c_void_p(place))

    def launch(self, rounds: int, blocks: int, threads: int) -> None:
        """Start the kernel once; it does `rounds` multiplications in each thread. Does not wait."""
        if self._function.value is None:
            module = ctypes.c_void_p()
            self._check("cuModuleLoadData", ctypes.byref(module), PTX)
            self._check("cuModuleGetFunction", ctypes.byref(self._function), module, b"work")
        first, second = ctypes.c_uint32(rounds), ctypes.c_uint64(0)
        parameters = (ctypes.c_void_p * 2)(ctypes.addressof(first), ctypes.addressof(second))
        sizes = [ctypes.c_uint(item) for item in (blocks, 1, 1, threads, 1, 1, 0)]
        self._check("cuLaunchKernel", self._function, *sizes, None, parameters, None)

    def event(self) -> Any:
        """A new event."""
        event = ctypes.c_void_p()
        self._check("cuEventCreate", ctypes.byref(event), ctypes.c_uint(_DISABLE_TIMING))
        return event

    def record(self, event: Any) -> None:
        self._check("cuEventRecord", event, None)

    def finished(self, event: Any) -> bool:
        """Whether all work before the event is finished.

        Raises:
            CudaError: an earlier launch failed.
        """
        code = self._call("cuEventQuery", event)
        if code not in {SUCCESS, NOT_READY}:
            raise CudaError("cuEventQuery", code)
        return code == SUCCESS

    def wait(self, event: Any) -> None:
        self._check("cuEventSynchronize", event)

    def settle(self) -> None:
        """Wait until all work is finished."""
        self._check("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> int:
        return int(self._library[name](*arguments))

    def _check(self, name: str, *arguments: Any) -> None:
        code = self._call(name, *arguments)
        if code != SUCCESS:
            raise CudaError(name, code)
