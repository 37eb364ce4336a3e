"""The arithmetic of a Deployment's rolling update: how many replicas each of its ReplicaSets gets next.

Pure functions. Follow `pkg/controller/deployment/{rolling,sync}.go` and `util/deployment_util.go`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.apiserver.controllers.counts import rolling_bounds


@dataclass(frozen=True, slots=True)
class Generation:
    """One ReplicaSet of a Deployment, as far as counting goes. `most` is what its max-replicas annotation says."""

    name: str
    replicas: int
    available: int = 0
    created: str = ""  # RFC 3339
    most: int = 0


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the Deployment asks for: pods in all, how many more, how many fewer."""

    replicas: int
    surge: int
    unavailable: int

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def fewest_available(self) -> int:
        return self.replicas - self.unavailable


def bounds_of(replicas: int, surge: int | str | None, unavailable: int | str | None, *, rolling: bool) -> Bounds:
    """The bounds that a Deployment's strategy sets; Recreate has no room on either side."""
    if not rolling or not replicas:
        return Bounds(replicas, 0, 0)
    more, fewer = rolling_bounds(surge, unavailable, replicas)
    return Bounds(replicas, more, min(fewer, replicas))


def next_for_new(new: Generation, all_: Sequence[Generation], bounds: Bounds) -> int:
    """Replicas of the newest set: up as far as the surge allows."""
    if new.replicas >= bounds.replicas:
        return bounds.replicas
    total = sum(generation.replicas for generation in all_)
    if total >= bounds.most:
        return new.replicas
    return new.replicas + min(bounds.most - total, bounds.replicas - new.replicas)


def next_for_old(new: Generation, old: Sequence[Generation], bounds: Bounds) -> dict[str, int]:
    """Replicas of the old sets that shrink: first their unavailable pods, then as many as availability spares."""
    if not sum(generation.replicas for generation in old):
        return {}
    total = new.replicas + sum(generation.replicas for generation in old)
    spare = total - bounds.fewest_available - (new.replicas - new.available)
    if spare <= 0:
        return {}
    oldest = sorted(old, key=lambda generation: (generation.created, generation.name))
    replicas = {generation.name: generation.replicas for generation in oldest}
    cleaned = 0
    for generation in oldest:  # pods that serve nobody can go without anybody noticing
        idle = min(spare - cleaned, generation.replicas - generation.available)
        if idle > 0:
            replicas[generation.name] -= idle
            cleaned += idle
    available = new.available + sum(min(generation.available, replicas[generation.name]) for generation in oldest)
    spare = available - bounds.fewest_available
    for generation in oldest:
        fewer = min(spare, replicas[generation.name])
        if fewer > 0:
            replicas[generation.name] -= fewer
            spare -= fewer
    return {
        generation.name: replicas[generation.name]
        for generation in oldest
        if replicas[generation.name] != generation.replicas
    }


def proportional(active: Sequence[Generation], bounds: Bounds) -> dict[str, int]:
    """Replicas of several active sets when the Deployment itself was scaled: each keeps its share.

    The rest of a division goes to the largest set, of equal ones the newest.
    """
    total = sum(generation.replicas for generation in active)
    to_add = (bounds.most if bounds.replicas else 0) - total
    oldest = sorted(active, key=lambda generation: (generation.created, generation.name))
    by_age = oldest[::-1] if to_add > 0 else oldest  # of equal ones the newest grows and the oldest shrinks first
    ordered = sorted(by_age, key=lambda generation: -generation.replicas)
    sizes: dict[str, int] = {}
    added = 0
    for generation in ordered:
        share = _share(generation, bounds, to_add, added) if to_add else 0
        sizes[generation.name] = generation.replicas + share
        added += share
    if ordered and to_add:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + to_add - added)
    return sizes


def _share(generation: Generation, bounds: Bounds, to_add: int, added: int) -> int:
    if not generation.replicas:
        return 0
    if not bounds.replicas:
        return -generation.replicas
    before = generation.most or bounds.replicas
    fraction = _rounded(generation.replicas * bounds.most / before) - generation.replicas
    allowed = to_add - added
    return min(fraction, allowed) if to_add > 0 else max(fraction, allowed)


def _rounded(value: float) -> int:
    """Half away from zero, as Go rounds; Python would round half to even."""
    return int(value + 0.5)
