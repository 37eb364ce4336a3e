"""Stories of pods on nodes that do not fit them."""

from collections.abc import Callable
from typing import Any

from seatrial.harness.audit.tests.story import Story, affinity


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
    values = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}
    others = [{**values, "adminAccess": True}, {**values, "shareID": "s"}, {**values, "device": "gpu-1"}]
    for name, results in (("a", [values]), ("b", [values] if broken else others)):
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "p"}]}
        metadata = {"name": name, "namespace": "default", "uid": name}
        story.tell("ResourceClaim", "ADDED", {"metadata": metadata, "spec": {}, "status": status})
    story.pod("p", resourceClaims=[{"name": "a", "resourceClaimName": "a"}]).bind("p")


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
}
