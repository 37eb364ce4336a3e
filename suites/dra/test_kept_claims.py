"""Claims of several pods and nodes: who keeps devices, who waits for them, what happens while nothing is seen."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.fault_injection.transport import Link, bindings, nothing, writes
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, claim_template, node, pod
from seatrial.suites.dra.offers import Offers, device, offers, served
from seatrial.suites.faults.schedulers import link, pause, running, witnessed

__all__ = ["link", "offers", "running", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
HOST = "kubernetes.io/hostname"
MOMENT = "2026-01-01T00:00:00Z"


@pytest.mark.feature("DRA-1.shared", "DRA-1.comes-back")
@pytest.mark.case("DR-127", severity="critical", source=f"{PLUGIN}/dynamicresources.go: PostFilter; spec DRA-R65")
@pytest.mark.parametrize(
    ("users", "kept"),
    [
        pytest.param(["user"], True, id="another"),
        pytest.param(["user", "late"], True, id="another-and-itself"),
        pytest.param(["late"], False, id="itself"),
    ],
)
def test_a_claim_keeps_its_devices_while_another_pod_uses_it(
    trial: Trial, expect: Expect, offers: Offers, users: list[str], kept: bool
) -> None:
    """A claim has a device of a node that its next pod may not use: it gets one of another node if nobody else uses
    it, whoever it is reserved for, and waits otherwise."""
    trial.add(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class))
    late = pod("late").claim("d", name="one").select({HOST: "n2"})
    late.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(late)
    if "user" in users:
        trial.submit(pod("user").claim("d", name="one").select({HOST: "n1"}))
        expect.running("user")
    if "late" in users:
        _reserve(trial, offers, *users)

    assert trial.call("PATCH", trial.path("Pod", "late"), {"spec": {"schedulingGates": None}}).ok

    if kept:
        expect.pending("late", saying="resourceclaim not available on the node")
        expect.stable(seconds=5)
        assert offers.devices_of("one") == ["d=d0"]
        assert {user.name for user in offers.claim("one").status.reserved_for} >= {"user"}
    else:
        assert expect.bound("late", within=60).spec.node_name == "n2"


@pytest.mark.feature("DRA-1.shared", "DRA-1.comes-back")
@pytest.mark.case("DR-180", severity="normal", source=f"{PLUGIN}/dynamicresources.go: PostFilter; spec DRA-R65")
def test_only_a_claim_that_is_out_of_reach_loses_its_devices(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A pod may use n2 only. Of its claims two have devices of n1, and the others devices of the network, one of them
    with two terms for its nodes: the two get devices of n2, the others keep what they have."""
    trial.add(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, *[device(f"local{number}", attributes={"kind": "local"}) for number in range(2)])
    far = {"attributes": {"kind": "far"}}
    offers.publish("fabric", *[device(f"far{number}", **far) for number in range(4)], allNodes=True)
    local = [(f"own{number}", ("n1", f"local{number}", ["n1"])) for number in range(2)]
    places = {"zero": ("fabric", "far3", []), **dict(local), "two": ("fabric", "far2", ["n1", "n2"])}
    late = pod("late").select({HOST: "n2"})
    for name, (pool, chosen, nodes) in places.items():
        late.claim(name, name=name)
        kind = "local" if nodes == ["n1"] else "far"
        trial.apply(claim(name).asks("d", offers.of_class, f"{offers.attribute('kind')} == '{kind}'"))
        result = {"request": "d", "driver": offers.driver, "pool": f"{trial.name}-{pool}", "device": chosen}
        fields = [{"key": "metadata.name", "operator": "In", "values": [host]} for host in nodes]
        terms = {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]} for field in fields]}} if nodes else {}
        allocation: Manifest = {"devices": {"results": [result]}, "allocationTimestamp": MOMENT, **terms}
        status: Manifest = {"allocation": allocation}
        assert trial.call("PATCH", f"{trial.path('ResourceClaim', name)}/status", {"status": status}).ok
    trial.settle()

    trial.submit(late)

    assert expect.bound("late", within=60).spec.node_name == "n2"
    assert [offers.devices_of(name) for name in places] == [["d=far3"], ["d=local0"], ["d=local1"], ["d=far2"]]
    for name, _ in local:
        chosen_anew = offers.claim(name).status.allocation
        assert chosen_anew is not None
        assert [result.pool for result in chosen_anew.devices.results] == [f"{trial.name}-n2"]


