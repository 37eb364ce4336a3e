"""Hadoop YARN beside Kubernetes: both share a node's batch resources, and neither is promised what the other has.

Follows Koordinator's docs/designs/koordinator-yarn.md; the ResourceManager is a stand-in for Hadoop's REST API.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import orjson
import pytest
import yaml

from seatrial.fake_devices.resource_manager import ResourceManager
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.yarn import running_operator
from seatrial.scheduler.api.slo import THIRD_PARTY_ALLOCATIONS
from seatrial.suites.loadaware.reports import report
from seatrial.suites.qos.colocation import WITHIN, batch, colocation, expect_offer, machine

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

NODE_MANAGER = "node-0:8041"
LOOK = 20.0  # seconds until the operator has asked YARN what it has allocated
StartYarn = Callable[[], ResourceManager]


@pytest.fixture
def start_yarn(request: pytest.FixtureRequest, trial: Trial) -> Iterator[StartYarn]:
    """Starts a ResourceManager that knows one node, and the operator."""
    if request.config.getoption("--seatrial-manager"):
        pytest.skip("judges our operator: Koordinator publishes none")
    with ExitStack() as running:

        def start() -> ResourceManager:
            manager = ResourceManager(NODE_MANAGER)
            running.enter_context(running_operator(trial.cluster, manager))
            return manager

        yield start


def run_node_manager(trial: Trial, expect: Expect) -> None:
    """The NodeManager of the announcement, on the node of 60 batch cores."""
    path = suites_folder() / "manifests/v1.4/yarn-nodemanager.yaml"
    manifest = yaml.safe_load(path.read_bytes())
    manifest["metadata"] |= {"name": "node-manager", "namespace": trial.name}
    manifest["spec"]["schedulerName"] = "default-scheduler"
    trial.apply(manifest)
    expect.running("node-manager")


@pytest.mark.feature("QOS-9.node-manager", "QOS-9.manifest-yarn-nodemanager")
@pytest.mark.case("CO-060", severity="critical")
@pytest.mark.long(seconds=25)
def test_yarn_and_kubernetes_share_batch_resources(
    trial: Trial, expect: Expect, start_manager: StartManager, start_yarn: StartYarn
) -> None:
    """The NodeManager of the announcement gets what Kubernetes' pods leave; what YARN gives away is no longer offered
    to pods, until its containers have ended."""
    trial.add(machine("n1"))
    report(trial, "n1", "5", "20G", system=("5", "20G"))
    start_manager(colocation())
    expect_offer(trial, "n1", (60000, 58))
    run_node_manager(trial, expect)
    yarn = start_yarn()
    memory = 58 * 10**9 >> 20
    assert trial.reaches(lambda: yarn.totals[NODE_MANAGER] == (60, memory), within=WITHIN), (
        f"expected 60 virtual cores and {memory} MiB for YARN, found {yarn.totals[NODE_MANAGER]}"
    )

    trial.submit(batch("pod", 10500, 8))
    expect.running("pod")
    left = (49, 50 * 10**9 >> 20)
    assert trial.reaches(lambda: yarn.totals[NODE_MANAGER] == left, within=WITHIN), (
        f"expected {left} for YARN beside a pod, found {yarn.totals[NODE_MANAGER]}"
    )

    yarn.used[NODE_MANAGER] = (40, 1000)
    arrived = trial.reaches(lambda: offer(trial) == 20000, within=LOOK + WITHIN)
    assert arrived, f"expected 20000 of 60000 thousandths to be left for pods, found {offer(trial)}"
    written = trial.node("n1")["metadata"]["annotations"][THIRD_PARTY_ALLOCATIONS]
    (allocation,) = orjson.loads(written)["allocations"]
    assert (allocation["name"], allocation["priority"]) == ("hadoop-yarn", "koord-batch")
    trial.submit(batch("late", 15000))
    expect.pending("late")

    yarn.used[NODE_MANAGER] = (0, 0)
    expect.running("late", within=LOOK + WITHIN)


def offer(trial: Trial) -> int:
    """Thousandths of a core that the node offers to batch pods."""
    result = trial.node("n1")["status"]["allocatable"].get("kubernetes.io/batch-cpu", "0")
    return int(result[:-1]) * 1000 if result.endswith("k") else int(result)
