"""A load of devices alone, in both vocabularies on one fleet: Koordinator's annotations and claims.

Nodes with Device objects, nodes whose drivers offer cards in ResourceSlices, and nodes whose slices this load publishes
itself: a card in partitions, and a shared NIC. Nodes and slices come and go.
"""

from random import Random
from typing import Any, Final

from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.kill_trials.load import (
    CARDS,
    CLAIMED,
    CLAIMS,
    HIGH,
    LOW,
    MIDDLE,
    NAMESPACE,
    PODS,
    PRIORITIES,
    TEMPLATES,
    Json,
    Load,
)
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, claim_template, native_gang, node, priority_class
from seatrial.scheduler.api.resourceclaims import CLASSES_PATH, SLICES_PATH

OWN: Final = "parts.seatrial.dev"  # driver and class of the slices that this load publishes
NATIVE: Final = f"/apis/scheduling.k8s.io/v1beta1/namespaces/{NAMESPACE}/podgroups"
_CORES: Final = 32
_COUNTERS: Final = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]


def _partition(name: str, memory: str) -> Json:
    consumed = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
    return {"name": name, "attributes": {"kind": {"string": name.partition("-")[0]}}, "consumesCounters": [consumed]}


_NIC: Final[Json] = {
    "name": "nic",
    "attributes": {"kind": {"string": "nic"}},
    "allowMultipleAllocations": True,
    "capacity": {"slots": {"value": "2"}},
}
# A partition that is not published while it is used would take no counters, upstream as here: these stay.
_PARTITIONS: Final = [_partition("full", "80Gi"), *(_partition(f"part-{number}", "20Gi") for number in range(4))]
_OTHERS: Final = [_NIC, *({"name": f"one-{number}", "attributes": {"kind": {"string": "one"}}} for number in range(3))]


