"""Identities of API clients."""

from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Identity:
    """A user's name and groups, and further attributes of the credential."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()  # key → values

    @property
    def user_info(self) -> dict[str, Any]:
        """The UserInfo of reviews and of webhooks."""
        uids: dict[str, Any] = {"username": self.name}
        if self.uid:
            uids["uid"] = self.uid
        uids["groups"] = list(self.groups)
        if self.extra:
            uids["extra"] = {name: list(values) for name, values in self.extra}
        return uids


ADMIN = Identity("seatrial-admin", ("system:masters", "system:authenticated"))
ANONYMOUS: Final = Identity("system:anonymous", ("system:unauthenticated",))
CONTROLLERS: Final = Identity("system:kube-controller-manager", ("system:authenticated",))
