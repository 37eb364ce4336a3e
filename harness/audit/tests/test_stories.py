"""Each invariant is broken by a story, and the same story without the break is silent."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.harness.audit.auditor import INVARIANTS
from seatrial.harness.audit.tests.story import CORE, GIB, MEMORY, RATIO, Json, Story, affinity, card, gpu_pod, preempted
from seatrial.scheduler.api.device import DEVICE_ALLOCATE_HINT, DEVICE_ALLOCATED, DEVICE_JOINT_ALLOCATE
from seatrial.scheduler.api.numa import NUMA_TOPOLOGY_SPEC, QOS_LABEL, RESOURCE_SPEC, RESOURCE_STATUS
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY, RESERVATION_ALLOCATED


def moved(story: Story, broken: bool) -> None:
    story.node("n2")
    story.pod("p").bind("p")
    story.bind("p", "n2" if broken else "n1")


def gated(story: Story, broken: bool) -> None:
    story.pod("p", schedulingGates=[{"name": "g"}])
    if not broken:
        story.change("p", schedulingGates=[])
    story.bind("p")


def deleting(story: Story, broken: bool) -> None:
    story.pod("p")
    if broken:
        story.change("p", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        story.at += 5
    story.bind("p")


def ended(story: Story, broken: bool) -> None:
    story.pod("p")
    if broken:
        story.change("p", status={"phase": "Failed"})
    story.bind("p")


def no_node(story: Story, broken: bool) -> None:
    story.pod("p").bind("p", "n9" if broken else "n1")


def cordoned(story: Story, broken: bool) -> None:
    story.node("n1", spec={"unschedulable": broken})
    story.at += 10
    story.pod("p").bind("p")


def tainted(story: Story, broken: bool) -> None:
    story.node("n1", spec={"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]})
    story.at += 10
    story.pod("p", tolerations=[{"key": "other" if broken else "k", "operator": "Exists"}]).bind("p")


def selected(story: Story, broken: bool) -> None:
    story.pod("p", nodeSelector={"kubernetes.io/hostname": "n2" if broken else "n1"}).bind("p")


def required(story: Story, broken: bool) -> None:
    expression = {"key": "kubernetes.io/hostname", "operator": "NotIn" if broken else "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    story.pod("p", affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}).bind("p")


def cpu_sum(story: Story, broken: bool) -> None:
    story.pod("a", cpu="5").bind("a")
    story.pod("b", cpu="4" if broken else "3", initContainers=[]).bind("b")


def extended_sum(story: Story, broken: bool) -> None:
    for name, count in (("a", "1"), ("b", "2" if broken else "1")):
        story.pod(name, requests={"example.com/x": count})
    story.node("n1", allocatable={"example.com/x": "2"})
    story.at += 10
    story.bind("a")
    story.bind("b")


def places(story: Story, broken: bool) -> None:
    for number in range(11 if broken else 10):
        story.pod(f"p{number}", cpu="100m").bind(f"p{number}")


def ports(story: Story, broken: bool) -> None:
    for name, address in (("a", ""), ("b", "10.0.0.1")):
        port = {"containerPort": 80, "hostPort": 80 if broken or name == "a" else 81, "hostIP": address}
        story.pod(name, containers=[{"name": "c", "ports": [port]}]).bind(name)


def anti(story: Story, broken: bool) -> None:
    story.pod("a", labels={"app": "x"}).bind("a")
    story.pod("b", affinity=affinity(anti=True, app="x" if broken else "y")).bind("b")


def anti_held(story: Story, broken: bool) -> None:
    story.pod("a", labels={"app": "x"}, affinity=affinity(anti=True, app="y" if broken else "z")).bind("a")
    story.pod("b", labels={"app": "y"}).bind("b")


def near(story: Story, broken: bool) -> None:
    story.pod("a", labels={"app": "z" if broken else "x"}).bind("a")
    story.pod("b", labels={"app": "y"}, affinity=affinity(anti=False, app="x")).bind("b")
    story.at += 10  # another binding, stored later, might have excused it


def spread(story: Story, broken: bool) -> None:
    story.node("n2")
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    story.at += 10
    story.pod("a", topologySpreadConstraints=[constraint]).bind("a")
    story.pod("b", topologySpreadConstraints=[constraint]).bind("b", "n1" if broken else "n2")
    story.at += 10


def claimed(story: Story, broken: bool) -> None:
    """One claim by name, one of a template, one that needs none, and one for extended resources; what is another
    pod's counts for nothing."""
    metadata = {"name": "p-b-x", "namespace": "default", "uid": "c2"}
    for name, users in (("a", ["p"]), ("p-b-x", ["p"]), ("p-ext", ["other" if broken else "p"])):
        status = {"allocation": {"devices": {}}, "reservedFor": [{"resource": "pods", "uid": uid} for uid in users]}
        body = {"metadata": {**metadata, "name": name}, "spec": {}, "status": status}
        story.tell("ResourceClaim", "ADDED", body)
    claims = [
        {"name": "a", "resourceClaimName": "a"},
        {"name": "b", "resourceClaimTemplateName": "t"},
        {"name": "c", "resourceClaimTemplateName": "u"},
    ]
    made = [{"name": "b", "resourceClaimName": "p-b-x"}, {"name": "c", "resourceClaimName": None}]
    extended = {"resourceClaimName": "p-ext", "requestMappings": []}
    named: dict[str, Any] = {"resourceClaimStatuses": made, "extendedResourceClaimStatus": extended}
    story.pod("p", resourceClaims=claims, status=named).bind("p")