def _reserve(trial: Trial, offers: Offers, *names: str) -> None:
    """The claim has the device of n1 and is reserved for these pods, as a failed binding leaves it."""
    users = [{"resource": "pods", "name": name, "uid": trial.pod(name).metadata.uid} for name in names]
    local = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    result = {"request": "d", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "d0"}
    allocation: Manifest = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": [local]}}
    status: Manifest = {"reservedFor": users}
    if offers.claim("one").status.allocation is None:
        status["allocation"] = allocation
    response = trial.call("PATCH", f"{trial.path('ResourceClaim', 'one')}/status", {"status": status})
    assert response.ok, response.body
    trial.settle()


@pytest.mark.feature("DRA-1.shared", "HIL-4.api-errors")
@pytest.mark.case(
    "DR-170", severity="critical", source=f"{PLUGIN}/dynamicresources.go: PostFilter updates the claim that it has read"
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # the pod's next try comes after five minutes in which nothing is heard of
def test_a_claim_that_another_pod_has_got_meanwhile_keeps_its_devices(
    trial: Trial, expect: Expect, offers: Offers, link: Link
) -> None:
    """The first try to take a claim's device away is refused. Before the next one another pod gets the claim, and the
    scheduler has not heard of that: the claim stays as it is."""
    trial.add(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class))
    for name in ("late", "user"):
        gated = pod(name).claim("d", name="one").select({HOST: "n2"})
        gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
        trial.submit(gated)
    _reserve(trial, offers, "late")
    link.refuse(500, writes)
    assert trial.call("PATCH", trial.path("Pod", "late"), {"spec": {"schedulingGates": None}}).ok
    assert trial.wait(lambda: bool(link.refused), within=60)
    link.hold_streams()
    _reserve(trial, offers, "user")

    link.refuse(500, nothing)
    trial.pass_time(700)

    assert offers.devices_of("one") == ["d=d0"]
    assert [user.name for user in offers.claim("one").status.reserved_for] == ["user"]
    link.heal()
    expect.pending("late", saying="resourceclaim not available on the node")


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-207", severity="normal", source="kubernetes 1.37 pkg/controller/resourceclaim; spec DRA-R29")
@pytest.mark.parametrize("made", [False, True], ids=["named", "of-a-template"])
def test_a_pod_with_a_node_of_its_own_gets_its_claim(
    trial: Trial, expect: Expect, offers: Offers, *, made: bool
) -> None:
    """A pod is created on a node. Its claim, which another component gives a device of that node, is reserved for it,
    so that it runs; the next pod waits for the device."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim_template("t").asks("d", offers.of_class), claim("one").asks("d", offers.of_class))
    result = {"request": "d", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "d0"}
    allocated = {"status": {"allocation": {"devices": {"results": [result]}, "allocationTimestamp": MOMENT}}}
    bound = pod("a").node_name("n1")
    name = "one"
    if made:
        trial.submit(bound.claim("d", template="t"))
        assert trial.reaches(lambda: bool(offers.claim_of("a", "d")), within=30)
        name = offers.claim_of("a", "d")
    assert trial.call("PATCH", f"{trial.path('ResourceClaim', name)}/status", allocated).ok
    if not made:
        trial.submit(bound.claim("d", name="one"))

    expect.running("a", within=60)

    users = offers.claim(name).status.reserved_for
    assert [(user.resource, user.uid) for user in users] == [("pods", trial.pod("a").metadata.uid)]
    trial.submit(pod("next").claim("d", template="t"))
    expect.pending("next", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-1.comes-back", "HIL-4.api-errors")
@pytest.mark.case("DR-128", severity="critical", source=f"{PLUGIN}/dra_manager.go: claims are known by their uid")
@pytest.mark.long(seconds=12)
def test_what_changed_while_the_scheduler_saw_nothing(trial: Trial, expect: Expect, offers: Offers, link: Link) -> None:
    """A claim is deleted and made anew, another one and a slice are deleted, a class means other devices."""
    trial.add(node("n1"), node("n2"))
    offers.publish("n1", device("d0", attributes={"kind": "a"}), device("d1", attributes={"kind": "a"}))
    offers.publish("n2", device("d2", attributes={"kind": "a"}))
    for name in ("anew", "gone"):
        trial.apply(claim(name).asks("d", offers.of_class))
        trial.submit(pod(f"first-{name}").claim("d", name=name).select({HOST: "n1"}))
    witnessed(trial, expect)
    expect.running("first-anew", "first-gone")

    link.cut()
    link.expire_watches()
    trial.delete("first-anew", "first-gone")
    for name in ("anew", "gone"):
        assert trial.call("DELETE", trial.path("ResourceClaim", name)).ok
    assert trial.reaches(lambda: trial.call("GET", trial.path("ResourceClaim", "anew")).code == 404, within=30)
    trial.apply(claim("anew").asks("d", offers.of_class))
    assert trial.call("DELETE", trial.path("ResourceSlice", f"{trial.name}-n2")).ok
    trial.apply(claim("both").asks("d", offers.of_class, count=2))
    pause(trial, 10, real=2)
    link.heal()
    trial.submit(pod("second").claim("d", name="both"))

    assert expect.bound("second", within=90).spec.node_name == "n1"
    trial.submit(pod("third").claim("d", name="anew"))
    expect.pending("third", saying="cannot allocate all claims")
    trial.delete("second")
    expect.bound("third")


@pytest.mark.feature("DRA-1.counted", "HIL-4.api-errors")
@pytest.mark.case("DR-221", severity="critical", source="ours: devices of a claim are those of its last status")
@pytest.mark.long(seconds=12)
def test_a_claim_that_got_another_device_while_the_scheduler_saw_nothing(
    trial: Trial, expect: Expect, offers: Offers, link: Link
) -> None:
    """Another program gives the claim of an ended pod the second of two devices: the first one is free."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    trial.apply(claim("moves").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="moves"))
    witnessed(trial, expect)
    expect.running("a")
    path = trial.path("ResourceClaim", "moves")
    allocation = orjson.loads(trial.call("GET", path).body)["status"]["allocation"]
    (result,) = allocation["devices"]["results"]
    former, result["device"] = result["device"], {"d0": "d1", "d1": "d0"}[result["device"]]

    link.cut()
    link.expire_watches()
    trial.delete("a")
    assert trial.reaches(lambda: offers.claim("moves").status.allocation is None, within=30)
    assert trial.call("PATCH", f"{path}/status", {"status": {"allocation": allocation}}).ok
    trial.apply(claim("later").asks("d", offers.of_class))  # who sees it has seen the change
    pause(trial, 10, real=2)
    link.heal()

    trial.submit(pod("b").claim("d", name="later"))
    expect.bound("b", within=90)
    assert offers.devices_of("later") == [f"d={former}"]


