"""Kept decisions: what is kept of a cycle, what is served, and what is lacking on nodes."""

import json
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.kept_decisions import MAX_MESSAGE, KeptDecisions
from seatrial.scheduler.plugins.coscheduling.tests.gangs import GangRig, light
from seatrial.scheduler.shell.services.tests.test_views import Served
from seatrial.scheduler.tests.rig import Rig


def sizes(*, kept: int = 100) -> Served:
    """A cordoned node, one that is too small for 4 CPUs, and six of different sizes, the largest last."""
    served = Served(Rig(kept_decisions=kept))
    served.rig.node("cordoned", unschedulable=True)
    served.rig.node("small", cpu="1")
    for number in range(6):
        served.rig.node(f"n{number}", cpu=str(8 + number), memory="64Gi")
    return served


def info_of(rig: Rig, name: str) -> PodInfo:
    info = rig.core.find(f"default/{name}")
    assert info is not None
    return info


def of_pod(served: Served, name: str) -> list[dict[str, Any]]:
    decisions: list[dict[str, Any]] = served.json(f"/debug/decisions?pod=default/{name}")["decisions"]
    return decisions


def test_a_placement_is_kept_with_its_best_nodes_and_how_many_were_rejected() -> None:
    served = sizes()
    served.rig.submit(pod("p").request(cpu="4", memory="1Gi"), pod("q").request(cpu="1"))
    served.rig.run()
    (results,) = of_pod(served, "p")
    assert results["pod"] == {"namespace": "default", "name": "p", "uid": "uid-p"}
    assert (results["node"], results["message"], results["time"]) == ("n5", "", "2026-01-01T00:00:00Z")
    assert [one["node"] for one in results["best"]] == ["n5", "n4", "n3", "n2", "n1"]
    scores = [one["score"] for one in results["best"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > scores[-1] > 0
    assert all(one["exact"] for one in results["best"])
    weights = [plugin["weight"] for plugin in results["plugins"]]
    assert "NodeResourcesFit" in [plugin["plugin"] for plugin in results["plugins"]]
    for one in results["best"]:
        assert sum(score * weight for (_, score), weight in zip(one["scores"], weights, strict=True)) == one["score"]
    of_node, of_pods = results["rejected"]
    assert "NodeUnschedulable" in of_node["plugins"]
    assert "NodeResourcesFit" in of_pods["plugins"]
    assert (of_node["nodes"], of_pods["nodes"]) == (1, 1)


def test_a_decision_without_a_score_table(monkeypatch: pytest.MonkeyPatch) -> None:
    served = sizes()
    monkeypatch.setattr(KeptDecisions, "wants_scores", lambda _: False)
    served.rig.submit(pod("p").request(cpu="1"))
    served.rig.run()
    (results,) = of_pod(served, "p")
    assert results["plugins"] is None
    assert [(one["node"], one["scores"]) for one in results["best"][:2]] == [("n5", []), ("n4", [])]


def test_a_rejection_is_kept_with_the_number_of_nodes_by_reason() -> None:
    served = sizes()
    served.rig.submit(pod("big").request(cpu="40"))
    served.rig.run()
    (results,) = of_pod(served, "big")
    assert (results["node"], results["best"], results["rejected"]) == ("", [], [])
    assert results["message"].startswith("0/8 nodes are available: 1 node(s) were unschedulable, 7 Insufficient cpu.")


def test_seconds_since_creation() -> None:
    served = sizes()
    made = served.rig.pod(pod("p").request(cpu="1"))
    metadata = replace(made.metadata, creation_timestamp="2025-12-31T23:59:50Z")
    served.rig.core.intake.set_pod(replace(made, metadata=metadata))
    served.rig.submit(pod("q").request(cpu="1"))
    served.rig.run()
    assert of_pod(served, "p")[0]["secondsSinceCreation"] == 10
    assert of_pod(served, "q")[0]["secondsSinceCreation"] is None


def test_keys_are_the_same_after_their_best_were_read() -> None:
    """The search for the second best hides the best for a moment."""
    served, other = sizes(), sizes(kept=0)
    for one in (served, other):
        one.rig.submit(*(pod(f"p{number}").request(cpu="1") for number in range(20)))
        one.rig.run()
    for of_one, of_other in zip(served.rig.core.runners.values(), other.rig.core.runners.values(), strict=True):
        key = of_one.class_scores(info_of(served.rig, "p0").pod_class).exact_key()
        assert np.array_equal(key, of_other.class_scores(info_of(other.rig, "p0").pod_class).exact_key())
    assert [served.rig.where(f"p{number}") for number in range(20)] == [
        other.rig.where(f"p{number}") for number in range(20)
    ]


def test_the_ring_has_a_size() -> None:
    served = sizes(kept=3)
    served.rig.submit(*(pod(f"p{number}").request(cpu="1") for number in range(5)))
    served.rig.run()
    document = served.json("/debug/decisions")
    assert (document["size"], document["kept"]) == (3, 3)
    assert len({one["pod"]["name"] for one in document["decisions"]}) == 3
    assert served.json("/debug/decisions?limit=2")["decisions"] == document["decisions"][:2]
    for limit in ("0", "-1", "two", "9" * 5000):
        assert len(served.json(f"/debug/decisions?limit={limit}")["decisions"]) == (0 if limit == "0" else 3)


def test_none_is_kept_when_it_is_off() -> None:
    served = sizes(kept=0)
    served.rig.submit(pod("p").request(cpu="1"), pod("big").request(cpu="40"))
    served.rig.run()
    assert served.json("/debug/decisions") == {"size": 0, "kept": 0, "decisions": []}
    assert served.json("/apis/v1/explain/default/p")["decision"] is None
    assert served.json("/apis/v1/explain/default/p")["keptDecisions"] == 0


def test_messages_are_cut() -> None:
    """Reasons of plugins may differ from node to node."""
    rig = Rig(kept_decisions=1)
    kept = KeptDecisions(rig.clock, 1)
    rig.submit(pod("p"))
    kept.reject(info_of(rig, "p"), "x" * (MAX_MESSAGE + 1))
    assert [len(one.message) for one in kept] == [MAX_MESSAGE]


def test_decisions_are_served_as_the_debug_flags_are() -> None:
    assert Served(profiling=False).get("/debug/decisions").code == 404


def test_an_explanation_of_a_bound_pod_has_its_decision() -> None:
    served = sizes()
    served.rig.submit(pod("p").request(cpu="4"))
    served.rig.submit(*(pod(f"q{number}").request(cpu="4") for number in range(3)))
    served.rig.run()
    document = served.json("/apis/v1/explain/default/p")
    assert document["decision"] == of_pod(served, "p")[0]
    assert document["keptDecisions"] == 100
    assert document["lacking"] == []


def test_a_pod_that_another_put_on_its_node_has_no_decision() -> None:
    served = sizes()
    served.rig.running(pod("p").request(cpu="4"), "n0")
    assert served.json("/apis/v1/explain/default/p")["decision"] is None


def test_a_pod_that_names_its_nodes_has_a_decision_among_these() -> None:
    served = sizes()
    named = pod("p").request(cpu="1")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0", "n1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    named.manifest["spec"]["affinity"] = {"nodeAffinity": required}
    served.rig.submit(named)
    served.rig.run()
    (results,) = of_pod(served, "p")
    assert [one["node"] for one in results["best"]] == ["n1", "n0"]
    assert results["rejected"][-1]["plugins"].endswith("nodes not left to the pod")


def test_members_of_a_gang_are_kept_when_it_is_placed() -> None:
    """Places that are taken and given back, as of a gang that does not fit, are no decision."""
    served = Served(GangRig())
    served.rig.node("n0", cpu="4")
    served.rig.node("n1", cpu="4")
    served.rig.submit(*(light(f"a{number}", "a", "2") for number in range(2)))
    served.rig.submit(*(light(f"b{number}", "b", "3", cpu=3) for number in range(3)))
    served.rig.run()
    kept = served.json("/debug/decisions")["decisions"]
    placed = {one["pod"]["name"]: one for one in kept if one["node"]}
    assert sorted(placed) == ["a0", "a1"]
    assert {name: one["node"] for name, one in placed.items()} == {name: served.rig.where(name) for name in placed}
    assert all(one["best"][0]["node"] == one["node"] for one in placed.values())
    assert {one["pod"]["name"] for one in kept if not one["node"]} >= {"b0", "b1", "b2"}


def test_the_room_that_is_lacking_is_named() -> None:
    """`small` has most memory, and the cordoned node, which has most of all, counts for nothing."""
    served = Served()
    served.rig.node("cordoned", cpu="640", memory="640Gi", unschedulable=True)
    served.rig.node("small", cpu="1", memory="8Gi")
    served.rig.node("large", cpu="8", memory="6Gi")
    served.rig.submit(pod("p").request(cpu="12", memory="10Gi"))
    served.rig.run()
    cpu, memory = served.json("/apis/v1/explain/default/p")["lacking"]
    assert cpu == {
        "resource": "cpu",
        "asked": "12",
        "free": "8",
        "nearest": "large",
        "mostFree": "8",
        "mostFreeOn": "large",
    }
    assert memory == {
        "resource": "memory",
        "asked": "10Gi",
        "free": "6Gi",
        "nearest": "large",
        "mostFree": "8Gi",
        "mostFreeOn": "small",
    }


@pytest.mark.parametrize(
    "node", [pytest.param({"unschedulable": True}, id="no-room-is-lacking"), pytest.param({}, id="it-fits")]
)
def test_nothing_is_lacking(node: dict[str, Any]) -> None:
    served = Served()
    served.rig.node("n", **node)
    served.rig.submit(pod("p").request(cpu="1"))
    assert json.loads(served.get("/apis/v1/explain/default/p").body)["lacking"] == []
