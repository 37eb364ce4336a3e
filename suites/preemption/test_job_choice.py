"""Job-level preemption: which pods are one job, and which of several equal jobs goes."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang
from seatrial.suites.preemption.jobs import JOB, PREEMPTING, filler, hosts, left, of_job, workers
from seatrial.suites.preemption.priorities import classes, second_namespace

__all__ = ["classes", "second_namespace"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-050", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # makes a second namespace
def test_jobs_of_two_namespaces_are_two(classes: Trial, expect: Expect, second_namespace: str) -> None:
    """Two pods have the same job label, one in another namespace. The gang needs one card: only one of them goes."""
    hosts(classes, n1=1, n2=1)
    other = filler("other", "n2").label(JOB, "job-1").select({TRIAL_LABEL: classes.name})
    pods = f"/api/v1/namespaces/{second_namespace}/pods"
    classes.accept(other.manifest, pods)

    def theirs() -> dict[str, object]:
        body: dict[str, object] = orjson.loads(classes.call("GET", f"{pods}/other").body)
        return body

    assert classes.reaches(lambda: '"phase":"Running"' in orjson.dumps(theirs()).decode(), within=30)
    classes.submit(filler("mine", "n1").label(JOB, "job-1"))
    expect.running("mine")
    classes.apply(gang("train", 1))
    (member,) = workers("train", 1)

    classes.submit(member.on(host="n1"))

    expect.running("train-0")
    assert left(classes) == []
    kept = theirs()
    assert kept["kind"] == "Pod", "the pod of the other namespace was evicted"
    assert '"deletionTimestamp"' not in orjson.dumps(kept).decode()


@pytest.mark.feature("PRE-2.whole-jobs")
@pytest.mark.case("JP-051", severity="normal")
def test_a_job_label_that_comes_later_counts(classes: Trial, expect: Expect) -> None:
    """Two running pods get a job label: then both go, although the gang needs one card."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1", "n1"), filler("low-2", "n2"))
    expect.running("low-1", "low-2")
    for name in ("low-1", "low-2"):
        path = f"/api/v1/namespaces/{classes.name}/pods/{name}"
        assert classes.call("PATCH", path, {"metadata": {"labels": {JOB: "job-1"}}}).ok
    classes.settle()
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    expect.gone("low-1", "low-2")


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-052", severity="normal")
@pytest.mark.parametrize(("alone", "shared"), [("n1", "n2"), ("n2", "n1")])
def test_of_equal_jobs_the_one_with_fewer_pods_elsewhere_goes(
    classes: Trial, expect: Expect, alone: str, shared: str
) -> None:
    """The pod of one node is a job of its own, that of the other has a peer on a third node: the first goes."""
    hosts(classes, n1=1, n2=1, n3=1)
    pair = [of_job("pair", where) for where in (shared, "n3")]
    classes.submit(filler("single", alone), *pair)
    expect.running("single", f"pair-{shared}", "pair-n3")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == sorted([f"pair-{shared}", "pair-n3"])


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-055", severity="critical", source="ours")
@pytest.mark.parametrize("names_of_pods", [("a", "z"), ("z", "a")], ids="-".join)
def test_of_equal_priority_small_pods_go_and_a_large_job_stays(
    classes: Trial, expect: Expect, names_of_pods: tuple[str, str]
) -> None:
    """On each of two nodes a job has 3 cards and a single pod has 1; a gang needs a card for each of two members. The
    single pods go. Source: the v1.7 post: the jobs of the lowest cost are evicted. Koordinator counts no sizes."""
    large, small = names_of_pods
    hosts(classes, n1=4, n2=4)
    singles = [filler(f"{small}-single-{number}", f"n{number}") for number in (1, 2)]
    classes.submit(of_job(large, "n1", cards=3), of_job(large, "n2", cards=3), *singles)
    expect.running(f"{large}-n1", f"{large}-n2", *(f"{small}-single-{number}" for number in (1, 2)))
    classes.apply(gang("train", 2))

    classes.submit(*workers("train", 2))

    expect.running("train-0", "train-1")
    assert left(classes) == [f"{large}-n1", f"{large}-n2"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-056", severity="normal", source="ours")
@pytest.mark.parametrize(("crowded", "other"), [("n1", "n2"), ("n2", "n1")])
def test_of_equal_priority_the_fewest_pods_go(classes: Trial, expect: Expect, crowded: str, other: str) -> None:
    """A member needs four cards. One node has four pods of a card each, the other one a pod of four: that one goes.

    Source: ours.
    """
    hosts(classes, n1=4, n2=4)
    classes.submit(*(filler(f"low-{number}", crowded) for number in range(4)), filler("whole", other, 4))
    expect.running(*(f"low-{number}" for number in range(4)), "whole")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1, cards=4))

    expect.running("train-0")
    assert left(classes) == [f"low-{number}" for number in range(4)]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("JP-057", severity="normal", source="ours")
def test_a_job_that_stays_costs_nothing(classes: Trial, expect: Expect) -> None:
    """A gang needs a card. On n2 an unimportant single pod has one, beside an important pod that need not go; n1 and n3
    have an unimportant job of two pods: the single pod goes.

    Source: ours; Koordinator counts the important pod, too.
    """
    hosts(classes, n1=4, n2=4, n3=4)
    classes.submit(
        of_job("job", "n1", cards=4),
        of_job("job", "n3", cards=4),
        filler("single", "n2"),
        filler("important", "n2", 3, "trial-high"),
    )
    expect.running("job-n1", "job-n3", "single", "important")
    classes.apply(gang("train", 1))

    classes.submit(*workers("train", 1))

    expect.running("train-0")
    assert left(classes) == ["important", "job-n1", "job-n3"]


@pytest.mark.feature("PRE-2.cost")
@pytest.mark.case("PR-301", severity="normal", source="ours")
def test_of_jobs_that_need_not_go_the_more_important_stays(classes: Trial, expect: Expect) -> None:
    """For its first member a gang evicts two pods of n1, where a more important job may stay; for the second one that
    job goes after all, which has a pod there, too. Its card is enough for one of the two pods: the more important one
    stays."""
    hosts(classes, n1=3, n2=1)
    job = [of_job("dear", host, "trial-high") for host in ("n1", "n2")]
    classes.submit(filler("low", "n1"), filler("middle", "n1", priority="trial-middle"), *job)
    expect.running("low", "middle", "dear-n1", "dear-n2")
    classes.apply(gang("train", 2))

    (first,), (_, second) = workers("train", 1, cards=2), workers("train", 2)
    classes.submit(first.on(host="n1"), second.on(host="n2"))

    expect.running("train-0", "train-1")
    assert left(classes) == ["middle"]
