"""The rows of a cluster's page, from a cluster in virtual time; pods are bound by hand."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.harness.clusters.virtual import VirtualCluster
from seatrial.reports.live.cluster_view import MAX_EVENTS, MAX_TEXT, ClusterView
from seatrial.reports.live.tables import Row
from seatrial.scheduler.api.builders import claim, gang, node, pod, pods, quota
from seatrial.scheduler.api.device import DEVICE_ALLOCATED, GPU_CORE, GPU_MEMORY_RATIO
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME, NATIVE, PODGROUPS_PATH
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.resourceclaims import CLAIMS_PATH
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

DEFAULT = "/namespaces/default"
HALF = {"gpu": [{"minor": 1, "resources": {GPU_CORE: 50, GPU_MEMORY_RATIO: 40}}]}


class Followed:
    """A cluster with two nodes, and its page's rows."""

    def __init__(self) -> None:
        self.cluster = VirtualCluster()
        self.cluster.add_nodes([node("h100-0").gpus("h100-80g", 2), node("h100-1").gpus("h100-80g", 2)])
        self.decisions: list[Row] = []
        self.view = ClusterView(lambda: self.decisions)
        self.view.start(self.cluster.transport, self.cluster.clock)

    def post(self, path: str, manifest: Any) -> None:
        where, _, plural = path.rpartition("/")
        response = self.cluster.call(Request("POST", f"{where}{DEFAULT}/{plural}", orjson.dumps(manifest)))
        assert response.ok, response.body

    def bind(self, name: str, where: str, allocated: str) -> None:
        path = f"/api/v1{DEFAULT}/pods/{name}"
        patch = {"metadata": {"annotations": {DEVICE_ALLOCATED: allocated}}}
        assert self.cluster.call(Request("PATCH", path, orjson.dumps(patch), MERGE_PATCH)).ok
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"name": where}}
        assert self.cluster.call(Request("POST", f"{path}/binding", orjson.dumps(binding))).ok

    def delete(self, path: str) -> None:
        assert self.cluster.call(Request("DELETE", f"{path}?gracePeriodSeconds=0")).ok

    def rows(self, table: str) -> dict[str, Row]:
        self.cluster.pass_time(1)
        self.view.refresh()
        return self.view.tables.rows(table)


@pytest.fixture
def followed() -> Iterator[Followed]:
    followed = Followed()
    yield followed
    followed.view.stop()
    followed.cluster.close()


def test_a_card_shows_its_pods_with_their_shares(followed: Followed) -> None:
    followed.post("/api/v1/pods", pod("p").gpu_share(50).manifest)
    assert followed.rows("pending")["default/p"]["scheduler"]
    followed.bind("p", "h100-0", orjson.dumps(HALF).decode())
    row = followed.rows("nodes")["h100-0"]
    assert (row["group"], row["state"], row["pods"]) == ("h100", "", 1)
    cards = [card for card in row["cards"] if card["type"] == "gpu"]
    assert [card["pods"] for card in cards] == [[], [["default/p", 50.0, 40.0]]]
    assert (cards[1]["core"], cards[1]["memory"], cards[1]["health"]) == (50.0, 40.0, "ok")
    assert followed.rows("pending") == {}
    assert followed.rows("about")["pods"] == {"pods": 1, "pending": 0}

    followed.delete(f"/api/v1{DEFAULT}/pods/p")
    assert all(card["pods"] == [] for card in followed.rows("nodes")["h100-0"]["cards"])
    assert followed.rows("about")["pods"]["pods"] == 0


def test_a_card_that_a_claim_got_shows_who_uses_it(followed: Followed) -> None:
    """A node whose drivers publish slices has no Device object."""
    followed.cluster.add_nodes([node("dra-0").gpus("h100-80g", 2).dra()])
    followed.post(CLAIMS_PATH, claim("c").asks("card", "gpu.nvidia.com").manifest)
    result = {"request": "card", "driver": "gpu.nvidia.com", "pool": "dra-0", "device": "gpu-1"}
    followed.post("/api/v1/pods", pod("p").manifest)
    uid = orjson.loads(followed.cluster.call(Request("GET", f"/api/v1{DEFAULT}/pods/p")).body)["metadata"]["uid"]
    used_by = {"resource": "pods", "name": "p", "uid": uid}
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [used_by]}
    path = CLAIMS_PATH.replace("/resourceclaims", f"{DEFAULT}/resourceclaims/c")
    response = followed.cluster.call(Request("PATCH", f"{path}/status", orjson.dumps({"status": status}), MERGE_PATCH))
    assert response.ok, response.body
    held = {card["minor"]: card["pods"] for card in followed.rows("nodes")["dra-0"]["cards"] if card["type"] == "gpu"}
    assert held == {"gpu-0": [], "gpu-1": [["default/p", 0.0, 0.0]]}
    assert all(card["pods"] == [] for card in followed.rows("nodes")["h100-0"]["cards"])
    followed.delete(path)
    assert all(card["pods"] == [] for card in followed.rows("nodes")["dra-0"]["cards"])


