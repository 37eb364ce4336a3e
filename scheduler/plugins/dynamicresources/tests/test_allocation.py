"""Allocation by the core, without an API server; examples of `resource.k8s.io/v1`."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.resourceclaims import DeviceClass, ResourceClaim, ResourceSlice
from seatrial.scheduler.app import Bind, Evict, build_core, parse
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.plugins.dynamicresources.claims import Claims
from seatrial.scheduler.plugins.dynamicresources.plugin import DynamicResourcesArgs

DRIVER = "gpu.example.com"


class World:
    """A core with nodes, slices and claims."""

    def __init__(self, **arguments: Any) -> None:
        """`arguments`: of the plugin."""
        self.clock = SimClock()
        own = {"schedulerName": "s", "pluginConfig": [{"name": "DynamicResources", "args": arguments}]}
        head = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
        self.core: Core = build_core(parse({**head, "profiles": [own]}), self.clock, seed=0)
        self.claims = self.core.handle.shared(Claims)
        spec = {"selectors": [cel(f"device.driver == '{DRIVER}'")]}
        self.give(DeviceClass, {"metadata": {"name": "gpu"}, "spec": spec})
        self.binds: dict[str, Bind] = {}

    def give(self, kind: type[Any], body: dict[str, Any], *, there: bool = True) -> None:
        """An object is there, or gone, as an informer says it."""
        for watch in self.core.handle.watches:
            if watch.kind is kind:
                (watch.on_set if there else watch.on_gone)(msgspec.convert(body, kind))

    def node(self, name: str, *devices: dict[str, Any], pool: dict[str, Any] | None = None, **spec: Any) -> None:
        status = {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "110"}}
        body = {"metadata": {"name": name, "labels": {"zone": "a"}}, "status": status}
        self.core.intake.set_node(msgspec.convert(body, Node))
        if devices:
            self.slice(name, *devices, pool=pool, **spec)

    def slice(self, name: str, *devices: dict[str, Any], pool: dict[str, Any] | None = None, **spec: Any) -> None:
        place = spec or {"nodeName": name}
        shown = {"driver": DRIVER, "pool": {"name": name, "generation": 1, "resourceSliceCount": 1, **(pool or {})}}
        manifest = {"metadata": {"name": f"{name}-slice"}, "spec": {**shown, "devices": list(devices), **place}}
        self.give(ResourceSlice, manifest)

    def claim(self, name: str, *requests: dict[str, Any], **devices: Any) -> None:
        metadata = {"name": name, "namespace": "default", "uid": f"claim-{name}", "resourceVersion": "1"}
        self.give(ResourceClaim, {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}})

    def pod(self, name: str, *claims: str) -> str:
        """Create the pod; returns its node, or why it has none."""
        return self.decided(name, [{"name": "main"}], *claims)

    def decided(self, name: str, containers: list[dict[str, Any]], *claims: str) -> str:
        """As `pod`, with these containers."""
        entries = [{"name": claim, "resourceClaimName": claim} for claim in claims]
        spec = {"schedulerName": "s", "containers": containers, "resourceClaims": entries}
        pod = msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}, Pod)
        self.core.intake.set_pod(pod)
        for decision in self.core.decide():
            if isinstance(decision, Bind) and decision.info.uid == name:
                self.binds[name] = decision
                return decision.node
            if isinstance(decision, Reject) and decision.info.uid == name:
                return decision.message
        entry = self.core.queue.find(name)
        return "" if entry is None or entry.held is None else entry.held.message

    def has(self, claim: str) -> list[str]:
        """The devices of a claim, as `request=device`."""
        results = self.claims.ledger.held(f"claim-{claim}")
        return [f"{result.request}={result.device}" for result in results]


def cel(expression: str) -> dict[str, Any]:
    return {"cel": {"expression": expression}}


def device(name: str, *, attributes: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "attributes": attributes or {}, **more}


def exactly(name: str = "gpu", **more: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": "gpu", **more}}


@pytest.fixture
def world() -> World:
    return World()


def test_a_claim_gets_the_first_free_device(world: World) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    for name in ("a", "b", "c"):
        world.claim(name, exactly())
    assert world.pod("pa", "a") == world.pod("pb", "b") == "n1"
    assert (world.has("a"), world.has("b")) == (["gpu=gpu-0"], ["gpu=gpu-1"])
    assert world.pod("pc", "c").startswith("0/1 nodes are available: 1 cannot allocate all claims.")


def test_a_selector_chooses_the_node(world: World) -> None:
    world.node("n1", device("gpu-0", attributes={"model": {"string": "small"}}))
    world.node("n2", device("gpu-0", attributes={"model": {"string": "large"}}))
    world.claim("a", exactly(selectors=[cel(f"device.attributes['{DRIVER}'].model == 'large'")]))
    assert world.pod("pa", "a") == "n2"


def test_a_missing_attribute_ends_the_attempt_and_names_the_device(world: World) -> None:
    """DRA-R88, E8."""
    world.node("n1", device("gpu-0"))
    world.claim("a", exactly(selectors=[cel(f"device.attributes['{DRIVER}'].model == 'large'")]))
    pod = world.pod("pa", "a")
    assert "claim default/a: selector #0 on device gpu.example.com/n1/gpu-0: CEL runtime error: no such key" in pod


@pytest.mark.parametrize(("of_class", "names"), [(True, "request gpu: device class gpu"), (False, "claim default/a")])
def test_too_many_characters_of_expressions(world: World, *, of_class: bool, names: str) -> None:
    """All pods wait while expressions are compiled, so that a class and a claim have a limit."""
    selectors = [cel(f"device.driver != '{digit * 9_000}'") for digit in "123"]
    world.node("n1", device("gpu-0"))
    if of_class:
        world.give(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
        assert world.claims.expressions._of_text.cache_info().currsize == 1  # that of the first class
    world.claim("a", exactly(selectors=[] if of_class else selectors))
    text = f"{names}: expected at most 20000 characters of expressions in all, found 27057"
    assert text in world.pod("pa", "a")


def test_devices_of_one_root_are_found_by_going_back(world: World) -> None:
    root = "resource.kubernetes.io/pcieRoot"
    devices = [device(f"gpu-{i}", attributes={root: {"string": f"pci{i // 3}"}}) for i in range(6)]
    world.node("n1", *devices)
    for number in range(2):
        world.claim(f"one-{number}", exactly())
        assert world.pod(f"p{number}", f"one-{number}") == "n1"
    world.claim("pair", exactly("a"), exactly("b"), constraints=[{"matchAttribute": root}])
    assert world.pod("pair", "pair") == "n1"
    assert world.has("pair") == ["a=gpu-3", "b=gpu-4"]


def test_the_first_alternative_that_fits_is_taken(world: World) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    ways = [
        {"name": "big", "deviceClassName": "gpu", "count": 4},
        {"name": "small", "deviceClassName": "gpu", "count": 2},
    ]
    world.claim("a", {"name": "gpu", "firstAvailable": ways})
    assert world.pod("pa", "a") == "n1"
    assert world.has("a") == ["gpu/small=gpu-0", "gpu/small=gpu-1"]


def test_all_needs_every_device_free(world: World) -> None:
    world.node("n1", device("gpu-0"), device("gpu-1"))
    world.claim("one", exactly())
    world.claim("all", exactly(allocationMode="All"))
    assert world.pod("p1", "one") == "n1"
    assert "cannot allocate all claims" in world.pod("p2", "all")


def test_no_device_of_a_pool_that_is_half_written(world: World) -> None:
    """DRA-R43, M40."""
    world.node("n1", device("gpu-0"), pool={"resourceSliceCount": 2})
    world.claim("a", exactly())
    world.claim("all", exactly(allocationMode="All"))
    assert "1 cannot allocate all claims" in world.pod("p1", "a")
    assert "asks for all devices, but resource pool gpu.example.com/n1 is currently being updated" in world.pod(
        "p2", "all"
    )


def test_partitions_share_the_counters_of_their_card(world: World) -> None:
    """DRA-E3: one partition leaves three, and the full card is out."""
    counters = {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}
    part = [{"counterSet": "gpu-0", "counters": {"memory": {"value": "20Gi"}, "compute": {"value": "25"}}}]
    full = [{"counterSet": "gpu-0", "counters": counters}]
    kind = {"kind": {"string": "part"}}
    world.node("n1")
    devices = [device(f"part-{i}", attributes=kind, consumesCounters=part) for i in range(4)]
    devices.append(device("full", attributes={"kind": {"string": "full"}}, consumesCounters=full))
    world.slice("n1", *devices, pool={"resourceSliceCount": 2})
    shown = {"driver": DRIVER, "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2}, "nodeName": "n1"}
    sets = [{"name": "gpu-0", "counters": counters}]
    world.give(ResourceSlice, {"metadata": {"name": "n1-counters"}, "spec": {**shown, "sharedCounters": sets}})

    def asks(name: str, kind: str) -> None:
        world.claim(name, exactly(selectors=[cel(f"device.attributes['{DRIVER}'].kind == '{kind}'")]))

    for number in range(5):
        asks(f"part-{number}", "part")
    asks("full", "full")
    assert world.pod("p0", "part-0") == "n1"
    assert "cannot allocate all claims" in world.pod("full", "full")
    assert [world.pod(f"p{number}", f"part-{number}") for number in (1, 2, 3)] == ["n1"] * 3
    assert "cannot allocate all claims" in world.pod("p4", "part-4")


def test_shares_are_rounded_and_never_exceed_the_device(world: World) -> None:
    """DRA-E1: 5.5Gi becomes 6Gi; 33 of 40 are taken, so another 2Gi does not fit afterwards."""
    policy = {"default": "40Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "40Gi"}}
    capacity = {"memory": {"value": "40Gi", "requestPolicy": policy}}
    world.node("n1", device("gpu-0", capacity=capacity, allowMultipleAllocations=True))
    for name, amount in (("a", "33Gi"), ("b", "5632Mi"), ("c", "2Gi"), ("d", "1Gi")):
        world.claim(name, exactly(capacity={"requests": {"memory": amount}}))
    assert world.pod("pa", "a") == world.pod("pb", "b") == "n1"
    (result,) = world.claims.ledger.held("claim-b")
    assert result.consumed_capacity == {"memory": "6Gi"}
    assert result.share_id
    assert "cannot allocate all claims" in world.pod("pc", "c")
    assert world.pod("pd", "d") == "n1"


def test_a_tainted_device_is_avoided_unless_tolerated(world: World) -> None:
    taint = {"key": "gpu.example.com/broken", "effect": "NoSchedule"}
    world.node("n1", device("gpu-0", taints=[taint]))
    world.claim("a", exactly())
    world.claim("b", exactly(tolerations=[{"key": "gpu.example.com/broken", "operator": "Exists"}]))
    assert "cannot allocate all claims" in world.pod("pa", "a")
    assert world.pod("pb", "b") == "n1"


def test_pods_that_share_a_claim_share_its_node(world: World) -> None:
    world.node("n1", device("gpu-0"))
    world.node("n2", device("gpu-0"))
    world.claim("shared", exactly())
    first = world.pod("p1", "shared")
    assert first in {"n1", "n2"}
    assert world.pod("p2", "shared") == world.pod("p3", "shared") == first
    assert world.has("shared") == ["gpu=gpu-0"]


def test_an_administrator_gets_a_device_in_use_and_keeps_it_from_nobody(world: World) -> None:
    world.node("n1", device("gpu-0"))
    world.claim("admin", exactly(adminAccess=True))
    world.claim("user", exactly())
    assert world.pod("p1", "admin") == world.pod("p2", "user") == "n1"


def test_a_claim_that_is_too_large_says_so(world: World) -> None:
    world.node("n1", device("gpu-0"))
    world.claim("a", exactly("x", count=20), exactly("y", count=13))
    assert "adding 13 devices exceeds the claim limit of 32, with 20 already accounted for" in world.pod("p", "a")


def test_a_pod_waits_for_its_claim_and_then_goes(world: World) -> None:
    world.node("n1", device("gpu-0"))
    assert world.pod("p", "later") == 'could not find ResourceClaim "default/later"'
    world.claim("later", exactly())
    assert [decision.node for decision in world.core.decide() if isinstance(decision, Bind)] == ["n1"]


def test_a_binding_that_failed_gives_the_device_back(world: World) -> None:
    world.node("n1", device("gpu-0"))
    world.claim("a", exactly())
    world.claim("b", exactly())
    assert world.pod("pa", "a") == "n1"
    world.core.bind_failed("pa", "refused", retry=False)
    assert world.has("a") == ["gpu=gpu-0"]  # the write may still be carried out
    preparation = world.binds["pa"].preparation
    assert preparation is not None
    preparation.patches[-1].refused()
    assert world.has("a") == []
    assert world.pod("pb", "b") == "n1"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"bindingTimeout": "500ms"}, "bindingTimeout: must be at least 1 second"),
        ({"bindingTimeout": "soon"}, "bindingTimeout: must be at least 1 second"),
        ({"filterTimeout": "-1s"}, "filterTimeout: must be zero or positive"),
    ],
)
def test_arguments_that_are_refused(args: dict[str, str], why: str) -> None:
    """DRA-M30, DRA-M32; the arguments are spelled as upstream's."""
    with pytest.raises(ValueError, match=why):
        msgspec.convert(args, DynamicResourcesArgs).check()
    msgspec.convert({"bindingTimeout": "10m", "filterTimeout": "0s"}, DynamicResourcesArgs).check()