@pytest.mark.feature("DRA-1.comes-back", "HIL-4.api-errors")
@pytest.mark.case(
    "DR-137", severity="critical", source=f"{PLUGIN}/dynamicresources.go: Unreserve; spec DRA-R67, DRA-R68"
)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("lost", [False, True], ids=["refused", "unanswered"])
def test_a_device_comes_back_if_its_allocation_is_not_written(
    trial: Trial, expect: Expect, offers: Offers, link: Link, lost: bool
) -> None:
    """All writes fail for a while, and the pod that was to have the device is deleted: the next pod gets the device."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    witnessed(trial, expect)
    if lost:
        link.lose_answers(writes)
    else:
        link.refuse(500, writes)
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.wait(lambda: bool(link.lost if lost else link.refused), within=60), "a write was to be tried"
    pause(trial, 10, real=3)
    trial.delete("a")
    link.heal()
    assert trial.reaches(lambda: not offers.devices_of("one"), within=60)

    trial.submit(pod("b").claim("d", name="two"))

    expect.bound("b", within=90)


@pytest.mark.feature("DRA-1.shared", "HIL-4.api-errors")
@pytest.mark.case("DR-200", severity="normal", source=f"{PLUGIN}/dynamicresources.go: Unreserve; spec DRA-R67")
@pytest.mark.long(seconds=12)
def test_a_claim_is_not_reserved_for_a_pod_whose_binding_was_refused(
    trial: Trial, expect: Expect, offers: Offers, link: Link
) -> None:
    """The bindings of a pod are refused: its claim keeps the device, and is reserved for it no more until it is tried
    again. Then it is bound, and the claim is reserved for it."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class))
    witnessed(trial, expect)
    link.refuse(500, bindings)
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.wait(lambda: bool(link.refused), within=60), "a binding was to be tried"

    assert trial.reaches(lambda: not offers.claim("one").status.reserved_for, within=30)
    assert offers.devices_of("one") == ["d=d0"]

    link.heal()

    bound = expect.bound("a", within=60)
    assert [user.uid for user in offers.claim("one").status.reserved_for] == [bound.metadata.uid]


