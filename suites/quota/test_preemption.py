"""Preemption inside of a quota: whom it spares, and that it asks once."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node, priority_class, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.preemption.nominations import freeze, thaw
from seatrial.suites.quota.quotas import counted, make, named, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

LOW, HIGH, PATIENT = "quota-low", "quota-high", "quota-patient"


def prepare(trial: Trial, *nodes: str, cores: int) -> None:
    """A quota `a`, and nodes with room for more than it admits."""
    trial.apply(priority_class(LOW, 1000), priority_class(HIGH, 9000), priority_class(PATIENT, 9000, preempts=False))
    trial.add(*(node(name).cpu(32) for name in nodes))
    make(trial, quota(named(trial, "a")).min(cpu=1).max(cpu=cores))


def guard(trial: Trial, name: str) -> None:
    """A budget that allows no disruption of one pod."""
    trial.apply(disruption_budget("guard", {"pod": name}, min_available=1))
    trial.pass_time(2)  # the disruption controller writes what is allowed


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-154", severity="critical", source="spec QUOTA-R50; kubernetes: preemptionPolicy Never")
def test_a_pod_that_never_preempts_waits_in_its_quota(trial: Trial, expect: Expect) -> None:
    """A quota is full of a less important pod. A pod whose class has the policy Never waits until it is deleted."""
    prepare(trial, "n1", cores=4)
    trial.submit(counted(trial, "low", "a", cpu=4).priority_class(LOW))
    expect.bound("low")

    trial.submit(counted(trial, "high", "a", cpu=4).priority_class(PATIENT))

    expect.pending("high", saying="Insufficient quotas")
    expect.stable(seconds=5)
    assert not trial.pod("low").deleting
    trial.delete("low")
    expect.bound("high")


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-171", severity="critical", source="spec QUOTA-R49")
@pytest.mark.parametrize("spared", ["equal", "non-preemptible", "of-another-quota"])
def test_whom_preemption_in_a_quota_spares(trial: Trial, expect: Expect, spared: str) -> None:
    """A quota is full of a less important pod and one that is no victim. A pod that needs the room of both
    waits, and both stay. One of one core takes the room of the less important one."""
    prepare(trial, "n1", cores=2 if spared != "of-another-quota" else 1)
    make(trial, quota(named(trial, "b")).max(cpu=1))
    own = "b" if spared == "of-another-quota" else "a"
    stays = counted(trial, "stays", own, cpu=1, preemptible=spared != "non-preemptible")
    trial.submit(stays.priority_class(HIGH if spared == "equal" else LOW))
    trial.submit(counted(trial, "low", "a", cpu=1).priority_class(LOW))
    expect.running("stays", "low")

    trial.submit(counted(trial, "large", "a", cpu=2).priority_class(HIGH))
    expect.pending("large", saying="Insufficient quotas")
    expect.stable(seconds=3)
    assert not trial.pod("low").deleting
    trial.delete("large")
    trial.submit(counted(trial, "high", "a", cpu=1).priority_class(HIGH))

    expect.gone("low")
    expect.bound("high")
    expect.running("stays")


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-155", severity="critical", source="spec QUOTA-R52, QUOTA-R53")
@pytest.mark.parametrize(("guarded", "other"), [("older", "newer"), ("newer", "older")], ids=["older", "newer"])
def test_a_budget_protects_from_preemption_in_a_quota(trial: Trial, expect: Expect, guarded: str, other: str) -> None:
    """Of two less important pods one has a budget: the other one makes room, whichever started first."""
    prepare(trial, "n1", cores=2)
    for name in ("older", "newer"):
        trial.submit(counted(trial, name, "a", cpu=1).priority_class(LOW).label("pod", name))
        expect.running(name)
        trial.pass_time(2)  # start times are whole seconds
    guard(trial, guarded)

    trial.submit(counted(trial, "high", "a", cpu=1).priority_class(HIGH))

    expect.bound("high")
    expect.gone(other)
    expect.running(guarded)


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-156", severity="critical", source="spec QUOTA-R50")
@pytest.mark.long(seconds=25)
def test_a_preemptor_awaits_its_victim(trial: Trial, expect: Expect) -> None:
    """The victim of a full quota does not end, since its node is frozen, and gets a budget. The preemptor is tried
    again because its labels change: it leaves the second pod alone, and starts when its victim is gone."""
    prepare(trial, "n1", "n2", cores=4)
    names = {"n1": "p1", "n2": "p2"}
    for home, name in names.items():
        low = counted(trial, name, "a", cpu=2).priority_class(LOW).label("pod", name)
        low.manifest["spec"]["terminationGracePeriodSeconds"] = 300
        trial.submit(low.select({"kubernetes.io/hostname": home}))
    expect.running("p1", "p2")
    for home in names:
        freeze(trial, home)
    trial.submit(counted(trial, "high", "a", cpu=2).priority_class(HIGH))

    def victims() -> list[str]:
        return [one.metadata.name for one in trial.pods() if one.deleting]

    assert trial.reaches(lambda: bool(victims()), within=30)
    (victim,) = victims()
    guard(trial, victim)

    change = {"metadata": {"labels": {"changed": "yes"}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/high", change).ok

    settle(trial)
    assert victims() == [victim]
    for home in names:
        thaw(trial, home)
    expect.bound("high")
    assert not victims()
    assert len(trial.pods()) == 2


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-158", severity="critical", source="spec QUOTA-R52")
@pytest.mark.parametrize("order", [("large", "small"), ("small", "large")], ids=["large-first", "small-first"])
def test_a_victim_makes_room_in_the_quota_and_on_the_node(trial: Trial, expect: Expect, order: tuple[str, ...]) -> None:
    """Either of two less important pods has the core that the quota lacks, one has the memory that the node lacks too:
    that one makes room, and the other one stays."""
    trial.apply(priority_class(LOW, 1000), priority_class(HIGH, 9000))
    trial.add(node("n1").cpu(16).memory("10Gi"))
    make(trial, quota(named(trial, "a")).max(cpu=2))
    memory = {"large": "6Gi", "small": "1Gi"}
    for name in order:
        trial.submit(counted(trial, name, "a", cpu=1, memory=memory[name]).priority_class(LOW))
        expect.running(name)
        trial.pass_time(2)  # start times are whole seconds

    trial.submit(counted(trial, "high", "a", cpu=1, memory="5Gi").priority_class(HIGH))

    expect.bound("high")
    expect.gone("large")
    expect.running("small")


@pytest.mark.feature("QUOTA-12.inside")
@pytest.mark.case("QU-159", severity="critical", source="spec QUOTA-R53")
@pytest.mark.parametrize(
    ("costs", "guarded"),
    [
        pytest.param({"n1": [("low", 2)], "n2": [("middle", 1), ("middle", 1)]}, "n1-0", id="fewest-violations"),
        pytest.param({"n1": [("middle", 2)], "n2": [("low", 1), ("low", 1)]}, "", id="lowest-top-victim"),
        pytest.param({"n1": [("low", 1), ("low", 1)], "n2": [("low", 2)]}, "", id="fewest-victims"),
        pytest.param({"n1": [("low", 2)], "n2": [("low", 2)]}, "", id="latest-start"),
    ],
)
def test_the_node_with_the_cheapest_victims_of_the_quota_is_chosen(
    trial: Trial, expect: Expect, costs: dict[str, list[tuple[str, int]]], guarded: str
) -> None:
    """Both nodes are full of less important pods of the quota. Those of n2 cost less: they make room."""
    trial.apply(priority_class(LOW, 1000), priority_class("quota-middle", 2000), priority_class(HIGH, 9000))
    trial.add(*(node(name).cpu(3) for name in costs))  # one core more than the quota's pods have
    make(trial, quota(named(trial, "a")).max(cpu=4))
    for home, victims in costs.items():
        for number, (level, cores) in enumerate(victims):
            one = counted(trial, f"{home}-{number}", "a", cpu=cores).priority_class(f"quota-{level}")
            trial.submit(one.select({"kubernetes.io/hostname": home}).label("pod", one.name))
            expect.running(one.name)
        trial.pass_time(2)  # start times are whole seconds
    if guarded:
        guard(trial, guarded)

    trial.submit(counted(trial, "high", "a", cpu=2).priority_class(HIGH))

    assert expect.bound("high").spec.node_name == "n2"
    expect.running(*(f"n1-{number}" for number, _ in enumerate(costs["n1"])))
    expect.gone(*(f"n2-{number}" for number, _ in enumerate(costs["n2"])))