def claimed_twice(story: Story, broken: bool) -> None:
    """Two claims with a device each, of which administrators and shares do not count."""
    given = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}
    others = [{**given, "adminAccess": True}, {**given, "shareID": "s"}, {**given, "device": "gpu-1"}]
    for name, results in (("a", [given]), ("b", [given] if broken else others)):
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "p"}]}
        metadata = {"name": name, "namespace": "default", "uid": name}
        story.tell("ResourceClaim", "ADDED", {"metadata": metadata, "spec": {}, "status": status})
    story.pod("p", resourceClaims=[{"name": "a", "resourceClaimName": "a"}]).bind("p")


def unreadable(story: Story, broken: bool) -> None:
    story.pod("p").bind("p", **{DEVICE_ALLOCATED: "{" if broken else "{}"})


def devices_change(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0)]})
    story.grant("p", {"gpu": [card(1 if broken else 0)]})


def none_granted(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {} if broken else {"gpu": [card(0)]})


def unasked(story: Story, broken: bool) -> None:
    story.pod("p").grant("p", {"gpu": [card(0)]} if broken else {})


def amount(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    story.grant("p", {"gpu": [card(0, 40 if broken else 50)]})


def forms(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    story.grant("p", {"gpu": [card(0, 50, memory=10 * GIB if broken else 40 * GIB)]})


def twice(story: Story, broken: bool) -> None:
    gpu_pod(story, "p", 50)
    parts = [card(0, 25), card(0, 25)] if broken else [card(0, 25), card(1, 25)]
    story.grant("p", {"gpu": parts})


def identity(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0, id_="GPU-1" if broken else "GPU-0")]})


def unknown_device(story: Story, broken: bool) -> None:
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(7 if broken else 0)]})


def unhealthy(story: Story, broken: bool) -> None:
    story.device("n1", healthy=not broken)
    story.at += 10
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0)]})


def shares(resource: str) -> Callable[[Story, bool], None]:
    """Two pods whose shares of one resource exceed card 0; of the others they ask for little."""

    def told(story: Story, broken: bool) -> None:
        for name in ("a", "b"):
            each = 60 if broken else 40
            amounts = {CORE: 10, RATIO: 10, MEMORY: 8 * GIB}
            amounts[resource] = each * 80 * GIB // 100 if resource == MEMORY else each
            story.pod(name, requests={CORE: "10"} if resource != CORE else {CORE: str(each)})
            given = {key: str(value) for key, value in amounts.items()}
            story.grant(name, {"gpu": [{"minor": 0, "resources": given}]})

    return told


def nic_sum(story: Story, broken: bool) -> None:
    for name in ("a", "b"):
        story.pod(name, requests={"koordinator.sh/rdma": "60"})
        given = {"koordinator.sh/rdma": "60" if broken else "40"}
        story.grant(name, {"rdma": [{"minor": 0, "resources": given}]})


def whole(story: Story, broken: bool) -> None:
    gpu_pod(story, "a")
    story.grant("a", {"gpu": [card(0)]})
    gpu_pod(story, "b", 50)
    story.grant("b", {"gpu": [card(0 if broken else 1, 50)]})


