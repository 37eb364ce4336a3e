"""Taints from conditions of nodes, and the default objects of namespaces."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running


def taints(bench: Bench) -> set[tuple[str, str]]:
    taints: list[dict[str, Any]] = bench.get("nodes", "n0")["spec"].get("taints") or []
    return {(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in taints}


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        pytest.param("MemoryPressure", "memory-pressure", id="memory"),
        pytest.param("DiskPressure", "disk-pressure", id="disk"),
        pytest.param("PIDPressure", "pid-pressure", id="processes"),
        pytest.param("NetworkUnavailable", "network-unavailable", id="network"),
    ],
)
def test_a_node_under_pressure_takes_no_more_pods(kind: str, key: str) -> None:
    with running(nodes=1) as bench:

        def say(truth: str) -> None:
            body = {"status": {"conditions": [{"type": kind, "status": truth}]}}
            path = bench.path("nodes", "n0", "status")
            assert bench.call("PATCH", path, body, "application/strategic-merge-patch+json").code == 200

        say("True")
        assert taints(bench) == {(key, "NoSchedule")}
        say("False")
        assert taints(bench) == set()


def test_foreign_taints_are_kept() -> None:
    with running(nodes=1) as bench:
        bench.patch("nodes", "n0", {"spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}]}})
        bench.patch("nodes", "n0", {"spec": {"unschedulable": True}})
        assert taints(bench) == {("mine", "NoSchedule"), ("unschedulable", "NoSchedule")}
        bench.patch("nodes", "n0", {"spec": {"unschedulable": False}})
        assert taints(bench) == {("mine", "NoSchedule")}


@pytest.mark.parametrize(
    ("plural", "name"),
    [
        pytest.param("serviceaccounts", "default", id="account"),
        pytest.param("configmaps", "kube-root-ca.crt", id="root-certificate"),
    ],
)
def test_deleted_default_objects_are_recreated(plural: str, name: str) -> None:
    with running(nodes=0) as bench:
        before = bench.get(plural, name)["metadata"]["uid"]
        bench.delete(plural, name)
        assert bench.get(plural, name)["metadata"]["uid"] != before


def set_ready(bench: Bench, name: str, status: str) -> None:
    body = {"status": {"conditions": [{"type": "Ready", "status": status}]}}
    path = bench.path("nodes", name, "status")
    assert bench.call("PATCH", path, body, "application/strategic-merge-patch+json").code == 200


def evicting(bench: Bench, count: int) -> list[str]:
    """The nodes that have a NoExecute taint."""
    names = []
    for name in (f"n{number}" for number in range(count)):
        have = bench.get("nodes", name)["spec"].get("taints") or []
        if any(taint["effect"] == "NoExecute" for taint in have):
            names.append(name)
    return names


@pytest.mark.parametrize("status", ["False", "Unknown"])
def test_nothing_is_evicted_while_no_node_is_ready(status: str) -> None:
    """Both nodes stop to be ready, one after the other; then one is ready again."""
    with running(nodes=2) as bench:
        set_ready(bench, "n0", status)
        assert evicting(bench, 2) == ["n0"]
        set_ready(bench, "n1", status)
        assert evicting(bench, 2) == []
        key = "not-ready" if status == "False" else "unreachable"
        assert taints(bench) == {(key, "NoSchedule")}
        set_ready(bench, "n1", "True")
        assert evicting(bench, 2) == ["n0"]


def test_nothing_is_evicted_in_a_small_zone_that_is_mostly_not_ready() -> None:
    """Of five nodes one, two, three and then four are not ready; three of five are 60 %, the limit is 55 %."""
    with running(nodes=5) as bench:
        for name in ("n0", "n1"):
            set_ready(bench, name, "False")
        assert evicting(bench, 5) == ["n0", "n1"]
        set_ready(bench, "n2", "False")
        assert evicting(bench, 5) == []
        set_ready(bench, "n0", "True")
        assert evicting(bench, 5) == ["n1", "n2"]


def test_a_zone_that_is_not_ready_as_a_whole_is_evicted_while_another_is_ready() -> None:
    with running(nodes=4) as bench:
        for name, zone in (("n0", "a"), ("n1", "a"), ("n2", "a"), ("n3", "b")):
            bench.patch("nodes", name, {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
        for name in ("n0", "n1", "n2"):
            set_ready(bench, name, "False")
        assert evicting(bench, 4) == ["n0", "n1", "n2"]


def test_a_node_that_never_reports_is_unreachable_after_a_minute() -> None:
    with running(nodes=0) as bench:
        bench.create("nodes", {"metadata": {"name": "n0"}})
        bench.settle(55)
        assert "conditions" not in bench.get("nodes", "n0").get("status", {})
        assert taints(bench) == {("not-ready", "NoSchedule")}
        bench.settle(10)
        conditions = bench.get("nodes", "n0")["status"]["conditions"]
        assert {(entry["type"], entry["status"], entry["reason"]) for entry in conditions} == {
            (kind, "Unknown", "NodeStatusNeverUpdated")
            for kind in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
        }
        assert ("unreachable", "NoSchedule") in taints(bench)
