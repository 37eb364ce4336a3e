"""The arithmetic of a Deployment's rolling update: the next replica count of each ReplicaSet.

Pure functions. Follow `pkg/controller/deployment/{rolling,sync}.go` and `util/deployment_util.go`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.harness.apiserver.controllers.counts import rolling_bounds


@dataclass(frozen=True, slots=True)
class SetSize:
    """The counts of one ReplicaSet of a Deployment. `max_replicas` is its max-replicas annotation, 0 if unset."""

    name: str
    replicas: int
    available: int = 0
    created: str = ""  # RFC 3339
    max_replicas: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """The replicas of a Deployment, and the allowed surge above and shortfall below them, in pods."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def max_total(self) -> int:
        return self.replicas + self.surge

    @property
    def min_available(self) -> int:
        return self.replicas - self.unavailable


def bounds_of(replicas: int, surge: int | str | None, unavailable: int | str | None, *, rolling: bool) -> Bounds:
    """The bounds of a Deployment's strategy; surge and unavailable are 0 for Recreate."""
    if not rolling or not replicas:
        return Bounds(replicas, 0, 0)
    more, fewer = rolling_bounds(surge, unavailable, replicas)
    return Bounds(replicas, more, min(fewer, replicas))


def next_for_new(new: SetSize, all_: Sequence[SetSize], bounds: Bounds) -> int:
    """The next replica count of the newest set, limited by the surge."""
    if new.replicas >= bounds.replicas:
        return bounds.replicas
    total = sum(size.replicas for size in all_)
    if total >= bounds.max_total:
        return new.replicas
    return new.replicas + min(bounds.max_total - total, bounds.replicas - new.replicas)


def next_for_old(new: SetSize, old: Sequence[SetSize], bounds: Bounds) -> dict[str, int]:
    """New replica counts of the old sets that shrink, by name: unavailable pods first, then up to `unavailable`."""
    if not sum(size.replicas for size in old):
        return {}
    total = new.replicas + sum(size.replicas for size in old)
    spare = total - bounds.min_available - (new.replicas - new.available)
    if spare <= 0:
        return {}
    oldest = sorted(old, key=lambda size: (size.created, size.name))
    replicas = {size.name: size.replicas for size in oldest}
    cleaned = 0
    for size in oldest:  # unavailable pods can be removed without lowering availability
        idle = min(spare - cleaned, size.replicas - size.available)
        if idle > 0:
            replicas[size.name] -= idle
            cleaned += idle
    available = new.available + sum(min(size.available, replicas[size.name]) for size in oldest)
    spare = available - bounds.min_available
    for size in oldest:
        fewer = min(spare, replicas[size.name])
        if fewer > 0:
            replicas[size.name] -= fewer
            spare -= fewer
    return {size.name: replicas[size.name] for size in oldest if replicas[size.name] != size.replicas}


def proportional(active: Sequence[SetSize], bounds: Bounds) -> dict[str, int]:
    """Replica counts of several active sets, by name, in proportion after the Deployment was scaled.

    The rounding remainder goes to the largest set; among equals, to the newest.
    """
    total = sum(size.replicas for size in active)
    to_add = (bounds.max_total if bounds.replicas else 0) - total
    oldest = sorted(active, key=lambda size: (size.created, size.name))
    by_age = oldest[::-1] if to_add > 0 else oldest  # among equals the newest grows first and the oldest shrinks first
    ordered = sorted(by_age, key=lambda size: -size.replicas)
    sizes: dict[str, int] = {}
    added = 0
    for size in ordered:
        share = _share(size, bounds, to_add, added) if to_add else 0
        sizes[size.name] = size.replicas + share
        added += share
    if ordered and to_add:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _share(size: SetSize, bounds: Bounds, to_add: int, added: int) -> int:
    if not size.replicas:
        return 0
    if not bounds.replicas:
        return -size.replicas
    before = size.max_replicas or bounds.replicas
    fraction = _rounded(size.replicas * bounds.max_total / before) - size.replicas
    allowed = to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def _rounded(value: float) -> int:
    """Round half up, as Go's code does; Python's `round` rounds half to even."""
    return int(value + 0.5)