def functions(story: Story, broken: bool) -> None:
    for name, bus in (("a", "v1"), ("b", "v1" if broken else "v2")):
        story.pod(name, requests={"koordinator.sh/rdma": "1"})
        extension = {"vfs": [{"busID": bus}]}
        story.grant(name, {"rdma": [{"minor": 0, "resources": {"koordinator.sh/rdma": "1"}, "extension": extension}]})


def hinted(hint: Json, broken_cards: list[int], good_cards: list[int]) -> Callable[[Story, bool], None]:
    def told(story: Story, broken: bool) -> None:
        cards = broken_cards if broken else good_cards
        text = json.dumps({"gpu": hint})
        gpu_pod(story, "p", 100 * len(cards), annotations={DEVICE_ALLOCATE_HINT: text})
        story.grant("p", {"gpu": [card(number) for number in cards]})

    return told


def joint(story: Story, broken: bool) -> None:
    text = json.dumps({"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"})
    story.pod(
        "p", requests={CORE: "100", RATIO: "100", "koordinator.sh/rdma": "1"}, annotations={DEVICE_JOINT_ALLOCATE: text}
    )
    nic = {"minor": 0, "resources": {"koordinator.sh/rdma": "1"}}
    story.grant("p", {"gpu": [card(0 if broken else 1)], "rdma": [nic]})


def switch_alone(story: Story, broken: bool) -> None:
    gpu_pod(story, "a", 50)
    story.grant("a", {"gpu": [card(0, 50)]})
    text = json.dumps({"gpu": {"exclusivePolicy": "PCIeLevel"}})
    gpu_pod(story, "b", 50, annotations={DEVICE_ALLOCATE_HINT: text})
    story.grant("b", {"gpu": [card(0 if broken else 1, 50)]})


def partition(story: Story, broken: bool) -> None:
    table = json.dumps({"1": [{"minors": [1]}]})
    story.device(
        "n1",
        annotations={"scheduling.koordinator.sh/gpu-partitions": table},
        labels={"node.koordinator.sh/gpu-partition-policy": "Honor"},
    )
    story.at += 10
    gpu_pod(story, "p")
    story.grant("p", {"gpu": [card(0 if broken else 1)]})


def isolation(story: Story, broken: bool) -> None:
    label = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    if not broken:
        story.node("n1", labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
        story.at += 10
    gpu_pod(story, "p", 50, labels=label)
    story.grant("p", {"gpu": [card(0, 50)]})


def status_unreadable(story: Story, broken: bool) -> None:
    story.pod("p").bind("p", **{RESOURCE_STATUS: '{"cpuset": "x"}' if broken else '{"cpuset": ""}'})


def cpus_change(story: Story, broken: bool) -> None:
    story.pod("p", cpu="2").cpus("p", "0-1")
    story.cpus("p", "2-3" if broken else "0-1")


def cpus_twice(story: Story, broken: bool) -> None:
    story.pod("a", cpu="2").cpus("a", "0-1")
    story.pod("b", cpu="2").cpus("b", "1-2" if broken else "2-3")


def one_cpuset(cpu: str, broken_set: str, good_set: str, spec: Json | None = None) -> Callable[[Story, bool], None]:
    def told(story: Story, broken: bool) -> None:
        annotations = {RESOURCE_SPEC: json.dumps(spec)} if spec else None
        story.pod("p", cpu=cpu, annotations=annotations).cpus("p", broken_set if broken else good_set)

    return told


def without_cpus(story: Story, broken: bool) -> None:
    spec = {RESOURCE_SPEC: json.dumps({"requiredCPUBindPolicy": "FullPCPUs"})}
    story.pod("p", cpu="2", labels={QOS_LABEL: "LSR"}, annotations=spec).cpus("p", "" if broken else "0-1")


def one_numa_node(story: Story, broken: bool) -> None:
    spec = {NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})}
    story.pod("p", cpu="2", annotations=spec).cpus("p", "3-4" if broken else "2-3")


def zone_sum(story: Story, broken: bool) -> None:
    for name in ("a", "b"):
        zone = [{"node": 0, "resources": {"cpu": "3" if broken else "2"}}]
        story.pod(name, cpu="3").cpus(name, "", zone)


def owned(story: Story, name: str, **more: Any) -> None:
    story.pod(name, **more)
    story.bind(name, **{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})})


def other_node(story: Story, broken: bool) -> None:
    story.node("n2")
    story.reservation(node="n2" if broken else "n1")
    owned(story, "p")


