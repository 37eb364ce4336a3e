"""Pools and drivers that are at fault: slices that contradict each other, the largest ones, a driver that is gone."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION
from seatrial.scheduler.api.builders import claim, claim_template, node, pod
from seatrial.scheduler.api.resourceclaims import TAINT_RULES_PATH
from seatrial.suites.dra.offers import NVIDIA, Offers, device, offers, served
from seatrial.suites.preemption.nominations import freeze, thaw

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"
VALIDATION = "kubernetes 1.37 pkg/apis/resource/validation"
TWO = {"resourceSliceCount": 2}
CARD = {"name": "card", "counters": {"memory": {"value": "2"}}}
HOST = "kubernetes.io/hostname"


def consuming(counter_set: str, counter: str) -> dict[str, Any]:
    consumed = {"counterSet": counter_set, "counters": {counter: {"value": "1"}}}
    return device("d1", consumesCounters=[consumed])


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-072", severity="critical", source=ALLOCATOR)
@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        pytest.param({"devices": [device("d0")]}, device("d1"), id="one-name-twice"),
        pytest.param({"sharedCounters": [CARD]}, consuming("card", "memory"), id="one-counter-set-twice"),
        pytest.param(
            {"devices": [consuming("other", "memory")]}, consuming("card", "memory"), id="no-such-counter-set"
        ),
        pytest.param({"devices": [consuming("card", "other")]}, consuming("card", "memory"), id="no-such-counter"),
    ],
)
def test_slices_that_contradict_each_other_give_nothing(
    trial: Trial, expect: Expect, offers: Offers, wrong: dict[str, Any], right: dict[str, Any]
) -> None:
    """The pod says that the pool is invalid; pools of other nodes serve; corrected, the pool serves as well. A request
    for all devices of the node is not met without those of the pool."""
    trial.add(node("n1"), node("n2"))
    three = {"resourceSliceCount": 3}
    offers.publish("n1", device("d0"), part="a", pool=three)
    offers.publish("n1", part="b", pool=three, sharedCounters=[CARD])
    offers.publish("n1", part="c", pool=three, **wrong)
    offers.publish("n1", device("d9"), part="z", pool={"name": f"{trial.name}-other"})
    trial.apply(
        claim("all").asks("d", offers.of_class, allocationMode="All"), claim("other").asks("d", offers.of_class)
    )
    trial.submit(pod("all").claim("d", name="all"))
    expect.pending("all", saying="is currently invalid")
    trial.delete("all")
    trial.submit(pod("other").claim("d", name="other"))
    expect.bound("other")
    assert offers.devices_of("other") == ["d=d9"]
    trial.apply(claim_template("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", template="one"))
    expect.pending("a", saying="invalid resource pools were encountered")

    offers.publish("n2", device("d0"))
    assert expect.bound("a").spec.node_name == "n2"
    trial.submit(pod("b").claim("d", template="one"))
    expect.pending("b", saying="invalid resource pools were encountered")

    offers.change("n1", {"devices": [right], "sharedCounters": None}, part="c")

    assert expect.bound("b", within=60).spec.node_name == "n1"


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-073", severity="critical", source=ALLOCATOR)
def test_a_slice_that_goes_takes_its_pool_along(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A pod keeps its device; nobody gets another one of the pool until the slice is back."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), part="a", pool=TWO)
    offers.publish("n1", device("d1"), part="b", pool=TWO)
    trial.apply(claim_template("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", template="one"))
    expect.running("a")
    assert trial.call("DELETE", trial.path("ResourceSlice", f"{trial.name}-n1-b")).ok
    trial.settle()
    trial.submit(pod("b").claim("d", template="one"))
    expect.pending("b", saying="cannot allocate all claims")
    expect.stable(seconds=5)
    assert offers.devices_of(offers.claim_of("a", "d")) == ["d=d0"]

    offers.publish("n1", device("d1"), part="b", pool=TWO)

    expect.running("b", within=60)
    assert offers.devices_of(offers.claim_of("b", "d")) == ["d=d1"]


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-201", severity="critical", source="spec DRA-R40, DRA-R42, DRA-R47")
@pytest.mark.parametrize("deleted", ["first", "last"])
def test_a_pool_becomes_smaller(trial: Trial, expect: Expect, offers: Offers, deleted: str) -> None:
    """One of two slices is written anew, as the only one of a newer generation, and the other one is deleted, before or
    after that: the devices of the first are given."""
    trial.add(node("n1"))
    for part in ("a", "b"):
        offers.publish("n1", device(f"d-{part}"), part=part, pool=TWO)
    trial.settle()

    def delete() -> None:
        assert trial.call("DELETE", trial.path("ResourceSlice", f"{trial.name}-n1-b")).ok
        trial.settle()

    if deleted == "first":
        delete()
    offers.change("n1", {"pool": {"generation": 2, "resourceSliceCount": 1}}, part="a")
    trial.settle()
    if deleted == "last":
        delete()
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))

    expect.bound("a")

    assert offers.devices_of("one") == ["d=d-a"]


@pytest.mark.feature("DRA-2.limit")
@pytest.mark.case("DR-074", severity="normal", source=VALIDATION)
def test_the_largest_slice_and_the_largest_claims(trial: Trial, expect: Expect, offers: Offers) -> None:
    """128 devices serve four claims for 32, and no fifth; a slice of 129 devices is refused."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(128)])
    names = [f"c{number}" for number in range(5)]
    trial.apply(*[claim(name).asks("d", offers.of_class, count=32) for name in names])
    trial.submit(*[pod(name).claim("d", name=name) for name in names[:4]])

    expect.bound(*names[:4])

    assert len({item for name in names[:4] for item in offers.devices_of(name)}) == 128
    trial.submit(pod("c4").claim("d", name="c4"))
    expect.pending("c4", saying="cannot allocate all claims")
    answer = trial.call(
        "PATCH",
        trial.path("ResourceSlice", f"{trial.name}-n1"),
        {"spec": {"devices": [device(f"d{number}") for number in range(129)]}},
    )
    assert (answer.code, b"spec.devices: Too many: 129: must have at most 128 items" in answer.body) == (422, True)


