"""Look-ups agree with a count over all pods after any order of events; a placement costs no more among many pods."""

import copy
import random
from typing import Any

import pytest

from seatrial.harness.audit.auditor import Auditor
from seatrial.harness.subject.footprint import counting
from seatrial.scheduler.api.builders import pod

Json = dict[str, Any]


def a_pod(name: str, cpu: int, *, where: str = "", phase: str = "", priority: int = 0) -> Json:
    built = pod(name).request(cpu=cpu).priority(priority)
    body: Json = copy.deepcopy(built.manifest)
    body["metadata"] |= {"uid": name, "namespace": "ns"}
    body["spec"] |= {"nodeName": where} if where else {}
    body["status"] = {"phase": phase}
    return body


def a_node(name: str) -> Json:
    return {
        "metadata": {"name": name, "uid": name},
        "spec": {},
        "status": {"allocatable": {"cpu": "100000", "pods": "100000"}},
    }


@pytest.mark.parametrize("seed", range(5))
def test_look_ups_agree_with_a_count(seed: int) -> None:
    """Pods are created, bound, ended and deleted in a random order, some of them twice."""
    draw, auditor = random.Random(seed), Auditor()  # noqa: S311 a test that can be repeated
    for number in range(3):
        auditor.observe("Node", "ADDED", a_node(f"n{number}"), 0.0)
    alive: dict[str, Json] = {}
    for step in range(400):
        name = f"p{draw.randrange(40)}"
        known = alive.get(name)
        if known is None:
            alive[name] = a_pod(name, draw.randrange(1, 5), priority=draw.randrange(3))
            auditor.observe("Pod", "ADDED", alive[name], float(step))
        elif draw.random() < 0.2:
            auditor.observe("Pod", "DELETED", alive.pop(name), float(step))
        else:
            changed = copy.deepcopy(known)
            if changed["spec"].get("nodeName"):
                changed["status"]["phase"] = draw.choice(["Running", "Succeeded"])
            else:
                changed["spec"]["nodeName"] = f"n{draw.randrange(3)}"
            alive[name] = changed
            auditor.observe("Pod", "MODIFIED", changed, float(step))
    there: dict[str, list[Json]] = {}
    for body in alive.values():
        if body["spec"].get("nodeName") and body["status"]["phase"] != "Succeeded":
            there.setdefault(body["spec"]["nodeName"], []).append(body)
    indices = auditor.state.indices
    assert indices.nodes.keys() == there.keys()
    for name, bodies in there.items():
        use = indices.nodes[name]
        assert use.pods.keys() == {body["metadata"]["uid"] for body in bodies}
        amount = sum(int(body["spec"]["containers"][0]["resources"]["requests"]["cpu"]) for body in bodies)
        assert use.amounts["cpu"] == amount * 1000
    waiting = [body for body in alive.values() if not body["spec"].get("nodeName")]
    assert sum(indices.pending_priorities.values()) == len(waiting)


def test_a_placement_costs_the_same_among_many_pods() -> None:
    """The calls of the auditor for one placement, among 20 and among 400 pods of one node."""
    auditor = Auditor()
    auditor.observe("Node", "ADDED", a_node("n"), 0.0)

    def place(name: str) -> int:
        with counting("/harness/audit/", "/tests/") as calls:
            auditor.observe("Pod", "ADDED", a_pod(name, 1), 0.0)
            auditor.observe("Pod", "MODIFIED", a_pod(name, 1, where="n"), 0.0)
        return calls.count

    counts = [place(f"p{number}") for number in range(400)]
    assert counts[399] <= counts[20] + 20
    assert not auditor.violations
