"""NodeAffinity's argument `addedAffinity`: what a profile asks of nodes for all its pods."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.engine.tests.test_engine import events, nodes
from seatrial.scheduler.tests.play import Play, stories
from seatrial.scheduler.tests.rig import Rig, profile


def within(*zones: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": "zone", "operator": "In", "values": list(zones)}]}


def added(required: dict[str, Any] | None, preferred: dict[str, int]) -> dict[str, Any]:
    affinity: dict[str, Any] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": weight, "preference": within(zone)} for zone, weight in preferred.items()
        ]
    }
    if required is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [required]}
    return {"pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": affinity}}]}


def cluster(**parts: Any) -> Rig:
    rig = Rig(profile(**parts))
    for zone in ("a", "b", "c"):
        rig.node(zone, labels={"zone": zone})
    return rig


def test_all_pods_are_held_to_it() -> None:
    rig = cluster(**added(within("a", "b"), {}))
    rig.submit(pod("free"), pod("b-only").on(zone="b"), pod("c-only").on(zone="c"), pod("d-only").on(zone="d"))
    rig.run()
    assert rig.where("free") in {"a", "b"}
    assert rig.where("b-only") == "b"
    enforced, own = "node(s) didn't match scheduler-enforced node affinity", "node(s) didn't match Pod's node affinity"
    for name in ("c-only", "d-only"):
        assert rig.message(name).startswith(f"0/3 nodes are available: 1 {enforced}, 2 {own}/selector.")


@pytest.mark.parametrize("zone", ["a", "b", "c"])
def test_all_pods_prefer_it(zone: str) -> None:
    rig = cluster(**added(None, {zone: 10}))
    rig.submit(pod("p"))
    rig.run()
    assert rig.where("p") == zone


@stories(60)
@given(start=st.lists(nodes(), min_size=1, max_size=6), story=st.lists(events(), min_size=5, max_size=25))
def test_decisions_are_those_of_asking_everybody(start: list[Any], story: list[tuple[str, Any]]) -> None:
    play = Play(profile(**added(within("a", "b"), {"b": 50})))
    play.tell(start, story)
