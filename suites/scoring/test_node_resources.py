"""Resources of nodes: ports, amounts and volumes.

Each case is set up where scores and chance cannot give the same result: one node is left, or none.
"""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.suites.scoring.claims import on_host, wait_bound
from seatrial.suites.scoring.rules import HOST, ZONE, Json, pod_with, resize, waits

pytestmark = [pytest.mark.needs(Capability.NODES)]


# -- ports -------------------------------------------------------------------------------------------------------------


def with_port(name: str, number: int, **more: Any) -> PodBuilder:
    builder = pod(name)
    builder.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": number, "hostPort": number, **more}]
    return builder


@pytest.mark.feature("SCORE-4.ports")
@pytest.mark.case("SC-131", severity="normal")
def test_ports_of_two_protocols_and_addresses(trial: Trial, expect: Expect) -> None:
    """TCP and UDP, and two addresses, do not conflict; all addresses conflict with each, until the pods are gone."""
    trial.add(node("n1"))
    trial.submit(with_port("tcp", 8080, protocol="TCP", hostIP="10.0.0.1"))
    expect.bound("tcp")
    trial.submit(
        with_port("udp", 8080, protocol="UDP", hostIP="10.0.0.1"),
        with_port("other", 8080, protocol="TCP", hostIP="10.0.0.2"),
        with_port("all", 8080, protocol="TCP"),
    )
    expect.bound("udp", "other")
    waits(expect, "all", "free ports")
    trial.delete("tcp")
    waits(expect, "all", "free ports")
    trial.delete("other")
    expect.bound("all")
    trial.submit(with_port("again", 8080, protocol="TCP", hostIP="10.0.0.1"))
    waits(expect, "again", "free ports")
    trial.delete("all")
    trial.submit(with_port("another", 8080, protocol="TCP", hostIP="10.0.0.3"))
    expect.bound("again", "another")


@pytest.mark.feature("SCORE-4.ports")
@pytest.mark.case("SC-701", severity="normal", source="kubernetes v1.28: nodeports/node_ports.go, Filter")
def test_the_port_of_a_pod_that_is_gone(trial: Trial, expect: Expect) -> None:
    """A pod had the port on all addresses. When it is gone, one with that port on one address is placed at once."""
    trial.add(node("n1"))
    trial.submit(with_port("first", 8080))
    expect.bound("first")
    trial.delete("first")
    expect.gone("first")
    trial.settle(2)
    trial.submit(with_port("next", 8080, hostIP="10.0.0.1"))
    expect.bound("next")
    assert "FailedScheduling" not in {event.reason for event in trial.events("next")}
    expect.refusal()


@pytest.mark.feature("SCORE-4.ports")
@pytest.mark.case("SC-661", severity="normal", source="kubernetes 1.35 pkg/scheduler/util/utils.go: GetHostPorts")
def test_ports_of_init_containers_that_stay(trial: Trial, expect: Expect) -> None:
    """A sidecar takes its host port for the pod's life, and an init container that ends takes none."""
    trial.add(node("n1"))
    for number, restart in ((8081, "Always"), (8082, "")):
        first = with_port(f"p{number}", number)
        spec = first.manifest["spec"]
        container = {**spec["containers"][0], "name": "early", **({"restartPolicy": restart} if restart else {})}
        del spec["containers"][0]["ports"]
        spec["initContainers"] = [container]
        trial.submit(first)
        expect.bound(first.name)
    trial.submit(with_port("sidecar", 8081), with_port("ended", 8082))
    expect.bound("ended")
    waits(expect, "sidecar", "free ports")


