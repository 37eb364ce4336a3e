"""Single steps of migration jobs, from states in which the watches of pods and reservations need not agree."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339
from seatrial.scheduler.api.migration import PodMigrationJob
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.descheduler.migration.steps import EvictPod, Step, Steps
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod


def job(name: str, eviction: str) -> PodMigrationJob:
    """The job for the pod of this name, with a place on n2; `eviction`: reason of the condition, "" without one."""
    met = [{"type": kind, "status": "True"} for kind in ("ReservationCreated", "ReservationScheduled")]
    if eviction:
        met.append({"type": "Eviction", "status": "False", "reason": eviction})
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "creationTimestamp": rfc3339(SIM_EPOCH)},
            "spec": {
                "ttl": "5m",
                "mode": "ReservationFirst",
                "podRef": {"namespace": "default", "name": name, "uid": name},
                "reservationOptions": {"reservationRef": {"name": f"of-{name}"}},
            },
            "status": {"phase": "Running", "nodeName": "n2", "conditions": met},
        },
        PodMigrationJob,
    )


def place(name: str, phase: str, *, node: str = "n2", app: str = "web") -> Reservation:
    return msgspec.convert(
        {
            "metadata": {"name": f"of-{name}", "uid": f"of-{name}"},
            "spec": {"template": {}, "owners": [{"labelSelector": {"matchLabels": {"app": app}}}]},
            "status": {"phase": phase, "nodeName": node},
        },
        Reservation,
    )


GOING: dict[str, Any] = {"deletionTimestamp": rfc3339(SIM_EPOCH)}


def step_of(state: ClusterState, eviction: str, *, going: bool = False) -> Step:
    """The next step of the job `old`, whose pod runs on n1 and whose reservation is used up."""
    own = job("old", eviction)
    state.set_pod(pod("old", "n1", **(GOING if going else {})))
    state.set_job(own)
    state.set_reservation(place("old", "Succeeded"))
    return Steps(state, "ReservationFirst", arbitration=False).next(own, SIM_EPOCH, rfc3339(SIM_EPOCH))


@pytest.mark.parametrize(
    ("eviction", "evicts"), [("", False), ("FailedEvict", False), ("Evicting", True)]
)  # an eviction that may have been accepted is repeated: the deletion of the pod is then about to be seen
def test_a_pod_is_not_evicted_for_a_place_that_is_taken(eviction: str, *, evicts: bool) -> None:
    """The reservation is used up while the pod is there, and the last eviction was refused, sent, or did not begin."""
    step = step_of(ClusterState(), eviction)

    assert isinstance(step.action, EvictPod) == evicts
    assert (step.status is not None and step.status.reason == "ForbiddenMigratePod") == (not evicts)


def test_a_pod_that_is_going_has_lost_no_place() -> None:
    """An eviction was refused at first and then accepted; the new pod is in a reservation while the old one ends."""
    step = step_of(ClusterState(), "FailedEvict", going=True)

    assert step.status is None
    assert step.action is None


@pytest.mark.parametrize(
    ("results", "left", "evicts"),
    [
        pytest.param({}, "gone", True, id="its-pod-is-gone"),
        pytest.param({}, "deleting", True, id="its-pod-is-going"),
        pytest.param({}, "there", False, id="its-pod-is-there"),
        pytest.param({"phase": "Succeeded"}, "gone", False, id="used-up-too"),
        pytest.param({"app": "db"}, "gone", False, id="for-other-pods"),
        pytest.param({"node": "n1"}, "gone", False, id="on-the-own-node"),
    ],
)
def test_a_place_in_exchange_is_a_place(results: dict[str, Any], left: str, *, evicts: bool) -> None:
    """The reservation is used up, and that of another job is left, by whose new pod it may have been taken."""
    state = ClusterState()
    state.set_job(job("other", "Evicting"))
    state.set_reservation(place("other", **{"phase": "Available", **results}))
    if left != "gone":
        state.set_pod(pod("other", "n1", **(GOING if left == "deleting" else {})))

    assert isinstance(step_of(state, "").action, EvictPod) == evicts
