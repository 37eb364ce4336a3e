"""Extended resources that a DeviceClass serves: the scheduler makes the claim; what a node offers itself goes first."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, bindings
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, node, pod
from seatrial.scheduler.api.device import NVIDIA_GPU
from seatrial.scheduler.api.resourceclaims import DELETE_PROTECTION, EXTENDED_CLAIM, ResourceClaim
from seatrial.suites.dra.offers import NVIDIA, Offers, device, offers, served
from seatrial.suites.faults.schedulers import link, running, witnessed

__all__ = ["link", "offers", "running", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
CONTROLLER = "kubernetes 1.37 pkg/controller/resourceclaim"
RESOLVER = "kubernetes 1.37 dynamic-resource-allocation/deviceclass/extendedresourcecache"
IMPLICIT = "deviceclass.resource.kubernetes.io/"
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go"


@pytest.mark.feature("DRA-4.claim")
@pytest.mark.case("DR-040", severity="blocker", source=PLUGIN)
def test_a_pod_gets_a_card_by_a_resource_name(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The node has cards in slices alone: a claim is made and named in the pod's status; the container sees it."""
    trial.add(node("n1").cards(2).dra())
    trial.submit(pod("a").nvidia(1))

    bound = expect.running("a")

    claim = offers.made("a")
    name = claim.metadata.name
    assert name.startswith("a-extended-resources-"), name
    assert DELETE_PROTECTION in claim.metadata.finalizers
    assert [(user.resource, user.uid) for user in claim.status.reserved_for] == [("pods", bound.metadata.uid)]
    (result,) = claim.status.allocation.devices.results if claim.status.allocation is not None else ()
    assert (result.request, result.driver, result.pool) == ("container-0-request-0", NVIDIA, "n1")
    status = bound.status.extended_resource_claim_status
    assert status is not None
    assert status.resource_claim_name == name
    (mapping,) = status.request_mappings
    assert (mapping.container_name, mapping.resource_name) == ("main", NVIDIA_GPU)
    assert mapping.request_name == "container-0-request-0"
    assert len(trial.visible_devices(bound)) == 1


@pytest.mark.feature("DRA-4.plugin")
@pytest.mark.case("DR-041", severity="blocker", source=PLUGIN)
def test_a_node_with_a_device_plugin_needs_no_claim(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One node has a card by its device plugin, one by a slice: both are used, with one claim; a third pod waits."""
    trial.add(node("n1").cards(1), node("n2").cards(1).dra())
    trial.submit(pod("a").nvidia(1), pod("b").nvidia(1))

    bound = expect.running("a", "b")

    assert {each.spec.node_name for each in bound} == {"n1", "n2"}
    assert {each.spec.node_name: len(offers.extended(each.metadata.name)) for each in bound} == {"n1": 0, "n2": 1}
    assert [len(trial.visible_devices(each)) for each in bound] == [1, 1]
    trial.submit(pod("c").nvidia(1))
    expect.pending("c", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-4.comes-back")
@pytest.mark.case("DR-042", severity="critical", source=CONTROLLER)
@pytest.mark.parametrize("end", ["deleted", "completed"])
def test_the_claim_goes_with_its_pod(trial: Trial, expect: Expect, offers: Offers, end: str) -> None:
    """The only device is taken: the second pod has it soon after the first pod has ended, whose claim is gone then."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"))
    first = pod("a").resources({resource: 1})
    if end == "completed":
        first.annotation("seatrial.dev/runs-for", "5").manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(first)
    expect.running("a")
    claim = offers.made("a")
    trial.submit(pod("b").resources({resource: 1}))
    expect.pending("b", saying="cannot allocate all claims", cooled=False)

    if end == "deleted":
        trial.delete("a")

    expect.running("b", within=60)
    path = trial.path("ResourceClaim", claim.metadata.name)
    assert trial.reaches(lambda: trial.call("GET", path).code == 404, within=30)


