"""Single steps of a migration job, from a state in which the watches of pods and reservations need not agree."""

import msgspec
import pytest

from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339
from seatrial.scheduler.api.migration import PodMigrationJob
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.descheduler.migration.steps import EvictPod, Steps
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import pod


@pytest.mark.parametrize(
    ("eviction", "evicts"), [("", False), ("FailedEvict", False), ("Evicting", True)]
)  # an eviction that may have been accepted is repeated: the deletion of the pod is then about to be seen
def test_a_pod_is_not_evicted_for_a_place_that_is_taken(eviction: str, *, evicts: bool) -> None:
    """The reservation is used up while the pod is there, and the last eviction was refused, sent, or did not begin."""
    met = [{"type": kind, "status": "True"} for kind in ("ReservationCreated", "ReservationScheduled")]
    if eviction:
        met.append({"type": "Eviction", "status": "False", "reason": eviction})
    job = msgspec.convert({
        "metadata": {"name": "job", "uid": "job-uid", "creationTimestamp": rfc3339(SIM_EPOCH)},
        "spec": {"ttl": "5m", "mode": "ReservationFirst", "podRef": {"namespace": "default", "name": "old"},
                 "reservationOptions": {"reservationRef": {"name": "place"}}},
        "status": {"phase": "Running", "nodeName": "n2", "conditions": met},
    }, PodMigrationJob)  # fmt: skip
    state = ClusterState()
    state.set_pod(pod("old", "n1"))
    state.set_job(job)
    state.set_reservation(msgspec.convert({
        "metadata": {"name": "place", "uid": "place-uid"},
        "spec": {"template": {}, "owners": [{"labelSelector": {"matchLabels": {"app": "web"}}}]},
        "status": {"phase": "Succeeded", "nodeName": "n2"},
    }, Reservation))  # fmt: skip

    step = Steps(state, "ReservationFirst", arbitration=False).next(job, SIM_EPOCH, rfc3339(SIM_EPOCH))

    assert isinstance(step.action, EvictPod) == evicts
    assert (step.status is not None and step.status.reason == "ForbiddenMigratePod") == (not evicts)
