"""PodGroups that are deleted and created again, values that contradict each other, and the status.

A member asks for one card of an A10 node, so the room is a number of cards.
"""

import orjson
import pytest

from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.scheduler_metrics import Figures
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import pod_group_writes
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.scheduler.api.podgroup import GANG_TOTAL
from seatrial.suites.gang.members import bound, names, status, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def shows(trial: Trial, **target: object) -> bool:
    """Wait until the status of the PodGroup train has these values; a number that is 0 may be left out."""

    def there() -> bool:
        results = status(trial)
        return all(results.get(key, 0) == value for key, value in target.items())

    return bool(trial.wait(there, within=30))


def succeeds(trial: Trial, expect: Expect, name: str) -> None:
    """Have a member succeed, and delete it."""
    assert trial.call("PATCH", f"{trial.path('Pod', name)}/status", {"status": {"phase": "Succeeded"}}).ok
    trial.settle()
    trial.delete(name)
    expect.gone(name)


@pytest.mark.feature("GANG-1.quorum")
@pytest.mark.case("GA-110", severity="critical")
def test_a_pod_group_that_is_made_anew_is_a_new_gang(trial: Trial, expect: Expect) -> None:
    """A gang of two was bound; its pods and its PodGroup are deleted. The next PodGroup of the name has two members
    and one free card: none is bound."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    trial.delete(*names("train", 2))
    expect.gone(*names("train", 2))
    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok
    trial.submit(pod("other").gpus(1))
    expect.bound("other")

    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2, first=2))

    expect.stable(seconds=12)
    assert bound(trial, "train") == []
    trial.delete("other")
    expect.bound(*names("train", 2, first=2))


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-111", severity="normal")
@pytest.mark.long(seconds=6)
def test_the_first_minimum_of_an_annotation_gang_counts(trial: Trial, expect: Expect) -> None:
    """The first member says three, the second one says one: two members are not bound, the third completes them."""
    trial.add(node("n1").cards(3))
    trial.submit(pod("light-0").gpus(1).in_light_gang("light", 3))
    expect.stable(seconds=3)
    trial.submit(pod("light-1").gpus(1).in_light_gang("light", 1))
    expect.stable(seconds=8)
    assert bound(trial) == []

    trial.submit(pod("light-2").gpus(1).in_light_gang("light", 1))

    expect.bound(*names("light", 3))


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-112", severity="normal")
def test_the_status_follows_members_that_are_deleted(trial: Trial, expect: Expect) -> None:
    """Three members run. One is deleted: two are counted. The others are deleted: the PodGroup is Pending again."""
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 3))
    expect.running(*names("train", 3))
    assert shows(trial, phase="Running", scheduled=3, running=3), status(trial)

    trial.delete("train-0")

    assert shows(trial, phase="Running", scheduled=2, running=2), status(trial)
    trial.delete("train-1", "train-2")
    assert shows(trial, phase="Pending", scheduled=0, running=0), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-113", severity="normal")
def test_the_status_counts_members_that_failed(trial: Trial, expect: Expect) -> None:
    """One of two members fails while the other one runs: the PodGroup is Failed, with one of each. It stays so when the
    other one is deleted."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert shows(trial, phase="Running"), status(trial)

    path = f"/api/v1/namespaces/{trial.name}/pods/train-0/status"
    assert trial.call("PATCH", path, {"status": {"phase": "Failed"}}).ok

    assert shows(trial, phase="Failed", failed=1, running=1), status(trial)
    before = status(trial)
    trial.delete("train-1")
    trial.pass_time(5)
    assert status(trial) == before


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-280", severity="normal", source="spec GANG-R45")
@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (("Running", "Running", "Succeeded"), "Running"),
        (("Running", "Succeeded", "Failed"), "Failed"),
        (("Succeeded", "Succeeded", "Failed"), "Failed"),
        (("Succeeded", "Succeeded", "Succeeded"), "Finished"),
    ],
    ids=["two-run", "one-of-each", "one-failed", "all-succeeded"],
)
def test_the_phase_of_a_gang_of_three(trial: Trial, expect: Expect, phases: tuple[str, ...], expected: str) -> None:
    """Members that run, succeeded or failed add up to the minimum of three."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 3))
    trial.submit(*workers("train", len(phases)))
    expect.running(*names("train", len(phases)))
    assert shows(trial, phase="Running"), status(trial)

    for name, phase in zip(names("train", len(phases)), phases, strict=True):
        if phase != "Running":
            path = f"/api/v1/namespaces/{trial.name}/pods/{name}/status"
            assert trial.call("PATCH", path, {"status": {"phase": phase}}).ok

    counts = {name.lower(): phases.count(name) for name in ("Running", "Succeeded", "Failed")}
    assert shows(trial, phase=expected, **(counts if expected != "Finished" else {})), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-281", severity="normal", source="spec GANG-R45")
def test_who_occupies_a_gang_and_since_when(trial: Trial, expect: Expect) -> None:
    """Members with two owners wait for a second card: both owners are named. When a member is deleted later the gang is
    being scheduled again, and its start stays the first one."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))
    owners = []
    for name in ("b", "a"):
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        uid = trial.accept(body, f"/api/v1/namespaces/{trial.name}/configmaps")["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    for built in (members := workers("train", 2)):
        built.manifest["metadata"]["ownerReferences"] = owners
    trial.submit(*members)
    assert shows(trial, phase="Scheduling", occupiedBy=f"{trial.name}/a,{trial.name}/b"), status(trial)
    start = status(trial)["scheduleStartTime"]
    trial.pass_time(2)
    trial.add(node("n2").cards(1))
    expect.running(*names("train", 2), within=60)
    assert shows(trial, phase="Running"), status(trial)

    trial.delete("train-0")

    assert shows(trial, phase="Scheduling", scheduled=1, scheduleStartTime=start), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-114", severity="normal")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("code", [500, 403])
def test_a_status_that_was_refused_is_written_again(
    trial: Trial, expect: Expect, subject: Subject | None, code: int
) -> None:
    """The API server refuses the status of the PodGroup for a while: it is there soon after."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    trial.add(node("n1").cards(2))
    with subject.troubled() as link:
        link.refuse(code, pod_group_writes)
        trial.apply(gang("train", 2))
        trial.submit(*workers("train", 2))
        expect.running(*names("train", 2))
        assert trial.reaches(lambda: link.refused >= 1, within=30), "the status was to be written"
        trial.pass_time(3)
        link.heal()
        assert shows(trial, phase="Running", running=2), status(trial)


@pytest.mark.feature("GANG-3.cycle-counter")
@pytest.mark.case("GA-115", severity="normal")
@pytest.mark.long(seconds=6)
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the scheduler's endpoints have the real names of namespaces
def test_each_cycle_of_a_gang_has_a_number(trial: Trial, expect: Expect, services: Ask) -> None:
    """A gang fails, and fails again after its members were replaced: the number of its schedule cycle has grown."""
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))

    def cycle() -> int:
        answer = services("GET", f"/apis/v1/plugins/Coscheduling/gang/{trial.name}/train")
        assert answer.code == 200, answer.body
        body = orjson.loads(answer.body)
        assert "scheduleCycle" in body, f"fields: expected scheduleCycle, found {', '.join(sorted(body))}"
        return int(body["scheduleCycle"])

    trial.submit(*workers("train", 2))
    assert trial.reaches(lambda: cycle() >= 1, within=60), cycle()
    expect.stable(seconds=5)
    before = cycle()
    trial.delete(*names("train", 2))

    trial.submit(*workers("train", 2, first=2))

    assert trial.reaches(lambda: cycle() > before, within=60), cycle()
    expect.stable(seconds=5)
    assert bound(trial) == []


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-391", severity="normal", source="koordinator coscheduling/core/gang_summary.go@v1.8.0")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_the_summary_of_a_gang(trial: Trial, expect: Expect, services: Ask) -> None:
    """Two of three members are bound. The summary has the rules of the gang, and each member where it belongs."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2).mode("NonStrict").waiting_time(300).annotation(GANG_TOTAL, "4"))
    trial.submit(*workers("train", 3))
    assert trial.reaches(lambda: len(bound(trial)) == 2, within=60)
    (waiting,) = set(names("train", 3)) - set(bound(trial))
    expect.pending(waiting)

    def keys(*members: str) -> dict[str, dict[str, str]]:
        return {f"{trial.name}/{name}": {} for name in members}

    expected = {
        "name": f"{trial.name}/train",
        "waitTime": 300 * 10**9,
        "mode": "NonStrict",
        "gangMatchPolicy": "once-satisfied",
        "minRequiredNumber": 2,
        "totalChildrenNum": 4,
        "gangGroup": [f"{trial.name}/train"],
        "children": keys(*names("train", 3)),
        "pendingChildren": keys(waiting),
        "waitingForBindChildren": {},
        "boundChildren": keys(*bound(trial)),
        "onceResourceSatisfied": True,
        "gangFrom": "GangFromPodGroupCrd",
        "hasGangInit": True,
    }
    body = orjson.loads(services("GET", f"/apis/v1/plugins/Coscheduling/gang/{trial.name}/train").body)
    assert {key: body.get(key) for key in expected} == expected
    assert orjson.loads(services("GET", "/apis/v1/plugins/Coscheduling/gangs").body)[expected["name"]] == body
    answer = services("GET", f"/apis/v1/plugins/Coscheduling/gang/{trial.name}/none")
    assert (answer.code, f"cannot find gang {trial.name}/none" in answer.body.decode()) == (404, True)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-392", severity="normal", source="ours: no release has this metric yet")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_the_metric_of_gang_cycles(trial: Trial, expect: Expect, services: Ask) -> None:
    """A gang of two waits for a second card, and starts: an attempt that failed and one that succeeded are counted."""
    cycles = "scheduler_gang_schedule_cycle_duration_seconds_count"

    def counted(reason: str) -> float:
        return Figures(services("GET", "/metrics").body.decode()).sum(cycles, reason=reason, job_size="1-100")

    failed, succeeded = "all pending pods is already been attempted", "gang is already succeed"
    before = counted(failed), counted(succeeded)
    trial.add(node("n1").cards(1))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.pending(*names("train", 2))
    assert trial.reaches(lambda: counted(failed) > before[0], within=30)
    assert counted(succeeded) == before[1]
    trial.add(node("n2").cards(1))
    expect.bound(*names("train", 2), within=60)
    assert trial.reaches(lambda: counted(succeeded) > before[1], within=30)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-255", severity="normal", source="ours: spec GANG-R45")
def test_members_that_ended_and_are_deleted_count_for_their_pod_group_alone(trial: Trial, expect: Expect) -> None:
    """A gang of two: one member succeeds and is deleted, then the other one succeeds: the PodGroup is Finished with
    two. It is made anew with the same members: these count, and not those of before."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert shows(trial, phase="Running"), status(trial)

    succeeds(trial, expect, "train-0")
    assert shows(trial, phase="Running", running=1, succeeded=1), status(trial)
    succeeds(trial, expect, "train-1")
    assert shows(trial, phase="Finished", succeeded=2), status(trial)

    assert trial.call("DELETE", trial.path("PodGroup", "train")).ok
    trial.settle()
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert shows(trial, phase="Running", scheduled=2, running=2, succeeded=0), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-343", severity="normal", source="ours")
def test_a_member_that_comes_again_under_its_name_counts_apart(trial: Trial, expect: Expect) -> None:
    """One of two members succeeds, is deleted, and comes again under its name; that pod succeeds, too: two have."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert shows(trial, phase="Running"), status(trial)
    succeeds(trial, expect, "train-0")
    trial.submit(*workers("train", 1))
    expect.running("train-0")
    assert shows(trial, phase="Running", running=2, succeeded=1), status(trial)

    succeeds(trial, expect, "train-0")

    assert shows(trial, phase="Finished", running=1, succeeded=2), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-257", severity="normal", source="spec GANG-R45")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_a_change_while_a_status_is_written_is_written_too(
    trial: Trial, expect: Expect, subject: Subject | None
) -> None:
    """The API server answers late. A member is deleted while the status before that is written: it is counted no more,
    although nothing else happens."""
    if subject is None:
        pytest.skip("needs a scheduler that the harness started; the harness did not start this one")
    trial.add(node("n1").cards(3))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert shows(trial, phase="Running", running=2), status(trial)
    with subject.troubled() as link:
        link.delay = 5.0
        trial.submit(*workers("train", 1, first=2))
        assert trial.reaches(lambda: status(trial).get("scheduled") == 3, within=60), status(trial)
        trial.delete("train-2")
        trial.pass_time(1)
        link.delay = 0.0
        assert shows(trial, scheduled=2, running=2), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-301", severity="normal", source="spec GANG-R46")
