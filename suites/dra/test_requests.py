"""What requests of claims may ask for: all devices, alternatives, constraints; and how pools offer devices."""

from pathlib import Path

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import alternative, claim, claim_template, node, pod
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.suites.dra.offers import ROOT, Offers, device, offers, served
from seatrial.suites.faults.schedulers import with_arguments

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"
NOW = "2026-01-01T00:00:00Z"
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"


@pytest.mark.feature("DRA-2.all")
@pytest.mark.case("DR-020", severity="critical", source=ALLOCATOR)
def test_all_means_every_device_of_the_node(trial: Trial, expect: Expect, offers: Offers) -> None:
    """With one of three devices taken a request for all waits; when that is free again it gets all three."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(3)])
    trial.apply(claim("one").asks("d", offers.of_class), claim("all").asks("d", offers.of_class, allocationMode="All"))
    trial.submit(pod("a").claim("d", name="one"))
    expect.bound("a")
    trial.submit(pod("b").claim("d", name="all"))
    expect.pending("b", saying="cannot allocate all claims")

    trial.delete("a")

    expect.bound("b")
    assert offers.devices_of("all") == ["d=d0", "d=d1", "d=d2"]


@pytest.mark.feature("DRA-2.cost")
@pytest.mark.case("DR-070", severity="normal", source="kubernetes 1.37 pkg/apis/resource/validation")
def test_a_selector_that_costs_too_much_is_refused(trial: Trial, offers: Offers) -> None:
    """Loops within loops, in a claim, a template and a class; with one loop less all are stored."""

    def loops(levels: int) -> str:
        numbers = str(list(range(10)))
        return "".join(f"{numbers}.all({'x' * level}, " for level in range(1, levels + 1)) + "x >= 0" + ")" * levels

    def written(levels: int) -> dict[str, int]:
        """The codes of the answers, by kind; each refusal names the cost."""
        selector = {"selectors": [{"cel": {"expression": loops(levels)}}]}
        class_spec = {"metadata": {"name": f"{offers.of_class}-{levels}"}, "spec": selector}
        built = (claim(f"c{levels}"), claim_template(f"t{levels}"))
        bodies = [one.asks("d", offers.of_class, loops(levels)).manifest for one in built]
        bodies.append({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **class_spec})
        codes: dict[str, int] = {}
        for body in bodies:
            answer = trial.call("POST", trial.path(body["kind"], "").removesuffix("/"), body)
            codes[body["kind"]] = answer.code
            assert answer.ok or b"too complex, exceeds cost limit" in answer.body, answer.body
        trial.call("DELETE", trial.path("DeviceClass", f"{offers.of_class}-{levels}"))
        return codes

    kinds = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
    assert written(6) == dict.fromkeys(kinds, 422)
    assert written(5) == dict.fromkeys(kinds, 201)


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-021", severity="critical", source=ALLOCATOR)
def test_devices_of_one_root(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two roots with four devices, three of the first are taken: a pair under one root comes from the second."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{n}", attributes={ROOT: f"pci0000:{n // 4}"}) for n in range(8)])
    trial.apply(claim("three").asks("d", offers.of_class, count=3))
    trial.submit(pod("a").claim("d", name="three"))
    expect.bound("a")
    trial.apply(claim("pair").asks("x", offers.of_class).asks("y", offers.of_class).matching(ROOT))
    trial.submit(pod("b").claim("d", name="pair"))

    expect.bound("b")

    assert offers.devices_of("pair") == ["x=d4", "y=d5"]


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-022", severity="normal", source=ALLOCATOR)
def test_distinct_values_of_shared_devices(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Both requests could share one device; a constraint puts them on two."""
    trial.add(node("n1"))
    parts = {"allowMultipleAllocations": True, "capacity": {"slots": {"value": "10"}}}
    offers.publish("n1", *[device(f"d{n}", attributes={"port": n}, **parts) for n in range(2)])
    few = {"capacity": {"requests": {"slots": "1"}}}
    plain = claim("plain").asks("x", offers.of_class, **few).asks("y", offers.of_class, **few)
    apart = claim("apart").asks("x", offers.of_class, **few).asks("y", offers.of_class, **few)
    trial.apply(plain, apart.distinct(f"{offers.driver}/port"))
    trial.submit(pod("a").claim("d", name="plain"), pod("b").claim("d", name="apart"))

    expect.bound("a", "b")

    assert offers.devices_of("plain") == ["x=d0", "y=d0"]
    assert offers.devices_of("apart") == ["x=d0", "y=d1"]


