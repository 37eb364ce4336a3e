"""Benchmarks of the core: every pod is accounted for, and what a mix says is what pods ask for."""

from pathlib import Path

import pytest

from seatrial.harness.bench.core import Size, bench_core, nothing_placed, starved
from seatrial.harness.bench.mixes import APP, HOST, MIXES, ZONE, mix
from seatrial.harness.bench.preempt import Preemptors, bench_preempt
from seatrial.harness.bench.waiting_gangs import KINDS, bench_waiting_gangs
from seatrial.harness.errors import UsageError


@pytest.mark.parametrize("name", MIXES)
@pytest.mark.parametrize("waiting", [0, 40])
def test_every_pod_is_placed_whoever_waits(name: str, waiting: int) -> None:
    messages: list[str] = []
    figures = bench_core(Size(nodes=100, pods=60, repeat=2, waiting=waiting), mix(name), messages.append)
    assert (figures["placed"], figures["unplaced"], figures["waiting"]) == (60, 0, waiting)
    assert 0 < figures["decision_us"]["p50"] <= figures["decision_us"]["p99"]
    assert len(messages) == 2


def test_pods_of_the_spread_mix_mean_their_own_app() -> None:
    result = mix("spread")
    for number in range(len(result.shapes)):
        rules = result.spec(number, "x")["topologySpreadConstraints"]
        assert [rule["topologyKey"] for rule in rules] == [ZONE, HOST]
        assert all(rule["labelSelector"]["matchLabels"] == result.labels(number) for rule in rules)
    assert len({result.labels(number)[APP] for number in range(len(result.shapes))}) == len(result.shapes)


def test_half_of_the_affinity_mix_insists_on_being_apart() -> None:
    result = mix("affinity")
    insisting = [
        "requiredDuringSchedulingIgnoredDuringExecution" in result.spec(number, "x")["affinity"]["podAntiAffinity"]
        for number in range(len(result.shapes))
    ]
    assert sum(insisting) == len(result.shapes) // 2


@pytest.mark.parametrize("each", [1, 2, 4, 8])
def test_each_preemption_makes_room_and_is_timed(each: int) -> None:
    figures = bench_preempt(20, 20 * each, Preemptors(8), lambda _: None)
    assert figures["victims"] >= 8
    times = figures["preemption_ms"]
    assert 0 < times["p50"] <= times["p99"] <= times["highest"]
    assert figures["within_budget"] == (times["p50"] <= figures["budget_ms"])


@pytest.mark.parametrize(("nodes", "pods"), [(10, 30), (10, 15), (10, 160), (10, 5)])
def test_pods_that_would_not_fill_the_nodes_are_refused(nodes: int, pods: int) -> None:
    with pytest.raises(UsageError, match="expected --pods to be 1, 2, 4 or 8 times --nodes"):
        bench_preempt(nodes, pods, Preemptors(1), lambda _: None)


@pytest.mark.parametrize(
    ("shares", "valid"),
    [
        pytest.param([1.0, 0.98, 1.01], True, id="a-core-of-its-own"),
        pytest.param([1.0, 0.9], True, id="on-the-bound"),
        pytest.param([1.0, 0.89], False, id="one-repetition-waited"),
        pytest.param([0.1, 0.12], False, id="a-busy-machine"),
    ],
)
def test_figures_of_a_starved_process_are_not_valid(shares: list[float], valid: bool) -> None:
    because = starved(shares)
    assert (not because) == valid
    assert all("other load on the machine" in reason for reason in because)


@pytest.mark.parametrize("job", [1, 4])
def test_each_gang_gets_the_room_of_whole_jobs(job: int) -> None:
    figures = bench_preempt(20, 80, Preemptors(2, gang=3, job=job), lambda _: None)
    assert figures["victims"] >= 2 * 3 * 4, "each member wants a node, on which four pods run"
    assert figures["victims"] % job == 0, "jobs are evicted whole"
    assert figures["preemption_ms"]["p50"] > 0


def test_figures_of_no_placement_are_not_valid() -> None:
    assert nothing_placed(0, 1200) == ["no pod was placed, of 1,200"]
    assert nothing_placed(1, 1200) == []


def _configuration(folder: Path, scheduler: str, score: str = "") -> Path:
    path = folder / "config.yaml"
    path.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles:\n"
        f"- schedulerName: {scheduler}\n{score}"
    )
    return path


def test_a_configuration_is_measured(tmp_path: Path) -> None:
    packing = "  plugins: {score: {enabled: [{name: DeviceFragmentation}]}}\n"
    config = _configuration(tmp_path, "default-scheduler", packing)
    figures = bench_core(Size(nodes=30, pods=60, repeat=1), mix("accelerators"), lambda _: None, config=config)
    assert figures["placed"] == 60


def test_a_configuration_for_another_scheduler_is_refused(tmp_path: Path) -> None:
    config = _configuration(tmp_path, "somebody-else")
    with pytest.raises(UsageError, match="expected a profile for scheduler 'default-scheduler', found none"):
        bench_core(Size(nodes=3, pods=6, repeat=1), mix("cpu"), lambda _: None, config=config)


def test_all_pods_are_placed_beside_gangs_that_wait() -> None:
    figures = bench_waiting_gangs(Size(nodes=40, pods=60, repeat=2), mix("whole"), 3, lambda _: None)
    assert (figures["gangs"], figures["members"], figures["placed"], figures["invalid_because"]) == (3, 8, 60, [])
    assert all(0 < figures["pod_us"][kind]["low"] <= figures["pod_us"][kind]["high"] for kind in KINDS)
    assert list(figures["slower_percent"]) == ["plain", "gathered"]


def test_gangs_that_would_have_the_whole_cluster_are_refused() -> None:
    with pytest.raises(UsageError, match="more than 7 nodes, found --nodes 7"):
        bench_waiting_gangs(Size(nodes=7, pods=1), mix("whole"), 1, lambda _: None)
