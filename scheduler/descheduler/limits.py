"""Limits on evictions: caps of a round, limits of a workload, token buckets."""

from collections import Counter, OrderedDict
from dataclasses import dataclass, field

IntOrPercent = int | str


def limit_of(replicas: int, value: IntOrPercent | None) -> int:
    """An int or percent of `replicas`; percents round down, 0 becomes 1, at most `replicas` (RSV-R70).

    None: 10 % of more than 10 replicas, 2 of 4 to 10, otherwise 1.
    """
    if value is None:
        percent = replicas // 10 if replicas > 10 else 2 if replicas >= 4 else 1
    else:
        percent = percent_of(replicas, value)
    return min(max(percent, 1), replicas)


def percent_of(replicas: int, value: IntOrPercent) -> int:
    """`value` if it is an int, else that percentage of `replicas`, rounded down."""
    return value if isinstance(value, int) else replicas * int(value.removesuffix("%")) // 100


@dataclass(slots=True)
class EvictionLimiter:
    """Caps of one round: per node, per namespace, in total (RSV-R79). None: no cap."""

    per_node: int | None = None
    per_namespace: int | None = None
    total: int | None = None
    _nodes: Counter[str] = field(default_factory=Counter)
    _namespaces: Counter[str] = field(default_factory=Counter)
    _count: int = 0

    def reset(self) -> None:
        self._nodes.clear()
        self._namespaces.clear()
        self._count = 0

    @property
    def count(self) -> int:
        """Evictions of this round."""
        return self._count

    def allows(self, node: str, namespace: str) -> bool:
        """Whether one more eviction is within the caps. A pod without a node has no cap per node."""
        return (
            (self.total is None or self._count < self.total)
            and (not node or self.per_node is None or self._nodes[node] < self.per_node)
            and (self.per_namespace is None or self._namespaces[namespace] < self.per_namespace)
        )

    def done(self, node: str, namespace: str) -> None:
        """Count a successful eviction."""
        self._count += 1
        self._namespaces[namespace] += 1
        if node:
            self._nodes[node] += 1


class TokenBucket:
    """At most `burst` at once and `rate` a second; filled at first."""

    __slots__ = ("_at", "_tokens", "burst", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def tokens(self, now: float) -> float:
        return min(self.burst, self._tokens + (now - self._at) * self.rate)

    def take(self, now: float) -> bool:
        """Take a token if there is one."""
        if not self.ready(now):
            return False
        self.spend(now)
        return True

    def ready(self, now: float) -> bool:
        return self.tokens(now) >= 1.0 - 1e-9

    def spend(self, now: float) -> None:
        """Take a token even if there is none."""
        self._tokens, self._at = self.tokens(now) - 1.0, now

    def give(self, now: float) -> None:
        """Give a token back."""
        self._tokens, self._at = min(self.burst, self.tokens(now) + 1.0), now


class ObjectLimiter:
    """A token bucket for each workload or namespace, made at its first eviction (RSV-R70)."""

    def __init__(self, duration: float) -> None:
        """`duration`: seconds in which a bucket refills by its limit; 0: no limit."""
        self._duration = duration
        self._buckets: OrderedDict[str, tuple[TokenBucket, float]] = OrderedDict()  # → bucket, last use; oldest first

    def __len__(self) -> int:
        return len(self._buckets)

    def allows(self, key: str, now: float) -> bool:
        """Whether an eviction of an object of `key` may be issued now."""
        self._drop_idle(now)
        known = self._buckets.get(key)
        return known is None or known[0].ready(now)

    def evicted(self, key: str, limit: int, burst: int, now: float) -> None:
        """Count an issued eviction. `limit`: evictions in the duration; 0: no limit."""
        if not self._duration or limit <= 0:
            return
        known = self._buckets.pop(key, None)
        bucket = known[0] if known is not None else TokenBucket(limit / self._duration, max(burst, 1), now)
        bucket.rate = limit / self._duration  # the workload may have been scaled
        bucket.spend(now)
        self._buckets[key] = (bucket, now)

    def returned(self, key: str, now: float) -> None:
        """Take back the count of an eviction that was not issued."""
        if key in self._buckets:
            self._buckets[key][0].give(now)

    def _drop_idle(self, now: float) -> None:
        while self._buckets:
            key, (_, used) = next(iter(self._buckets.items()))
            if now - used < 1.5 * self._duration:
                return
            del self._buckets[key]
