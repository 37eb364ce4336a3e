"""A pod runs, ends, and frees its room, on the cluster that the suites run on."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("HIL-1.embedded", "HIL-1.api-server")
@pytest.mark.case("VD-010", severity="blocker")
def test_a_pod_runs_and_gives_its_room_on(trial: Trial, expect: Expect) -> None:
    """Nodes, scheduler and API server work together: bound where there is room, run, deleted; then the next runs."""
    trial.add(node("little").cpu(2), node("large").cpu(8))
    trial.submit(pod("first").request(cpu=5))
    assert expect.running("first").spec.node_name == "large"
    trial.submit(pod("second").request(cpu=5))
    expect.pending("second", saying="Insufficient cpu")

    trial.delete("first")

    assert expect.running("second").spec.node_name == "large"
    assert trial.find("first") is None
