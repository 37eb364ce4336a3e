"""Taints from conditions of nodes, and the default objects of namespaces."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running


def taints(bench: Bench) -> set[tuple[str, str]]:
    found: list[dict[str, Any]] = bench.get("nodes", "n0")["spec"].get("taints") or []
    return {(taint["key"].removeprefix("node.kubernetes.io/"), taint["effect"]) for taint in found}


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
    ("plural", "name"), [pytest.param("serviceaccounts", "default", id="account"),
                         pytest.param("configmaps", "kube-root-ca.crt", id="root-certificate")]
)  # fmt: skip
def test_deleted_default_objects_are_recreated(plural: str, name: str) -> None:
    with running(nodes=0) as bench:
        before = bench.get(plural, name)["metadata"]["uid"]
        bench.delete(plural, name)
        assert bench.get(plural, name)["metadata"]["uid"] != before
