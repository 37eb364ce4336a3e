"""Hard rules of placement, each where scores and chance cannot give the same result: one node is left, or none.

A pod that must wait is refused where room is free; a pod that must be placed is placed where a stricter rule refuses.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, priority_class
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

pytestmark = [pytest.mark.needs(Capability.NODES)]

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Json = dict[str, Any]


def given(name: str, app: str = "a", **spec: Any) -> PodBuilder:
    """A pod with the label `app` and further fields of its spec."""
    found = pod(name).label("app", app)
    found.manifest["spec"].update(spec)
    return found


def term(app: str, *, key: str = HOST, **more: Any) -> Json:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def apart_from(app: str, **more: Any) -> Json:
    return {"podAntiAffinity": {REQUIRED: [term(app, **more)]}}


def spread(app: str = "a", **more: Any) -> list[Json]:
    selector = {"labelSelector": {"matchLabels": {"app": app}}}
    return [{"topologyKey": HOST, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **selector, **more}]


def node_terms(*terms: list[Json]) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": found} for found in terms]}}}


def expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def patch(cluster: Trial, path: str, body: Json) -> None:
    response = cluster.cluster.call(Request("PATCH", path, orjson.dumps(body), MERGE_PATCH))
    assert response.ok, response.body


def waits(expect: Expect, name: str, saying: str = "") -> None:
    """The pod is refused, and stays so."""
    expect.pending(name, saying=saying)
    expect.stable(seconds=3)


# -- affinity between pods --------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.anti-affinity")
@pytest.mark.case("SC-101", severity="critical")
def test_anti_affinity_of_a_placed_pod_keeps_others_away(cluster: Trial, expect: Expect) -> None:
    """A placed pod with anti-affinity to app b keeps a pod of app b from the only node; a pod of app c is placed."""
    cluster.add(node("n1"))
    cluster.submit(given("guard", affinity=apart_from("b")))
    expect.bound("guard")
    cluster.submit(given("b", "b"), given("c", "c"))
    expect.bound("c")
    waits(expect, "b", "existing pods anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-102", severity="critical")
def test_affinity_to_nobody_waits(cluster: Trial, expect: Expect) -> None:
    """A pod with affinity to an app that does not exist waits, and is placed beside the first pod of that app."""
    cluster.add(node("n1"), node("n2"))
    cluster.submit(given("follower", affinity={"podAffinity": {REQUIRED: [term("leader")]}}))
    waits(expect, "follower")
    cluster.submit(given("leader", "leader"))
    where = expect.bound("leader").spec.node_name
    assert expect.bound("follower").spec.node_name == where


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-103", severity="critical")
def test_terms_name_namespaces(cluster: Trial, expect: Expect) -> None:
    """Anti-affinity to pods of another namespace does not concern pods of this one; without a namespace it does."""
    cluster.add(node("n1"))
    cluster.submit(given("first", "b"))
    expect.bound("first")
    cluster.submit(
        given("second", affinity=apart_from("b", namespaces=["elsewhere"])), given("third", affinity=apart_from("b"))
    )
    expect.bound("second")
    waits(expect, "third", "anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-104", severity="critical")
def test_terms_select_namespaces(cluster: Trial, expect: Expect) -> None:
    """An empty namespace selector is all namespaces; one that no namespace matches is none."""
    cluster.add(node("n1"))
    cluster.submit(given("first", "b"))
    expect.bound("first")
    nobody = {"matchLabels": {"team": "nobody"}}
    cluster.submit(
        given("refused", affinity=apart_from("b", namespaceSelector={})),
        given("placed", affinity=apart_from("b", namespaceSelector=nobody)),
    )
    expect.bound("placed")
    waits(expect, "refused", "anti-affinity")


@pytest.mark.feature("SCORE-4.affinity")
@pytest.mark.case("SC-105", severity="normal")
def test_affinity_needs_the_topology_label(cluster: Trial, expect: Expect) -> None:
    """The first of a group with affinity to itself is not placed on a node without the topology label."""
    cluster.add(node("bare"))
    cluster.submit(given("first", affinity={"podAffinity": {REQUIRED: [term("a", key="rack")]}}))
    waits(expect, "first", "pod affinity")
    cluster.add(node("racked").label("rack", "r1"))
    assert expect.bound("first").spec.node_name == "racked"


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-106", severity="normal")
def test_preferred_anti_affinity_outweighs_utilisation(cluster: Trial, expect: Expect) -> None:
    """A pod goes to the fuller node, because the emptier one has the pod that it prefers to avoid; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        cluster.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        cluster.submit(
            given(f"{prefix}-avoided", f"{prefix}b").select({HOST: here}),
            given(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: there}),
        )
        expect.bound(f"{prefix}-avoided", f"{prefix}-filler")
        wish = {"weight": 100, "podAffinityTerm": term(f"{prefix}b")}
        chooser = given(f"{prefix}-chooser", affinity={"podAntiAffinity": {PREFERRED: [wish]}}).select({"pair": prefix})
        cluster.submit(chooser)
        assert expect.bound(f"{prefix}-chooser").spec.node_name == there


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-107", severity="normal")
def test_preferred_affinity_outweighs_utilisation(cluster: Trial, expect: Expect) -> None:
    """A pod follows the pod that it prefers to the fuller node; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        cluster.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        cluster.submit(given(f"{prefix}-wanted", f"{prefix}b").request(cpu=6).select({HOST: here}))
        expect.bound(f"{prefix}-wanted")
        wish = {"weight": 100, "podAffinityTerm": term(f"{prefix}b")}
        chooser = given(f"{prefix}-chooser", affinity={"podAffinity": {PREFERRED: [wish]}}).select({"pair": prefix})
        cluster.submit(chooser)
        assert expect.bound(f"{prefix}-chooser").spec.node_name == here


# -- spread -----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-110", severity="critical")
def test_max_skew_refuses_free_room(cluster: Trial, expect: Expect) -> None:
    """With the other node full, the second pod waits, although the first node has room: the skew would be two."""
    cluster.add(node("n1").cpu(16), node("n2").cpu(2))
    cluster.submit(given("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    expect.bound("filler")
    cluster.submit(given("first", topologySpreadConstraints=spread()).request(cpu=1))
    assert expect.bound("first").spec.node_name == "n1"
    cluster.submit(given("second", topologySpreadConstraints=spread()).request(cpu=1))
    waits(expect, "second", "topology spread constraints")
    cluster.delete("filler")
    assert expect.bound("second").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-111", severity="critical")
def test_spread_needs_the_topology_label(cluster: Trial, expect: Expect) -> None:
    """A node without the topology label gets no pod of the constraint."""
    cluster.add(node("bare"))
    cluster.submit(given("first", topologySpreadConstraints=spread(topologyKey="rack")))
    waits(expect, "first", "missing required label")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-112", severity="normal")
def test_min_domains(cluster: Trial, expect: Expect) -> None:
    """With two domains of at least three, each gets one pod and the third pod waits for another domain."""
    cluster.add(node("n1"), node("n2"))
    constraint = spread(minDomains=3)
    cluster.submit(*(given(f"p{number}", topologySpreadConstraints=constraint) for number in range(2)))
    expect.bound("p0", "p1")
    cluster.submit(given("p2", topologySpreadConstraints=constraint))
    waits(expect, "p2", "topology spread constraints")
    cluster.add(node("n3"))
    assert expect.bound("p2").spec.node_name == "n3"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-113", severity="normal")
def test_match_label_keys(cluster: Trial, expect: Expect) -> None:
    """Pods of another revision are not counted: the new revision starts on the only node with room."""
    cluster.add(node("n1").cpu(16), node("n2").cpu(2))
    cluster.submit(given("filler", "filler").request(cpu=2).select({HOST: "n2"}))
    expect.bound("filler")
    constraint = spread(matchLabelKeys=["rev"])
    for revision in ("1", "2"):
        one = given(f"rev{revision}", topologySpreadConstraints=constraint).label("rev", revision).request(cpu=1)
        cluster.submit(one)
        assert expect.bound(one.name).spec.node_name == "n1"


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-114", severity="normal")
def test_excluded_nodes_are_no_domains(cluster: Trial, expect: Expect) -> None:
    """An empty node that the pods' selector excludes does not hold them back: two pods on each of the others."""
    cluster.add(node("n1").label("pool", "a"), node("n2").label("pool", "a"), node("n3"))
    names = [f"p{number}" for number in range(4)]
    cluster.submit(*(given(name, topologySpreadConstraints=spread()).select({"pool": "a"}) for name in names))
    where = [found.spec.node_name for found in expect.bound(names[0], names[1], *names[2:])]
    assert sorted(where) == ["n1", "n1", "n2", "n2"]


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-115", severity="normal")
def test_tainted_nodes_are_no_domains_on_request(cluster: Trial, expect: Expect) -> None:
    """An empty node with a taint counts as a domain by default, and not with nodeTaintsPolicy Honor."""
    cluster.add(node("n1"), node("n2"), node("n3").taint("team"))
    names = [f"p{number}" for number in range(4)]
    honor = spread(nodeTaintsPolicy="Honor")
    cluster.submit(*(given(name, topologySpreadConstraints=honor) for name in names))
    expect.bound(names[0], names[1], *names[2:])
    cluster.submit(*(given(f"d{n}", "d", topologySpreadConstraints=spread("d")) for n in range(2)))
    expect.bound("d0", "d1")
    cluster.submit(given("d2", "d", topologySpreadConstraints=spread("d")))
    waits(expect, "d2", "topology spread constraints")


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-116", severity="normal")
def test_soft_spread_outweighs_utilisation(cluster: Trial, expect: Expect) -> None:
    """With ScheduleAnyway a pod goes to the fuller node that has no pod of its app; for both names."""
    for here, there, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        cluster.add(node(here).cpu(16).label("pair", prefix), node(there).cpu(16).label("pair", prefix))
        crowd = [given(f"{prefix}-{number}", prefix).select({HOST: here}) for number in range(3)]
        cluster.submit(*crowd, given(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: there}))
        expect.bound(f"{prefix}-filler", *(member.name for member in crowd))
        soft = spread(prefix, whenUnsatisfiable="ScheduleAnyway")
        cluster.submit(given(f"{prefix}-new", prefix, topologySpreadConstraints=soft).select({"pair": prefix}))
        assert expect.bound(f"{prefix}-new").spec.node_name == there


