"""What plugins tell themselves and each other within one cycle, under typed keys."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class StateKey(Generic[T]):
    """Names one entry of a `CycleState`; `T` is what is stored there."""

    name: str


class CycleState:
    """A small typed dictionary. What depends on the pod's class alone is computed once and shared by `fork`."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[StateKey[Any], Any] = {}

    def __setitem__(self, key: StateKey[T], value: T) -> None:
        self._entries[key] = value

    def __getitem__(self, key: StateKey[T]) -> T:
        return self._entries[key]

    def __contains__(self, key: StateKey[Any]) -> bool:
        return key in self._entries

    def get(self, key: StateKey[T]) -> T | None:
        return self._entries.get(key)

    def discard(self, key: StateKey[Any]) -> None:
        self._entries.pop(key, None)

    def fork(self) -> "CycleState":
        """A state that starts with the same entries; writing to one does not show in the other."""
        copy = CycleState.__new__(CycleState)
        copy._entries = self._entries.copy()  # noqa: SLF001
        return copy


SKIPPED: StateKey[frozenset[str]] = StateKey("framework/skipped")  # plugins whose PreFilter said Skip: not asked again
