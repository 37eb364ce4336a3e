"""Why a pod waits for its quota: the message in the pod's conditions."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.quota.quotas import counted, make, named

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case("QU-141", severity="normal")
@pytest.mark.long(seconds=25)
def test_the_reason_changes_with_the_quota(trial: Trial, expect: Expect) -> None:
    """A pod of four cores waits for a quota of four, of which three pods use one each. Two of them go one after the
    other: the pod still waits, and its condition has the amount that is used now each time."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    others = ("first", "second", "third")
    trial.submit(*(counted(trial, name, "a", cpu=1) for name in others))
    expect.bound(*others)
    trial.submit(counted(trial, "waits", "a", cpu=4))

    def used(cpu: int) -> None:
        expect.pending("waits", saying=f"quotaName: {named(trial, 'a')}, runtime: cpu:4, used: cpu:{cpu}")

    used(3)
    trial.delete("first")
    used(2)
    trial.delete("second")
    used(1)