class DeviceLoad(Load):
    """Pods, gangs and claims that take devices, and devices that come and go.

    A pod with claims is bound by several writes. Where answers are lost, a less important pod may be bound meanwhile.
    """

    not_judged = frozenset({"AUD-505"})

    def __init__(self, cluster: Cluster, random: Random) -> None:
        super().__init__(cluster, random)
        self._generations: dict[str, int] = {}  # of the pools that this load publishes, by node
        self._away: list[NodeBuilder] = []
        self._steps = [
            (4, self._annotated),
            (1, self._gang),
            (1, self._reserved),
            (4, self._claiming),
            (3, self._sharing),
            (3, self._by_name),
            (3, self._parts),
            (2, self._native_gang),
            (1, self._taint_card),
            (2, self._renew_pool),
            (1, self._withdraw_pool),
            (1, self._change_node),
            (2, self._delete_claim),
            (1, self._delete_native_gang),
            (1, self._delete_gang),
            (4, self._delete_pod),
        ]

    def begin(self) -> None:
        """The nodes, priorities, classes, templates and pools."""
        self._nodes = {built.name: built for built in self._fleet(2)}
        self._cluster.add_nodes(self._nodes.values())
        for name, value in PRIORITIES.items():
            self._create("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value))
        chosen = {"selectors": [{"cel": {"expression": f"device.driver == '{OWN}'"}}]}
        self._create(CLASSES_PATH, {**_head("DeviceClass", OWN), "spec": chosen})
        for count in (1, 2):
            self._create(TEMPLATES, claim_template(f"t{count}").asks("gpu", CARDS, count=count).manifest)
        for kind in ("full", "part", "nic", "one"):
            fields: Json = {"capacity": {"requests": {"slots": "1"}}} if kind == "nic" else {}
            selector = f"device.attributes['{OWN}'].kind == '{kind}'"
            self._create(TEMPLATES, claim_template(kind).asks("gpu", OWN, selector, **fields).manifest)
        for name in self._pools():
            self._publish(name)

    def make_room(self) -> None:
        """All devices are there, and many more."""
        more = [*self._away, *self._fleet(4, first=10, cards=16)]
        self._away.clear()
        self._cluster.add_nodes(more)
        self._nodes.update((built.name, built) for built in more)
        self._untaint()
        pools = [*self._pools(), *(f"m{number}" for number in range(40))]
        self._cluster.add_nodes(self._node(name) for name in pools[len(self._pools()) :])
        for name in pools:
            self._publish(name)

    def _fleet(self, count: int, *, first: int = 0, cards: int = 3) -> list[NodeBuilder]:
        numbers = range(first, first + count)
        annotated = [node(f"n{number}").cpu(_CORES).gpus("a10", min(cards, 8)) for number in numbers]
        by_driver = [self._node(f"d{number}").cards(cards).dra() for number in numbers]
        return [*annotated, *by_driver, *(self._node(f"o{number}") for number in numbers)]

    def _node(self, name: str) -> NodeBuilder:
        """A node for pods with claims only."""
        return node(name).cpu(_CORES).taint(CLAIMED)

    def _pools(self) -> list[str]:
        """The nodes that are there whose slices this load publishes."""
        return [name for name in self._nodes if name.startswith("o")]

    # -- pods ---------------------------------------------------------------------------------------------------------

    def _annotated(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._submit(self._pod().priority_class(self._class()))

    def _by_name(self) -> None:
        """Pods that ask for cards by the name of a resource: a device plugin serves it, or a claim does."""
        for _ in range(self._random.randint(1, 2)):
            self._submit(self._claimer().nvidia(self._random.randint(1, 2)))

    def _parts(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            kind = self._random.choice(("full", "part", "part", "nic", "nic", "one"))
            self._submit(self._claimer().claim("gpu", template=kind))

    def _native_gang(self) -> None:
        """The members share a claim of their group, or have claims of their own; some groups are preempted whole."""
        name, size = self._name("w"), self._random.randint(2, 4)
        entry = {"name": "gpu", "resourceClaimTemplateName": "t1"}
        shared = {"resourceClaims": [entry]} if self._random.random() < 0.5 else {}
        level, mode = self._class(), self._random.choice(("all", "single"))
        self._create(NATIVE, native_gang(name, size, priorityClassName=level, disruptionMode={mode: {}}, **shared))
        for number in range(size):
            member = self._claimer(f"{name}-{number}").in_native_gang(name).priority_class(level)
            self._submit(member.claim("gpu", template="t1" if shared else self._random.choice(("t1", "part"))))

    def _claimer(self, name: str = "") -> PodBuilder:
        return super()._claimer(name).priority_class(self._class())

    def _class(self) -> str:
        return self._random.choice((LOW, MIDDLE, HIGH))

    def _delete_claim(self) -> None:
        """A claim that is in use, and its pods: first the one or the others."""
        shared = [item["metadata"]["name"] for item in self.objects("ResourceClaim")]
        shared = [name for name in shared if name[0] == "s"]
        if not shared:
            return
        name = self._random.choice(shared)
        users = [
            f"{PODS}/{pod['metadata']['name']}"
            for pod in self.objects("Pod")
            if any(entry.get("resourceClaimName") == name for entry in pod["spec"].get("resourceClaims", ()))
        ]
        paths = [f"{CLAIMS}/{name}", *users]
        for path in paths if self._random.random() < 0.5 else reversed(paths):
            self._call("DELETE", path)

    def _delete_native_gang(self) -> None:
        pods = [pod["metadata"]["name"] for pod in self.objects("Pod")]
        groups = sorted({name.partition("-")[0] for name in pods if name[0] == "w"})
        if groups:
            group = self._random.choice(groups)
            for name in pods:
                if name.startswith(f"{group}-"):
                    self._call("DELETE", f"{PODS}/{name}")
            self._call("DELETE", f"{NATIVE}/{group}")

    # -- devices ------------------------------------------------------------------------------------------------------

    def _change_node(self) -> None:
        """A node goes with its pods, or comes back."""
        if self._away:
            built = self._away.pop()
            self._cluster.add_nodes([built])
            self._nodes[built.name] = built
            if built.name.startswith("o"):
                self._publish(built.name)
            return
        built = self._nodes.pop(self._random.choice(sorted(self._nodes)))
        self._away.append(built)
        self._cluster.remove_node(built.name)
        if built.name.startswith("o"):
            self._withdraw(built.name)

    def _renew_pool(self) -> None:
        """A driver publishes a pool anew, with some of its devices, and may get no further than the first slice."""
        for name in self._random.sample(self._pools(), min(1, len(self._pools()))):
            some = self._random.sample(_OTHERS, self._random.randint(0, len(_OTHERS)))
            self._publish(name, some, complete=self._random.random() < 0.7)

    def _withdraw_pool(self) -> None:
        for name in self._random.sample(self._pools(), min(1, len(self._pools()))):
            self._withdraw(name)

    def _withdraw(self, name: str) -> None:
        for part in ("counters", "devices"):
            self._call("DELETE", f"{SLICES_PATH}/{name}-{part}")

    def _publish(self, name: str, others: list[Json] = _OTHERS, *, complete: bool = True) -> None:
        """Write the pool's two slices under the next generation, in the order in which a driver may write them."""
        generation = self._generations[name] = self._generations.get(name, 0) + 1
        pool = {"name": name, "generation": generation, "resourceSliceCount": 2}
        common: dict[str, Any] = {"driver": OWN, "pool": pool, "nodeName": name}
        parts: list[tuple[str, Json]] = [
            ("counters", {"sharedCounters": _COUNTERS}),
            ("devices", {"devices": [*_PARTITIONS, *others]}),
        ]
        for part, content in parts if complete else parts[:1]:
            spec = {**common, **content}
            path = f"{SLICES_PATH}/{name}-{part}"
            if not self._call("PATCH", path, {"spec": spec}).ok:
                self._create(SLICES_PATH, {**_head("ResourceSlice", f"{name}-{part}"), "spec": spec})


def _head(kind: str, name: str) -> Json:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
