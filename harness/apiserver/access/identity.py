"""Who asks."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Identity:
    """A user by name and groups."""

    name: str
    groups: tuple[str, ...] = ()


ADMIN = Identity("seatrial-admin", ("system:masters", "system:authenticated"))
CONTROLLERS: Final = Identity("system:kube-controller-manager", ("system:authenticated",))