@pytest.mark.feature("SCORE-4.spread")
@pytest.mark.case("SC-117", severity="normal")
def test_pods_of_a_service_spread_by_default(cluster: Trial, expect: Expect) -> None:
    """Without constraints of its own, a pod of a Service goes to the fuller node without pods of the Service."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
               "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}  # fmt: skip
    cluster.accept(service, f"/api/v1/namespaces/{cluster.name}/services")
    cluster.add(node("n1").cpu(16), node("n2").cpu(16))
    crowd = [given(f"p{number}").select({HOST: "n1"}) for number in range(3)]
    cluster.submit(*crowd, given("filler", "filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    cluster.submit(given("new"))
    assert expect.bound("new").spec.node_name == "n2"
    expect.refusal()


# -- nodes ------------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-120", severity="critical")
def test_no_execute_keeps_pods_away(cluster: Trial, expect: Expect) -> None:
    """A taint with effect NoExecute keeps a pod away that does not tolerate it."""
    cluster.add(node("n1").taint("team", effect="NoExecute"))
    cluster.submit(given("p"), given("tolerant", tolerations=[{"key": "team", "operator": "Exists"}]))
    expect.bound("tolerant")
    waits(expect, "p", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-121", severity="critical")
def test_a_toleration_names_key_and_value(cluster: Trial, expect: Expect) -> None:
    """Tolerations of another key or another value do not help."""
    cluster.add(node("n1").taint("team", "red"))
    cluster.submit(
        given("key", tolerations=[{"key": "other", "operator": "Exists"}]),
        given("value", tolerations=[{"key": "team", "operator": "Equal", "value": "blue"}]),
        given("right", tolerations=[{"key": "team", "operator": "Equal", "value": "red"}]),
    )
    expect.bound("right")
    waits(expect, "key", "untolerated taint")
    waits(expect, "value", "untolerated taint")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-122", severity="normal")
def test_prefer_no_schedule_outweighs_utilisation(cluster: Trial, expect: Expect) -> None:
    """A pod goes to the fuller node, because the emptier one has a PreferNoSchedule taint; for both names."""
    for tainted, other, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        cluster.add(node(other).cpu(16).label("pair", prefix))
        cluster.add(node(tainted).cpu(16).label("pair", prefix).taint("slow", effect="PreferNoSchedule"))
        cluster.submit(given(f"{prefix}-filler", "filler").request(cpu=6).select({HOST: other}))
        expect.bound(f"{prefix}-filler")
        cluster.submit(given(f"{prefix}-p").select({"pair": prefix}))
        assert expect.bound(f"{prefix}-p").spec.node_name == other
    expect.refusal()


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-123", severity="critical")
def test_terms_are_alternatives_and_expressions_are_not(cluster: Trial, expect: Expect) -> None:
    """Of several node selector terms one is enough; of the expressions of a term all must hold."""
    cluster.add(node("n1").label("disk", "fast"))
    fast, big = expression("disk", "In", "fast"), expression("size", "In", "big")
    cluster.submit(given("either", affinity=node_terms([fast], [big])), given("both", affinity=node_terms([fast, big])))
    expect.bound("either")
    waits(expect, "both", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-124", severity="normal")
def test_not_in_admits_nodes_without_the_label(cluster: Trial, expect: Expect) -> None:
    """NotIn and DoesNotExist admit a node without the label, In and Exists do not."""
    cluster.add(node("n1"))
    cluster.submit(
        given("not-in", affinity=node_terms([expression("disk", "NotIn", "slow")])),
        given("absent", affinity=node_terms([expression("disk", "DoesNotExist")])),
        given("exists", affinity=node_terms([expression("disk", "Exists")])),
    )
    expect.bound("not-in", "absent")
    waits(expect, "exists", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-125", severity="normal")
def test_gt_and_lt_exclude_the_bound(cluster: Trial, expect: Expect) -> None:
    """Gt 5 and Lt 5 exclude a node with 5; Gt 4 and Lt 6 admit it."""
    cluster.add(node("n1").label("size", "5"))
    for name, operator, value in (("gt4", "Gt", "4"), ("lt6", "Lt", "6"), ("gt5", "Gt", "5"), ("lt5", "Lt", "5")):
        cluster.submit(given(name, affinity=node_terms([expression("size", operator, value)])))
    expect.bound("gt4", "lt6")
    waits(expect, "gt5")
    waits(expect, "lt5")


@pytest.mark.feature("SCORE-4.preferred-affinity")
@pytest.mark.case("SC-126", severity="normal")
def test_preferences_have_weights(cluster: Trial, expect: Expect) -> None:
    """One preference of weight 50 outweighs two of weight 1; for both names."""
    for heavy, light, prefix in (("n1", "n2", "x"), ("n4", "n3", "y")):
        cluster.add(node(heavy).cpu(16).label("pair", prefix), node(light).cpu(16).label("pair", prefix))
        cluster.submit(given(f"{prefix}-filler", "filler").request(cpu=4).select({HOST: heavy}))
        expect.bound(f"{prefix}-filler")
        wishes = [(50, heavy), (1, light), (1, light)]
        preferred = [
            {"weight": weight, "preference": {"matchExpressions": [expression(HOST, "In", name)]}}
            for weight, name in wishes
        ]
        chooser = given(f"{prefix}-p", affinity={"nodeAffinity": {PREFERRED: preferred}}).select({"pair": prefix})
        cluster.submit(chooser)
        assert expect.bound(f"{prefix}-p").spec.node_name == heavy


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-127", severity="critical")
def test_selector_and_affinity_must_both_hold(cluster: Trial, expect: Expect) -> None:
    """A node that the required affinity admits and the node selector does not is refused."""
    cluster.add(node("n1").label("disk", "fast"))
    affinity = node_terms([expression("disk", "In", "fast")])
    cluster.submit(given("p", affinity=affinity).select({"size": "big"}), given("q", affinity=affinity))
    expect.bound("q")
    waits(expect, "p", "node affinity/selector")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-128", severity="normal")
def test_match_fields_name_the_node(cluster: Trial, expect: Expect) -> None:
    """A term with metadata.name places the pod on that node although the other is empty; an unknown name waits."""
    cluster.add(node("n1").cpu(16), node("n2").cpu(16))
    cluster.submit(given("filler", "filler").request(cpu=8).select({HOST: "n2"}))
    expect.bound("filler")
    for name, wanted in (("named", "n2"), ("lost", "n9")):
        terms = [{"matchFields": [expression("metadata.name", "In", wanted)]}]
        cluster.submit(given(name, affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}))
    assert expect.bound("named").spec.node_name == "n2"
    waits(expect, "lost")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-129", severity="critical")
def test_a_cordoned_node_gets_no_pods_until_it_is_opened(cluster: Trial, expect: Expect) -> None:
    """A pod waits while its only node is cordoned, and is placed when it is not any more."""
    cluster.add(node("n1"))
    patch(cluster, "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    cluster.submit(given("p"))
    waits(expect, "p", "unschedulable")
    patch(cluster, "/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
    expect.bound("p")


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-130", severity="critical")
def test_a_new_label_opens_a_node(cluster: Trial, expect: Expect) -> None:
    """A waiting pod is placed when its node gets the label that it selects, and a taint that goes opens a node."""
    cluster.add(node("n1").label("disk", "slow"), node("n2").taint("team"))
    cluster.submit(given("p").select({"disk": "fast"}), given("q").select({HOST: "n2"}))
    waits(expect, "p")
    waits(expect, "q")
    patch(cluster, "/api/v1/nodes/n1", {"metadata": {"labels": {"disk": "fast"}}})
    patch(cluster, "/api/v1/nodes/n2", {"spec": {"taints": None}})
    assert expect.bound("p").spec.node_name == "n1"
    assert expect.bound("q").spec.node_name == "n2"


# -- ports ------------------------------------------------------------------------------------------------------------


def with_port(name: str, number: int, **more: Any) -> PodBuilder:
    found = pod(name)
    found.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number, **more}]
    return found


@pytest.mark.feature("SCORE-4.ports")
@pytest.mark.case("SC-131", severity="normal")
def test_ports_of_two_protocols_and_addresses(cluster: Trial, expect: Expect) -> None:
    """TCP and UDP, and two addresses, do not conflict; all addresses conflict with each."""
    cluster.add(node("n1"))
    cluster.submit(with_port("tcp", 8080, protocol="TCP", hostIP="10.0.0.1"))
    expect.bound("tcp")
    cluster.submit(
        with_port("udp", 8080, protocol="UDP", hostIP="10.0.0.1"),
        with_port("other", 8080, protocol="TCP", hostIP="10.0.0.2"),
        with_port("all", 8080, protocol="TCP"),
    )
    expect.bound("udp", "other")
    waits(expect, "all", "free ports")


# -- amounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-132", severity="critical")
def test_a_node_is_filled_exactly(cluster: Trial, expect: Expect) -> None:
    """The last CPU and the last place of a node are given, and one more is refused with its reason."""
    cluster.add(node("n1").cpu(4).pods(3), node("n2").cpu(4))
    cluster.submit(*(given(f"p{number}").select({HOST: "n1"}) for number in range(3)))
    expect.bound("p0", "p1", "p2")
    cluster.submit(given("p3").select({HOST: "n1"}))
    waits(expect, "p3", "Too many pods")
    cluster.submit(given("q0").request(cpu=4).select({HOST: "n2"}))
    expect.bound("q0")
    cluster.submit(given("q1").request(cpu="1m").select({HOST: "n2"}))
    waits(expect, "q1", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-133", severity="critical")
def test_every_resource_counts(cluster: Trial, expect: Expect) -> None:
    """A pod whose CPU fits and whose memory does not is refused, and the other way round."""
    cluster.add(node("n1").cpu(4).memory("4Gi"))
    cluster.submit(given("memory").request(cpu=1, memory="5Gi"), given("cpu").request(cpu=5, memory="1Gi"))
    waits(expect, "memory", "Insufficient memory")
    waits(expect, "cpu", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-134", severity="critical")
def test_init_containers_and_sidecars_count(cluster: Trial, expect: Expect) -> None:
    """An init container larger than the containers needs its amount; a sidecar is added to the containers."""
    cluster.add(node("n1").cpu(4))

    def with_init(name: str, cpu: str, **more: Any) -> PodBuilder:
        container = {"name": "init", "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}
        return given(name, initContainers=[container]).request(cpu=2)

    cluster.submit(with_init("init", "5"), with_init("sidecar", "3", restartPolicy="Always"))
    waits(expect, "init", "Insufficient cpu")
    waits(expect, "sidecar", "Insufficient cpu")
    cluster.submit(with_init("fits", "4"))
    expect.bound("fits")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-135", severity="normal")
def test_limits_are_requests_where_none_are_given(cluster: Trial, expect: Expect) -> None:
    """A container with a limit and no request requests its limit; requests of the pod replace those of containers."""
    cluster.add(node("n1").cpu(4))
    limited = given("limited")
    limited.manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5"}}
    level = given("level", resources={"requests": {"cpu": "5"}}).request(cpu=1)
    cluster.submit(limited, level)
    waits(expect, "limited", "Insufficient cpu")
    waits(expect, "level", "Insufficient cpu")


# -- volumes ----------------------------------------------------------------------------------------------------------


def claim(cluster: Trial, name: str, volume: str, mode: str = "ReadWriteOnce") -> None:
    spec = {
        "accessModes": [mode],
        "volumeName": volume,
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    cluster.accept(body, f"/api/v1/namespaces/{cluster.name}/persistentvolumeclaims")
    path = f"/api/v1/namespaces/{cluster.name}/persistentvolumeclaims/{name}"
    patch(cluster, f"{path}/status", {"status": {"phase": "Bound"}})
    patch(cluster, path, {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}})


def volume(
    cluster: Trial, name: str, owner: str, *, mode: str = "ReadWriteOnce", labels: Json | None = None, **spec: Any
) -> None:
    reference = {"namespace": cluster.name, "name": owner}
    body = {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name, "labels": labels or {}},
        "spec": {"accessModes": [mode], "capacity": {"storage": "1Gi"}, "claimRef": reference, "storageClassName": "",
                 "csi": {"driver": "disk.example.com", "volumeHandle": name}, **spec},
    }  # fmt: skip
    cluster.accept(body, "/api/v1/persistentvolumes")


def using(name: str, claimed: str) -> PodBuilder:
    return given(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claimed}}])


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-136", severity="normal")
def test_a_claim_must_exist(cluster: Trial, expect: Expect) -> None:
    """A pod whose claim does not exist waits, with the claim's name in the message."""
    cluster.add(node("n1"))
    cluster.submit(using("p", "missing"))
    waits(expect, "p", '"missing" not found')


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-137", severity="critical")
def test_a_volume_keeps_its_pod_in_its_zone(cluster: Trial, expect: Expect) -> None:
    """A pod with a volume of zone a waits while only zone b has nodes, and is placed in zone a."""
    volume(cluster, f"{cluster.name}-v", "c", labels={ZONE: "a"})
    claim(cluster, "c", f"{cluster.name}-v")
    cluster.add(node("n1").label(ZONE, "b"))
    cluster.submit(using("p", "c"))
    waits(expect, "p", "zone")
    cluster.add(node("n2").label(ZONE, "a"))
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-138", severity="critical")
def test_a_volume_keeps_its_pod_on_its_node(cluster: Trial, expect: Expect) -> None:
    """A pod with a volume whose node affinity names another node waits for that node."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression(HOST, "In", "n2")]}]}
    volume(cluster, f"{cluster.name}-v", "c", nodeAffinity={"required": terms})
    claim(cluster, "c", f"{cluster.name}-v")
    cluster.add(node("n1"))
    cluster.submit(using("p", "c"))
    waits(expect, "p", "node affinity")
    cluster.add(node("n2"))
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-139", severity="critical")
def test_a_claim_for_one_pod_has_one_pod(cluster: Trial, expect: Expect) -> None:
    """A second pod with a ReadWriteOncePod claim waits until the first is gone."""
    volume(cluster, f"{cluster.name}-v", "c", mode="ReadWriteOncePod")
    claim(cluster, "c", f"{cluster.name}-v", "ReadWriteOncePod")
    cluster.add(node("n1"))
    cluster.submit(using("first", "c"))
    expect.bound("first")
    cluster.submit(using("second", "c"))
    waits(expect, "second", "ReadWriteOncePod")
    cluster.delete("first")
    expect.bound("second")


# -- the queue --------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-140", severity="critical")
def test_the_more_important_pod_is_first(cluster: Trial, expect: Expect) -> None:
    """Of pods that wait for one card, the more important one gets it although it came later; equal ones by age."""
    for name, value in (("top", 100), ("middle", 50), ("bottom", 1)):
        cluster.apply(priority_class(f"queue-{name}", value, preempts=False))
    cluster.add(node("n1").gpus("a10", 1))
    cluster.submit(given("holder").gpus(1).priority_class("queue-top"))
    expect.bound("holder")
    cluster.submit(given("low").gpus(1).priority_class("queue-bottom"))
    expect.pending("low")
    cluster.submit(given("high").gpus(1).priority_class("queue-middle"))
    expect.pending("high")
    cluster.submit(given("late").gpus(1).priority_class("queue-middle"))
    expect.pending("late")
    cluster.cluster.wait(lambda: False, within=15)
    for before, after in (("holder", "high"), ("high", "late"), ("late", "low")):
        cluster.delete(before)
        expect.bound(after)


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-141", severity="critical")
def test_gates_hold_a_pod_back(cluster: Trial, expect: Expect) -> None:
    """A pod with a scheduling gate is not placed on a free node; it is when the gate is removed."""
    cluster.add(node("n1"))
    cluster.submit(given("gated", schedulingGates=[{"name": "example.com/wait"}]), given("free"))
    expect.bound("free")
    expect.stable(seconds=5)
    assert not cluster.pod("gated").spec.node_name
    patch(cluster, f"/api/v1/namespaces/{cluster.name}/pods/gated", {"spec": {"schedulingGates": None}})
    expect.bound("gated")


@pytest.mark.feature("SHELL-1.profiles")
@pytest.mark.case("SC-142", severity="critical")
def test_pods_of_another_scheduler_are_left_alone(cluster: Trial, expect: Expect) -> None:
    """A pod that names a scheduler that does not run is not placed."""
    cluster.add(node("n1"))
    cluster.submit(given("foreign").scheduler("somebody-else"), given("own"))
    expect.bound("own")
    expect.stable(seconds=5)
    assert not cluster.pod("foreign").spec.node_name


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-143", severity="critical")
def test_waiting_pods_are_placed_as_room_comes(cluster: Trial, expect: Expect) -> None:
    """Three pods that wait are all placed when a node with room for three is added, long before any retry."""
    cluster.add(node("n1").cpu(1))
    cluster.submit(*(given(f"p{number}").request(cpu=2) for number in range(3)))
    for number in range(3):
        expect.pending(f"p{number}", saying="Insufficient cpu")
    cluster.cluster.wait(lambda: False, within=12)
    cluster.add(node("n2").cpu(6))
    found = expect.bound("p0", "p1", "p2", within=20)
    assert {placed.spec.node_name for placed in found} == {"n2"}


@pytest.mark.feature("SHELL-5.binding")
@pytest.mark.case("SC-144", severity="normal")
def test_the_event_of_a_binding(cluster: Trial, expect: Expect) -> None:
    """A placed pod has an event Scheduled that names its node; a refused one has FailedScheduling with the reason."""
    cluster.add(node("n1").cpu(1))
    cluster.submit(given("p"), given("q").request(cpu=2))
    expect.bound("p")
    expect.pending("q")
    said = {event.reason: event.message for event in cluster.events("p")}
    assert "n1" in said.get("Scheduled", ""), f"expected an event Scheduled that names n1, found {said}"
    refused = {event.reason: event.message for event in cluster.events("q")}
    assert "Insufficient cpu" in refused.get("FailedScheduling", ""), f"events of the refused pod: {refused}"


@pytest.mark.feature("SCORE-4.queue")
@pytest.mark.case("SC-145", severity="critical")
def test_an_ended_pod_makes_room(cluster: Trial, expect: Expect) -> None:
    """A pod that has failed holds no CPU: a pod that waits for it is placed."""
    cluster.add(node("n1").cpu(2))
    cluster.submit(given("first", restartPolicy="Never").request(cpu=2))
    expect.running("first")
    cluster.submit(given("second").request(cpu=2))
    waits(expect, "second", "Insufficient cpu")
    path = f"/api/v1/namespaces/{cluster.name}/pods/first/status"
    patch(cluster, path, {"status": {"phase": "Failed"}})
    expect.bound("second")
