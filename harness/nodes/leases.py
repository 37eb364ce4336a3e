"""Node leases: one timer for all nodes, and an interval that grows with their number.

A few nodes renew every ten seconds, as kubelets do. Thousands share a fixed budget of writes per second;
`leaseDurationSeconds` is set to match, and the node lifecycle controller reads it.
"""

import math
from collections import OrderedDict

from seatrial.harness.nodes.writer import LEASES, Writer
from seatrial.scheduler.api.clock import Clock, Timer

PERIOD = 10.0  # seconds, as in kubelet
WRITES_PER_SECOND = 50.0  # of all nodes together
HOLDS_FOR = 4  # periods
TICK = 1.0


class Leases:
    """Renews the leases of the nodes that are added."""

    def __init__(self, writer: Writer, clock: Clock) -> None:
        self._writer, self._clock = writer, clock
        self._nodes: OrderedDict[str, str] = OrderedDict()  # name → uid, next to renew first
        self._owed = 0.0
        self._timer: Timer | None = None

    @property
    def period(self) -> float:
        """Seconds between two renewals of one lease."""
        return max(PERIOD, len(self._nodes) / WRITES_PER_SECOND)

    def add(self, node: str, uid: str) -> None:
        """Create a node's lease and renew it."""
        self._nodes[node] = uid
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": node,
                "namespace": "kube-node-lease",
                "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}],
            },
            "spec": {"holderIdentity": node, **self._renewal()},
        }
        self._writer.create(LEASES, body, lambda response: self._renew(node) if response.code == 409 else None)
        if self._timer is None:
            self._timer = self._clock.call_later(TICK, self._tick)

    def drop(self, node: str) -> None:
        """Stop renewing: the node is deleted, or simulates a failure."""
        self._nodes.pop(node, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._nodes.clear()

    def _tick(self) -> None:
        if not self._nodes:
            self._timer, self._owed = None, 0.0
            return
        self._timer = self._clock.call_later(TICK, self._tick)
        self._owed += len(self._nodes) * TICK / self.period
        for _ in range(min(int(self._owed), len(self._nodes))):
            node = next(iter(self._nodes))
            self._nodes.move_to_end(node)
            self._renew(node)
            self._owed -= 1

    def _renew(self, node: str) -> None:
        self._writer.merge(f"{LEASES}/{node}", {"spec": self._renewal()})

    def _renewal(self) -> dict[str, object]:
        return {"renewTime": self._clock.micro_timestamp(), "leaseDurationSeconds": math.ceil(self.period * HOLDS_FOR)}
