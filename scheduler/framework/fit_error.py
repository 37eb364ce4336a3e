"""Why no node fits, with upstream's counts and messages (k8s framework `FitError`)."""

from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from seatrial.scheduler.cache.columns import Rows
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import Code, Status

NO_NODES = "no nodes available to schedule pods"
MAX_KNOWN = 64  # statuses with a known number, for each class


class Reasons:
    """For one class: the status of each row as a code, and the number of rows with each code."""

    def __init__(self) -> None:
        self.statuses: list[Status] = [Status(Code.SUCCESS)]
        self.codes: NDArray[np.int32] = np.zeros(0, np.int32)
        self.counts: Counter[int] = Counter()
        self._numbers: dict[Status, int] = {self.statuses[0]: 0}
        self._known: dict[tuple[int, str], tuple[int, Status]] = {}  # by identity of a status; it keeps the status
        self._text: tuple[dict[int, int], str] | None = None

    def fit(self, capacity: int) -> None:
        """Make room for rows up to `capacity`."""
        missing = capacity - len(self.codes)
        if missing > 0:
            self.codes = np.concatenate([self.codes, np.zeros(missing, np.int32)])

    def update(self, rows: "Rows | slice[None, int, None]", numbers: NDArray[np.int32]) -> None:
        """Set the codes of some rows; 0 for rows without a node and for feasible nodes."""
        before = self.codes[rows].copy()
        self.codes[rows] = numbers
        size = len(self.statuses)
        change = np.bincount(numbers, minlength=size) - np.bincount(before, minlength=size)
        for number in np.flatnonzero(change).tolist():
            if number:
                self.counts[number] += int(change[number])

    def update_one(self, row: int, number: int) -> None:
        """`update` for one row."""
        before = self.codes.item(row)
        if number != before:
            self.codes[row] = number
            if before:
                self.counts[before] -= 1
            if number:
                self.counts[number] += 1

    def number_by(self, status: Status, plugin: str) -> int:
        """The number that stands for a status that this plugin returned."""
        entry = self._known.get((id(status), plugin))
        if entry is None:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()  # some plugin makes a status each time
            entry = self._known[id(status), plugin] = (self.number(status.by(plugin)), status)
        return entry[0]

    def number(self, status: Status) -> int:
        """The number that stands for a status."""
        number = self._numbers.get(status)
        if number is None:
            number = self._numbers[status] = len(self.statuses)
            self.statuses.append(status)
        return number

    def histogram(self) -> str:
        """`<count> <reason>` for every reason, joined; entries are sorted as strings, so that 10 comes before 2."""
        counts = {number: count for number, count in self.counts.items() if count}
        if self._text is None or self._text[0] != counts:
            self._text = (counts, histogram((self.statuses[number], count) for number, count in counts.items()))
        return self._text[1]


def histogram(counted: Iterable[tuple[Status, int]]) -> str:
    """The histogram of any statuses with their counts."""
    totals: Counter[str] = Counter()
    for status, count in counted:
        for reason in status.reasons:
            totals[reason] += count
    return ", ".join(sorted(f"{count} {reason}" for reason, count in totals.items()))


class FitError:
    """The failure of one pod: node statuses by row, or the status of the PreFilter that rejected all nodes."""

    def __init__(
        self,
        nodes: int,
        *,
        pre_filter: Status | None = None,
        reasons: Reasons | None = None,
        overrides: Mapping[int, Status] | None = None,
        absent: tuple[Status, int] | None = None,
        state: CycleState | None = None,
    ) -> None:
        """`overrides`: statuses of this cycle by row; `absent`: status and number of nodes outside the PreFilter's set.

        `state`: that of the cycle, if plugins of scope CLUSTER ran in it.
        """
        self.nodes = nodes
        self.pre_filter = pre_filter
        self._reasons = reasons
        self.overrides = overrides or {}
        self._absent = absent
        self.state = state

    def status(self, row: int) -> Status:
        """The status of one row."""
        if self.pre_filter is not None:
            return self.pre_filter
        status = self.overrides.get(row)
        if status is not None:
            return status
        return self.kept(row)

    def kept(self, row: int) -> Status:
        """The status of one row from plugins whose results are kept."""
        assert self._reasons is not None
        return self._reasons.statuses[int(self._reasons.codes[row])]

    def resolvable_count(self) -> int:
        """The number of `resolvable_rows`."""
        if self.pre_filter is not None or self._reasons is None:
            return 0
        statuses, counts = self._reasons.statuses, self._reasons.counts
        total = sum(count for number, count in counts.items() if statuses[number].code is Code.UNSCHEDULABLE)
        for row, status in self.overrides.items():
            total += status.code is Code.UNSCHEDULABLE
            total -= statuses[int(self._reasons.codes[row])].code is Code.UNSCHEDULABLE
        return total

    def resolvable_rows(self) -> Rows:
        """Rows whose rejection could change if pods were removed, ascending (FWK-R76)."""
        if self.pre_filter is not None or self._reasons is None:
            return np.zeros(0, np.intp)
        helpful = np.array([status.code is Code.UNSCHEDULABLE for status in self._reasons.statuses], np.bool_)
        rows = helpful[self._reasons.codes]
        for row, status in self.overrides.items():
            rows[row] = status.code is Code.UNSCHEDULABLE
        return np.flatnonzero(rows)

    def of_taints(self) -> bool:
        """Whether a taint or a cordon rejects some node."""
        if self.pre_filter is not None:
            return self.pre_filter.of_taints
        if self._reasons is None:
            return False
        statuses = self._reasons.statuses
        return any(count and statuses[number].of_taints for number, count in self._reasons.counts.items()) or any(
            status.of_taints for status in self.overrides.values()
        )

    def message(self, post_filter: str = "") -> str:
        """`0/N nodes are available: …`, followed by the message of PostFilter (FWK-R47)."""
        if self.nodes == 0:
            return NO_NODES
        text = f"0/{self.nodes} nodes are available:"
        if self.pre_filter is not None:
            text += f" {self.pre_filter.message}."
        else:
            current_histogram = self._histogram()
            if current_histogram:
                text += f" {current_histogram}."
        return f"{text} {post_filter}" if post_filter else text

    def _histogram(self) -> str:
        assert self._reasons is not None
        if not self.overrides and self._absent is None:
            return self._reasons.histogram()
        counts = self._reasons.counts.copy()
        for row in self.overrides:
            counts[int(self._reasons.codes[row])] -= 1
        counted = [(self._reasons.statuses[number], count) for number, count in counts.items() if number and count > 0]
        counted += [(status, 1) for status in self.overrides.values()]
        if self._absent is not None:
            counted.append(self._absent)
        return histogram(counted)
