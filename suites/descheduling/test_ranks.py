"""ScaleDownBinPack: the order in which it would remove pods. PodLifeTime: pods with a condition, whatever their age."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.migration import DELETION_COST
from seatrial.suites.descheduling.strategies import DIRECTLY, ONE_ROUND, moved, path_of
from seatrial.suites.descheduling.workloads import ALL_AT_ONCE, deployment, running, wait_running, with_nodes

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

HOST = "kubernetes.io/hostname"
STUCK = {"type": "trial.example/Stuck"}
BIN_PACK = {"ScaleDownBinPack": {"strategy": "CalculateOnly"}}


def sized(cpu: int, memory: str, host: str) -> PodBuilder:
    return pod("x").request(cpu=cpu, memory=memory).select({HOST: host})


def ranks(trial: Trial, *apps: str) -> list[str]:
    """The workloads in the order in which their pods would go, once all their pods have deletion costs."""

    def costs() -> list[tuple[int, str]]:
        results = [(app, pod.metadata.annotations) for app in apps for pod in running(trial, app)]
        return sorted((int(message[DELETION_COST]), app) for app, message in results if DELETION_COST in message)

    def complete() -> bool:
        return len(costs()) == sum(len(running(trial, app)) for app in apps)

    assert trial.reaches(complete, within=15), f"expected deletion costs of all pods, found {costs()}"
    return [app for _, app in costs()]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-122", severity="normal", source="ours: spec RSV-R96: in no release yet")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(
    ("names", "weights"), [(("large", "small"), {}), (("small", "large"), {}), (("large", "small"), {"memory": 10})]
)
def test_of_a_nodes_pods_the_large_and_young_go_first(
    trial: Trial, start_descheduler: StartDescheduler, names: tuple[str, ...], weights: dict[str, int]
) -> None:
    """Four pods on one of two nodes. One requests half of the CPUs, one an eighth of the memory, two equal ones less:
    the share of the node counts, not the bytes, and of equal pods the younger goes first. Memory with the weight 10
    counts for more."""
    with_nodes(trial, "n1", "n2")
    like = {"large": sized(8, "1Gi", "n1"), "small": sized(1, "8Gi", "n1"), "old": sized(1, "1Gi", "n1")}
    for name in (*names, "old"):
        deployment(trial, name, 1, like=like[name])
    for name in like:
        wait_running(trial, name, 1)
    trial.pass_time(1)  # times of creation are whole seconds
    deployment(trial, "young", 1, like=sized(1, "1Gi", "n1"))
    wait_running(trial, "young", 1)

    args = {**BIN_PACK["ScaleDownBinPack"], "resourceWeights": weights}
    start_descheduler({"ScaleDownBinPack": args}, migration=ALL_AT_ONCE, **ONE_ROUND)

    first = ["small", "large"] if weights else ["large", "small"]
    assert ranks(trial, "large", "small", "old", "young") == [*first, "young", "old"]


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-123", severity="normal", source="ours: spec RSV-R96: in no release yet")
@pytest.mark.parametrize(("empties", "mixed", "busy"), [("n1", "n2", "n3"), ("n3", "n1", "n2")])
def test_the_node_that_becomes_empty_first(
    trial: Trial, start_descheduler: StartDescheduler, empties: str, mixed: str, busy: str
) -> None:
    """Nodes are emptied in the order of what stays on them, as a part of what may go: nothing, a third of the CPUs that
    may go, or four times as many. The number of their pods does not count: three, two and one."""
    trial.add(*(node(name).cpu(16).memory("64Gi") for name in sorted((empties, mixed, busy))))
    for name, host, count, cpu in (("a", empties, 3, 1), ("b", mixed, 2, 3), ("c", busy, 1, 1)):
        deployment(trial, name, count, like=sized(cpu, "64Mi", host))
        wait_running(trial, name, count)
    stays = (pod("some").request(cpu=2).select({HOST: mixed}), pod("much").request(cpu=4).select({HOST: busy}))
    trial.submit(*stays)
    names = ("some", "much")
    assert trial.reaches(lambda: all(trial.pod(name).status.phase == "Running" for name in names), within=30)

    start_descheduler(BIN_PACK, migration=ALL_AT_ONCE, **ONE_ROUND)

    assert ranks(trial, "a", "b", "c") == ["a", "a", "a", "b", "b", "c"]
    assert [trial.pod(name).metadata.annotations[DELETION_COST] for name in names] == ["2147483647"] * 2


def stuck(trial: Trial, pod: Pod, status: str, reason: str = "Disk", *, since: float | None = None) -> None:
    """The status of a pod has one more condition; `since`: its age in seconds."""
    message = orjson.loads(accepted(trial.call("GET", path_of(pod)), "read the pod").body)["status"]
    condition = {"type": "trial.example/Stuck", "status": status, "reason": reason}
    if since is not None:
        condition["lastTransitionTime"] = rfc3339(trial.cluster.clock.now() - since)
    rows = [*message.get("conditions", ()), condition]
    accepted(trial.call("PATCH", f"{path_of(pod)}/status", {"status": {"conditions": rows}}), "write the status")


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("MG-314", severity="normal", source="ours: spec RSV-R96: in no release yet")
@pytest.mark.long(seconds=5)
def test_how_many_pods_are_scaled_down_at_once(trial: Trial, start_descheduler: StartDescheduler) -> None:
    """Two large and two small pods on a node: with EvictDirectly and a maxPodsToEvict of two the large ones go."""
    with_nodes(trial, "n1", "n2")
    for name, cpu in (("large", 4), ("small", 1)):
        deployment(trial, name, 2, like=sized(cpu, "1Gi", "n1"))
        wait_running(trial, name, 2)
    large = sorted(pod.metadata.name for pod in running(trial, "large"))
    evicting = {"ScaleDownBinPack": {"strategy": "EvictDirectly", "maxPodsToEvict": 2}}

    start_descheduler(evicting, migration=DIRECTLY, **ONE_ROUND)

    assert moved(trial, 2) == large


@pytest.mark.feature("DES-1.strategies")
@pytest.mark.case("DC-124", severity="normal", source="koordinator 1.8 (descheduler v0.35): podlifetime: conditions")
@pytest.mark.long(seconds=5)
@pytest.mark.parametrize(
    ("conditions", "places"),
    [
        pytest.param([{**STUCK, "status": "True", "reason": "Disk"}], [0], id="all-fields"),
        pytest.param(
            [{**STUCK, "status": "False"}, {**STUCK, "reason": "Network"}, {"type": "None"}], [1, 2], id="any-of-them"
        ),
        pytest.param([{**STUCK, "minTimeSinceLastTransitionSeconds": 60}], [1], id="for-a-minute"),
    ],
)
def test_pods_with_a_condition_go(
    trial: Trial, start_descheduler: StartDescheduler, conditions: list[dict[str, Any]], places: list[int]
) -> None:
    """PodLifeTime with `conditions` alone: of four pods that are equally old, those go of which a condition has what
    one of the entries says. One is so since two minutes, one since now, of one the time is not known."""
    with_nodes(trial, "n1", "n2")
    deployment(trial, "web", 4, like=pod("x").request(cpu=1))
    pods = wait_running(trial, "web", 4)
    stuck(trial, pods[0], "True", since=0)
    stuck(trial, pods[1], "False", since=120)
    stuck(trial, pods[2], "True", "Network")

    try:
        start_descheduler({"PodLifeTime": {"conditions": conditions}}, migration=DIRECTLY, **ONE_ROUND)
    except (UsageError, SubjectError) as error:
        pytest.fail(f"expected PodLifeTime to accept conditions without an age: {error}")

    assert moved(trial, len(places)) == sorted(pods[place].metadata.name for place in places)