def no_owner(story: Story, broken: bool) -> None:
    story.reservation()
    owned(story, "p", labels={"app": "b" if broken else "a"})


def second_owner(story: Story, broken: bool) -> None:
    story.reservation(allocateOnce=broken)
    owned(story, "a")
    owned(story, "b")


def overdrawn(story: Story, broken: bool) -> None:
    story.reservation(allocatePolicy="Restricted")
    owned(story, "a", cpu="3")
    owned(story, "b", cpu="2" if broken else "1")


def outside(story: Story, broken: bool) -> None:
    story.reservation()
    story.pod("p", annotations={RESERVATION_AFFINITY: "{}"})
    if broken:
        story.bind("p")
    else:
        story.bind("p", **{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})})


def failed_reservation(story: Story, broken: bool) -> None:
    story.reservation(phase="Failed" if broken else "Available")
    owned(story, "p")


def takes_reserved(story: Story, broken: bool) -> None:
    story.reservation(cpu="5")
    story.pod("p", cpu="4" if broken else "3", labels={"app": "b"}).bind("p")


def for_nobody(story: Story, broken: bool) -> None:
    story.pod("low", priority=5).bind("low")
    story.pod("other", priority=5 if broken else 9)
    preempted(story, "low")


def not_preemptible(story: Story, broken: bool) -> None:
    label = {"scheduling.koordinator.sh/disable-preemptible": "true" if broken else "false"}
    story.pod("low", priority=5, labels=label).bind("low")
    story.pod("high", priority=9)
    preempted(story, "low")


def never(story: Story, broken: bool) -> None:
    story.pod("low", priority=5).bind("low")
    story.pod("p", priority=9, preemptionPolicy="Never" if broken else "PreemptLowerPriority")
    preempted(story, "low")


REFUSED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def takes_nominated(story: Story, broken: bool) -> None:
    story.pod("high", cpu="6", priority=9)
    story.change("high", status={"nominatedNodeName": "n1", "conditions": REFUSED})
    story.pod("low", cpu="3" if broken else "2", priority=1).bind("low")


def inversion(story: Story, broken: bool) -> None:
    story.pod("high", priority=9 if broken else 1)
    story.pod("low", priority=1)
    story.at += 5
    story.bind("low")


def lost(story: Story, broken: bool) -> None:
    story.pod("first").bind("first")
    story.pod("p")
    story.at += 90 if broken else 30


def half_gang(story: Story, broken: bool) -> None:
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    story.tell("PodGroup", "ADDED", group)
    refused = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    for name in ("a", "b"):
        story.pod(name, labels={"pod-group.scheduling.sigs.k8s.io": "g"}, status=refused)
    story.bind("a")
    if not broken:
        story.bind("b")
    story.at += 300


def quota(story: Story, broken: bool) -> None:
    body = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"max": {"cpu": "3"}}}
    story.tell("ElasticQuota", "ADDED", body)
    for name in ("a", "b"):
        story.pod(name, cpu="2" if broken else "1500m", labels={"quota.scheduling.koordinator.sh/name": "q"}).bind(name)


