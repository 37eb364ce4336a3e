"""The index of reservation selectors (RSV-R49), its view and its metrics."""

from typing import Any

import orjson
import pytest

from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY
from seatrial.scheduler.plugins.reservation.args import ReservationArgs, SelectorIndexArgs
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.selector_index import SelectorIndex
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, owner
from seatrial.scheduler.tests.rig import Rig, profile

BOTH = SelectorIndexArgs(enabled=True, key_prefixes=(" team-", "team-", ""), keys=("tier", "team-x"))


def filled(args: SelectorIndexArgs = BOTH) -> SelectorIndex:
    index = SelectorIndex(args)
    index.add("r1", "n1", {"tier": "gold", "other": "1"})
    index.add("r2", "n1", {"tier": "gold", "team-a": "1"})
    index.add("r3", "n2", {"tier": "silver", "team-a": "2"})
    index.add("r4", "n3", {"team-x": "y", "team-b": "1"})
    return index


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param({"tier": "gold"}, {"n1"}, id="key-and-value"),
        pytest.param({"tier": "bronze"}, set(), id="a-value-that-none-has"),
        pytest.param({"team-a": "9"}, {"n1", "n2", "n3"}, id="a-prefix-regards-no-value"),
        pytest.param({"team-x": "y"}, {"n3"}, id="an-exact-key-goes-before-a-prefix"),
        pytest.param({"team-a": "1", "tier": "silver"}, {"n2"}, id="the-smallest-of-two"),
        pytest.param({"team-a": "1", "tier": "bronze"}, set(), id="an-empty-one-ends-the-search"),
        pytest.param({"other": "1"}, None, id="not-indexed"),
        pytest.param({}, None, id="no-selector"),
    ],
)
def test_nodes(selector: dict[str, str], want: set[str] | None) -> None:
    nodes = filled().nodes(selector)
    assert (None if nodes is None else set(nodes)) == want


def test_removed_reservations_are_not_found() -> None:
    index = filled()
    for uid in ("r1", "r2", "r2"):
        index.remove(uid)
    index.add("r3", "n3", {"tier": "silver"})  # on another node, without its team
    assert set(index.nodes({"tier": "gold"}) or ()) == set()
    assert set(index.nodes({"tier": "silver"}) or ()) == {"n3"}
    assert set(index.nodes({"team-a": ""}) or ()) == {"n3"}


def test_the_view() -> None:
    index = filled()
    assert index.view(detail=False) == {
        "enabled": True,
        "prefixes": ["team-"],
        "keys": ["team-x", "tier"],
        "indexedReservations": 4,
        "byPrefix": {"team-": {"nodes": 3, "reservations": 3}},
        "byKey": {"team-x": {"nodes": 1, "reservations": 1}, "tier": {"nodes": 2, "reservations": 3}},
    }
    detailed = index.view(detail=True)
    assert detailed["byPrefix"]["team-"]["byNode"] == {"n1": ["r2"], "n2": ["r3"], "n3": ["r4"]}
    assert detailed["byKeyValue"]["tier"]["gold"] == {"nodes": 1, "reservations": 2, "byNode": {"n1": ["r1", "r2"]}}
    off = SelectorIndex(SelectorIndexArgs(enabled=True))
    off.add("r", "n", {"tier": "gold"})
    assert off.view(detail=True) == {"enabled": False, "prefixes": [], "indexedReservations": 0}


def test_metrics() -> None:
    """Two hits, one of them empty, and a miss: an empty result is not among the candidates."""
    index = filled()
    for selector in ({"tier": "gold"}, {"tier": "bronze"}, {"other": "1"}):
        index.nodes(selector)
    queries, candidates = index.families()
    assert queries[3] == [
        'scheduler_reservation_selector_index_query_total{result="hit"} 2',
        'scheduler_reservation_selector_index_query_total{result="miss"} 1',
    ]
    assert "scheduler_reservation_selector_index_candidates_count_count 1" in candidates[3]
    assert list(SelectorIndex(SelectorIndexArgs()).families()) == []


def choosy(name: str, **selector: str) -> PodBuilder:
    return owner(name, cpu=1).annotation(RESERVATION_AFFINITY, orjson.dumps({"reservationSelector": selector}).decode())


def test_decisions_are_the_same_with_and_without_the_index() -> None:
    """Pods with selectors on indexed and other keys; with the index, only nodes of a bucket are looked at."""
    results = []
    for index in ({}, {"enabled": True, "keys": ["tier"], "keyPrefixes": ["team-"]}):
        args: dict[str, Any] = {"reservationSelectorIndex": index}
        rig = Rig(profile(pluginConfig=[{"name": "Reservation", "args": args}]))
        for number in range(4):
            rig.node(f"n{number}", cpu="8")
            labels = {"tier": "gold" if number % 2 else "silver", f"team-{number}": "1", "zone": str(number)}
            hold(rig, f"r{number}", f"n{number}", {"cpu": 2000}, labels=labels)
        amounts = {
            "gold": {"tier": "gold"},
            "bronze": {"tier": "bronze"},
            "team": {"team-2": "1"},
            "zone": {"zone": "3"},
            "both": {"tier": "silver", "zone": "0"},
            "neither": {"tier": "gold", "team-0": "1"},
        }
        rig.submit(*(choosy(name, **selector) for name, selector in amounts.items()))
        rig.run()
        results.append({name: rig.where(name) for name in amounts})
        if index:
            seen = ReservationCache.of(rig.core.handle).index(
                SelectorIndexArgs(enabled=True, key_prefixes=("team-",), keys=("tier",))
            )
            assert seen.view(detail=False)["indexedReservations"] == 4
            assert 'result="hit"} 0' not in next(iter(seen.families()))[3][0]
    assert results[0] == results[1]
    assert results[0] | {"gold": ""} == {
        "gold": "",
        "bronze": "",
        "team": "n2",
        "zone": "n3",
        "both": "n0",
        "neither": "",
    }
    assert results[0]["gold"] in {"n1", "n3"}


def test_the_index_limits_what_is_looked_at() -> None:
    """Reservations beside the bucket do not appear in the pod's message, as in Koordinator."""
    args = {"reservationSelectorIndex": {"enabled": True, "keys": ["tier"]}}
    rig = Rig(profile(pluginConfig=[{"name": "Reservation", "args": args}]))
    for number in range(3):
        rig.node(f"n{number}", cpu="8")
        hold(rig, f"r{number}", f"n{number}", {"cpu": 2000}, labels={"tier": "silver" if number else "gold"})
    rig.submit(choosy("a", tier="gold", zone="nowhere"))
    rig.run()
    assert "1 Reservation(s) matched owner total" in rig.message("a")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param({"ignored_resources": ("cpu",)}, "expected names such as example.com/gpu", id="native"),
        pytest.param(
            {"ignored_resources": ("kubernetes.io/batch-cpu",)}, "found 'kubernetes.io/batch-cpu'", id="batch"
        ),
        pytest.param({"ignored_resource_groups": ("a/b",)}, "expected groups such as example.com", id="slash"),
        pytest.param({"ignored_resource_groups": ("kubernetes.io",)}, "found 'kubernetes.io'", id="native-group"),
    ],
)
def test_resources_that_cannot_be_ignored(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ReservationArgs(**values).check()
