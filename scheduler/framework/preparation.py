"""What a binding waits for: patches of other objects, and conditions that other components of the cluster bring about.

PreBind plugins return it; `seatrial.scheduler.shell.preparations` carries it out.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from seatrial.scheduler.api.transport import MERGE_PATCH
from seatrial.scheduler.framework.status import Status


class ObjectPatch(NamedTuple):
    """A patch of one object, or its creation. A refusal ends the attempt.

    `metadata.resourceVersion` makes a patch conditional.
    `answered` gets the object as the API server has it now: its event may come later. `refused` is called in its place
    where the patch was refused or not sent. `holds`: where no answer comes the object is read back, and this says
    whether it was patched; without it no answer counts as a refusal. `creates`: the name of the object that is created
    at `path`. `failure`: the first words of the message about a refusal.
    """

    what: str  # kind and name, for messages
    path: str
    body: Mapping[str, Any]
    answered: Callable[[bytes], None]
    kind: str = MERGE_PATCH
    refused: Callable[[], None] = lambda: None
    holds: Callable[[bytes], bool] | None = None
    creates: str = ""
    failure: str = ""

    @property
    def object_path(self) -> str:
        """Where the object is read."""
        return f"{self.path}/{self.creates}" if self.creates else self.path.removesuffix("/status")


@dataclass(frozen=True, slots=True)
class Awaited:
    """A condition on objects that the scheduler follows.

    `check` is called after events: Success, Wait, or a status whose message ends the attempt.
    """

    check: Callable[[], Status]
    seconds: float
    late: str  # the message if it does not hold in time


@dataclass(frozen=True, slots=True)
class Preparation:
    """Patches, sent one after the other, and then conditions that must hold before the pod is bound."""

    patches: tuple[ObjectPatch, ...] = ()
    awaited: tuple[Awaited, ...] = ()


def merged(first: Preparation | None, second: Preparation | None) -> Preparation | None:
    """Both preparations as one."""
    if first is None or second is None:
        return first or second
    return Preparation(first.patches + second.patches, first.awaited + second.awaited)