def test_only_rows_that_changed_are_handed_out(followed: Followed) -> None:
    followed.rows("nodes")
    assert set(followed.view.tables.changes()["nodes"]) == {"h100-0", "h100-1"}
    followed.rows("nodes")
    assert followed.view.tables.changes() == {}
    followed.post("/api/v1/pods", pod("p").manifest)
    followed.bind("p", "h100-1", "{}")
    followed.rows("nodes")
    assert set(followed.view.tables.changes()["nodes"]) == {"h100-1"}
    followed.cluster.remove_node("h100-1")
    followed.rows("nodes")
    assert followed.view.tables.changes()["nodes"] == {"h100-1": None}


def test_an_annotation_that_nobody_can_read_harms_no_row(followed: Followed) -> None:
    followed.post("/api/v1/pods", pod("p").manifest)
    followed.bind("p", "h100-0", '{"gpu": 7')
    assert all(card["pods"] == [] for card in followed.rows("nodes")["h100-0"]["cards"])


def test_a_pending_pod_says_why_it_waits(followed: Followed) -> None:
    long = "<script>alert(1)</script>" + "x" * 5000
    followed.post("/api/v1/pods", pod("p").quota("team").manifest)
    status = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": long}]}
    body = orjson.dumps({"status": status})
    assert followed.cluster.call(Request("PATCH", f"/api/v1{DEFAULT}/pods/p/status", body, MERGE_PATCH)).ok
    row = followed.rows("pending")["default/p"]
    assert (row["reason"], row["quota"], row["message"]) == ("Unschedulable", "team", long[:MAX_TEXT])


def test_gangs_and_quotas(followed: Followed) -> None:
    followed.post(PODGROUPS_PATH, gang("g", 3).manifest)
    followed.post(QUOTAS_PATH, quota("q").min(cpu=1).max(cpu=4).manifest)
    for each in pods("g", 2):
        followed.post("/api/v1/pods", each.in_gang("g").manifest)
    assert followed.rows("gangs") == {"default/g": {"placed": 0, "members": 2, "minimum": 3}}
    followed.post("/api/v1/pods", pod("a").annotation(GANG_NAME, "by-annotation").annotation(GANG_MIN, "4").manifest)
    followed.post("/api/v1/pods", pod("n").in_native_gang("native").manifest)
    assert followed.rows("gangs")["default/by-annotation"] == {"placed": 0, "members": 1, "minimum": 4}
    assert followed.rows("gangs")[f"default/native{NATIVE}"]["members"] == 1
    for name in "an":
        followed.delete(f"/api/v1{DEFAULT}/pods/{name}")
    followed.bind(pods("g", 2)[0].manifest["metadata"]["name"], "h100-0", "{}")
    assert followed.rows("gangs")["default/g"]["placed"] == 1
    assert followed.rows("quotas")["default/q"] == {"used": {}, "min": {"cpu": "1"}, "max": {"cpu": "4"}}
    for each in pods("g", 2):
        followed.delete(f"/api/v1{DEFAULT}/pods/{each.manifest['metadata']['name']}")
    group, _, plural = PODGROUPS_PATH.rpartition("/")
    followed.delete(f"{group}{DEFAULT}/{plural}/g")
    assert followed.rows("gangs") == {}


def test_decisions_keep_their_order_and_leave_with_the_ring(followed: Followed) -> None:
    def decision(name: str) -> Row:
        return {"pod": {"uid": name}, "time": "2026-01-01T00:00:00Z", "node": "h100-0", "message": ""}

    followed.decisions = [decision("second"), decision("first")]
    assert [row["pod"]["uid"] for row in followed.rows("decisions").values()] == ["first", "second"]
    followed.decisions = [decision("third"), decision("second")]
    numbers = {row["pod"]["uid"]: row["number"] for row in followed.rows("decisions").values()}
    assert numbers == {"second": 1, "third": 2}


def test_warnings_and_faults_of_devices(followed: Followed) -> None:
    for number in range(MAX_EVENTS + 20):
        reference = {"kind": "Pod", "namespace": "default", "name": "p"}
        for type_ in ("Warning", "Normal"):
            event = {"metadata": {"name": f"{type_.lower()}-{number:03}"}, "type": type_, "reason": "R", "message": "m"}
            times = {"lastTimestamp": f"2025-01-01T{number // 60:02}:{number % 60:02}:00Z", "involvedObject": reference}
            followed.post("/api/v1/events", event | times)
    followed.cluster.inject({"node": "h100-0", "type": "gpu", "device": 0, "verb": "lost"})
    rows = followed.rows("events")
    assert len(rows) == MAX_EVENTS
    assert "default/warning-000" not in rows
    assert not any("normal" in key for key in rows)
    assert rows["default/warning-319"]["subject"] == "Pod default/p"
    (fault,) = [row for row in rows.values() if row["subject"].startswith("Device")]
    assert fault["subject"] == "Device h100-0 gpu 0"
    assert followed.rows("nodes")["h100-0"]["cards"][0]["health"] == "unhealthy"
