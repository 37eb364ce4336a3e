"""Why no reservation took a pod, counted in Koordinator's format (RSV-R42, RSV-R43)."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import Taint
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.reservation.fitting import PREFIX
from seatrial.scheduler.plugins.reservation.matching import Match

_WORDS = (
    (Match.NAME, "didn't match the requested reservation name"),
    (Match.AFFINITY, "didn't match affinity rules"),
    (Match.UNSCHEDULABLE, "is unschedulable"),
    (Match.INEXACT, "is not exact matched"),
)
NAMED = "exactly matches the requested reservation name"
BY_NODE = "for node reason that "
TOTAL = "matched owner total"
_UNAVAILABLE = re.compile(r"0/\d+ nodes are available: ")
_ITEM = re.compile(rf"(\d+) {re.escape(PREFIX)}(.+)", re.DOTALL)


@dataclass(slots=True)
class Diagnosis:
    """Counts of the reservations whose owners match a pod, by result."""

    required: bool  # the pod requires a reservation
    counts: Counter[Match] = field(default_factory=Counter)
    taints: Counter[str] = field(default_factory=Counter)
    named: int = 0
    total: int = 0
    matched: Counter[str] = field(default_factory=Counter)  # by node

    def note(self, node: str, match: Match, taint: Taint | None, *, named: bool = False) -> None:
        """Count one reservation; `named`: the pod requires one by name."""
        self.total += 1
        if match is Match.MATCHED:
            self.matched[node] += 1
            self.named += named
        elif taint is not None:
            self.taints[f"{{{taint.key}: {taint.value}}}"] += 1
        else:
            self.counts[match] += 1

    def reasons(self, status_of: Callable[[str], Status]) -> list[str]:
        """The reasons that concern reservations, given why each node with a matching one was rejected."""
        if not self.total and not self.required:
            return []
        by_node: Counter[str] = Counter()
        for node, count in sorted(self.matched.items()):
            reasons = status_of(node).reasons
            left = count - sum(reason.startswith(PREFIX) for reason in reasons)
            for reason in reasons if left > 0 else ():
                if not reason.startswith(PREFIX):
                    by_node[reason] += left
        items = [(self.named, NAMED), *((self.counts[match], words) for match, words in _WORDS)]
        items += [(count, f"had untolerated taint {taint}") for taint, count in sorted(self.taints.items())]
        items += [(count, BY_NODE + reason) for reason, count in sorted(by_node.items())]
        return [f"{n} {PREFIX}{words}" for n, words in items if n] + [f"{self.total} {PREFIX}{TOTAL}"]


def reservation_note(message: str) -> str:
    """The message of the second event of a pod with reservation affinity, from its fit error; "" if there is none."""
    start = _UNAVAILABLE.match(message)
    if start is None:
        return ""
    total, first, middle, last = "", list[str](), list[str](), list[str]()
    for part in re.split(r", |\. ", message[start.end() :].rstrip(".")):
        match = _ITEM.fullmatch(part)
        if match is None:
            continue
        if match[2] == TOTAL:
            total = match[1]
        else:
            (first if match[2] == NAMED else last if match[2].startswith(BY_NODE) else middle).append(part)
    return f"0/{total} reservations are available: {', '.join([*first, *middle, *last])}." if total else ""
