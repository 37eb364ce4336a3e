"""What plugins tell themselves and each other within one cycle, under typed keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class StateKey(Generic[T]):
    """Names one entry of a `CycleState`; `T` is what is stored there."""

    name: str


class CycleState(dict[StateKey[Any], Any]):
    """A small typed dictionary. What depends on the pod's class alone is computed once and shared by `fork`.

    It is a dictionary and not an object with one, because every decision copies one and asks it several times.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __setitem__(self, key: StateKey[T], value: T) -> None: ...

        def __getitem__(self, key: StateKey[T]) -> T: ...

        def get(self, key: StateKey[T]) -> T | None: ...  # type: ignore[override]

    def discard(self, key: StateKey[Any]) -> None:
        self.pop(key, None)

    def fork(self) -> "CycleState":
        """A state that starts with the same entries; writing to one does not show in the other."""
        return CycleState(self)


SKIPPED: StateKey[frozenset[str]] = StateKey("framework/skipped")  # plugins whose PreFilter said Skip: not asked again
