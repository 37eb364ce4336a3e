"""Users whose pods wait for something: for each other, for room in a quota, for a node.

`seatrial load --also gangs` runs one beside the plan; a Locust file of your own imports them from
`seatrial.testing.load`, or derives classes with other sizes.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import gevent
from locust import task

from seatrial.harness.load.locustfile import LOAD, POLL_INTERVAL, WORKER, LoadUser
from seatrial.harness.load.settings import LOAD_LABEL
from seatrial.harness.nodes.fleet import SIMULATED_LABEL
from seatrial.harness.nodes.kwok import FAKE, FAKE_ANNOTATION
from seatrial.scheduler.api.builders import PodBuilder, native_gang, pod, quota
from seatrial.scheduler.api.core import HOSTNAME_LABEL
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME

GANG_ROW = "GANG create to last bound"
ROOM_ROW = "QUOTA room to bound"
NODE_ROW = "NODE create to bound"
UNCORDON_ROW = "NODE uncordon to bound"
NODES = "/api/v1/nodes"
NATIVE_GROUPS = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{WORKER.namespace}/podgroups"
QUOTAS = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{WORKER.namespace}/elasticquotas"
_NUMBERS = itertools.count()


class _WaitingUser(LoadUser):
    abstract = True
    fixed_count = 1
    within = 20.0  # seconds for a binding and for the end of a pod
    pause = 0.2  # seconds from one round to the next

    def wait_time(self) -> float:
        return self.pause

    def placed(self, what: str, *names: str) -> bool:
        """Whether the pods are bound in time; an error of the load, if they are not."""
        placed = self.all_bound(names, self.within)
        if not placed:
            LOAD.record.failed(f"{what}: not bound within {self.within:g} s")
        return placed

    def removed(self, what: str, *names: str) -> None:
        self.delete(*names)
        if not self.gone(*names, within=self.within):
            LOAD.record.failed(f"{what}: not gone within {self.within:g} s of the delete request")


class GangUser(_WaitingUser):
    """A gang of Koordinator's annotations, again and again: created, bound as a whole, deleted."""

    size = 4
    requests: Mapping[str, str | float] = {"cpu": 1, "memory": "1Gi"}

    @task  # type: ignore[untyped-decorator]
    def gang(self) -> None:
        """One gang."""
        name = f"gang-{next(_NUMBERS)}"
        self._one([pod("gang").annotation(GANG_NAME, name).annotation(GANG_MIN, str(self.size))])

    def _one(self, member: list[PodBuilder]) -> None:
        start = LOAD.now()
        names = self.create_all([each.resources(dict(self.requests)) for each in member * self.size], aside=True)
        if self.placed("gang", *names):
            self.measured(GANG_ROW, LOAD.now() - start)
        self.removed("gang", *names)


class NativeGangUser(GangUser):
    """The same with a PodGroup of scheduling.k8s.io, which is deleted with its pods."""

    @task  # type: ignore[untyped-decorator]
    def gang(self) -> None:
        """One gang."""
        name = f"gang-{WORKER.part}-{next(_NUMBERS)}"
        self.send("POST", NATIVE_GROUPS, native_gang(name, self.size), name="create PodGroup")
        member = pod("native-gang")
        member.manifest["spec"]["schedulingGroup"] = {"podGroupName": name}
        try:
            self._one([member])
        finally:
            self.send("DELETE", f"{NATIVE_GROUPS}/{name}", name="delete PodGroup")


class QuotaUser(_WaitingUser):
    """A full ElasticQuota: a pod more than it admits waits, and gets the room of one that is deleted."""

    size = 2

    def on_start(self) -> None:
        super().on_start()
        self._quota = f"{WORKER.namespace}-{WORKER.part}-{next(_NUMBERS)}"
        full: dict[str, str | float] = {"cpu": self.size, "memory": f"{self.size}Gi"}
        manifest = quota(self._quota).limits(full, full).namespace(WORKER.namespace).manifest
        self.send("POST", QUOTAS, manifest, name="create ElasticQuota")

    @task  # type: ignore[untyped-decorator]
    def room(self) -> None:
        """Fill it, and make room for one."""
        member = pod("quota").quota(self._quota).request(cpu=1, memory="1Gi")
        names = self.create_all([member] * (self.size + 1), aside=True)
        bound = self._first_bound(names)
        if len(bound) > self.size:
            LOAD.record.failed(f"quota: {self.size + 1} pods were bound where its max admits {self.size}")
        elif len(bound) < self.size:
            LOAD.record.failed(f"quota: {len(bound)} of {self.size} pods bound within {self.within:g} s")
        else:
            start = LOAD.now()
            self.delete(bound[0])
            names.remove(bound[0])
            if self.placed("quota", *names):
                self.measured(ROOM_ROW, LOAD.now() - start)
        self.removed("quota", *names)

    def _first_bound(self, names: Sequence[str]) -> list[str]:
        """The pods that are bound when the quota is full, at the latest after `within`. Which ones is not promised."""
        end = LOAD.now() + self.within
        while len(bound := [name for name in names if self.bound(name, 0)]) < self.size and LOAD.now() < end:
            gevent.sleep(POLL_INTERVAL)
        return bound


class NodeUser(_WaitingUser):
    """Simulated nodes that come, and in turn are cordoned at first, for a pod that waits; both go afterwards.

    Only its own pods tolerate its taint and select it.
    """

    def on_start(self) -> None:
        super().on_start()
        self._turns = itertools.cycle([self._new, self._cordoned])  # Locust would draw among tasks

    @task  # type: ignore[untyped-decorator]
    def node(self) -> None:
        """One node."""
        next(self._turns)(*self._waiting())

    def _new(self, pod_name: str, node_name: str) -> None:
        """The pod waits for a node."""
        start = LOAD.now()
        with self._node(node_name, cordoned=False):
            if self.placed("node", pod_name):
                self.measured(NODE_ROW, LOAD.now() - start)
            self.removed("node", pod_name)

    def _cordoned(self, pod_name: str, node_name: str) -> None:
        """The pod waits for a node that is cordoned."""
        with self._node(node_name, cordoned=True):
            if self.bound(pod_name, self.pause):
                LOAD.record.failed("node: a pod was bound to a cordoned node")
            start = LOAD.now()
            change = {"spec": {"unschedulable": None}}
            self.send("PATCH", f"{NODES}/{node_name}", change, name="uncordon node")
            if self.placed("node", pod_name):
                self.measured(UNCORDON_ROW, LOAD.now() - start)
            self.removed("node", pod_name)

    def _waiting(self) -> tuple[str, str]:
        """The names of a pod, and of the node that it waits for."""
        node = f"{WORKER.namespace}-{WORKER.part}-{next(_NUMBERS)}"
        member = pod("node").request(cpu=1, memory="1Gi").select({LOAD_LABEL: node}).tolerate(LOAD_LABEL)
        return self.create_all([member], aside=True)[0], node

    @contextmanager
    def _node(self, name: str, *, cordoned: bool) -> Iterator[None]:
        self.send("POST", NODES, _node(name, cordoned=cordoned), name="create node")
        try:
            yield
        finally:
            self.send("DELETE", f"{NODES}/{name}", name="delete node")


def _node(name: str, *, cordoned: bool) -> dict[str, object]:
    labels = {HOSTNAME_LABEL: name, LOAD_LABEL: name, SIMULATED_LABEL: "true"}
    taint = {"key": LOAD_LABEL, "value": name, "effect": "NoSchedule"}
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "annotations": {FAKE_ANNOTATION: FAKE}},
        "spec": {"taints": [taint], **({"unschedulable": True} if cordoned else {})},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