def test_the_status_of_a_running_gang_that_started_late(trial: Trial, expect: Expect) -> None:
    """A gang runs that was first scheduled more than two days after its creation: its status goes on to count."""
    trial.add(node("n1").cards(2))
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.running(*names("train", 2))
    assert shows(trial, phase="Running", scheduled=2, running=2), status(trial)
    late = {"status": {"scheduleStartTime": "2100-01-01T00:00:00Z"}}
    assert trial.call("PATCH", trial.path("PodGroup", "train"), late).ok

    trial.delete("train-0")

    assert shows(trial, phase="Scheduling", scheduled=1, running=1), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-328", severity="normal", source="spec GANG-R46")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a node that starts no container
def test_the_status_of_a_gang_that_never_ran_ends_after_two_days(trial: Trial, expect: Expect) -> None:
    """A gang is bound and does not run, and was first scheduled more than two days after its creation: its status does
    not change any more, though a member is deleted."""
    trial.add(node("n1").cards(2))
    trial.inject({"node": "n1", "verb": "frozen"})
    trial.apply(gang("train", 2))
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    assert shows(trial, phase="Scheduled", scheduled=2, running=0), status(trial)
    late = {"status": {"scheduleStartTime": "2100-01-01T00:00:00Z"}}
    assert trial.call("PATCH", trial.path("PodGroup", "train"), late).ok

    assert trial.call("DELETE", f"{trial.path('Pod', 'train-0')}?gracePeriodSeconds=0").ok

    expect.stable(seconds=5)
    assert shows(trial, phase="Scheduled", scheduled=2), status(trial)


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-329", severity="normal", source="spec GANG-R45")
@pytest.mark.parametrize("minimum", [0, 1])
def test_the_status_of_a_gang_without_members(trial: Trial, minimum: int) -> None:
    """A PodGroup has no members, and its minimum may be 0: it is Pending, and nothing is written any more."""
    trial.apply(gang("train", minimum))
    assert shows(trial, phase="Pending"), status(trial)
    before = trial.call("GET", trial.path("PodGroup", "train")).body

    trial.pass_time(5)

    assert trial.call("GET", trial.path("PodGroup", "train")).body == before
