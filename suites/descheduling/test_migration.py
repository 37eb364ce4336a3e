"""PodMigrationJob: a place is reserved first, the pod is evicted second, and the workload keeps its budget."""

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.suites.descheduling.workloads import (
    cordon,
    deployment,
    ended,
    migrate,
    wait_running,
    with_nodes,
)

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("MIG-1")
@pytest.mark.case("MG-001", severity="blocker")
def test_a_pod_moves_into_a_reserved_place(cluster: Trial, expect: Expect, start_descheduler: StartDescheduler) -> None:
    """ReservationFirst: a reservation on another node, then the eviction, then the new pod in the reservation."""
    with_nodes(cluster, "n1", "n2")
    cordon(cluster, "n2")
    deployment(cluster, "web", 3, like=pod("x").request(cpu=2))
    before = {one.metadata.name for one in wait_running(cluster, "web", 3)}
    cordon(cluster, "n2", on=False)
    start_descheduler({})
    victim = sorted(before)[0]

    migrate(cluster, "move", victim)

    done = ended(cluster, "move")
    assert (done.status.phase, done.status.status, done.status.node_name) == ("Succeeded", "Complete", "n2")
    assert done.status.pod_ref is not None
    new = expect.running(done.status.pod_ref.name)
    assert new.spec.node_name == "n2" and new.metadata.name not in before
    assert cluster.find(victim) is None
