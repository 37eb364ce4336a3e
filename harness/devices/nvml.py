"""The package pynvml with one library behind it.

pynvml keeps its library and its function pointers in globals of the module. The system's library is used through the
module itself; any other library (a stand-in, one given by path) gets a copy of the module's state, switched in while it
is used, so that several may live side by side.
"""

import ctypes
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from seatrial.harness.devices.provider import FailureKind, ProviderError, model_label

_KINDS = {
    1: FailureKind.ABSENT,
    3: FailureKind.UNSUPPORTED,
    4: FailureKind.DENIED,
    6: FailureKind.ABSENT,
    9: FailureKind.ABSENT,
    10: FailureKind.TIMEOUT,
    12: FailureKind.ABSENT,
    13: FailureKind.UNSUPPORTED,
    15: FailureKind.LOST,
    16: FailureKind.RESET_NEEDED,
    18: FailureKind.BAD_LAYOUT,
    19: FailureKind.BUSY,
    25: FailureKind.BAD_LAYOUT,
    28: FailureKind.ABSENT,
}


BRANDS = {  # by NVML's number, as NVIDIA's driver for claims spells them (go-nvlib)
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "Grid",
    5: "GeForce",
    6: "Titan",
    7: "NvidiaVApps",
    8: "NvidiaVPC",
    9: "NvidiaVCS",
    10: "NvidiaVWS",
    11: "NvidiaCloudGaming",
    12: "QuadroRTX",
    13: "NvidiaRTX",
    14: "Nvidia",
    15: "GeForceRTX",
    16: "TitanRTX",
}


class Nvml:
    """`with nvml as pynvml:` gives pynvml on this library. One thread at a time, but for the system's."""

    def __init__(self, library: str | Path | object | None = None) -> None:
        """`library`: None for the system's, a path to load, or an object with the functions as attributes."""
        self._library_or_path = library
        self._state: tuple[Any, dict[str, Any], int] = (None, {}, 0)
        self._module: ModuleType | None = None
        self._depth = 0

    def __enter__(self) -> Any:
        if self._library_or_path is None:
            import pynvml

            return pynvml
        _lock.acquire()
        module = self._module = self._module or _private_copy()
        if self._depth == 0:
            if self._state[0] is None:
                self._state = (self._load(), {}, 0)
            module.nvmlLib, module._nvmlGetFunctionPointer_cache, module._nvmlLib_refcount = self._state  # type: ignore[attr-defined]  # noqa: SLF001 pinned and tested
        self._depth += 1
        return module

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._library_or_path is None:
            return
        self._depth -= 1
        module: Any = self._module
        if self._depth == 0:
            self._state = (self._state[0], self._state[1], module._nvmlLib_refcount)  # noqa: SLF001
        _lock.release()

    def _load(self) -> object:
        if not isinstance(self._library_or_path, str | Path):
            return self._library_or_path
        try:
            return ctypes.CDLL(str(self._library_or_path))
        except OSError as error:
            _lock.release()
            raise ProviderError(
                FailureKind.ABSENT, vendor="nvidia", call=f"load {self._library_or_path}", code=12, text=str(error)
            ) from error


def provider_error(error: Any, call: str) -> ProviderError:
    """The neutral error for pynvml's exception."""
    code = int(getattr(error, "value", 999))
    return ProviderError(_KINDS.get(code, FailureKind.UNKNOWN), vendor="nvidia", call=call, code=code, text=str(error))


_lock = threading.RLock()
_copies: list[ModuleType] = []


def _private_copy() -> ModuleType:
    """A second instance of the module, so that switching its globals does not affect other users of pynvml."""
    if not _copies:
        current_spec = importlib.util.find_spec("pynvml")
        if current_spec is None or current_spec.origin is None:
            raise ProviderError(FailureKind.ABSENT, vendor="nvidia", call="import pynvml", code=12)
        spec = importlib.util.spec_from_file_location("seatrial.harness.devices._pynvml", current_spec.origin)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # before execution: the module looks itself up there
        spec.loader.exec_module(module)
        _copies.append(module)
    return _copies[0]


def gpu_label(name: str) -> str:
    """The model label of a GPU, as koordlet makes it: NVML's name without the maker, spaces as dashes."""
    return model_label(name.removeprefix("NVIDIA "))


def gpu_nodes(minor: int) -> tuple[str, ...]:
    """Device nodes of one GPU."""
    return (f"/dev/nvidia{minor}",)