# -- amounts -----------------------------------------------------------------------------------------------------------


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-132", severity="critical")
@pytest.mark.long(seconds=6)
def test_a_node_is_filled_exactly(trial: Trial, expect: Expect) -> None:
    """The last CPU and the last place of a node are given, and one more is refused with its reason."""
    trial.add(node("n1").cpu(4).pods(3), node("n2").cpu(4))
    trial.submit(*(pod_with(f"p{number}").select({HOST: "n1"}) for number in range(3)))
    expect.bound("p0", "p1", "p2")
    trial.submit(pod_with("p3").select({HOST: "n1"}))
    waits(expect, "p3", "Too many pods")
    trial.submit(pod_with("q0").request(cpu=4).select({HOST: "n2"}))
    expect.bound("q0")
    trial.submit(pod_with("q1").request(cpu="1m").select({HOST: "n2"}))
    waits(expect, "q1", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-133", severity="critical")
@pytest.mark.long(seconds=6)
def test_every_resource_counts(trial: Trial, expect: Expect) -> None:
    """A pod whose CPU fits and whose memory does not is refused, and the other way round."""
    trial.add(node("n1").cpu(4).memory("4Gi"))
    trial.submit(pod_with("memory").request(cpu=1, memory="5Gi"), pod_with("cpu").request(cpu=5, memory="1Gi"))
    waits(expect, "memory", "Insufficient memory")
    waits(expect, "cpu", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-134", severity="critical")
@pytest.mark.long(seconds=6)
def test_init_containers_and_sidecars_count(trial: Trial, expect: Expect) -> None:
    """An init container larger than the containers needs its amount; a sidecar is added to the containers."""
    trial.add(node("n1").cpu(4))

    def with_init(name: str, cpu: str, **more: Any) -> PodBuilder:
        container = {"name": "init", "image": "i", "resources": {"requests": {"cpu": cpu}}, **more}
        return pod_with(name, initContainers=[container]).request(cpu=2)

    trial.submit(with_init("init", "5"), with_init("sidecar", "3", restartPolicy="Always"))
    waits(expect, "init", "Insufficient cpu")
    waits(expect, "sidecar", "Insufficient cpu")
    trial.submit(with_init("fits", "4"))
    expect.bound("fits")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-702", severity="normal", source="kubernetes 1.29 KEP-753: requests of a pod with sidecars")
@pytest.mark.parametrize("fits", [False, True], ids=["after", "before"])
def test_an_init_container_beside_sidecars(trial: Trial, expect: Expect, *, fits: bool) -> None:
    """An init container of three CPUs runs beside the sidecar of two that is started before it, and alone before one
    that is started later."""
    trial.add(node("n1").cpu(4))
    sidecar = {"name": "sidecar", "image": "i", "resources": {"requests": {"cpu": "2"}}, "restartPolicy": "Always"}
    init = {"name": "init", "image": "i", "resources": {"requests": {"cpu": "3"}}}
    builder = pod_with("a", initContainers=[init, sidecar] if fits else [sidecar, init]).request(cpu=1)
    trial.submit(builder)
    if fits:
        expect.bound("a")
        expect.refusal()
    else:
        waits(expect, "a", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-135", severity="normal")
@pytest.mark.long(seconds=6)
def test_limits_are_requests_where_none_are_given(trial: Trial, expect: Expect) -> None:
    """A container with a limit and no request requests its limit; requests of the pod replace those of containers."""
    trial.add(node("n1").cpu(4))
    limited = pod_with("limited")
    limited.manifest["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "5"}}
    level = pod_with("level", resources={"requests": {"cpu": "5"}}).request(cpu=1)
    trial.submit(limited, level)
    waits(expect, "limited", "Insufficient cpu")
    waits(expect, "level", "Insufficient cpu")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case("SC-178", severity="critical")
@pytest.mark.long(seconds=5)
def test_a_resized_pod_counts_with_its_new_amount(trial: Trial, expect: Expect) -> None:
    """A running pod grows in place: what it took is free no more; it shrinks again, and the waiting pod is placed."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod_with("grows").request(cpu=1))
    expect.running("grows")

    resize(trial, "grows", "3")
    trial.submit(pod_with("waits").request(cpu=2))
    waits(expect, "waits", "Insufficient cpu")
    resize(trial, "grows", "1")
    expect.bound("waits")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case(
    "SC-295",
    severity="critical",
    source="kubernetes 1.33 KEP-1287: the largest of the spec, allocated and actual resources counts",
)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=20)
def test_room_of_a_pod_that_shrinks_is_free_when_its_node_says_so(trial: Trial, expect: Expect) -> None:
    """The node hangs while a pod shrinks: its room is taken until the node reports what the pod has."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod_with("shrinks").request(cpu=3))
    expect.running("shrinks")
    trial.inject({"node": "n1", "verb": "frozen", "for": 20})
    trial.pass_time(1)
    resize(trial, "shrinks", "1")
    trial.submit(pod_with("waits").request(cpu=2))
    waits(expect, "waits", "Insufficient cpu")
    expect.bound("waits")


@pytest.mark.feature("SCORE-4.fit")
@pytest.mark.case(
    "SC-430",
    severity="critical",
    source="kubernetes 1.37 k8s.io/component-helpers/resource/helpers.go: PodRequests with UseStatusResources;"
    " KEP-1287: the largest of the spec, allocated and actual resources counts",
)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("report", ["allocatedResources", "resources"])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
def test_whatever_a_node_still_holds_for_a_pod_is_taken(
    trial: Trial, expect: Expect, report: str, resource: str
) -> None:
    """What the node has allocated, and what the container has, count each for itself until both have shrunk."""
    small = {"cpu": "1", "memory": "1Gi"}
    trial.add(node("n1").cpu(4).memory("4Gi"))
    trial.submit(pod_with("small").resources({**small}))
    expect.running("small")
    trial.inject({"node": "n1", "verb": "frozen", "for": 120})
    trial.pass_time(1)
    holds(trial, "small", report, {**small, resource: small[resource].replace("1", "3")})
    trial.submit(pod_with("waits").resources({**small, resource: small[resource].replace("1", "2")}))
    waits(expect, "waits", f"Insufficient {resource}")
    holds(trial, "small", report, small)
    expect.bound("waits")


def holds(trial: Trial, name: str, report: str, amounts: dict[str, str]) -> None:
    """Write into the pod's status, in place of its node, what that holds for it."""
    of_container = amounts if report == "allocatedResources" else {"requests": amounts, "limits": amounts}
    body = {"status": {"containerStatuses": [{"name": "main", report: of_container}]}}
    path = f"/api/v1/namespaces/{trial.name}/pods/{name}/status"
    assert trial.call("PATCH", path, body, kind=STRATEGIC_MERGE_PATCH).ok
    trial.settle()


# -- volumes -----------------------------------------------------------------------------------------------------------


def claim(trial: Trial, name: str, volume: str, mode: str = "ReadWriteOnce") -> None:
    spec = {
        "accessModes": [mode],
        "volumeName": volume,
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    trial.accept(body, f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims")
    wait_bound(trial, name)


def volume(
    trial: Trial, name: str, owner: str, *, mode: str = "ReadWriteOnce", labels: Json | None = None, **spec: Any
) -> None:
    reference = {"namespace": trial.name, "name": owner}
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "accessModes": [mode],
            "capacity": {"storage": "1Gi"},
            "claimRef": reference,
            "storageClassName": "",
            "csi": {"driver": "disk.example.com", "volumeHandle": name},
            **spec,
        },
    }
    trial.accept(body, "/api/v1/persistentvolumes")


def using(name: str, *claims: str) -> PodBuilder:
    return pod_with(name, volumes=[{"name": f"v-{one}", "persistentVolumeClaim": {"claimName": one}} for one in claims])


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-136", severity="normal")
def test_a_claim_must_exist(trial: Trial, expect: Expect) -> None:
    """A pod whose claim does not exist waits, with the claim's name in the message."""
    trial.add(node("n1"))
    trial.submit(using("p", "missing"))
    waits(expect, "p", '"missing" not found')


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-137", severity="critical")
def test_a_volume_keeps_its_pod_in_its_zone(trial: Trial, expect: Expect) -> None:
    """A pod with a volume of zone a waits while only zone b has nodes, and is placed in zone a."""
    volume(trial, f"{trial.name}-v", "c", labels={ZONE: "a"})
    claim(trial, "c", f"{trial.name}-v")
    trial.add(node("n1").label(ZONE, "b"))
    trial.submit(using("p", "c"))
    waits(expect, "p", "zone")
    trial.add(node("n2").label(ZONE, "a"))
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-138", severity="critical")
def test_a_volume_keeps_its_pod_on_its_node(trial: Trial, expect: Expect) -> None:
    """A pod with a volume whose node affinity names another node waits for that node."""
    volume(trial, f"{trial.name}-v", "c", nodeAffinity=on_host("n2"))
    claim(trial, "c", f"{trial.name}-v")
    trial.add(node("n1"))
    trial.submit(using("p", "c"))
    waits(expect, "p", "node affinity")
    trial.add(node("n2"))
    assert expect.bound("p").spec.node_name == "n2"


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-139", severity="critical")
@pytest.mark.parametrize("claims", [("c",), ("c", "own"), ("own", "c")], ids="-".join)
def test_a_claim_for_one_pod_has_one_pod(trial: Trial, expect: Expect, claims: tuple[str, ...]) -> None:
    """A second pod with a ReadWriteOncePod claim, and maybe one of its own, waits until the first is gone."""
    for name in claims:
        volume(trial, f"{trial.name}-{name}", name, mode="ReadWriteOncePod")
        claim(trial, name, f"{trial.name}-{name}", "ReadWriteOncePod")
    trial.add(node("n1"))
    trial.submit(using("first", "c"))
    expect.bound("first")
    trial.submit(using("second", *claims))
    waits(expect, "second", "ReadWriteOncePod")
    trial.delete("first")
    expect.bound("second")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-301", severity="critical", source="KEP-2485: a ReadWriteOncePod claim has one pod in the cluster")
def test_a_claim_for_one_pod_has_none_on_another_node(trial: Trial, expect: Expect) -> None:
    """The second pod has room on n2 alone: the claim is in use on n1, so it waits all the same."""
    volume(trial, f"{trial.name}-v", "c", mode="ReadWriteOncePod")
    claim(trial, "c", f"{trial.name}-v", "ReadWriteOncePod")
    trial.add(node("n1").cpu(2), node("n2").cpu(2))
    trial.submit(using("first", "c").request(cpu=2).select({HOST: "n1"}))
    expect.bound("first")
    trial.submit(using("second", "c").request(cpu=2))
    waits(expect, "second", "ReadWriteOncePod")
    trial.delete("first")
    expect.bound("second")


@pytest.mark.feature("SCORE-4.volumes", "SCORE-4.queue")
@pytest.mark.case(
    "SC-466", severity="critical", source="kubernetes scheduler/eventhandlers.go: addNodeToCache moves pods"
)
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("first", ["n1", "n2"])
def test_pods_with_volumes_on_two_nodes_do_not_wait_for_each_other(trial: Trial, expect: Expect, first: str) -> None:
    """Two equal pods have a claim each, with volumes on different nodes, neither of which is there. The node of the one
    comes: it is bound, whichever is older; the other one waits."""
    trial.add(node("n0"))
    for home in sorted(("n1", "n2"), reverse=first == "n2"):
        volume(trial, f"{trial.name}-{home}", home, nodeAffinity=on_host(home))
        claim(trial, home, f"{trial.name}-{home}")
        trial.submit(using(f"for-{home}", home))
        expect.pending(f"for-{home}")
    trial.pass_time(12)  # the backoff of both is over

    trial.add(node("n2"))

    assert expect.bound("for-n2", within=20).spec.node_name == "n2"
    expect.stable(seconds=3)
    assert not trial.pod("for-n1").spec.node_name
