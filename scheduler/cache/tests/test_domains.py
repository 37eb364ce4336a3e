"""Sums around a node by its label are what adding up node by node gives; what is read once is read anew where it has to
be; who does not mind a class is not told of its pods."""

import numpy as np
import pytest

from seatrial.scheduler.api.core import Affinity, Node, NodeStatus, Pod, PodAffinity, PodAffinityTerm, PodSpec
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import ClassRegistry, EquivalenceClass
from seatrial.scheduler.cache.columns import NodeColumns
from seatrial.scheduler.cache.domains import Domain
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.matching import Readings
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.cache.resources import ResourceIndex


def cache_of(*zones: str | None) -> Cache:
    """A cache with a node for each zone; None: a node without the label."""
    columns = NodeColumns(ResourceIndex())
    cache = Cache(columns, ClassRegistry(columns.resources))
    for number, zone in enumerate(zones):
        labels = {} if zone is None else {"zone": zone}
        cache.set_node(Node(ObjectMeta(name=f"n{number}", labels=labels), status=NodeStatus(allocatable={"pods": "9"})))
    return cache


@pytest.mark.parametrize(
    ("zones", "where", "expected"),
    [
        pytest.param("abc", [1, 1, 1], [1, 2, 4], id="each-node-is-its-own-zone"),
        pytest.param("abc", [1, 0, 1], [1, 0, 4], id="each-its-own-and-one-left-out"),
        pytest.param("aab", [1, 1, 1], [3, 3, 4], id="two-nodes-share-a-zone"),
        pytest.param("aab", [0, 1, 1], [2, 2, 4], id="one-left-out-sees-its-neighbour"),
    ],
)
def test_sums_around_a_node(zones: str, where: list[int], expected: list[int]) -> None:
    domain = Domain(cache_of(*zones), "zone")
    assert domain.around(np.array([1, 2, 4]), np.array(where, np.bool_)).tolist() == expected


def test_a_second_node_in_a_zone_is_taken_in() -> None:
    cache = cache_of("a", "b", None)
    domain = Domain(cache, "zone")
    counts = np.array([1, 2, 4])
    assert domain.around(counts, domain.present())[:2].tolist() == [1, 2]
    node = cache.nodes["n2"].known
    cache.set_node(Node(ObjectMeta(name="n2", labels={"zone": "a"}), status=node.status))
    assert domain.around(counts, domain.present()).tolist() == [5, 2, 5]


def test_what_pods_share_is_read_once_for_each_namespace_and_labels() -> None:
    read: list[str] = []

    def note(pod: Pod) -> str:
        read.append(pod.metadata.name)
        return pod.metadata.namespace + pod.metadata.labels.get("app", "")

    readings = Readings(note)
    term = PodAffinityTerm("zone", LabelSelector({"app": "a"}))
    part = Affinity(pod_anti_affinity=PodAffinity((term,)))
    pods = [
        Pod(ObjectMeta(name=name, namespace=namespace, labels={"app": app}), PodSpec(affinity=part))
        for name, namespace, app in (
            ("p", "d", "a"),
            ("like-p", "d", "a"),
            ("elsewhere", "e", "a"),
            ("other", "d", "b"),
        )
    ]
    assert [readings.of(part, pod) for pod in pods] == ["da", "da", "ea", "db"]
    assert read == ["p", "elsewhere", "other"]


class Curious(Listener):
    """Relevant only for pods with a request, and with `only_annotations`, as in a subclass, for annotated pods."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def is_relevant(self, pod_class: EquivalenceClass) -> bool:
        return bool(pod_class.example.spec.node_selector)

    def pod_placed(self, info: PodInfo) -> None:
        self.calls.append(f"+{info.uid}")

    def pod_gone(self, info: PodInfo) -> None:
        self.calls.append(f"-{info.uid}")


class Reader(Curious):
    only_annotations = True


def test_a_listener_is_told_of_pods_that_matter_to_it() -> None:
    cache, curious, reader = cache_of("a"), Curious(), Reader()
    cache.listen(curious)
    cache.listen(reader)
    for uid, selector, marks in (("plain", {}, {}), ("picky", {"zone": "a"}, {}), ("noted", {"zone": "a"}, {"x": "y"})):
        metadata = ObjectMeta(name=uid, namespace="d", uid=uid, annotations=marks)
        cache.set_pod(Pod(metadata, PodSpec(node_name="n0", node_selector=selector)))
    for uid in ("plain", "picky", "noted"):
        cache.remove_pod(uid)
    assert curious.calls == ["+picky", "+noted", "-picky", "-noted"]
    assert reader.calls == ["+noted", "-picky", "-noted"]
