"""The quotas that the watch has delivered and, for a while, those that were just admitted.

An admitted write may still be refused, by another webhook or because of a conflict, and the watch may be late. So an
admitted quota counts at once, until the watch shows it or a later version, and for `UNSEEN_SECONDS` at most.
"""

from collections.abc import Callable
from dataclasses import dataclass

from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quota import ElasticQuota

UNSEEN_SECONDS = 10.0  # for which what was admitted counts although the watch has not delivered it


def newer(version: str, than: str) -> bool:
    """Whether a resource version is later than another one; versions that are no numbers are."""
    number, other = integer(version), integer(than)
    return number is None or other is None or number > other


@dataclass(frozen=True, slots=True)
class _Admitted:
    quota: ElasticQuota
    before: str  # the resource version that the write changes; "" for a new quota
    since: float

    def seen_in(self, stored: ElasticQuota) -> bool:
        """Whether the watch delivered the write, or something later."""
        same = stored.metadata.uid == self.quota.metadata.uid
        if not self.before:
            return same
        return not same or newer(stored.metadata.resource_version, self.before)


class KnownQuotas:
    """Quotas by name. `current` is what decisions are based on; call `expire` before one."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.current: dict[str, ElasticQuota] = {}
        self._monotonic = monotonic
        self._stored: dict[str, ElasticQuota] = {}  # as the watch delivered them
        self._admitted: dict[str, _Admitted] = {}

    def set(self, quota: ElasticQuota) -> None:
        """The watch delivered a quota."""
        name = quota.name
        self._stored[name] = quota
        admitted = self._admitted.get(name)
        if admitted is None or admitted.seen_in(quota):
            self._admitted.pop(name, None)
            self.current[name] = quota

    def remove(self, quota: ElasticQuota) -> None:
        """The watch delivered a deletion. A quota of that name in another namespace stays, and a new one that was
        admitted since."""
        name, metadata = quota.name, quota.metadata
        known = self._stored.get(name)
        if known is not None and known.metadata.namespace == metadata.namespace:
            del self._stored[name]
        admitted = self._admitted.get(name)
        if admitted is not None:
            if admitted.quota.metadata.uid != metadata.uid:
                return
            del self._admitted[name]
        if name not in self._stored:
            self.current.pop(name, None)

    def admit(self, quota: ElasticQuota, old: ElasticQuota | None = None) -> None:
        """A write was admitted: a new quota, or a change of `old`."""
        before = old.metadata.resource_version if old is not None else ""
        self._admitted[quota.name] = _Admitted(quota, before, self._monotonic())
        self.current[quota.name] = quota

    def is_new(self, name: str) -> bool:
        """Whether the quota was admitted and may not be stored."""
        return name in self._admitted and name not in self._stored

    def expire(self) -> bool:
        """Forget what was admitted too long ago; whether there was any."""
        if not self._admitted:
            return False
        now = self._monotonic()
        late = [name for name, entry in self._admitted.items() if now - entry.since >= UNSEEN_SECONDS]
        for name in late:
            del self._admitted[name]
            if name in self._stored:
                self.current[name] = self._stored[name]
            else:
                del self.current[name]
        return bool(late)
