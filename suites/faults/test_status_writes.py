"""Conditions and events whose writes are refused, late or repeated: what is said about a pod in the end is true."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, OfKind, bindings
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node, pod
from seatrial.suites.faults.schedulers import link, pause, running, witnessed

__all__ = ["link", "running"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("HIL-4.api-errors", "SHELL-5.refusal")]
STATUSES, EVENTS = OfKind("status"), OfKind("events")


def begin(trial: Trial, expect: Expect) -> None:
    """A node of two CPUs, which the scheduler has received."""
    trial.add(node("n1").cpu(2))
    witnessed(trial, expect)


@pytest.mark.case("FT-170", severity="normal", source="ours: upstream's patch has no condition")
@pytest.mark.long(seconds=8)
def test_a_status_is_written_after_two_conflicts(trial: Trial, expect: Expect, link: Link) -> None:
    """What is written to a pod's status is refused twice because the pod has changed. The pod has its message then."""
    begin(trial, expect)
    link.delay = 1.0
    link.refuse(409, STATUSES)
    trial.submit(pod("large").request(cpu=4))
    assert trial.wait(lambda: link.refused >= 2, within=30), "the status was to be written twice"
    link.heal()
    pause(trial, 4, real=4)
    link.delay = 0.0
    expect.pending("large", saying="Insufficient cpu", within=1, cooled=False)


@pytest.mark.case("FT-171", severity="critical", source="kubernetes pkg/scheduler/util/utils.go@v1.34: PatchPodStatus")
@pytest.mark.long(seconds=8)
def test_a_late_refusal_is_of_its_own_pod(trial: Trial, expect: Expect, link: Link) -> None:
    """A pod does not fit, and the write of that is answered late with a conflict. Meanwhile the pod is replaced by one
    of its name, of another scheduler: nothing is written to that one."""
    begin(trial, expect)
    link.delay = 3.0
    link.refuse(409, STATUSES)
    trial.submit(pod("p").request(cpu=4))
    assert trial.wait(lambda: link.refused >= 1, within=30), "a status was to be written"
    link.heal()
    trial.delete("p")
    trial.submit(pod("p").request(cpu=4).scheduler("absent-scheduler"))
    pause(trial, 15, real=15)
    conditions = [each for each in trial.pod("p").status.conditions if each.type == "PodScheduled"]
    assert not conditions, f"expected no word about a pod of another scheduler, found {conditions}"
    link.delay = 0.0


@pytest.mark.feature("GANG-6.said")
@pytest.mark.case("FT-172", severity="normal", source="ours: upstream writes at each attempt of a gang")
@pytest.mark.needs(Capability.HARDWARE)
@pytest.mark.long(seconds=40)
def test_a_gang_whose_statuses_were_refused_says_why_it_waits(trial: Trial, expect: Expect, link: Link) -> None:
    """Members ask for 80 % of a card, and 60 % and 100 % are free. What is written to their status is refused. Later a
    pod comes and goes, so that the gang is tried again: the members have their messages."""
    trial.add(node("n1").gpus("a10", 2))
    witnessed(trial, expect)
    trial.submit(pod("filler").gpu_share(40))
    expect.bound("filler")
    trial.apply(gang("train", 2))
    link.refuse(403, STATUSES)
    names = ("train-0", "train-1")
    trial.submit(*(pod(name).gpu_share(80).in_gang("train") for name in names))
    assert trial.wait(lambda: link.refused >= 2, within=30), "a status of each member was to be written"
    pause(trial, 12, real=12)
    link.heal()
    trial.submit(pod("short").request(cpu=1))
    expect.bound("short")
    trial.delete("short")
    expect.pending(*names, saying="gets rejected due to", within=30, cooled=False)


@pytest.mark.case("FT-173", severity="normal", source="kubernetes client-go/tools/events/event_broadcaster.go@v0.34")
@pytest.mark.long(seconds=8)
def test_events_are_written_after_some_were_refused(trial: Trial, expect: Expect, link: Link) -> None:
    """The events of four pods are refused. The fifth pod has an event."""
    begin(trial, expect)
    link.refuse(403, EVENTS)
    trial.submit(*(pod(f"lost-{number}").request(cpu=4) for number in range(4)))
    assert trial.wait(lambda: link.refused >= 2, within=30), "events were to be written"
    pause(trial, 5, real=5)
    link.heal()
    trial.submit(pod("told").request(cpu=4))

    def has_event() -> bool:
        return any(each.reason == "FailedScheduling" for each in trial.events("told"))

    assert trial.reaches(has_event, within=30), trial.events("told")


@pytest.mark.case("FT-174", severity="normal", source="kubernetes api/events/v1/types.go@v0.34: EventSeries.Count")
@pytest.mark.long(seconds=15)
def test_a_series_counts_all_its_events(trial: Trial, expect: Expect, link: Link) -> None:
    """The binding of a pod is refused three times in the same words: its event says that it happened three times."""
    begin(trial, expect)
    link.refuse(403, bindings)
    trial.submit(pod("p"))
    assert trial.wait(lambda: link.refused >= 3, within=30), "three bindings were to be tried"
    refused = link.refused
    link.heal()
    expect.bound("p", within=60)

    def total() -> int:
        return sum(each.count for each in trial.events("p") if each.reason == "FailedScheduling")

    assert trial.reaches(lambda: total() == refused, within=10), f"expected {refused}, found {total()}"


@pytest.mark.case(
    "FT-175", severity="normal", source="kubernetes client-go/tools/events/event_broadcaster.go@v0.34: getKey"
)
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_pod_with_the_name_of_a_former_one_has_events_of_its_own(trial: Trial, expect: Expect) -> None:
    """A pod does not fit, is deleted, and comes again under its name: each of the two has an event."""
    trial.add(node("n1").cpu(1))
    for _ in range(2):
        trial.submit(pod("p").request(cpu=2))
        expect.pending("p", cooled=False)
        uid = trial.pod("p").metadata.uid

        def has_event(uid: str = uid) -> bool:
            response = trial.call("GET", f"/api/v1/namespaces/{trial.name}/events")
            return any(
                row["involvedObject"].get("uid") == uid and row["reason"] == "FailedScheduling"
                for row in orjson.loads(response.body)["items"]
            )

        assert trial.reaches(has_event, within=30), trial.events("p")
        trial.delete("p")
        expect.gone("p")
