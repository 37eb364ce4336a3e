"""CycleState: data that plugins share within one scheduling cycle, under typed keys."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class StateKey(Generic[T]):
    """The key of an entry of a `CycleState`; `T` is the type of the value."""

    name: str


class CycleState(dict[StateKey[Any], Any]):
    """A typed dictionary. Entries that depend on the equivalence class alone are computed once and shared by `fork`.

    It is a dict subclass because each decision copies one and reads it several times.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        def __setitem__(self, key: StateKey[T], value: T) -> None: ...

        def __getitem__(self, key: StateKey[T]) -> T: ...

        def get(self, key: StateKey[T]) -> T | None: ...  # type: ignore[override]

    def discard(self, key: StateKey[Any]) -> None:
        self.pop(key, None)

    def fork(self) -> "CycleState":
        """A copy: later changes of one do not affect the other."""
        return CycleState(self)


CLUSTER_SCOPED: StateKey[bool] = StateKey("framework/cluster-scoped")  # plugins of scope CLUSTER ran in the cycle
CONCERNED_PLUGINS: StateKey[tuple[Any, ...]] = StateKey("framework/concerned-plugins")  # those that ran
SKIPPED: StateKey[frozenset[str]] = StateKey("framework/skipped")  # plugins whose PreFilter returned Skip
WAKE_GROUP: StateKey[str] = StateKey("framework/wake-group")  # separates waiting pods with equal namespace and labels