@pytest.mark.feature("DRA-2.alternatives")
@pytest.mark.case("DR-023", severity="critical", source=ALLOCATOR)
def test_the_first_alternative_that_fits(trial: Trial, expect: Expect, offers: Offers) -> None:
    """No node has four devices and n2 has two: the second alternative is taken. A node with four is preferred."""
    trial.add(node("n1"), node("n2"), node("n3"))
    offers.publish("n1", device("d0"))
    offers.publish("n2", device("d0"), device("d1"))
    ways = [alternative("four", offers.of_class, count=4), alternative("two", offers.of_class, count=2)]
    trial.apply(claim("first").asks_first("d", *ways), claim("second").asks_first("d", *ways))
    trial.submit(pod("a").claim("d", name="first"))
    assert expect.bound("a").spec.node_name == "n2"
    assert offers.devices_of("first") == ["d/two=d0", "d/two=d1"]
    trial.delete("a")
    offers.publish("n3", *[device(f"d{number}") for number in range(4)])
    trial.submit(pod("b").claim("d", name="second"))

    assert expect.bound("b").spec.node_name == "n3"
    assert offers.devices_of("second") == [f"d/four=d{number}" for number in range(4)]


@pytest.mark.feature("DRA-2.limit")
@pytest.mark.case("DR-024", severity="normal", source=ALLOCATOR)
def test_a_claim_has_at_most_32_devices(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Twenty devices and sixteen more are too many: of the alternatives for the second request the next is taken."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(40)])
    ways = [alternative("many", offers.of_class, count=16), alternative("few", offers.of_class, count=8)]
    trial.apply(
        claim("fits").asks("x", offers.of_class, count=20).asks_first("y", *ways),
        claim("never").asks("x", offers.of_class, count=33),
    )
    trial.submit(pod("b").claim("d", name="never"), pod("a").claim("d", name="fits"))

    expect.bound("a")

    assert [item.partition("=")[0] for item in offers.devices_of("fits")] == ["x"] * 20 + ["y/few"] * 8
    expect.pending("b", saying="exceeds the claim limit of 32")


@pytest.mark.feature("DRA-2.admin")
@pytest.mark.case("DR-025", severity="critical", source="kubernetes 1.37 pkg/registry/resource/utils.go")
def test_an_administrator_shares_a_device_in_use(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Without the label of the namespace, or with another value, claim and template are refused; with it the device in
    use is given, and stays free."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    admin = claim("admin").asks("d", offers.of_class, adminAccess=True)
    template = claim_template("admins").asks("d", offers.of_class, adminAccess=True)

    def labelled(value: str) -> None:
        label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": value}}}
        assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}", label).ok

    for value in ("", "false"):
        if value:
            labelled(value)
        for built in (admin, template):
            refused = trial.call("POST", trial.path(built.manifest["kind"], "").rstrip("/"), built.manifest)
            assert refused.code in {403, 422}, refused.code
            assert "resource.kubernetes.io/admin-access: true" in orjson.loads(refused.body)["message"]
    labelled("true")
    trial.apply(admin, claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    expect.bound("a")

    trial.submit(pod("b").claim("d", name="admin"))
    expect.bound("b")
    assert offers.devices_of("admin") == offers.devices_of("one") == ["d=d0"]
    trial.delete("a")
    trial.submit(pod("c").claim("d", name="two"))

    expect.bound("c")


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-030", severity="critical", source=PLUGIN)
def test_a_pool_that_is_half_there_gives_nothing(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One of two slices is published: no device of it. With the second the pod goes."""
    trial.add(node("n1"))
    two = {"resourceSliceCount": 2}
    offers.publish("n1", device("d0"), part="a", pool=two)
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    expect.pending("a")

    offers.publish("n1", device("d1"), part="b", pool=two)

    expect.bound("a")
    assert offers.devices_of("one") == ["d=d0"]


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-031", severity="critical", source=PLUGIN)
def test_devices_of_an_older_generation_are_not_given(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The pool is written anew with another device, while a slice of before is still there."""
    trial.add(node("n1"))
    offers.publish("n1", device("old"), part="a")
    offers.publish("n1", device("new"), part="b", pool={"generation": 2})
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    expect.bound("a")
    trial.submit(pod("b").claim("d", name="two"))

    expect.pending("b", saying="cannot allocate all claims")

    assert offers.devices_of("one") == ["d=new"]


def _partitions() -> list[Manifest]:
    """Four partitions of a card and the full card (specification, example E3)."""

    def takes(memory: str, compute: str) -> list[Manifest]:
        return [{"counterSet": "card", "counters": {"memory": {"value": memory}, "compute": {"value": compute}}}]

    parts = [device(f"p{n}", attributes={"kind": "part"}, consumesCounters=takes("20Gi", "25")) for n in range(4)]
    return [*parts, device("full", attributes={"kind": "full"}, consumesCounters=takes("80Gi", "100"))]


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case("DR-032", severity="blocker", source=ALLOCATOR)
def test_partitions_take_the_counters_of_their_card(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One partition is taken: the full card is out, three partitions are left. When all are back the card is whole."""
    trial.add(node("n1"))
    two = {"resourceSliceCount": 2}
    counters = {"memory": {"value": "80Gi"}, "compute": {"value": "100"}}
    offers.publish("n1", *_partitions(), part="devices", pool=two)
    offers.publish("n1", part="counters", pool=two, sharedCounters=[{"name": "card", "counters": counters}])
    part, full = (f"{offers.attribute('kind')} == '{kind}'" for kind in ("part", "full"))
    trial.apply(claim_template("part").asks("d", offers.of_class, part), claim("full").asks("d", offers.of_class, full))
    trial.submit(pod("p0").claim("gpu", template="part"))
    expect.bound("p0")
    trial.submit(pod("full").claim("gpu", name="full"))
    expect.pending("full", saying="cannot allocate all claims")
    trial.submit(*[pod(f"p{number}").claim("gpu", template="part") for number in (1, 2, 3)])
    expect.bound("p1", "p2", "p3")
    trial.submit(pod("p4").claim("gpu", template="part"))
    expect.pending("p4")
    trial.delete("p4", "p0", "p1", "p2")
    expect.stable(seconds=3)
    assert not trial.pod("full").spec.node_name

    trial.delete("p3")

    expect.bound("full")


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-033", severity="blocker", source=ALLOCATOR)
def test_shares_of_a_device_are_rounded_and_bounded(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of 40Gi 33 are taken; 5.5Gi count as 6; 2 do not fit then, and 1 does (specification, example E1). When the 6 are
    back the 2 fit, and 5 do not."""
    trial.add(node("n1"))
    policy = {"default": "40Gi", "validRange": {"min": "1Gi", "step": "1Gi", "max": "40Gi"}}
    memory = {"memory": {"value": "40Gi", "requestPolicy": policy}}
    offers.publish("n1", device("d0", allowMultipleAllocations=True, capacity=memory))
    for name, amount in (("a", "33Gi"), ("b", "5632Mi"), ("c", "2Gi"), ("e", "1Gi"), ("f", "5Gi")):
        trial.apply(claim(name).asks("d", offers.of_class, capacity={"requests": {"memory": amount}}))
    trial.submit(pod("a").claim("d", name="a"))
    expect.bound("a")
    trial.submit(pod("b").claim("d", name="b"))
    expect.bound("b")
    trial.submit(pod("c").claim("d", name="c"))
    expect.pending("c", saying="cannot allocate all claims")
    trial.submit(pod("e").claim("d", name="e"))
    expect.bound("e")

    allocations = [offers.claim(name).status.allocation for name in ("a", "b", "e")]
    results = [allocation.devices.results[0] for allocation in allocations if allocation is not None]
    assert [result.consumed_capacity for result in results] == [{"memory": f"{amount}Gi"} for amount in (33, 6, 1)]
    assert len({result.share_id for result in results}) == 3
    trial.delete("b")
    expect.bound("c")
    trial.submit(pod("f").claim("d", name="f"))
    expect.pending("f", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-034", severity="critical", source=ALLOCATOR)
def test_a_tainted_device_is_for_those_who_tolerate_it(trial: Trial, expect: Expect, offers: Offers) -> None:
    """d0 is tainted: the first pod gets d1, the second waits, and a request that tolerates the taint gets d0."""
    trial.add(node("n1"))
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
    offers.publish("n1", device("d0", taints=[taint]), device("d1"))
    tolerates = {"tolerations": [{"key": "example.com/broken", "operator": "Exists"}]}
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    trial.apply(claim("brave").asks("d", offers.of_class, **tolerates))
    trial.submit(pod("a").claim("d", name="one"))
    expect.bound("a")
    assert offers.devices_of("one") == ["d=d1"]
    trial.submit(pod("b").claim("d", name="two"))
    expect.pending("b", saying="cannot allocate all claims")
    trial.submit(pod("c").claim("d", name="brave"))
    expect.bound("c")
    assert offers.devices_of("brave") == ["d=d0"]


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-038", severity="critical", source=ALLOCATOR)
def test_a_rule_taints_a_device_for_new_claims(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A DeviceTaintRule says NoSchedule for d0, which is in use: its user stays, and the next pod gets d1."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    trial.apply(*[claim(name).asks("d", offers.of_class) for name in ("one", "two", "three")])
    trial.submit(pod("a").claim("d", name="one"))
    expect.bound("a")
    assert offers.devices_of("one") == ["d=d0"]
    offers.taint("NoSchedule", device="d0")
    trial.submit(pod("b").claim("d", name="two"))
    expect.bound("b")
    assert offers.devices_of("two") == ["d=d1"]

    trial.delete("a")
    trial.submit(pod("c").claim("d", name="three"))

    expect.pending("c", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-3.evicts")
@pytest.mark.case("DR-039", severity="critical", source="kubernetes 1.37 pkg/controller/devicetainteviction")
def test_a_device_that_fails_is_left(trial: Trial, expect: Expect, offers: Offers) -> None:
    """NoExecute for both devices: who tolerates it stays, the other one is evicted, and its device goes to nobody."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    brave = {"tolerations": [{"operator": "Exists", "effect": "NoExecute"}]}
    trial.apply(claim("brave").asks("d", offers.of_class, **brave))
    trial.apply(*[claim(name).asks("d", offers.of_class) for name in ("one", "two")])
    trial.submit(pod("stays").claim("d", name="brave"))
    expect.running("stays")
    trial.submit(pod("goes").claim("d", name="one"))
    expect.running("goes")

    offers.taint("NoExecute", pool=f"{trial.name}-n1")

    expect.gone("goes")
    trial.submit(pod("next").claim("d", name="two"))
    expect.running("stays")
    assert trial.reaches(lambda: not offers.devices_of("one"), within=30)
    expect.pending("next", saying="cannot allocate all claims")
    assert offers.devices_of("brave") == ["d=d0"]


@pytest.mark.feature("DRA-3.evicts")
@pytest.mark.case(
    "DR-204", severity="normal", source="kubernetes 1.37 pkg/controller/devicetainteviction; spec DRA-R118, DRA-R119"
)
@pytest.mark.long(seconds=30)
@pytest.mark.parametrize(
    ("seconds", "goes"),
    [
        pytest.param((15, 300), True, id="shortest-first"),
        pytest.param((300, 15), True, id="shortest-last"),
        pytest.param((None, 15), False, id="for-ever-and-not"),
        pytest.param((None, None), False, id="for-ever"),
    ],
)
def test_how_long_a_taint_is_tolerated(
    trial: Trial, expect: Expect, offers: Offers, seconds: tuple[int | None, int | None], goes: bool
) -> None:
    """Two tolerations with a time, or without one, match the taint of a pod's device: the shortest time
    counts, and one without a time is for ever."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    keys: tuple[Manifest, Manifest] = ({"key": "example.com/broken"}, {})
    tolerations = [
        {**key, "operator": "Exists", "effect": "NoExecute", **({"tolerationSeconds": each} if each else {})}
        for key, each in zip(keys, seconds, strict=True)
    ]
    trial.apply(claim("one").asks("d", offers.of_class, tolerations=tolerations))
    trial.submit(pod("a").claim("d", name="one"))
    expect.running("a")

    offers.taint("NoExecute")
    trial.pass_time(5)
    assert not trial.pod("a").deleting

    if goes:
        expect.gone("a", within=25)
    else:
        trial.pass_time(20)
        assert not trial.pod("a").deleting


def _says(offers: Offers, trial: Trial, name: str, kind: str, reason: str) -> None:
    """The driver of a claim's device says a condition of it."""
    allocation = offers.claim(name).status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    condition = {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    messages = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": [condition]}
    path = f"{trial.path('ResourceClaim', name)}/status"
    response = trial.call("PATCH", path, {"status": {"devices": [messages]}})
    assert response.ok, response.body


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-035", severity="critical", source=PLUGIN)
def test_a_pod_waits_until_its_device_is_attached(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The claim is allocated and the pod is not bound; it is when the driver says that the device is there."""
    trial.add(node("n1"))
    fabric: Manifest = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    offers.publish("n1", device("far", **fabric))
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: bool(offers.devices_of("one")), within=30)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name

    _says(offers, trial, "one", "Attached", "Here")

    expect.bound("a")


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-037", severity="normal", source=PLUGIN)
@pytest.mark.long(seconds=700)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_device_that_is_not_attached_in_time_is_replaced(
    trial: Trial, expect: Expect, offers: Offers, subject: Subject | None, *, restarted: bool
) -> None:
    """Nothing is said of the device for ten minutes, the default of `bindingTimeout`, which a restart of the scheduler
    does not begin anew: the pod gets another one."""
    trial.add(node("n1"))
    offers.publish("n1", device("far", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]))
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: bool(offers.devices_of("one")), within=30)
    offers.publish("n1", device("near"), part="near", pool={"name": f"{trial.name}-near"})
    trial.pass_time(540)
    assert not trial.pod("a").spec.node_name
    if restarted:
        if subject is None:
            pytest.skip("needs a scheduler that the harness started; this one runs elsewhere")
        subject.kill()
        subject.start_again()

    expect.bound("a", within=150)

    assert offers.devices_of("one") == ["d=near"]


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-036", severity="critical", source=PLUGIN)
def test_a_device_that_cannot_be_attached_is_replaced(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The driver says that it failed: the claim loses the device. One that needs no attaching goes before it."""
    trial.add(node("n1"))
    fabric: Manifest = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    offers.publish("n1", device("far", **fabric))
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: bool(offers.devices_of("one")), within=30)
    offers.publish("n1", device("near"), part="near", pool={"name": f"{trial.name}-near"})

    _says(offers, trial, "one", "Broken", "NoLink")

    expect.bound("a", within=120)
    assert offers.devices_of("one") == ["d=near"]


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-196", severity="normal", source=f"{PLUGIN}: bindingTimeout; spec DRA-R111, chapter 2.9")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a scheduler of its own
def test_how_long_a_device_is_waited_for(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """The scheduler waits 30 s for a device: then the pod gets another one, and not before."""
    subject, args = pytestconfig.getoption("--seatrial-subject"), {"bindingTimeout": "30s"}
    profile = DEFAULT_SCHEDULER
    with with_arguments(seatrial_backend, subject, tmp_path, "DynamicResources", args, profile=profile) as trial:
        offers, expect = Offers(trial), Expect(trial)
        trial.add(node("n1"))
        offers.publish("n1", device("far", bindingConditions=["Attached"], bindingFailureConditions=["Broken"]))
        trial.apply(claim("one").asks("d", offers.of_class))
        trial.submit(pod("a").claim("d", name="one"))
        assert trial.reaches(lambda: bool(offers.devices_of("one")), within=20)
        offers.publish("n1", device("near"), part="near", pool={"name": f"{trial.name}-near"})
        trial.pass_time(20)
        assert offers.devices_of("one") == ["d=far"]

        expect.bound("a", within=60)

        assert offers.devices_of("one") == ["d=near"]


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-197", severity="critical", source=f"{PLUGIN}; spec DRA-R69, DRA-R110")
@pytest.mark.parametrize("order", [1, -1], ids=["first-first", "last-first"])
def test_a_pod_waits_for_the_devices_of_all_its_claims(
    trial: Trial, expect: Expect, offers: Offers, order: int
) -> None:
    """Two claims have a device that has to be attached: the pod is bound when the second one is, whichever it is."""
    trial.add(node("n1"))
    far: Manifest = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    offers.publish("n1", device("d0", **far), device("d1", **far))
    trial.apply(*[claim(name).asks("d", offers.of_class) for name in ("one", "two")])
    trial.submit(pod("a").claim("one", name="one").claim("two", name="two"))
    assert trial.reaches(lambda: bool(offers.devices_of("one") and offers.devices_of("two")), within=30)
    first, second = ("one", "two")[::order]

    offers.say(first, Attached=True)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name

    offers.say(second, Attached=True)
    expect.bound("a")
