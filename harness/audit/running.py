"""An auditor that follows a cluster while another task runs on it."""

from collections.abc import Iterator
from contextlib import contextmanager

from seatrial.harness.audit.auditor import Auditor, Violation
from seatrial.harness.audit.follower import Follower
from seatrial.harness.audit.ordering import WINDOW
from seatrial.harness.audit.state import GRACE
from seatrial.harness.clusters.protocol import Capability, Cluster


class RunningAudit:
    """The auditor of one cluster with its follower."""

    def __init__(self, auditor: Auditor, follower: Follower, cluster: Cluster) -> None:
        self.auditor, self.follower = auditor, follower
        self._cluster = cluster

    @property
    def violations(self) -> list[Violation]:
        return self.auditor.violations

    def check_state(self) -> None:
        """Judge pods that wait and groups, as of the time up to which all events are known."""
        self._cluster.wait(lambda: True, within=0)  # takes in what has arrived
        if any(not record.attempted for record in self.auditor.state.pending.values()):
            self.settle(self._cluster.clock.monotonic())  # their reasons may be on the way
        self.auditor.check_state(self.follower.judged_until())

    def settle(self, since: float) -> None:
        """Wait until events that arrived before `since`, a time of the cluster's clock, are judged in their order."""
        small = Capability.OWN_CLUSTER in self._cluster.capabilities
        if self.follower.judged_until() < since:
            self._cluster.wait(
                lambda: self.follower.judged_until() >= since or (small and self.follower.catch_up()), within=4 * WINDOW
            )


@contextmanager
def audited(cluster: Cluster, *, allocates: bool = True, holds_nominated: bool = True) -> Iterator[RunningAudit]:
    """Follow the cluster while entered.

    `allocates`: its schedulers choose the cards of vendors' plain resources, as ours does. Otherwise that is demanded
    only of a scheduler that has done so before. `holds_nominated`: they keep the room of nominated pods for them, as
    kube-scheduler does; for others, as Volcano's, a nomination says only which node is tried first.
    """
    auditor = Auditor()
    auditor.state.allocating = None if allocates else set()
    in_order = Capability.VIRTUAL_TIME in cluster.capabilities  # the watches of one process deliver as the changes come
    window = 0.0 if in_order else WINDOW
    auditor.state.holds_nominated = holds_nominated
    auditor.state.in_flight = 0.0 if in_order else GRACE
    follower = Follower(auditor, cluster.transport, cluster.call, cluster.clock, window=window)
    try:
        follower.start()
        yield RunningAudit(auditor, follower, cluster)
    finally:
        follower.close()
