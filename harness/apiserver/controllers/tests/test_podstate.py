"""The order of deletion of pods, and their availability."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.podstate import available_in, deletion_order, is_active
from seatrial.harness.apiserver.storage.store import Item
from seatrial.harness.apiserver.verbs.subresources import disrupted
from seatrial.scheduler.api.clock import from_rfc3339

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"


def pod(
    name: str,
    *,
    node: str = "n",
    phase: str = "Running",
    ready: bool = True,
    since: str = EARLY,
    cost: str = "",
    restarts: int = 0,
    born: str = EARLY,
) -> Item:
    metadata: dict[str, Any] = {"name": name, "uid": name, "creationTimestamp": born}
    if cost:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost}
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
    status = {"phase": phase, "conditions": [condition], "containerStatuses": [{"restartCount": restarts}]}
    return Item(("default", name), {"metadata": metadata, "spec": {"nodeName": node}, "status": status}, 1)


STAYS = pod("stays")


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(pod("goes", node=""), id="not-bound"),
        pytest.param(pod("goes", phase="Pending"), id="pending"),
        pytest.param(pod("goes", ready=False), id="not-ready"),
        pytest.param(pod("goes", cost="-1"), id="cheaper"),
        pytest.param(pod("goes", since=LATE), id="ready-for-a-shorter-time"),
        pytest.param(pod("goes", restarts=3), id="restarted-more-often"),
        pytest.param(pod("goes", born=LATE), id="younger"),
    ],
)
def test_deletion_order(first: Item) -> None:
    both = [STAYS, first]
    assert [pod.key[1] for pod in deletion_order(both, both)] == ["goes", "stays"]


def test_pods_on_crowded_nodes_are_deleted_first() -> None:
    pods = [pod("alone", node="a"), pod("one", node="b"), pod("two", node="b")]
    assert deletion_order(pods, pods)[-1].key[1] == "alone"


@pytest.mark.parametrize(
    ("ready", "wait", "want"),
    [
        pytest.param(False, 0, None, id="not-ready"),
        pytest.param(True, 0, 0.0, id="at-once"),
        pytest.param(True, 90, 30.0, id="half-a-minute-to-go"),
        pytest.param(True, 30, 0.0, id="long-enough"),
    ],
)
def test_available(ready: bool, wait: int, want: float | None) -> None:
    assert available_in(pod("p", ready=ready).obj, wait, from_rfc3339(EARLY) + 60) == want


def test_the_disruption_condition_is_set_on_a_copy() -> None:
    before = pod("p").obj
    after = disrupted(before, "EvictionByEvictionAPI", "Eviction API: evicting", LATE)
    assert [condition["type"] for condition in after["status"]["conditions"]] == ["Ready", "DisruptionTarget"]
    assert [condition["type"] for condition in before["status"]["conditions"]] == ["Ready"]
    assert is_active(after)
