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
@pytest.mark.long(seconds=15)
def test_the_reason_changes_with_the_quota(trial: Trial, expect: Expect) -> None:
    """A pod of four cores waits for a quota of four, of which two pods use three. One of them goes: the pod still
    waits, and its condition has the amount that is used now."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=4))
    trial.submit(counted(trial, "small", "a", cpu=1), counted(trial, "large", "a", cpu=2))
    expect.bound("small", "large")
    trial.submit(counted(trial, "waits", "a", cpu=4))
    expect.pending("waits", saying=f"quotaName: {named(trial, 'a')}, runtime: cpu:4, used: cpu:3")

    trial.delete("small")

    expect.pending("waits", saying=f"quotaName: {named(trial, 'a')}, runtime: cpu:4, used: cpu:2")