STORIES: dict[str, Callable[[Story, bool], None]] = {
    "AUD-101": moved,
    "AUD-102": gated,
    "AUD-103": deleting,
    "AUD-104": ended,
    "AUD-110": no_node,
    "AUD-111": cordoned,
    "AUD-112": tainted,
    "AUD-113": selected,
    "AUD-114": required,
    "AUD-115": cpu_sum,
    "AUD-116": extended_sum,
    "AUD-117": places,
    "AUD-118": ports,
    "AUD-119": anti,
    "AUD-120": anti_held,
    "AUD-121": near,
    "AUD-122": spread,
    "AUD-123": claimed,
    "AUD-124": claimed_twice,
    "AUD-201": unreadable,
    "AUD-202": devices_change,
    "AUD-203": none_granted,
    "AUD-204": unasked,
    "AUD-205": amount,
    "AUD-206": forms,
    "AUD-207": twice,
    "AUD-208": identity,
    "AUD-209": unknown_device,
    "AUD-210": unhealthy,
    "AUD-211": shares(CORE),
    "AUD-212": shares(RATIO),
    "AUD-213": shares(MEMORY),
    "AUD-214": nic_sum,
    "AUD-215": whole,
    "AUD-216": functions,
    "AUD-217": hinted({"requiredTopologyScope": "NUMANode"}, [0, 1], [0]),
    "AUD-218": hinted({"selector": {"matchLabels": {"slot": "1"}}}, [0], [1]),
    "AUD-219": joint,
    "AUD-220": switch_alone,
    "AUD-221": partition,
    "AUD-222": isolation,
    "AUD-301": status_unreadable,
    "AUD-302": cpus_change,
    "AUD-303": cpus_twice,
    "AUD-304": one_cpuset("2", "0-2", "0-1"),
    "AUD-305": one_cpuset("2", "0,99", "0,1"),
    "AUD-306": one_cpuset("2", "6-7", "4-5"),
    "AUD-307": one_cpuset("2", "0,2", "0-1", {"requiredCPUBindPolicy": "FullPCPUs"}),
    "AUD-308": one_cpuset("2", "0-1", "0,2", {"requiredCPUBindPolicy": "SpreadByPCPUs"}),
    "AUD-309": without_cpus,
    "AUD-310": one_numa_node,
    "AUD-311": zone_sum,
    "AUD-401": other_node,
    "AUD-402": no_owner,
    "AUD-403": second_owner,
    "AUD-404": overdrawn,
    "AUD-405": outside,
    "AUD-406": failed_reservation,
    "AUD-407": takes_reserved,
    "AUD-501": for_nobody,
    "AUD-502": not_preemptible,
    "AUD-503": never,
    "AUD-504": takes_nominated,
    "AUD-505": inversion,
    "AUD-506": lost,
    "AUD-601": half_gang,
    "AUD-602": quota,
}
ALSO = {  # other invariants that a story breaks by its nature
    "AUD-211": {"AUD-206"},
    "AUD-212": {"AUD-206"},
    "AUD-213": {"AUD-206"},
    "AUD-215": {"AUD-211", "AUD-212", "AUD-213"},
}


def test_there_are_stories_for_all_invariants() -> None:
    ids = [invariant.id for invariant in INVARIANTS]
    assert len(ids) == len(set(ids)) >= 30
    assert STORIES.keys() == set(ids)


@pytest.mark.parametrize("name", STORIES)
def test_a_story_breaks_its_invariant(name: str) -> None:
    """The break is reported under its ID, with a timeline that ends with the binding or change."""
    story = Story()
    STORIES[name](story, True)
    assert story.ids() - ALSO.get(name, set()) | {name} == {name}
    assert name in story.ids()
    violation = next(found for found in story.auditor.violations if found.invariant == name)
    assert violation.text
    assert violation.timeline
    assert violation.pod in violation.timeline[-1] or any(violation.pod in line for line in violation.timeline)


@pytest.mark.parametrize("name", STORIES)
def test_the_story_without_the_break_is_silent(name: str) -> None:
    story = Story()
    STORIES[name](story, False)
    assert story.ids() - ALSO.get(name, set()) == set()


def test_a_change_within_the_grace_period_excuses_a_binding() -> None:
    """A node that was cordoned a second ago may still get a pod; the same after the grace period is a violation."""
    story = Story()
    story.pod("p")
    story.node("n1", spec={"unschedulable": True})
    story.bind("p")
    assert story.ids() == set()


@pytest.mark.parametrize("left", ["deleted", "bound"])
@pytest.mark.parametrize(("later", "found"), [(0.0, set()), (3.0, {"AUD-501"})], ids=["in-time", "too-late"])
def test_an_eviction_for_a_pod_that_has_just_left_is_excused(left: str, later: float, found: set[str]) -> None:
    """The scheduler's eviction was on its way when the pod with the higher priority went."""
    story = Story()
    story.pod("low", priority=5).bind("low")
    story.pod("high", priority=9)
    if left == "deleted":
        story.tell("Pod", "DELETED", {"metadata": {"name": "high", "namespace": "default", "uid": "high"}})
    else:
        story.bind("high")
    story.at += later
    preempted(story, "low")
    assert story.ids() == found


@pytest.mark.parametrize(("later", "found"), [(1.0, set()), (3.0, {"AUD-121"})], ids=["in-time", "too-late"])
def test_a_binding_that_was_stored_first_is_excused_by_the_one_it_needs(later: float, found: set[str]) -> None:
    """The scheduler sends both in parallel: the pod with affinity is stored first, the pod that it needs afterwards."""
    story = Story()
    story.pod("a", labels={"app": "x"}).pod("b", affinity=affinity(anti=False, app="x")).bind("b")
    assert story.ids() == set()
    story.at += later
    story.bind("a")
    story.at += 10
    assert story.ids() == found