@pytest.mark.feature("DRA-1.comes-back", "HIL-4.api-errors")
@pytest.mark.case("DR-144", severity="critical", source=f"{PLUGIN}/dra_manager.go: claims are known by their uid")
@pytest.mark.long(seconds=15)
def test_a_claim_that_goes_before_its_allocation_is_answered(
    trial: Trial, expect: Expect, offers: Offers, link: Link
) -> None:
    """A pod and its claim are deleted; the answer to the allocation comes after the claim's end has been watched. The
    next claim gets the device."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    witnessed(trial, expect)
    link.delay = 4.0
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: offers.devices_of("one") == ["d=d0"], within=60)
    trial.delete("a")
    assert trial.call("DELETE", trial.path("ResourceClaim", "one")).ok
    assert trial.reaches(lambda: trial.call("GET", trial.path("ResourceClaim", "one")).code == 404, within=30)
    pause(trial, 20, real=6)
    link.delay = 0.0

    trial.submit(pod("b").claim("d", name="two"))

    expect.bound("b", within=60)


@pytest.mark.feature("DRA-1.counted", "HIL-4.api-errors")
@pytest.mark.case("DR-161", severity="critical", source=f"{PLUGIN}/dra_manager.go: claims are known by their uid")
@pytest.mark.long(seconds=15)
def test_a_claim_that_is_made_anew_while_it_is_written(
    trial: Trial, expect: Expect, offers: Offers, link: Link
) -> None:
    """While a pod's claim is written it is deleted, and one of that name comes that asks for another device: the pod
    gets that device, and the claim has no other one."""
    trial.add(node("n1"))
    offers.publish("n1", *(device(f"d{number}", attributes={"number": number}) for number in range(2)))
    requests = [
        claim("one").asks("d", offers.of_class, f"{offers.attribute('number')} == {number}") for number in range(2)
    ]
    trial.apply(requests[0])
    witnessed(trial, expect)
    link.delay = 4.0
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: bool(offers.claim("one").metadata.finalizers), within=60)
    assert trial.call("DELETE", trial.path("ResourceClaim", "one")).ok
    assert trial.reaches(lambda: trial.call("GET", trial.path("ResourceClaim", "one")).code == 404, within=30)
    trial.apply(requests[1])
    pause(trial, 20, real=6)
    link.delay = 0.0

    expect.bound("a", within=90)

    assert offers.devices_of("one") == ["d=d1"]


@pytest.mark.feature("DRA-1.counted", "DRA-1.comes-back")
@pytest.mark.case("DR-141", severity="critical", source="spec DRA-R60, DRA-R75, DRA-R80")
def test_a_device_of_the_network_is_given_once(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Pods of two nodes want the device that both reach, one after the other; the last waits beside a local one."""
    trial.add(node("n1"), node("n2"))
    offers.publish("fabric", device("far", attributes={"kind": "far"}), allNodes=True)
    offers.publish("n2", device("near", attributes={"kind": "near"}))
    far = f"device.driver == '{offers.driver}' && {offers.attribute('kind')} == 'far'"
    for number, name in enumerate(("n1", "n2", "n1")):
        trial.apply(claim(f"c{number}").asks("d", offers.of_class, far))
        trial.submit(pod(f"p{number}").claim("d", name=f"c{number}").select({HOST: name}))
        if number:
            expect.pending(f"p{number}", saying="cannot allocate all claims")
            trial.delete(f"p{number - 1}")
        assert expect.bound(f"p{number}").spec.node_name == name
        assert offers.devices_of(f"c{number}") == ["d=far"]


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case("DR-142", severity="critical", source="spec DRA-R97: devices of the whole pool count; chapter 18, 18")
def test_counters_of_a_pool_are_for_all_its_nodes(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Three nodes have a device each of a pool that has power for two: the third pod waits for one of the others."""
    names = ["n1", "n2", "n3"]
    trial.add(*[node(name) for name in names])
    pool = {"resourceSliceCount": 2}
    takes = [{"counterSet": "power", "counters": {"watts": {"value": "300"}}}]
    devices = [device(f"d-{name}", nodeName=name, consumesCounters=takes) for name in names]
    offers.publish("rack", *devices, part="devices", pool=pool, perDeviceNodeSelection=True)
    power = [{"name": "power", "counters": {"watts": {"value": "700"}}}]
    offers.publish("rack", part="counters", pool=pool, sharedCounters=power, allNodes=True)
    for name in names:
        trial.apply(claim(name).asks("d", offers.of_class))
        trial.submit(pod(name).claim("d", name=name).select({HOST: name}))
        if name != "n3":
            expect.bound(name)
    expect.pending("n3", saying="cannot allocate all claims")

    trial.delete("n1")

    expect.bound("n3")


@pytest.mark.feature("DRA-1.shared", "DRA-1.counted")
@pytest.mark.case("DR-143", severity="critical", source="spec DRA-R61, DRA-R62, DRA-R80")
def test_a_pod_with_several_claims(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One claim is allocated on a node, two are the pod's own, of which one wants equal devices: all of them are met on
    that node, by devices of their own, or the pod waits."""
    trial.add(node("n1"), node("n2"))
    roots = {"n1": (0, 1, 1, 2), "n2": (0, 0, 0, 0, 0, 0)}
    for name, values in roots.items():
        offers.publish(name, *[device(f"d{number}", attributes={"root": root}) for number, root in enumerate(values)])
    trial.apply(claim("shared").asks("d", offers.of_class))
    trial.submit(pod("user").claim("s", name="shared").select({HOST: "n1"}))
    expect.bound("user")
    for turn in range(2):
        pair = claim(f"pair-{turn}").asks("d", offers.of_class, count=2).matching(f"{offers.driver}/root")
        trial.apply(claim(f"one-{turn}").asks("d", offers.of_class), pair)
        several = pod(f"p{turn}").claim("s", name="shared").claim("o", name=f"one-{turn}").claim("p", name=pair.name)
        trial.submit(several)
        if not turn:
            assert expect.bound("p0").spec.node_name == "n1"
            assert [offers.devices_of(name) for name in ("one-0", "pair-0")] == [["d=d3"], ["d=d1", "d=d2"]]
    expect.pending("p1")
    expect.stable(seconds=3)

    trial.delete("p0")

    assert expect.bound("p1").spec.node_name == "n1"
