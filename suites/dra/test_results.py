"""What an allocation says: the nodes that reach its devices, their configuration, their conditions, their shares."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import alternative, claim, claim_template, node, pod
from seatrial.scheduler.api.resourceclaims import ResourceClaim, Result
from seatrial.suites.dra.offers import Offers, device, offers, served

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
ZONE, RACK = "example.com/zone", "example.com/rack"


def _results(claim: ResourceClaim) -> tuple[Result, ...]:
    return claim.status.allocation.devices.results if claim.status.allocation is not None else ()


def _label(key: str, value: str) -> Manifest:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}


def _named(*names: str) -> Manifest:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": list(names)}]}


def _in(term: Manifest) -> Manifest:
    return {"nodeSelector": {"nodeSelectorTerms": [term]}}


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-120", severity="critical", source="spec DRA-R84")
@pytest.mark.parametrize(
    ("first", "second", "term", "reached"),
    [
        pytest.param({"allNodes": True}, {"allNodes": True}, None, ["n1", "n2", "n3", "n4"], id="all-nodes"),
        pytest.param(_in(_label(ZONE, "a")), {"allNodes": True}, _label(ZONE, "a"), ["n1", "n2"], id="labels"),
        pytest.param({"allNodes": True}, _in(_named("n2")), _named("n2"), ["n2"], id="fields-of-the-second"),
        pytest.param(_in(_named("n1")), {}, _named("n1"), ["n1"], id="one-is-local"),
        pytest.param({"allNodes": True}, {}, _named("n1"), ["n1"], id="local-and-all-nodes"),
        pytest.param(
            _in(_label(ZONE, "a")),
            _in(_label(RACK, "r1")),
            {"matchExpressions": [*_label(ZONE, "a")["matchExpressions"], *_label(RACK, "r1")["matchExpressions"]]},
            ["n1"],
            id="both",
        ),
        pytest.param(
            _in(_label(ZONE, "a")), _in(_label(ZONE, "a")), _label(ZONE, "a"), ["n1", "n2"], id="twice-the-same"
        ),
        pytest.param(
            _in(_label(ZONE, "a")), _in(_named("n2")), _label(ZONE, "a") | _named("n2"), ["n2"], id="labels-and-fields"
        ),
    ],
)
def test_an_allocation_says_which_nodes_reach_its_devices(  # noqa: PLR0917 a case and its row
    trial: Trial,
    expect: Expect,
    offers: Offers,
    first: Manifest,
    second: Manifest,
    term: Manifest | None,
    reached: list[str],
) -> None:
    """Two slices of the network: both devices are used where both selectors hold, by pods that share the claim too."""
    places = {"n1": ("a", "r1"), "n2": ("a", "r2"), "n3": ("b", "r1"), "n4": ("b", "r2")}
    trial.add(*[node(name).label(ZONE, zone).label(RACK, rack) for name, (zone, rack) in places.items()])
    offers.publish("n1", device("d0"), part="a", pool={"name": f"{trial.name}-a"}, **first)
    offers.publish("n1", device("d1"), part="b", pool={"name": f"{trial.name}-b"}, **second)
    trial.apply(claim("pair").asks("d", offers.of_class, count=2))
    trial.submit(pod("a").claim("d", name="pair"))

    expect.bound("a")

    answer = orjson.loads(trial.call("GET", trial.path("ResourceClaim", "pair")).body)
    allocation = answer.get("status", {}).get("allocation")
    assert allocation
    terms = allocation.get("nodeSelector", {}).get("nodeSelectorTerms")
    assert terms == (None if term is None else [term])
    for name in places:
        builder = pod(f"on-{name}").claim("d", name="pair")
        builder.manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        trial.submit(builder)
    expect.bound(*[f"on-{name}" for name in reached])
    assert [name for name in places if trial.pod(f"on-{name}").spec.node_name] == reached


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-121", severity="critical", source="spec DRA-R84")
@pytest.mark.parametrize(
    ("where", "bound_to"),
    [
        pytest.param({"nodeName": "n2"}, "n2", id="node"),
        pytest.param(_in(_label(ZONE, "b")), None, id="labels"),
        pytest.param({"allNodes": True, "bindsToNode": True}, "n3", id="binds"),
    ],
)
def test_each_device_says_which_nodes_reach_it(
    trial: Trial, expect: Expect, offers: Offers, where: Manifest, bound_to: str | None
) -> None:
    """A device with a node, or a selector, of its own is used there alone; one that binds stays where it was used."""
    trial.add(node("n1").label(ZONE, "a"), node("n2").label(ZONE, "b"), node("n3").label(ZONE, "b"))
    offers.publish("fabric", device("d0", **where), perDeviceNodeSelection=True)
    trial.apply(claim("one").asks("d", offers.of_class))
    first = pod("a").claim("d", name="one")
    if "allNodes" in where:
        first.manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n3"}
    trial.submit(first)

    assert expect.bound("a").spec.node_name in ([bound_to] if bound_to else ["n2", "n3"])

    allocation = offers.claim("one").status.allocation
    assert allocation is not None
    assert allocation.node_selector is not None
    (term,) = allocation.node_selector.node_selector_terms
    shown = [(item.key, list(item.values)) for item in (*term.match_fields, *term.match_expressions)]
    assert shown == [("metadata.name", [bound_to]) if bound_to else (ZONE, ["b"])]


@pytest.mark.feature("DRA-1.waits")
@pytest.mark.case("DR-129", severity="critical", source=f"{PLUGIN}: EventsToRegister, a node's labels are updated")
def test_a_node_comes_to_reach_a_device(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A pod waits for a device of another zone; the only node moves there, and away again for the next pod."""
    trial.add(node("n1").label(ZONE, "a"))
    for number, zone in enumerate(("b", "c", "b")):
        name = f"d{number}"
        offers.publish(
            "fabric", device(name), part=name, pool={"name": f"{trial.name}-{name}"}, **_in(_label(ZONE, zone))
        )
        trial.apply(claim(f"c{number}").asks("d", offers.of_class))
    for number, zone in enumerate(("b", "c", "b")):
        trial.submit(pod(f"p{number}").claim("d", name=f"c{number}"))
        expect.pending(f"p{number}", saying="cannot allocate all claims")

        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {ZONE: zone}}}).ok

        expect.bound(f"p{number}")
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {ZONE: "a"}}}).ok
        trial.settle()


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-122", severity="critical", source="spec DRA-R85")
def test_configurations_say_for_which_requests_they_are(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Those of classes come first, then those of the claim that concern a chosen request, in its order."""

    def opaque(kind: str) -> Manifest:
        return {"opaque": {"driver": offers.driver, "parameters": {"kind": kind}}}

    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(3)])
    other = offers.another("other", f"device.driver == '{offers.driver}'", f"{offers.driver}/other")
    for name, kinds in ((offers.of_class, ["one", "two"]), (other, ["three"])):
        path = trial.path("DeviceClass", name)
        assert trial.call("PATCH", path, {"spec": {"config": [opaque(kind) for kind in kinds]}}).ok
    ways = [alternative("never", offers.of_class, "false"), alternative("taken", offers.of_class)]
    builder = claim("three").asks("x", other).asks_first("y", *ways).asks("z", offers.of_class)
    configs = {"not-chosen": ["y/never"], "alternative": ["y/taken"], "request": ["y"], "all": [], "two": ["x", "z"]}
    builder.manifest["spec"]["devices"]["config"] = [
        {**opaque(kind), **({"requests": names} if names else {})} for kind, names in configs.items()
    ]
    trial.apply(builder)
    trial.submit(pod("a").claim("d", name="three"))

    expect.bound("a")

    answer = orjson.loads(trial.call("GET", trial.path("ResourceClaim", "three")).body)
    assert answer.get("status", {}).get("allocation")
    shown = {  # one that concerns two requests may be there twice
        (one["source"], one["opaque"]["parameters"]["kind"]): one.get("requests", [])
        for one in answer["status"]["allocation"]["devices"]["config"]
    }
    assert list(shown.items()) == [
        (("FromClass", "three"), ["x"]),
        (("FromClass", "one"), ["y/taken", "z"]),
        (("FromClass", "two"), ["y/taken", "z"]),
        *[(("FromClaim", kind), names) for kind, names in configs.items() if kind != "not-chosen"],
    ]


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-123", severity="critical", source=f"{PLUGIN}: spec DRA-R95, DRA-R110")
def test_a_result_has_what_its_device_and_its_request_say(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Conditions come from the device and tolerations from the request. Each condition has to be true."""
    trial.add(node("n1"))
    fabric: Manifest = {"bindingConditions": ["Attached", "Ready"], "bindingFailureConditions": ["Broken", "Lost"]}
    offers.publish("n1", device("far", **fabric))
    tolerations = [{"key": "example.com/a", "operator": "Exists", "effect": "NoSchedule"}, {"operator": "Exists"}]
    trial.apply(claim("one").asks("d", offers.of_class, tolerations=tolerations))
    trial.submit(pod("a").claim("d", name="one"))
    assert trial.reaches(lambda: bool(offers.devices_of("one")), within=30)

    (result,) = _results(offers.claim("one"))

    assert [list(result.binding_conditions), list(result.binding_failure_conditions)] == list(fabric.values())
    assert [(item.key, item.operator, item.effect) for item in result.tolerations] == [
        ("example.com/a", "Exists", "NoSchedule"),
        ("", "Exists", ""),
    ]
    offers.say("one", Attached=True)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name
    offers.say("one", Attached=True, Ready=False)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name

    offers.say("one", Attached=True, Ready=True)

    expect.bound("a")


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-263", severity="critical", source=f"{PLUGIN}: isClaimReadyForBinding")
@pytest.mark.parametrize("order", [("f0", "f1"), ("f1", "f0")], ids=["first-to-last", "last-to-first"])
def test_each_of_several_devices_is_waited_for(
    trial: Trial, expect: Expect, offers: Offers, order: tuple[str, str]
) -> None:
    """Of two devices one is attached after the other: the pod is bound when both are."""
    trial.add(node("n1"))
    offers.publish(
        "n1",
        *[device(name, bindingConditions=["Attached"], bindingFailureConditions=["Broken"]) for name in ("f0", "f1")],
    )
    trial.apply(claim("two").asks("d", offers.of_class, count=2))
    trial.submit(pod("a").claim("d", name="two"))
    assert trial.reaches(lambda: bool(offers.devices_of("two")), within=30)

    offers.say("two", order[0], Attached=True)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name
    offers.say("two", order[1], Attached=True)

    expect.bound("a")


@pytest.mark.feature("DRA-3.conditions")
@pytest.mark.case("DR-124", severity="critical", source=f"{PLUGIN}: isClaimReadyForBinding")
@pytest.mark.parametrize("broken", ["Broken", "Lost"])
def test_any_device_and_any_condition_of_failure_counts(
    trial: Trial, expect: Expect, offers: Offers, broken: str
) -> None:
    """One of two devices is ready and the other failed: the claim loses both, with what was said of them."""
    trial.add(node("n1"))
    fabric: Manifest = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken", "Lost"]}
    offers.publish("n1", device("f0", **fabric), device("f1", **fabric))
    trial.apply(claim("two").asks("d", offers.of_class, count=2))
    trial.submit(pod("a").claim("d", name="two"))
    assert trial.reaches(lambda: bool(offers.devices_of("two")), within=30)
    near = {"name": f"{trial.name}-near"}
    offers.publish("n1", device("near0"), device("near1"), part="near", pool=near)
    offers.say("two", "f0", Attached=True)
    expect.stable(seconds=10)
    assert not trial.pod("a").spec.node_name

    offers.say("two", "f1", **{"Attached": True, broken: True})

    expect.bound("a", within=120)
    assert offers.devices_of("two") == ["d=near0", "d=near1"]
    assert not offers.claim("two").status.devices


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-125", severity="critical", source="spec DRA-R99, DRA-R101, DRA-R103")
def test_each_share_of_a_claim_is_one_of_its_own(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two requests share a device, and count both: each has an identity, and of each capacity what the rules say."""
    trial.add(node("n1"))
    policy = {"default": "1Gi", "validRange": {"min": "1Gi"}}
    capacity = {"slots": {"value": "10"}, "memory": {"value": "8Gi", "requestPolicy": policy}, "parts": {"value": "2"}}
    offers.publish("n1", device("d0", allowMultipleAllocations=True, capacity=capacity))
    four = {"capacity": {"requests": {"slots": "4", "parts": "500m"}}}
    trial.apply(claim("pair").asks("x", offers.of_class, **four).asks("y", offers.of_class, **four))
    for amount in (3, 2):
        few = {"capacity": {"requests": {"slots": str(amount), "parts": "1"}}}
        trial.apply(claim(f"of-{amount}").asks("d", offers.of_class, **few))
    six = {"capacity": {"requests": {"slots": "6"}}}
    trial.apply(claim("too-much").asks("x", offers.of_class, **six).asks("y", offers.of_class, **six))
    trial.submit(pod("never").claim("d", name="too-much"))
    expect.pending("never", saying="cannot allocate all claims")
    trial.submit(pod("a").claim("d", name="pair"))
    expect.bound("a")
    trial.submit(pod("b").claim("d", name="of-3"))
    expect.pending("b", saying="cannot allocate all claims")
    trial.submit(pod("c").claim("d", name="of-2"))
    expect.bound("c")

    results = [result for name in ("pair", "of-2") for result in _results(offers.claim(name))]

    assert [result.consumed_capacity for result in results] == [
        {"slots": amount, "memory": "1Gi", "parts": part} for amount, part in (("4", "500m"), ("4", "500m"), ("2", "1"))
    ]
    assert len({result.share_id for result in results} - {""}) == 3
    trial.delete("a")
    expect.bound("b")


@pytest.mark.feature("DRA-1.waits")
@pytest.mark.case("DR-126", severity="critical", source=f"{PLUGIN}: spec DRA-R36")
@pytest.mark.parametrize(
    ("recorded", "owner", "goes"),
    [
        pytest.param({}, None, True, id="none-needed"),
        pytest.param({"resourceClaimName": "made"}, True, True, id="its-controller"),
        pytest.param({"resourceClaimName": "made"}, False, False, id="an-owner"),
        pytest.param({"resourceClaimName": "made"}, None, False, id="nobody"),
    ],
)
def test_a_pod_takes_the_claim_that_was_made_for_it(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, offers: Offers, recorded: Manifest, owner: bool | None, goes: bool
) -> None:
    """The status says which claim was made of a template: the pod uses one that it controls, or needs none."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    gated = pod("a").claim("gpu", template="not-there")
    gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(gated)
    made = claim("made").asks("d", offers.of_class)
    if owner is not None:
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": trial.pod("a").metadata.uid}
        made.manifest["metadata"]["ownerReferences"] = [reference | {"controller": owner}]
    trial.apply(made)
    statuses = {"status": {"resourceClaimStatuses": [{"name": "gpu", **recorded}]}}
    assert trial.call("PATCH", f"{trial.path('Pod', 'a')}/status", statuses).ok

    assert trial.call("PATCH", trial.path("Pod", "a"), {"spec": {"schedulingGates": None}}).ok

    if goes:
        expect.bound("a")
        assert offers.devices_of("made") == (["d=d0"] if recorded else [])
    else:
        trial.apply(claim("other").asks("d", offers.of_class))
        trial.submit(pod("b").claim("d", name="other"))
        expect.bound("b")
        assert offers.devices_of("other") == ["d=d0"]
        assert not trial.pod("a").spec.node_name


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-203", severity="normal", source="kubernetes 1.37 pkg/controller/resourceclaim; spec DRA-R28")
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "no-longer-owned"])
def test_a_pod_that_lost_its_claim_gets_another(trial: Trial, expect: Expect, offers: Offers, deleted: bool) -> None:
    """The claim that was made for a pod is deleted, or has no owner any more, before the pod has a node: the pod
    gets another claim, and the device by it."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"))
    trial.apply(claim_template("one").asks("d", offers.of_class))
    gated = pod("a").claim("gpu", template="one")
    gated.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(gated)
    assert trial.reaches(lambda: bool(offers.claim_of("a")), within=30)
    first = offers.claim_of("a")
    path = trial.path("ResourceClaim", first)
    if deleted:
        assert trial.call("DELETE", path).ok
    else:
        assert trial.call("PATCH", path, {"metadata": {"ownerReferences": None}}).ok

    assert trial.call("PATCH", trial.path("Pod", "a"), {"spec": {"schedulingGates": None}}).ok

    expect.bound("a", within=60)
    second = offers.claim_of("a")
    assert second != first
    assert offers.devices_of(second) == ["d=d0"]
