"""What a scheduler in this process costs in counts, which a busy machine does not change: its objects and its calls."""

import gc
import sys
import time
import types
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_CALLS = frozenset({"call", "c_call"})
_BOUNDED = frozenset({"EventRecorder"})  # keep a limited number of recent events
# Not part of a scheduler's state, though reachable from it.
_OUTSIDE = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType, types.FrameType)


def objects_of(root: object) -> Counter[str]:
    """The objects that are reachable from a scheduler's `root`, by type; not those of the harness around it."""
    gc.collect()
    seen = {id(sys.modules)}
    by_type: Counter[str] = Counter()
    pending = [root]
    while pending:
        one = pending.pop()
        kind = type(one)
        if id(one) in seen or isinstance(one, _OUTSIDE) or kind.__name__ in _BOUNDED:
            continue
        if kind.__module__.startswith("seatrial.harness"):
            continue
        seen.add(id(one))
        by_type[type(one).__name__] += 1
        pending += gc.get_referents(one)
    return by_type


class Calls:
    """Counts calls while it is installed, and how often code in any of these files sleeps."""

    def __init__(self, part: str, apart: str) -> None:
        self.count = self.sleeps = 0
        self._part, self._apart = part, apart

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> None:
        if event in _CALLS and self._part in (file := frame.f_code.co_filename) and self._apart not in file:
            self.count += 1
            self.sleeps += argument is time.sleep


@contextmanager
def counting(part: str = "/scheduler/", apart: str = "/scheduler/api/") -> Iterator[Calls]:
    """Count calls of functions and steps of generators in files whose path has `part` and not `apart`, and what these
    call of the interpreter and of extensions."""
    calls = Calls(part, apart)
    before: Callable[..., object] | None = sys.getprofile()
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(before)
