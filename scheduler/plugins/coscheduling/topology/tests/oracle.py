"""The rules GANG-R55 to GANG-R61 once more, literally and slowly: dictionaries, recursion and comparisons in turn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cmp_to_key


@dataclass(eq=False)
class Domain:
    """A domain, or (without children, at the deepest level) a node."""

    path: tuple[str, ...]
    parent: "Domain | None"
    children: list["Domain"] = field(default_factory=list)
    slots: int = 0
    score: int = 0
    peers: int = 0

    @property
    def level(self) -> int:
        return len(self.path)

    def above(self) -> Iterator["Domain"]:
        """The domain and then its ancestors upward."""
        here: Domain | None = self
        while here is not None:
            yield here
            here = here.parent


@dataclass(frozen=True)
class NodeOffer:
    slots: int
    score: int = 0
    peers: int = 0


def grow(nodes: Mapping[tuple[str, ...], NodeOffer], multiples: Mapping[int, int]) -> Domain:
    """The tree of these nodes by path, with sums; slots are rounded down to multiples from the bottom."""
    root = Domain((), None)
    for path, offer in nodes.items():
        here = root
        for length in range(1, len(path) + 1):
            match = next((child for child in here.children if child.path == path[:length]), None)
            if match is None:
                match = Domain(path[:length], here)
                here.children.append(match)
            here = match
        here.slots, here.score, here.peers = offer.slots, offer.score, offer.peers
    _total(root, multiples)
    return root


def _total(domain: Domain, multiples: Mapping[int, int]) -> None:
    for child in domain.children:
        _total(child, multiples)
    if domain.children:
        domain.slots = sum(child.slots for child in domain.children)
        domain.score = sum(child.score for child in domain.children)
        domain.peers = sum(child.peers for child in domain.children)
    domain.slots = rounded(domain.slots, domain, multiples)


def rounded(count: int, domain: Domain, multiples: Mapping[int, int]) -> int:
    k = multiples.get(domain.level, 0)
    return count // k * k if k > 1 else count


def at_level(domain: Domain, level: int) -> list[Domain]:
    if domain.level == level:
        return [domain]
    return [item for child in domain.children for item in at_level(child, level)]


def compare(one: Domain, other: Domain, *, more_slots_first: bool = False) -> int:
    """GANG-R58; with `more_slots_first`, the order of siblings in GANG-R59."""
    for a, b in zip(one.above(), other.above(), strict=True):
        if a.peers != b.peers:
            return b.peers - a.peers
    for a, b in zip(one.above(), other.above(), strict=True):
        if a.slots != b.slots:
            return b.slots - a.slots if more_slots_first else a.slots - b.slots
    if one.score != other.score:
        return other.score - one.score
    return -1 if (one.path[-1:], one.path) < (other.path[-1:], other.path) else 1


def as_sibling(one: Domain, other: Domain) -> int:
    return compare(one, other, more_slots_first=True)


def siblings(domain: Domain) -> list[Domain]:
    return sorted(domain.children, key=cmp_to_key(as_sibling))


def distribute(domain: Domain, size: int, multiples: Mapping[int, int], into: list[tuple[str, int]]) -> int:
    """Members on the nodes of a domain. Returns how many found a place."""
    take = rounded(min(size, domain.slots), domain, multiples)
    if not domain.children:
        if take:
            into.append((domain.path[-1], take))
        return take
    left = take
    for child in siblings(domain):
        if left > 0:
            left -= distribute(child, left, multiples, into)
    return take - left


def candidates(
    root: Domain, bottom: int, size: int, gather: int, multiples: Mapping[int, int]
) -> Iterator[tuple[int, tuple[str, ...], Sequence[tuple[str, int]]]]:
    """Level, path and shares of each candidate in order: those of the deepest level, then those above (ours)."""
    kept = [[domain for domain in at_level(root, gather) if domain.slots >= size]]
    while kept[-1] and kept[-1][0].level < bottom:
        deeper = [child for domain in kept[-1] for child in domain.children if child.slots >= size]
        if not deeper:
            break
        kept.append(deeper)
    for domains in reversed(kept):
        for domain in sorted(domains, key=cmp_to_key(compare)):
            shares: list[tuple[str, int]] = []
            if distribute(domain, size, multiples, shares) == size:
                yield domain.level, domain.path, shares
