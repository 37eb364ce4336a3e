"""What a round reports: metrics, and events of evicted pods."""

import re

import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.descheduler import Descheduler
from seatrial.scheduler.api.builders import pod
from seatrial.suites.descheduling.workloads import ALL_AT_ONCE, cordon, deployment, jobs, wait_running, with_nodes

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

STRATEGY = "RemovePodsViolatingNodeTaints"


def evictions(descheduler: Descheduler) -> dict[tuple[str, str, str], float]:
    """The successful evictions by strategy, namespace and node."""
    evictions: dict[tuple[str, str, str], float] = {}
    for labels, count in re.findall(r"^descheduler_pods_evicted\{(.*)\} (\S+)$", descheduler.metrics(), re.MULTILINE):
        by_name = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        if by_name["result"] == "success":
            evictions[by_name["strategy"], by_name["namespace"], by_name["node"]] = float(count)
    return evictions


@pytest.mark.feature("DES-1.recorded")
@pytest.mark.case("DC-102", severity="critical")
@pytest.mark.long(seconds=7)
def test_evictions_are_counted_and_told(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Three of four pods do not tolerate a taint of their node, and leave it: three evictions are counted, and each of
    these pods has an event with the node and the reason."""
    with_nodes(trial, "n1", "n2")
    cordon(trial, "n2")
    deployment(trial, "web", 3, like=pod("x").request(cpu=1))
    deployment(trial, "tolerant", 1, like=pod("x").request(cpu=1).tolerate("maintenance", effect="NoSchedule"))
    leaving = {pod.metadata.name for pod in wait_running(trial, "web", 3)}
    (staying,) = wait_running(trial, "tolerant", 1)
    cordon(trial, "n2", on=False)
    taint = {"key": "maintenance", "value": "soon", "effect": "NoSchedule"}
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [taint]}}).ok

    descheduler = start_descheduler({STRATEGY: {}}, migration=ALL_AT_ONCE)

    ended = trial.reaches(lambda: {job.status.phase for job in jobs(trial)} == {"Succeeded"}, within=90)
    assert ended, [(job.spec.pod_ref.name, job.status) for job in jobs(trial)]
    assert len(jobs(trial)) == 3
    assert evictions(descheduler) == {(STRATEGY, trial.name, "n1"): 3}

    def event_messages(name: str) -> list[str]:
        return [event.message for event in trial.events(name) if event.reason == "Descheduled"]

    assert trial.reaches(lambda: all(event_messages(name) for name in leaving), within=30), trial.timeline()
    for name in leaving:
        (note,) = event_messages(name)
        assert note.startswith('Pod evicted from node "n1" by the reason "')
    assert event_messages(staying.metadata.name) == []
