"""The score tables of decisions against `explain`, which runs the plain methods of all plugins."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import PREFER_NO_SCHEDULE, Taint
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.framework.kept_decisions import SCORE_TABLES, SCORE_TABLES_PER_SECOND, Ranking
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, owner
from seatrial.scheduler.tests.rig import Rig

NAMES = "metadata.name"


def fleet(rig: Rig) -> Rig:
    """Eight nodes of different sizes, cards, zones, labels and taints."""
    for number in range(8):
        rig.node(
            f"n{number}",
            cpu=str(16 + 4 * number),
            gpus=8 if number % 2 else 4,
            labels={"zone": f"z{number % 3}", "disk": "fast" if number in {1, 2, 6} else "slow"},
            taints=tuple(Taint(f"t{each}", "", PREFER_NO_SCHEDULE) for each in range(number % 3)),
        )
    return rig


def asking(name: str, **spec: Any) -> PodBuilder:
    built = pod(name).request(cpu=2, memory="4Gi").label("app", "a")
    built.manifest["spec"].update(spec)
    return built


def wishes(name: str) -> PodBuilder:
    terms = [(30, "disk", "fast"), (50, "zone", "z1")]
    preferred = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}}
        for weight, key, value in terms
    ]
    return asking(name, affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}})


def pinned(name: str) -> PodBuilder:
    term = {"matchFields": [{"key": NAMES, "operator": "In", "values": ["n2", "n3", "n4"]}]}
    built = wishes(name)
    built.manifest["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [term]
    }
    return built


def spread(name: str) -> PodBuilder:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    return asking(name, topologySpreadConstraints=[constraint])


SHAPES = {
    "plain": asking,
    "share": lambda name: asking(name).gpu_share(30),
    "cards": lambda name: asking(name).nvidia(2),
    "wishes": wishes,
    "pinned": pinned,
    "spread": spread,
}


def decided(rig: Rig, name: str) -> Ranking:
    ranking = next(each.ranking for each in rig.core.handle.kept if each.name == name and each.node)
    assert ranking is not None
    return ranking


def by_node(ranking: Ranking) -> dict[str, dict[str, int]]:
    """Weighted scores of a table, by node and plugin, without zeros."""
    nodes, _, _, _, _, _, table = ranking
    assert table is not None
    names, weights, numbers = table
    each = iter(numbers[1::2])
    return {
        node: {name: score * weight for name, weight in zip(names, weights, strict=True) if (score := next(each))}
        for node in nodes
    }


def check(rig: Rig, name: str, before: dict[str, dict[str, int]]) -> None:
    """The table of a decision against scores that were computed before it."""
    ranking = decided(rig, name)
    table = by_node(ranking)
    for place, (node, scores) in enumerate(table.items()):
        if not ranking[2] >> place & 1:
            assert sum(scores.values()) == ranking[1][place], (name, node, scores)
        assert set(scores.items()) <= set(before[node].items())
    left_out = [
        {key: value for key, value in before[node].items() if value and key not in table[node]} for node in table
    ]
    assert all(each == left_out[0] for each in left_out), (
        f"a plugin left out of {name}'s table gives nodes different scores"
    )


def scores_now(rig: Rig, name: str) -> dict[str, dict[str, int]]:
    info = rig.core.find(f"default/{name}")
    assert info is not None
    return {scored.node: scored.by_plugin for scored in explain(rig.core.runners.of(info), info).feasible}


@pytest.mark.parametrize("nominated", [False, True], ids=["", "beside-a-nominated-pod"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_table_has_what_plugins_score(shape: str, *, nominated: bool) -> None:
    """Ten pods one after the other, between pods of other shapes, so that keys are updated in every way."""
    rig = fleet(Rig())
    if nominated:
        rig.submit(pod("other").request(cpu=1).priority(100))
        rig.run()
        info = rig.core.find("default/other")
        assert info is not None
        rig.core.handle.nominator.nominate(info, "n5")
    for number in range(10):
        name = f"p{number}"
        rig.submit(SHAPES[shape](name))
        before = scores_now(rig, name)
        rig.run()
        check(rig, name, before)
        rig.submit(*(build(f"{other}-{number}") for other, build in SHAPES.items()))
        rig.run()


def test_a_pod_with_a_reservation_has_the_scores_of_nodes_without_the_reserve_pods() -> None:
    rig = fleet(Rig())
    hold(rig, "held", "n3", {"cpu": 10_000, "memory": 32 << 30})
    for number in range(3):
        name = f"p{number}"
        rig.submit(owner(name, cpu=2, memory="4Gi"))
        before = scores_now(rig, name)
        rig.run()
        assert rig.where(name) == "n3"
        check(rig, name, before)


def test_in_a_burst_the_first_decisions_have_tables_and_later_ones_again() -> None:
    rig = fleet(Rig(kept_decisions=10_000))

    def tables() -> int:
        made = [each for each in rig.core.handle.kept if each.node]
        return sum(each.ranking is not None and each.ranking[-1] is not None for each in made)

    rig.submit(*(pod(f"p{number}") for number in range(SCORE_TABLES + 50)))
    rig.run()
    assert tables() == SCORE_TABLES
    rig.clock.advance(0.5)
    rig.submit(*(pod(f"q{number}") for number in range(40)))
    rig.run()
    assert tables() == SCORE_TABLES + SCORE_TABLES_PER_SECOND // 2


def test_the_duration_of_plugins_has_no_part_of_a_table() -> None:
    """Calls that are made for diagnosis count in no histogram."""
    counts = []
    for kept in (0, 10):
        rig = fleet(Rig(kept_decisions=kept))
        rig.submit(wishes("p"))
        rig.run()
        counts.append({key: histogram.count for key, histogram in rig.core.handle.timing.by_plugin.items()})
    assert counts[0] == counts[1]