def preempting(world: World) -> list[Any]:
    """The decisions when a more important pod asks for the claim `high`."""
    spec = {"schedulerName": "s", "priority": 9, "resourceClaims": [{"name": "c", "resourceClaimName": "high"}]}
    metadata = {"name": "high", "namespace": "default", "uid": "high"}
    world.core.intake.set_pod(msgspec.convert({"metadata": metadata, "spec": spec}, Pod))
    return world.core.decide()


@pytest.mark.parametrize(("user", "evicted"), [("pods", []), ("podgroups", ["low"])])
def test_devices_of_a_pod_that_is_gone_are_waited_for(user: str, evicted: list[str]) -> None:
    """Until the controller takes them away nobody else is evicted; others than pods may be there."""
    world = World(enablePreemption=True)
    world.node("n1", device("gpu-0"), device("gpu-1"))
    for name in ("gone", "low", "high"):
        world.claim(name, exactly())
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"resource": user, "uid": "u"}]}
    metadata = {"name": "gone", "namespace": "default", "uid": "claim-gone", "resourceVersion": "2"}
    world.give(ResourceClaim, {"metadata": metadata, "status": status})
    assert world.pod("low", "low") == "n1"

    decisions = preempting(world)

    assert [one.victim.uid for one in decisions if isinstance(one, Evict)] == evicted
    assert [one.nominated for one in decisions if isinstance(one, Reject)] == ["n1"]


def test_a_user_that_is_gone_does_not_keep_a_claim() -> None:
    """Of two users of a claim one is gone, which the claim does not say yet: the other one is evicted."""
    world = World(enablePreemption=True)
    world.node("n1", device("gpu-0"))
    for name in ("low", "high"):
        world.claim(name, exactly())
    assert world.pod("low", "low") == "n1"
    result = {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": "gpu-0"}
    users = [{"resource": "pods", "uid": uid} for uid in ("low", "gone")]
    metadata = {"name": "low", "namespace": "default", "uid": "claim-low", "resourceVersion": "2"}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": users}
    world.give(ResourceClaim, {"metadata": metadata, "status": status})
    assert [one.victim.uid for one in preempting(world) if isinstance(one, Evict)] == ["low"]
