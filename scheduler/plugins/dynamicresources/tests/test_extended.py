"""Extended resources by claims: requests, classes of a resource, and nodes of both kinds, without an API server."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.resourceclaims import DeviceClass, DeviceRequest, ResourceClaim
from seatrial.scheduler.cache.columns import Batch
from seatrial.scheduler.framework.preparation import ObjectPatch
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.dynamicresources.deallocation import Deallocations, Deallocator
from seatrial.scheduler.plugins.dynamicresources.extended import class_of_resources, extended_claim, requests_of
from seatrial.scheduler.plugins.dynamicresources.tests.test_allocation import World, cel, device
from seatrial.scheduler.plugins.noderesources.fit import (
    NodeResourcesFit,
    NodeResourcesFitArgs,
    ScoringStrategy,
    WeightedResource,
)
from seatrial.scheduler.plugins.noderesources.fitplus import NodeResourcesFitPlus, NodeResourcesFitPlusArgs
from seatrial.scheduler.plugins.noderesources.scarce import ScarceResourceAvoidance, ScarceResourceAvoidanceArgs
from seatrial.scheduler.tests.scripted import Scripted, context_of, ok

GPU = "example.com/gpu"
Mapped = list[tuple[str, str]]


def container(name: str, gpus: int, *others: str, **more: Any) -> dict[str, Any]:
    requests = {**dict.fromkeys(others, "1"), **({GPU: str(gpus)} if gpus else {})}
    return {"name": name, "resources": {"requests": requests}, **more}


def pod_of(name: str, *containers: dict[str, Any], early: tuple[dict[str, Any], ...] = ()) -> Pod:
    spec = {"schedulerName": "s", "containers": list(containers), "initContainers": list(early)}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}, Pod)


@pytest.mark.parametrize(
    ("early", "main", "expected", "mapped"),
    [
        pytest.param(
            (container("i0", 2, "cpu"),),
            (container("c1", 1, "cpu", "memory"),),
            {"container-0-request-1": 1, "container-1-request-1": 1},
            [("c1", "container-1-request-1"), ("i0", "container-1-request-1"), ("i0", "container-0-request-1")],
            id="init-uses-those-of-main",
        ),
        pytest.param(
            (container("i0", 1), container("i1", 3)),
            (container("c", 0),),
            {"container-1-request-0": 3},
            [("i0", "container-1-request-0"), ("i1", "container-1-request-0")],
            id="inits-share-the-largest",
        ),
        pytest.param(
            (container("side", 1, restartPolicy="Always"), container("i", 1)),
            (container("c", 1),),
            {"container-0-request-0": 1, "container-2-request-0": 1},
            [("side", "container-0-request-0"), ("c", "container-2-request-0"), ("i", "container-2-request-0")],
            id="a-sidecar-started-before-keeps-its-own",
        ),
        pytest.param(
            (),
            (container("a", 1), container("b", 2)),
            {"container-0-request-0": 1, "container-1-request-0": 2},
            [("a", "container-0-request-0"), ("b", "container-1-request-0")],
            id="containers-add-up",
        ),
    ],
)
def test_requests_of_containers(
    early: tuple[dict[str, Any], ...], main: tuple[dict[str, Any], ...], expected: dict[str, int], mapped: Mapped
) -> None:
    """DRA-E5: init containers run before the others, and use their devices."""
    requests, results = requests_of(pod_of("p", *main, early=early), {GPU: "gpu"})
    assert {one.name: one.count for one in requests} == expected
    assert [(one, request) for one, _, request in results] == mapped


def test_the_place_in_a_name_is_that_among_sorted_resources() -> None:
    names = ("cpu", "memory", "nvidia.com/gpu")
    body = {"name": "c", "resources": {"requests": dict.fromkeys(names, "1")}}
    requests, _ = requests_of(pod_of("p", body), {"nvidia.com/gpu": "gpu"})
    assert requests == [DeviceRequest("container-0-request-2", "gpu")]


def a_class(name: str, created: str, resource: str = "") -> DeviceClass:
    body = {"metadata": {"name": name, "creationTimestamp": created}, "spec": {"extendedResourceName": resource}}
    return msgspec.convert(body, DeviceClass)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        pytest.param((a_class("a", "2026-01-01T00:00:00Z", GPU),), "a", id="one"),
        pytest.param(
            (a_class("a", "2026-01-01T00:00:00Z", GPU), a_class("z", "2026-01-02T00:00:00Z", GPU)), "z", id="newest"
        ),
        pytest.param(
            (a_class("z", "2026-01-01T00:00:00Z", GPU), a_class("a", "2026-01-01T00:00:00Z", GPU)),
            "a",
            id="equally-old-by-name",
        ),
        pytest.param((a_class("a", "2026-01-01T00:00:00Z"),), None, id="none-names-it"),
    ],
)
def test_the_class_of_a_resource(classes: tuple[DeviceClass, ...], expected: str | None) -> None:
    """DRA-R105."""
    values = class_of_resources(classes)
    assert values.get(GPU) == expected
    assert values["deviceclass.resource.kubernetes.io/a"] == "a"


def test_names_of_claims_are_cut_and_differ_by_attempt() -> None:
    claim = extended_claim(pod_of("p" * 63, container("c", 1)), {GPU: "gpu"})
    first, second = claim.named(1.0).claim.metadata.name, claim.named(2.0).claim.metadata.name
    assert len(first) == 63
    assert first[:58] == second[:58]
    assert first != second
    assert claim.named(1.0).body()["metadata"]["generateName"] == f"{'p' * 63}-extended-resources-"


class Extended(World):
    """A world whose class serves a resource."""

    def __init__(self) -> None:
        super().__init__()
        self.serve(GPU)

    def serve(self, resource: str) -> None:
        spec = {"selectors": [cel("device.driver == 'gpu.example.com'")], "extendedResourceName": resource}
        self.give(DeviceClass, {"metadata": {"name": "gpu"}, "spec": spec})

    def plugin(self, name: str, gpus: int) -> None:
        """A node with a device plugin."""
        status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: str(gpus)}}
        self.core.intake.set_node(msgspec.convert({"metadata": {"name": name}, "status": status}, Node))

    def asks(self, name: str, gpus: int = 1, resource: str = GPU, *claims: str) -> str:
        """Create a pod that asks for devices by name; returns its node, or why it has none."""
        body = {"name": "main", "resources": {"requests": {resource: str(gpus)}}}
        return self.decided(name, [body], *claims)

    def patches(self, name: str) -> list[ObjectPatch]:
        preparation = self.binds[name].preparation
        return [] if preparation is None else list(preparation.patches)

    def devices(self) -> list[str]:
        """All devices in use."""
        return sorted(device[2] for pool in self.claims.ledger.of_pool.values() for device in pool)

    def created(self, name: str, **more: Any) -> dict[str, Any]:
        """The API server creates the claim of the pod; returns it."""
        body = {**self.patches(name)[0].body, **more}
        metadata = {**body["metadata"], "uid": f"made-for-{name}", "resourceVersion": "7"}
        results = {**body, "metadata": metadata}
        self.patches(name)[0].answered(msgspec.json.encode(results))
        return results


@pytest.fixture
def world() -> Extended:
    return Extended()


def test_a_claim_is_created_allocated_and_named_in_this_order(world: Extended) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    assert world.asks("p", 2) == "n1"
    create, allocate, tell = world.patches("p")
    assert list(create.body["metadata"]["ownerReferences"]) == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p", "controller": True}
    ]
    exactly = {"deviceClassName": "gpu", "count": 2}
    assert list(create.body["spec"]["devices"]["requests"]) == [{"name": "container-0-request-0", "exactly": exactly}]
    assert "uid" not in allocate.body["metadata"]
    results = allocate.body["status"]["allocation"].devices.results
    assert [result.device for result in results] == ["gpu-0", "gpu-1"]
    assert tell.path == "/api/v1/namespaces/default/pods/p/status"
    assert tell.body["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": create.creates,
        "requestMappings": [{"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"}],
    }


def test_devices_of_a_claim_are_counted_once_when_it_exists(world: Extended) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    assert world.asks("p") == "n1"
    made = world.created("p")
    assert world.devices() == ["gpu-0"]
    assert len(world.claims.ledger.held("made-for-p")) == 1
    status = world.patches("p")[1].body["status"]
    stored = {**made, "metadata": {**made["metadata"], "resourceVersion": "8"}, "status": status}
    world.patches("p")[1].answered(msgspec.json.encode(stored))
    assert world.devices() == ["gpu-0"]
    world.give(ResourceClaim, stored, there=False)
    assert world.devices() == []


def test_a_node_that_offers_the_resource_needs_no_claim(world: Extended) -> None:
    world.plugin("n1", 1)
    world.node("n2", device("gpu-0"))
    assert {world.asks("p0"), world.asks("p1")} == {"n1", "n2"}
    assert {world.binds[name].node: len(world.patches(name)) for name in ("p0", "p1")} == {"n1": 0, "n2": 3}
    text = world.asks("p2")
    assert "1 Insufficient example.com/gpu" in text
    assert "1 cannot allocate all claims" in text


@pytest.mark.parametrize("first", ["class", "node"])
def test_a_class_that_comes_later_serves_the_resource(first: str) -> None:
    """Nodes may be known before the class, and a device plugin may come after both."""
    world = Extended()
    world.serve("example.com/other")
    if first == "class":
        world.serve(GPU)
    world.node("n1", device("gpu-0"))
    world.plugin("n2", 1)
    world.serve(GPU)
    assert {world.asks("p0"), world.asks("p1")} == {"n1", "n2"}


def test_without_its_class_a_resource_is_missing(world: Extended) -> None:
    world.node("n1", device("gpu-0"))
    world.plugin("n2", 0)
    world.serve("example.com/other")
    assert "2 Insufficient example.com/gpu" in world.asks("p")


def test_an_implicit_name_means_the_class(world: Extended) -> None:
    world.node("n1", device("gpu-0"))
    assert world.asks("p", 1, "deviceclass.resource.kubernetes.io/gpu") == "n1"
    assert "Insufficient" in world.asks("q", 1, "deviceclass.resource.kubernetes.io/none")


def test_claims_of_the_pod_come_before_its_resources(world: Extended) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    world.claim("own", {"name": "r", "exactly": {"deviceClassName": "gpu"}})
    assert world.asks("p", 1, GPU, "own") == "n1"
    assert world.has("own") == ["r=gpu-0"]
    assert world.devices() == ["gpu-0", "gpu-1"]


def test_one_pod_may_use_a_device_plugin_and_a_claim(world: Extended) -> None:
    """Two resources, of which the node offers one by a device plugin: the claim has the other alone (DRA-R106)."""
    spec = {"selectors": [cel("device.driver == 'gpu.example.com'")], "extendedResourceName": "example.com/nic"}
    world.give(DeviceClass, {"metadata": {"name": "nic"}, "spec": spec})
    world.plugin("n1", 1)
    world.slice("n1", device("nic-0"))
    both = {"name": "main", "resources": {"requests": {GPU: "1", "example.com/nic": "1"}}}
    assert world.decided("p", [both]) == "n1"
    (request,) = world.patches("p")[0].body["spec"]["devices"]["requests"]
    assert (request["name"], request["exactly"]["deviceClassName"]) == ("container-0-request-1", "nic")
    assert "1 Insufficient example.com/gpu" in world.decided("q", [both])


def test_pods_with_the_same_request_do_not_share_devices(world: Extended) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    assert [world.asks(f"p{number}") for number in range(2)] == ["n1", "n1"]
    assert "cannot allocate all claims" in world.asks("p2")


def test_a_failed_binding_gives_the_devices_back(world: Extended) -> None:
    world.node("n1", device("gpu-0"))
    assert world.asks("p") == "n1"
    world.core.bind_failed("p", "refused", retry=False)
    assert world.devices() == ["gpu-0"]  # the write may still be carried out
    world.patches("p")[1].refused()
    assert world.devices() == []


def test_a_claim_that_is_left_keeps_the_pod_waiting_until_it_is_gone(world: Extended) -> None:
    world.node("n1", device("gpu-0"))
    owner = {"kind": "Pod", "name": "p", "uid": "p", "controller": True}
    metadata = {
        "name": "left",
        "namespace": "default",
        "uid": "left",
        "resourceVersion": "3",
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [owner],
    }
    world.give(ResourceClaim, {"metadata": metadata})
    text = world.asks("p")
    assert "1 cannot schedule extended resource claim" in text
    assert "deletion of ResourceClaim completed" in text
    world.give(ResourceClaim, {"metadata": metadata}, there=False)
    world.clock.advance(10)
    assert [decision.node for decision in world.core.decide() if hasattr(decision, "node")] == ["n1"]


@pytest.mark.parametrize(
    ("code", "methods"), [(200, ["PATCH", "PATCH", "DELETE"]), (404, ["PATCH", "PATCH", "DELETE"]), (403, ["PATCH"])]
)
def test_a_claim_is_deleted_when_its_pod_names_it_no_more(world: Extended, code: int, methods: list[str]) -> None:
    """The pod may go to a node where it needs no claim; it is placed again when the claim is gone."""
    claim = {"metadata": {"name": "c", "namespace": "default", "uid": "c"}}
    api = Scripted(world.clock, lambda request: ok(claim, code if "/pods/" in request.path else 200))
    deallocator = Deallocator(world.core.handle.shared(Deallocations), context_of(api, world.clock))
    world.node("n1", device("gpu-0"))
    assert world.asks("p") == "n1"
    world.core.bind_failed("p", "refused", retry=False)

    deallocator.work()
    world.clock.advance(1)

    assert [request.method for request in api.sent] == methods
    assert api.sent[0].path == "/api/v1/namespaces/default/pods/p/status"
    assert api.bodies("PATCH")[0] == {"status": {"extendedResourceClaimStatus": None}, "metadata": {"uid": "p"}}


@pytest.mark.parametrize("weighed", ["NodeResourcesFit", "NodeResourcesFitPlus", "ScarceResourceAvoidance"])
def test_what_claims_serve_does_not_count_as_capacity(weighed: str) -> None:
    """Scores of a node that serves the resource by claims are those of a node that does not have it."""
    scores = []
    for of_class in (GPU, "example.com/other"):
        world = Extended()
        world.serve(of_class)
        world.plugin("n1", 4)
        world.node("n2", device("gpu-0"))
        scores.append(_scores(world, weighed))
    assert scores[0] == scores[1]


def _scores(world: Extended, weighed: str) -> list[int]:
    """The scores of the nodes by a plugin that weighs the resource, one by one and for all together."""
    handle = world.core.handle
    plugin: Any
    if weighed == "NodeResourcesFit":
        strategy = ScoringStrategy(resources=(WeightedResource(GPU),))
        plugin = NodeResourcesFit(handle, NodeResourcesFitArgs(scoring_strategy=strategy))
    elif weighed == "NodeResourcesFitPlus":
        types = {GPU: {"type": "LeastAllocated", "weight": 1}}
        plugin = NodeResourcesFitPlus(handle, msgspec.convert({"resources": types}, NodeResourcesFitPlusArgs))
    else:
        plugin = ScarceResourceAvoidance(handle, ScarceResourceAvoidanceArgs(resources=(GPU,)))
    asking = pod_of("p", container("c", 0 if weighed == "ScarceResourceAvoidance" else 1, "cpu"))
    state = CycleState()
    if isinstance(plugin, NodeResourcesFit):
        plugin.pre_filter(state, asking)
    plugin.pre_score(state, asking)
    columns = handle.columns
    together = plugin.score_batch(plugin.stack_scores([state]), Batch(columns, None))[0]
    single = [plugin.score(state, asking, world.core.cache.nodes[name]) for name in columns.names]
    assert together.tolist() == single
    return single
