"""The cluster in virtual time: nodes come, fail, heal and go through the API alone, and time moves only when told."""

from collections.abc import Iterator

import orjson
import pytest

from seatrial.harness.clusters.simulated import DEVICES, NODES
from seatrial.harness.clusters.virtual import VirtualBackend, VirtualCluster
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def cluster() -> Iterator[VirtualCluster]:
    with VirtualBackend().start() as started:
        yield started


def get(cluster: VirtualCluster, path: str) -> dict[str, object]:
    body: dict[str, object] = orjson.loads(cluster.call(Request("GET", path)).body)
    return body


def submit(cluster: VirtualCluster, name: str, on: str) -> None:
    body = pod(name).request(cpu=1).node_name(on).manifest
    assert cluster.call(Request("POST", PODS, orjson.dumps(body))).code == 201


def test_a_fleet_is_up_when_entered() -> None:
    with VirtualBackend().start(fleet="default") as cluster:
        nodes = get(cluster, NODES)["items"]
        assert len(nodes) == 11  # type: ignore[arg-type]
        assert cluster.clock.monotonic() < 5


def test_a_node_comes_with_its_devices_and_goes_with_them(cluster: VirtualCluster) -> None:
    cluster.add_nodes([node("n1").gpus("a10", 2)])
    assert len(get(cluster, f"{DEVICES}/n1")["spec"]["devices"]) == 2  # type: ignore[index]

    submit(cluster, "a", "n1")
    cluster.remove_node("n1")

    assert cluster.call(Request("GET", f"{NODES}/n1")).code == 404
    assert cluster.call(Request("GET", f"{DEVICES}/n1")).code == 404
    assert cluster.call(Request("GET", f"{PODS}/a")).code == 404


def test_waiting_moves_time_no_further_than_needed(cluster: VirtualCluster) -> None:
    begun = cluster.clock.monotonic()
    assert not cluster.wait(lambda: False, within=7)
    assert cluster.clock.monotonic() == begun + 7
    assert cluster.wait(lambda: True, within=100)
    assert cluster.clock.monotonic() == begun + 7
    cluster.pass_time(5)
    assert cluster.clock.monotonic() == begun + 12


def test_a_fault_is_seen_and_healed(cluster: VirtualCluster) -> None:
    cluster.add_nodes([node("n1").gpus("a10", 2)])

    def healthy() -> list[bool]:
        rows = get(cluster, f"{DEVICES}/n1")["spec"]["devices"]  # type: ignore[index]
        return [bool(row.get("health")) for row in rows]

    cluster.inject({"node": "n1", "verb": "critical", "device": 1, "xid": 79, "for": 30})
    assert cluster.wait(lambda: healthy() == [True, False], within=5)
    cluster.heal("n1")
    cluster.pass_time(5)


@pytest.mark.parametrize(
    ("fault", "saying"),
    [
        pytest.param({"node": "n9", "verb": "critical", "device": 0}, "n9", id="no-such-node"),
        pytest.param({"node": "n1", "verb": "explode", "device": 0}, "explode", id="no-such-verb"),
        pytest.param({"node": "n1", "verb": "critical", "device": 7}, "no gpu 7", id="no-such-device"),
        pytest.param({"verb": "critical", "device": 0}, "`node`", id="no-node-named"),
    ],
)
def test_a_fault_that_cannot_happen_is_refused(cluster: VirtualCluster, fault: dict[str, object], saying: str) -> None:
    cluster.add_nodes([node("n1").gpus("a10", 2)])
    with pytest.raises(UsageError, match=saying):
        cluster.inject(fault)


def test_a_node_of_an_unknown_model_is_refused_before_anything_is_made(cluster: VirtualCluster) -> None:
    with pytest.raises(UsageError, match="a11"):
        cluster.add_nodes([node("good").gpus("a10", 1), node("bad").gpus("a11", 1)])
    assert get(cluster, NODES)["items"] == []


def test_a_frozen_node_becomes_unreachable_and_loses_its_pods(cluster: VirtualCluster) -> None:
    """Lease gone: Ready is Unknown after the grace period, the pod is deleted five minutes later.

    The other nodes stay ready: while none is, nothing is evicted, as upstream (full disruption).
    """
    cluster.add_nodes([node(name).cpu(8) for name in ("n1", "n2", "n3")])
    submit(cluster, "a", "n1")
    cluster.inject({"node": "n1", "verb": "frozen"})

    def taints() -> set[str]:
        spec: dict[str, list[dict[str, str]]] = get(cluster, f"{NODES}/n1")["spec"]  # type: ignore[assignment]
        return {taint["key"] for taint in spec.get("taints", [])}

    assert cluster.wait(lambda: "node.kubernetes.io/unreachable" in taints(), within=120)
    metadata = get(cluster, f"{PODS}/a")["metadata"]
    assert "deletionTimestamp" not in metadata  # type: ignore[operator]
    cluster.pass_time(310)
    assert "deletionTimestamp" in get(cluster, f"{PODS}/a")["metadata"]  # type: ignore[operator]


def test_the_same_seed_makes_the_same_cluster() -> None:
    def run() -> bytes:
        with VirtualBackend(seed=3).start(fleet="default") as cluster:
            submit(cluster, "a", "cpu-0")
            cluster.pass_time(20)
            return cluster.call(Request("GET", PODS)).body + cluster.call(Request("GET", DEVICES)).body

    assert run() == run()