def test_pods_bound_before_are_judged_by_the_state() -> None:
    """Two pods on one card are found on a cluster that is seen for the first time, and no binding is blamed."""
    story = Story()
    for name in ("a", "b"):
        marks = {DEVICE_ALLOCATED: json.dumps({"gpu": [card(0)]})}
        gpu_pod(story, name, annotations=marks, nodeName="n1")
    assert story.ids() == set()
    story.auditor.check_bound(story.at)
    assert "AUD-215" in story.ids()


@pytest.mark.parametrize("state", ["missing", "not-allocated", "not-served"])
def test_a_pod_without_its_resource_claim(state: str) -> None:
    """A claim that nobody made, one that has no device yet, and a server without such claims, which shows nothing."""
    story = Story()
    if state == "not-served":
        story.auditor.state.absent.append("ResourceClaim")
    if state == "not-allocated":
        body = {"metadata": {"name": "a", "namespace": "default", "uid": "c"}, "spec": {}}
        story.tell("ResourceClaim", "ADDED", {**body, "status": {"reservedFor": [{"resource": "pods", "uid": "p"}]}})
    story.pod("p", resourceClaims=[{"name": "a", "resourceClaimName": "a"}]).bind("p")
    assert story.ids() == (set() if state == "not-served" else {"AUD-123"})


@pytest.mark.parametrize(
    ("asked", "given", "reason", "breach"),
    [
        pytest.param("1", "6", "", True, id="it-shrinks-and-the-node-has-not-followed"),
        pytest.param("1", "1", "", False, id="it-has-shrunk"),
        pytest.param("80", "1", "Infeasible", False, id="it-cannot-grow"),
        pytest.param("6", "1", "Deferred", True, id="it-is-to-grow"),
    ],
)
def test_a_pod_that_is_resized_counts_with_what_it_holds(asked: str, given: str, reason: str, breach: bool) -> None:
    """Another pod with 4 of 8 CPUs is bound then."""
    story = Story()
    story.pod("p", cpu="6").bind("p")
    reported = {"name": "c", "allocatedResources": {"cpu": given}, "resources": {"requests": {"cpu": given}}}
    status = {"containerStatuses": [reported], "conditions": [{"type": "PodResizePending", "reason": reason}]}
    story.change("p", status=status, containers=[{"name": "c", "resources": {"requests": {"cpu": asked}}}])
    story.pod("q", cpu="4").bind("q")
    assert story.ids() == ({"AUD-115"} if breach else set())


def test_a_scheduler_that_leaves_cards_to_kubelet_is_not_accused() -> None:
    """A vendor's plain resource needs no annotation until the scheduler has written one; Koordinator's do."""
    story = Story()
    story.auditor.state.allocating = set()
    story.pod("a", requests={"nvidia.com/gpu": "1"}).bind("a")
    assert story.auditor.violations == []
    story.pod("b", requests={CORE: "100", RATIO: "100"}).bind("b")
    assert [violation.invariant for violation in story.auditor.violations] == ["AUD-203"]


def test_a_nomination_for_a_binding_that_waits_is_no_preemption() -> None:
    """Kubernetes 1.35 nominates pods that wait at Permit or PreBind, whatever their policy; they were never refused."""
    story = Story()
    story.pod("p", priority=9, cpu="6", preemptionPolicy="Never")
    story.change("p", status={"nominatedNodeName": "n1"})
    story.pod("low", cpu="3", priority=1).bind("low")
    assert story.auditor.violations == []


@pytest.mark.parametrize(("template", "found"), [("large", set()), ("small", {"AUD-505"})])
def test_pods_with_other_claims_do_not_ask_for_the_same(template: str, found: set[str]) -> None:
    """A more important pod waits for a large device, while a small one is free."""
    story = Story()
    entry = {"name": "gpu", "resourceClaimTemplateName": template}
    story.pod("high", priority=9, resourceClaims=[entry])
    entry = {"name": "gpu", "resourceClaimTemplateName": "small"}
    status = {"resourceClaimStatuses": [{"name": "gpu"}]}  # none is needed
    story.pod("low", priority=1, resourceClaims=[entry], status=status)
    story.at += 5
    story.bind("low")
    assert story.ids() == found