@pytest.mark.feature("DRA-4.comes-back")
@pytest.mark.case("SC-476", severity="normal", source=f"{PLUGIN}: a claim that is left has to be deleted first")
@pytest.mark.long(seconds=12)
def test_a_claim_that_is_left_is_deleted(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A claim without devices is left of an earlier attempt of a pod. The scheduler deletes it, and binds the pod when
    it is gone."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"))
    gated = pod("waits").resources({resource: 1})
    gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(gated)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "waits", "uid": trial.pod("waits").metadata.uid}
    left = claim("left").asks("gpu", offers.of_class)
    left.manifest["metadata"] |= {
        "annotations": {EXTENDED_CLAIM: "true"},
        "ownerReferences": [owner | {"controller": True}],
    }
    trial.apply(left)
    assert trial.call("PATCH", trial.path("Pod", "waits"), {"spec": {"schedulingGates": None}}).ok

    expect.bound("waits", within=20)
    assert trial.call("GET", trial.path("ResourceClaim", "left")).code == 404


@pytest.mark.feature("DRA-4.containers")
@pytest.mark.case("DR-043", severity="critical", source=PLUGIN)
def test_init_containers_use_devices_of_later_containers(trial: Trial, expect: Expect, offers: Offers) -> None:
    """An init container asks for two devices and the main container for one: they have two, and not three."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"), device("d1"))
    builder = pod("a").resources({"cpu": "100m", "memory": "64Mi", resource: 1})
    main = builder.manifest["spec"]["containers"][0]
    amounts = {"cpu": "100m", resource: "2"}
    early = {**main, "name": "early", "command": ["true"], "resources": {"requests": amounts, "limits": amounts}}
    early.pop("args", None)
    builder.manifest["spec"]["initContainers"] = [early]
    trial.submit(builder)

    bound = expect.bound("a")

    claim = offers.made("a")
    own, shared = (
        f"container-0-request-{_place(resource, 'cpu')}",
        f"container-1-request-{_place(resource, 'cpu', 'memory')}",
    )
    assert claim.status.allocation is not None
    results = claim.status.allocation.devices.results
    assert sorted((result.request, result.device) for result in results) == [(own, "d0"), (shared, "d1")]
    status = bound.status.extended_resource_claim_status
    assert status is not None
    assert sorted((one.container_name, one.resource_name, one.request_name) for one in status.request_mappings) == [
        ("early", resource, own),
        ("early", resource, shared),
        ("main", resource, shared),
    ]


def _place(resource: str, *others: str) -> int:
    """The place of a resource among the sorted names of a container's requests."""
    return sorted([resource, *others]).index(resource)


