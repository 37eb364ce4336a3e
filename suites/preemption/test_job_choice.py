"""Job-level preemption: which pods are one job, and which of several equal jobs goes."""

from collections.abc import Iterator

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang
from seatrial.suites.preemption.jobs import JOB, PREEMPTING, filler, hosts, left, of_job, workers
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.profile(PREEMPTING)]


@pytest.fixture
def second_namespace(classes: Trial) -> Iterator[str]:
    """A namespace beside that of the trial; deleted afterwards with its pods."""
    name = f"{classes.name}-other"
    classes.accept({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "/api/v1/namespaces")
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    assert classes.reaches(lambda: classes.call("GET", account).ok, within=30)
    yield name
    classes.call("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    pods = f"/api/v1/namespaces/{name}/pods"
    assert classes.reaches(lambda: not orjson.loads(classes.call("GET", pods).body)["items"], within=60)
    classes.call("DELETE", f"/api/v1/namespaces/{name}")


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
        found: dict[str, object] = orjson.loads(classes.call("GET", f"{pods}/other").body)
        return found

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
    classes: Trial,
    expect: Expect,
    alone: str,
    shared: str,
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
