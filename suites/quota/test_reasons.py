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
def test_the_reason_changes_with_the_quota(cluster: Trial, expect: Expect) -> None:
    """A pod of four cores waits for a quota of four, of which two pods use three. One of them goes: the pod still
    waits, and its condition has the amount that is used now."""
    cluster.add(node("n1").cpu(32))
    make(cluster, quota(named(cluster, "a")).max(cpu=4))
    cluster.submit(counted(cluster, "small", "a", cpu=1), counted(cluster, "large", "a", cpu=2))
    expect.bound("small", "large")
    cluster.submit(counted(cluster, "waits", "a", cpu=4))
    expect.pending("waits", saying=f"quotaName: {named(cluster, 'a')}, runtime: cpu:4, used: cpu:3")

    cluster.delete("small")

    expect.pending("waits", saying=f"quotaName: {named(cluster, 'a')}, runtime: cpu:4, used: cpu:2")