@pytest.mark.feature("DRA-4.classes")
@pytest.mark.case("DR-044", severity="critical", source=RESOLVER)
def test_the_newest_class_of_a_resource_counts(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A class that names the resource is newer, and its devices are others; the implicit name means the first class."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("old", attributes={"model": "old"}), device("new", attributes={"model": "new"}))
    model = f"device.driver == '{offers.driver}' && {offers.attribute('model')}"
    offers.select(f"{model} == 'old'")
    trial.pass_time(2)  # times of creation are whole seconds
    newer = offers.another("a-newer", f"{model} == 'new'", resource)

    trial.submit(pod("a").resources({resource: 1}))
    expect.running("a")
    trial.submit(pod("b").resources({f"{IMPLICIT}{offers.of_class}": 1}))
    expect.running("b")

    assert [_device_names(claim) for claim in offers.extended("a")] == [["new"]]
    assert [_device_names(claim) for claim in offers.extended("b")] == [["old"]]
    claim = offers.made("a")
    assert [request.exactly and request.exactly.device_class_name for request in claim.spec.devices.requests] == [newer]


def _device_names(claim: ResourceClaim) -> list[str]:
    allocation = claim.status.allocation
    return [result.device for result in allocation.devices.results] if allocation is not None else []


@pytest.mark.feature("DRA-4.classes")
@pytest.mark.case("DR-222", severity="critical", source=f"{PLUGIN}; noderesources/fit.go: EventsToRegister")
def test_a_class_serves_a_resource_from_now_on(trial: Trial, expect: Expect, offers: Offers) -> None:
    """No node has the resource that two pods ask for, until a class serves it: each has a device by a claim."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    trial.submit(*(pod(name).resources({f"{offers.driver}/gpu": 1}) for name in ("a", "b")))
    expect.pending("a", "b", saying=f"Insufficient {offers.driver}/gpu")

    offers.serve()

    expect.bound("a", "b")
    results = [allocation.devices.results for name in ("a", "b") if (allocation := offers.made(name).status.allocation)]
    assert sorted(result.device for (result,) in results) == ["d0", "d1"]


@pytest.mark.feature("DRA-4.comes-back")
@pytest.mark.case("DR-045", severity="critical", source=PLUGIN)
def test_a_claim_of_a_failed_attempt_is_not_used(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A claim that an earlier attempt has left has the device: it is deleted, and another claim gets the device."""
    trial.add(node("n1"))
    resource = offers.serve()
    trial.submit(pod("a").resources({resource: 1}))
    expect.pending("a", saying="cannot allocate all claims")
    waiting = trial.pod("a")
    exactly = {"deviceClassName": offers.of_class, "allocationMode": "ExactCount", "count": 1}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": waiting.metadata.uid, "controller": True}
    metadata = {
        "name": "a-extended-resources-left",
        "annotations": {EXTENDED_CLAIM: "true"},
        "ownerReferences": [owner],
    }
    requests = [{"name": "container-0-request-0", "exactly": exactly}]
    body = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
    trial.apply({**body, "spec": {"devices": {"requests": requests}}})
    left = {"request": "container-0-request-0", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "d0"}
    path = f"{trial.path('ResourceClaim', 'a-extended-resources-left')}/status"
    assert trial.call("PATCH", path, {"status": {"allocation": {"devices": {"results": [left]}}}}).ok

    offers.publish("n1", device("d0"))

    bound = expect.running("a", within=60)
    status, claim = bound.status.extended_resource_claim_status, offers.made("a")
    assert status is not None
    assert status.resource_claim_name == claim.metadata.name != "a-extended-resources-left"
    assert _device_names(claim) == ["d0"]


@pytest.mark.feature("DRA-4.comes-back")
@pytest.mark.case("DR-046", severity="critical", source=PLUGIN)
def test_the_claim_of_a_failed_binding_is_deleted(trial: Trial, expect: Expect, offers: Offers, link: Link) -> None:
    """Bindings are refused for a while: each attempt makes a claim and deletes it, and the last one has the device."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"))
    witnessed(trial, expect)
    link.refuse(500, bindings)
    trial.submit(pod("a").resources({resource: 1}))
    assert trial.wait(lambda: link.refused >= 2, within=60), "two bindings were to be tried"

    link.heal()

    bound = expect.running("a", within=60)
    assert trial.reaches(lambda: len(offers.extended("a")) == 1, within=10)
    status, claim = bound.status.extended_resource_claim_status, offers.made("a")
    assert status is not None
    assert status.resource_claim_name == claim.metadata.name
    assert [user.uid for user in claim.status.reserved_for] == [bound.metadata.uid]
    assert _device_names(claim) == ["d0"]


@pytest.mark.feature("DRA-4.claim")
@pytest.mark.case("DR-047", severity="normal", source=PLUGIN)
def test_a_pod_says_that_its_claim_is_refused(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A quota allows no claims: the pod says so, takes no device, and goes when the quota is gone."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"))
    quotas = f"/api/v1/namespaces/{trial.name}/resourcequotas"
    body = {"metadata": {"name": "none"}, "spec": {"hard": {"count/resourceclaims.resource.k8s.io": "0"}}}
    assert trial.call("POST", quotas, {"apiVersion": "v1", "kind": "ResourceQuota", **body}).ok
    trial.submit(pod("a").resources({resource: 1}))

    text = f"create claim for extended resources {trial.name}/"  # upstream's words; its claim has no name yet
    assert trial.reaches(lambda: any(text in event.message for event in trial.events("a")), within=30)
    assert not offers.extended("a")
    assert trial.call("DELETE", f"{quotas}/none").ok

    expect.running("a", within=60)
