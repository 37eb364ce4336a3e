"""Index of reservations by their labels: the nodes that can satisfy a pod's `reservationSelector` (RSV-R49).

Labels with an indexed key are filed by key and value, labels whose key has an indexed prefix by prefix alone. Follows
Koordinator pkg/scheduler/plugins/reservation/cache.go `FilterByReservationSelector`.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from seatrial.scheduler.plugins.reservation.args import SelectorIndexArgs
from seatrial.scheduler.serving.exposition import Family, histogram_lines, sample
from seatrial.scheduler.serving.histogram import Histogram

Bucket = dict[str, set[str]]  # node → uids of reservations
Filing = tuple[str, str, str]  # ("prefix", prefix, "") or ("key", key, value)

BOUNDS = tuple(float(1 << power) for power in range(16))  # of the histogram of candidates


class SelectorIndex:
    """Nodes by the labels of the available reservations on them, and counts of the queries."""

    def __init__(self, args: SelectorIndexArgs) -> None:
        self.args = args
        self.prefixes = _distinct(args.key_prefixes)
        self.keys = _distinct(args.keys)
        self.enabled = args.enabled and bool(self.prefixes or self.keys)
        self._buckets: dict[Filing, Bucket] = {}
        self._filed: dict[str, tuple[str, list[Filing]]] = {}  # by uid: the node, and where the reservation is filed
        self._queries = {"hit": 0, "miss": 0}
        self._candidates = Histogram(BOUNDS)

    def add(self, uid: str, node: str, labels: Mapping[str, str]) -> None:
        """File a reservation that is on a node."""
        if not self.enabled:
            return
        self.remove(uid)
        filings = [("key", key, value) for key, value in labels.items() if key in self.keys]
        prefixes = {prefix for key in labels for prefix in self.prefixes if key.startswith(prefix)}
        filings += [("prefix", prefix, "") for prefix in sorted(prefixes)]
        if filings:
            self._filed[uid] = node, filings
            for filing in filings:
                self._buckets.setdefault(filing, {}).setdefault(node, set()).add(uid)

    def remove(self, uid: str) -> None:
        node, filings = self._filed.pop(uid, ("", []))
        for filing in filings:
            bucket = self._buckets[filing]
            bucket[node].discard(uid)
            if not bucket[node]:
                del bucket[node]
            if not bucket:
                del self._buckets[filing]

    def nodes(self, selector: Mapping[str, str]) -> Collection[str] | None:
        """The nodes of the smallest bucket that the selector names; None: none of its keys is indexed.

        Other nodes have no reservation that the selector matches. An exact key goes before a prefix.
        """
        filings: list[Filing] = []
        for key, value in selector.items():
            prefix = next((prefix for prefix in self.prefixes if key.startswith(prefix)), "")
            if key in self.keys:
                filings.append(("key", key, value))
            elif prefix:
                filings.append(("prefix", prefix, ""))
        if not filings:
            self._queries["miss"] += 1
            return None
        bucket = min((self._buckets.get(filing, {}) for filing in filings), key=len)
        self._queries["hit"] += 1
        if bucket:  # upstream does not observe empty results: the smallest bound is 1
            self._candidates.observe(len(bucket))
        return bucket.keys()

    # -- views --------------------------------------------------------------------------------------------------------

    def view(self, *, detail: bool) -> dict[str, Any]:
        """The answer of the route `reservationSelectorIndex`; `detail`: with uids by node, and values of keys."""
        keys: dict[str, Any] = {"enabled": self.enabled, "prefixes": list(self.prefixes)}
        if self.keys:
            keys["keys"] = sorted(self.keys)
        keys["indexedReservations"] = len(self._filed)
        if not self.enabled:
            return keys
        by_prefix = {name: bucket for (kind, name, _), bucket in self._buckets.items() if kind == "prefix"}
        by_value: dict[str, dict[str, Bucket]] = {}
        for (kind, name, value), bucket in sorted(self._buckets.items()):
            if kind == "key":
                by_value.setdefault(name, {})[value] = bucket
        sections = {
            "byPrefix": {name: _counts(bucket, detail=detail) for name, bucket in sorted(by_prefix.items())},
            "byKey": {key: _counts(_merged(values.values()), detail=detail) for key, values in by_value.items()},
        }
        if detail:
            sections["byKeyValue"] = {
                key: {value: _counts(bucket, detail=True) for value, bucket in values.items()}
                for key, values in by_value.items()
            }
        return keys | {name: section for name, section in sections.items() if section}

    def families(self) -> Iterator[Family]:
        """Metrics of the queries; none where the index is off."""
        if not self.enabled:
            return
        name = "scheduler_reservation_selector_index_query_total"
        samples = [sample(name, {"result": result}, count) for result, count in self._queries.items()]
        yield name, "counter", "Queries of the index of reservation selectors, by result.", samples
        name = "scheduler_reservation_selector_index_candidates_count"
        lines = list(histogram_lines(name, {}, self._candidates))
        yield name, "histogram", "Nodes that a query of the index of reservation selectors found.", lines


def _distinct(names: Collection[str]) -> tuple[str, ...]:
    """The names without surrounding space, empty ones and duplicates, in order."""
    return tuple(dict.fromkeys(name.strip() for name in names if name.strip()))


def _merged(buckets: Collection[Bucket]) -> Bucket:
    by_node: Bucket = {}
    for bucket in buckets:
        for node, uids in bucket.items():
            by_node.setdefault(node, set()).update(uids)
    return by_node


def _counts(bucket: Bucket, *, detail: bool) -> dict[str, Any]:
    results: dict[str, Any] = {"nodes": len(bucket), "reservations": sum(map(len, bucket.values()))}
    return results | {"byNode": {node: sorted(uids) for node, uids in sorted(bucket.items())}} if detail else results
