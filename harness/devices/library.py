"""A vendor's C library through ctypes: loads it, calls it, and converts its codes to neutral errors."""

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seatrial.harness.devices.provider import FailureKind, ProviderError

MISSING_LIBRARY, MISSING_FUNCTION = -99999, -99998  # the codes that vendors' own loaders use


class VendorLibrary:
    """A library, loaded at its first use. A missing function is reported as unsupported."""

    def __init__(self, vendor: str, names: Sequence[str | Path], kinds: Mapping[int, FailureKind]) -> None:
        """`names` are tried in order; `kinds` maps the vendor's codes to neutral kinds."""
        self._vendor, self._names, self._kinds = vendor, names, kinds
        self._loaded: ctypes.CDLL | None = None

    def load(self) -> ctypes.CDLL:
        """The loaded library.

        Raises:
            ProviderError: none of the names can be loaded.
        """
        why = ""
        for name in self._names if self._loaded is None else ():
            try:
                self._loaded = ctypes.CDLL(str(name), mode=ctypes.RTLD_GLOBAL)
                break
            except OSError as error:
                why = why or str(error)
        if self._loaded is None:
            raise self.error(MISSING_LIBRARY, f"load {self._names[0]}", why)
        return self._loaded

    def call(self, symbol: str, *arguments: Any) -> None:
        """Call a function that returns a code.

        Raises:
            ProviderError: it returned another code than 0, or is missing.
        """
        code = self.code(symbol, *arguments)
        if code:
            raise self.error(code, symbol)

    def code(self, symbol: str, *arguments: Any) -> int:
        """The code that a function returns.

        Raises:
            ProviderError: the function is missing.
        """
        function = getattr(self.load(), symbol, None)
        if function is None:
            raise self.error(MISSING_FUNCTION, symbol)
        return int(function(*arguments))

    def maybe(self, symbol: str, *arguments: Any) -> bool:
        """Whether a call succeeded; for facts that not every card and driver reports."""
        try:
            return self.code(symbol, *arguments) == 0
        except ProviderError:
            return False

    def error(self, code: int, call: str, text: str = "") -> ProviderError:
        known = {MISSING_LIBRARY: FailureKind.ABSENT, MISSING_FUNCTION: FailureKind.UNSUPPORTED, **self._kinds}
        return ProviderError(known.get(code, FailureKind.UNKNOWN), vendor=self._vendor, call=call, code=code, text=text)
