"""Verdicts of plugins. A rejection is a `Status`, worded as upstream words it; an exception is a bug."""

from dataclasses import dataclass, replace
from enum import IntEnum


class Code(IntEnum):
    """k8s.io/kube-scheduler framework codes; their order is not theirs but ours."""

    SUCCESS = 0
    SKIP = 1  # this plugin has nothing to say about this pod
    WAIT = 2  # Permit: not yet
    UNSCHEDULABLE = 3  # not here as things are; taking pods away might help
    UNRESOLVABLE = 4  # not here, whoever is taken away (UnschedulableAndUnresolvable)
    ERROR = 5


@dataclass(frozen=True, slots=True)
class Status:
    """What one plugin says; `nodes` narrows the search to these names (PreFilter only)."""

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    nodes: frozenset[str] | None = None

    @staticmethod
    def skip() -> "Status":
        return SKIP

    @staticmethod
    def unschedulable(*reasons: str) -> "Status":
        return Status(Code.UNSCHEDULABLE, reasons)

    @staticmethod
    def unresolvable(*reasons: str) -> "Status":
        return Status(Code.UNRESOLVABLE, reasons)

    @staticmethod
    def error(reason: str) -> "Status":
        return Status(Code.ERROR, (reason,))

    @staticmethod
    def only(nodes: frozenset[str]) -> "Status":
        """Success, and no other nodes need looking at."""
        return Status(Code.SUCCESS, nodes=nodes)

    @property
    def ok(self) -> bool:
        return self.code is Code.SUCCESS

    @property
    def skipped(self) -> bool:
        return self.code is Code.SKIP

    @property
    def rejected(self) -> bool:
        return self.code in {Code.UNSCHEDULABLE, Code.UNRESOLVABLE}

    @property
    def message(self) -> str:
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> "Status":
        """The same verdict, signed by the plugin that gave it."""
        return replace(self, plugin=plugin)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)
