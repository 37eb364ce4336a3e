"""Job-level preemption: which of several jobs are evicted for a gang: by cost, and only those that are needed.

A member asks for one card of an A10 node. The pods in the way are full pods of lower priority.
"""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, gang
from seatrial.suites.preemption.jobs import JOB, PREEMPTING, filler, hosts, left, names, of_job, workers, workers_on
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-004", severity="critical")
def test_the_cheapest_jobs_go(classes: Trial, expect: Expect) -> None:
    """Priorities 1000, 5000 and 9000 cost 0, 1 and 2. n1 has 1000 and 9000, n2 has 5000 alone: n2 is cheaper."""
    hosts(classes, n1=2, n2=2)
    classes.submit(
        filler("low", "n1"), filler("high", "n1", priority="trial-high"), filler("middle", "n2", 2, "trial-middle")
    )
    expect.running("low", "high", "middle")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=2))

    expect.running("train-0")
    assert left(classes) == ["high", "low"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-005", severity="critical")
def test_pods_of_one_job_count_once(classes: Trial, expect: Expect) -> None:
    """On n2 two pods of 5000 are one job: cost 1. On n1 pods of 1000, 5000 and 5000 are three jobs: cost 2. If each pod
    counted, both nodes would cost 2, and n1 would be the first."""
    hosts(classes, n1=4, n2=4)
    both = [filler(f"worker-{number}", "n2", 2, "trial-middle").label(JOB, "job-1") for number in (1, 2)]
    apart = [filler(f"single-{number}", "n1", 1, "trial-middle").label(JOB, f"job-{number + 1}") for number in (1, 2)]
    classes.submit(*both, filler("low", "n1", 2).label(JOB, "job-4"), *apart)
    expect.running("worker-1", "worker-2", "low", "single-1", "single-2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=4))

    expect.running("train-0")
    assert left(classes) == ["low", "single-1", "single-2"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-014", severity="critical")
@pytest.mark.parametrize("order", [("trial-low", "trial-middle"), ("trial-middle", "trial-low")], ids="-".join)
def test_of_one_node_the_less_important_job_goes(classes: Trial, expect: Expect, order: tuple[str, str]) -> None:
    """Two jobs fill a node, the one or the other is older; a gang of one needs half of it."""
    hosts(classes, n1=2)
    for priority in order:
        classes.submit(filler(priority, "n1", priority=priority))
        expect.running(priority)
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["trial-middle"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-060", severity="normal")
@pytest.mark.parametrize("order", [("n1", "n2"), ("n2", "n1")], ids="-".join)
def test_of_equal_nodes_the_first_by_name_is_taken(classes: Trial, expect: Expect, order: tuple[str, str]) -> None:
    """Two nodes with one pod each, made in both orders: the pod of n1 goes."""
    for name in order:
        hosts(classes, **{name: 1})
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["low-2"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-065", severity="critical")
def test_a_job_costs_what_its_most_important_pod_costs(classes: Trial, expect: Expect) -> None:
    """A job has a pod of 1000 on n1 and one of 9000 on n3; the pod of n2 has 5000: the pod of n2 goes."""
    hosts(classes, n1=1, n2=1, n3=1)
    classes.submit(of_job("wide", "n1"), of_job("wide", "n3", "trial-high"), filler("middle", "n2", 1, "trial-middle"))
    expect.running("wide-n1", "wide-n3", "middle")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["wide-n1", "wide-n3"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-015", severity="critical")
@pytest.mark.parametrize(("guarded", "other"), [("n1", "n2"), ("n2", "n1")])
def test_a_budget_outweighs_the_cost(classes: Trial, expect: Expect, guarded: str, other: str) -> None:
    """The cheaper job has a disruption budget that its eviction would violate: the more important one is evicted."""
    hosts(classes, n1=1, n2=1)
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(filler("low", guarded).label("app", "guarded"), filler("middle", other, priority="trial-middle"))
    expect.running("low", "middle")
    classes.cluster.pass_time(2)  # the budget's status counts it
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["low"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("PR-263", severity="normal", source="spec GANG-D5, GANG-R80")
@pytest.mark.parametrize("first", ["guarded", "other"])
def test_of_two_jobs_of_a_node_the_one_without_a_budget_goes(classes: Trial, expect: Expect, first: str) -> None:
    """A node has two pods of equal priority, one of them under a budget that allows no disruption; either is older. The
    other one goes."""
    hosts(classes, n1=2)
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    for name in sorted(("guarded", "other"), key=lambda name: name != first):
        classes.submit(filler(name, "n1").label("app", name))
        expect.running(name)
        classes.settle(2)  # start times have whole seconds, and the budget's status counts the pod
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["guarded"]


@pytest.mark.feature("PRE-2.for-the-rest", "PRE-2.cost")
@pytest.mark.case("JP-016", severity="critical")
@pytest.mark.parametrize("first", ["n1", "n2"])
def test_a_job_that_turns_out_not_to_be_needed_stays(classes: Trial, expect: Expect, first: str) -> None:
    """The job of n2 has a pod on n1 too. Once it goes for the member of n2, the job of n1 need not go for the other."""
    hosts(classes, n1=2, n2=1)
    classes.submit(filler("low", "n1"), *(of_job("both", where, "trial-middle") for where in ("n1", "n2")))
    expect.running("low", "both-n1", "both-n2")
    classes.apply(gang("train", 2))
    second = "n2" if first == "n1" else "n1"

    classes.submit(*workers_on("train", first, second))

    expect.running(*names("train", 2))
    assert left(classes) == ["low"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-061", severity="normal")
def test_of_the_jobs_that_are_not_needed_the_more_important_one_stays(classes: Trial, expect: Expect) -> None:
    """Two members need n1, where the jobs low, middle and wide have a card each. The third member needs n2, which wide
    has: wide goes, and leaves a card on n1, so that only one of the other two has to go."""
    hosts(classes, n1=3, n2=1)
    classes.submit(
        of_job("low", "n1"),
        of_job("middle", "n1", "trial-middle"),
        of_job("wide", "n1", "trial-high"),
        of_job("wide", "n2", "trial-high"),
    )
    expect.running("low-n1", "middle-n1", "wide-n1", "wide-n2")
    classes.apply(gang("train", 3))

    classes.submit(*workers_on("train", "n1", "n1", "n2"))

    expect.running(*names("train", 3))
    assert left(classes) == ["middle-n1"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("PR-264", severity="normal", source="ours")
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_of_the_jobs_that_are_not_needed_the_older_one_stays(classes: Trial, expect: Expect, order: str) -> None:
    """As before, but the two jobs beside wide have equal priority: the younger one goes."""
    hosts(classes, n1=3, n2=1)
    for job in order:
        classes.submit(of_job(job, "n1"))
        expect.running(f"{job}-n1")
        classes.settle(2)  # start times have whole seconds
    classes.submit(of_job("wide", "n1", "trial-high"), of_job("wide", "n2", "trial-high"))
    expect.running("wide-n1", "wide-n2")
    classes.apply(gang("train", 3))

    classes.submit(*workers_on("train", "n1", "n1", "n2"))

    expect.running(*names("train", 3))
    assert left(classes) == [f"{order[0]}-n1"]