@pytest.mark.feature("DRA-1.prepared")
@pytest.mark.case("DR-075", severity="critical", source="kubernetes 1.37 pkg/kubelet/cm/dra/manager.go")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
def test_a_device_that_is_gone_when_it_is_prepared(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The card vanishes from its driver between binding and start: the pod says so, and starts when it is back."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    freeze(trial, "n1")
    trial.submit(pod("a").claim("gpu", template="one"))
    expect.bound("a")
    trial.inject({"node": "n1", "verb": "remove", "device": 0})
    gone = orjson.dumps([{"verb": "remove", "device": 0}]).decode()
    trial.settle()

    assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"annotations": {FAULTS_ANNOTATION: gone}}}).ok

    message = "Failed to prepare dynamic resources"
    assert trial.reaches(lambda: any(message in event.message for event in trial.events("a")), within=30)
    assert trial.pod("a").status.phase != "Running"
    assert offers.devices_of(offers.claim_of("a")) == ["gpu=gpu-0"]
    thaw(trial, "n1")
    expect.running("a", within=60)


@pytest.mark.feature("DRA-1.counted")
@pytest.mark.case("DR-182", severity="critical", source="spec DRA-R40, DRA-R45, DRA-R80, E10")
@pytest.mark.parametrize("pools", [("same", "same"), ("z", "a")], ids=["one-name", "later-name"])
def test_pools_of_two_drivers_are_apart(trial: Trial, expect: Expect, offers: Offers, pools: tuple[str, str]) -> None:
    """Two drivers have a device of one name, in pools of one name or of others: both are given, by the order of the
    drivers."""
    trial.add(node("n1"))
    drivers = sorted((f"a-{offers.driver}", offers.driver))
    offers.select(f"device.driver.endsWith('{offers.driver}')")
    for part, driver, pool in zip("ba", reversed(drivers), reversed(pools), strict=True):
        shown = {"name": f"{trial.name}-{pool}"}
        offers.publish("n1", device("d0"), part=part, pool=shown, driver=driver)
    for number in range(3):
        trial.apply(claim(f"c{number}").asks("d", offers.of_class))
        trial.submit(pod(f"p{number}").claim("d", name=f"c{number}"))
        if number < 2:
            expect.bound(f"p{number}")
            allocation = offers.claim(f"c{number}").status.allocation
            assert allocation is not None
            assert [result.driver for result in allocation.devices.results] == [drivers[number]]
    expect.pending("p2", saying="cannot allocate all claims")

    trial.delete("p0")

    expect.bound("p2")


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-183", severity="critical", source="spec DRA-R76; chapter 2.6: absent matches none")
def test_a_rule_taints_what_it_selects(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The rule is for the driver, and another one has a pool and a device of the same names: that is given. A rule that
    selects nothing taints nothing."""
    trial.add(node("n1"))
    offers.select(f"device.driver.endsWith('{offers.driver}')")
    offers.publish("n1", device("d0"))
    offers.publish("n1", device("d0"), part="z", driver=f"z-{offers.driver}")
    offers.taint("NoSchedule")
    trial.settle()
    for name in ("one", "two"):
        trial.apply(claim(name).asks("d", offers.of_class))
        trial.submit(pod(name).claim("d", name=name))
        if name == "one":
            expect.bound("one")
    allocation = offers.claim("one").status.allocation
    assert allocation is not None
    assert [result.driver for result in allocation.devices.results] == [f"z-{offers.driver}"]
    expect.pending("two", saying="cannot allocate all claims")

    rule = f"{TAINT_RULES_PATH}/{trial.name}"
    assert trial.call("PATCH", rule, {"spec": {"deviceSelector": None}}).ok

    expect.bound("two")


@pytest.mark.feature("DRA-3.evicts", "DRA-3.complete")
@pytest.mark.case(
    "DR-205", severity="normal", source="kubernetes 1.37 pkg/controller/devicetainteviction; spec DRA-R40, DRA-R118"
)
def test_a_taint_of_an_older_generation_evicts_no_pod(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A slice of an older generation of the pool, which is still there, says that a device has failed: its user stays.
    The newer one says it, too: the user is evicted."""
    trial.add(node("n1"))
    failed = device("d0", taints=[{"key": "example.com/broken", "value": "yes", "effect": "NoExecute"}])
    offers.publish("n1", device("d0"), part="new", pool={"generation": 2})
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    expect.running("a")

    offers.publish("n1", failed, part="old")
    expect.stable(seconds=10)
    assert not trial.pod("a").deleting
    offers.change("n1", {"devices": [failed]}, part="new")

    expect.gone("a")


@pytest.mark.feature("DRA-3.evicts")
@pytest.mark.case(
    "DR-210", severity="normal", source="kubernetes 1.37 pkg/controller/devicetainteviction; spec DRA-R96, DRA-R120"
)
def test_a_pod_that_comes_to_a_device_that_has_failed_is_evicted(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A claim got its device, and was reserved for a pod, before the device failed. Another component binds the pod
    then: it is evicted."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one").scheduler("absent-scheduler"))
    result = {"request": "d", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "d0"}
    user = {"resource": "pods", "name": "a", "uid": trial.pod("a").metadata.uid}
    written = {"status": {"allocation": {"devices": {"results": [result]}}, "reservedFor": [user]}}
    assert trial.call("PATCH", f"{trial.path('ResourceClaim', 'one')}/status", written).ok
    offers.taint("NoExecute")
    trial.settle()

    target = {"kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "a"}, "target": target}
    assert trial.call("POST", f"{trial.path('Pod', 'a')}/binding", binding).ok

    expect.gone("a", within=60)


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-184", severity="critical", source=f"{ALLOCATOR}; spec DRA-R42")
def test_a_pool_may_be_spread_over_nodes(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Each of two nodes has one slice of a pool: devices are given when both are there. The slice of one is written
    anew, as the only one of a newer generation: nothing is left of the other."""
    trial.add(node("n1"), node("n2"))
    pool = {**TWO, "name": trial.name}
    for name in ("a", "b", "c"):
        trial.apply(claim(name).asks("d", offers.of_class))
    offers.publish("n1", device("d0"), device("d1"), pool=pool)
    trial.submit(pod("a").claim("d", name="a").select({HOST: "n1"}))
    expect.pending("a", saying="cannot allocate all claims")
    offers.publish("n2", device("d2"), pool=pool)
    expect.bound("a")
    assert offers.devices_of("a") == ["d=d0"]

    offers.change("n2", {"pool": {"generation": 2, "resourceSliceCount": 1}})
    trial.settle()
    trial.submit(pod("b").claim("d", name="b").select({HOST: "n1"}), pod("c").claim("d", name="c"))

    assert expect.bound("c").spec.node_name == "n2"
    expect.pending("b", saying="cannot allocate all claims")
