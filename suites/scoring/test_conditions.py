"""The condition PodScheduled while a pod waits: its message is that of the last attempt, its time that of the first."""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.scoring.rules import REQUIRED, expression

Json = dict[str, Any]

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case("SH-026", severity="normal")
@pytest.mark.long(310)
def test_the_condition_is_kept_up_to_date(trial: Trial, expect: Expect) -> None:
    """A pod fits on neither the first node nor one that comes later: the message counts two nodes then, and the time of
    the condition is that of the first refusal."""
    trial.add(node("n1").cpu(2))
    trial.submit(pod("large").request(cpu=4))
    expect.pending("large", saying="0/1 nodes are available: 1 Insufficient cpu")

    def since() -> str | None:
        (condition,) = (c for c in trial.pod("large").status.conditions if c.type == "PodScheduled")
        return condition.last_transition_time

    first = since()
    trial.pass_time(5)
    # Room for the pod makes it try again; another pod takes it first.
    trial.add(node("n2").cpu(2).taint("team"))
    trial.call("PATCH", "/api/v1/nodes/n2", {"spec": {"taints": []}})
    trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}})
    trial.call("PATCH", "/api/v1/nodes/n1", {"spec": {"taints": []}})
    trial.submit(pod("other").request(cpu=4))
    expect.pending("large", saying="0/2 nodes are available: 2 Insufficient cpu", within=400)

    assert since() == first


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case("SC-621", severity="normal", source="kubernetes pkg/api/v1/pod/util.go@v1.34: UpdatePodCondition")
def test_the_time_of_a_condition_is_its_own(trial: Trial, expect: Expect) -> None:
    """A pod with a scheduling gate has another condition that is False since 2020. Its gate goes and it is refused: the
    time of PodScheduled is of now."""
    trial.add(node("n1").cpu(2))
    large = pod("large").request(cpu=4)
    large.manifest["spec"]["schedulingGates"] = [{"name": "example.com/wait"}]
    trial.submit(large)
    old = {"type": "example.com/checked", "status": "False", "lastTransitionTime": "2020-01-01T00:00:00Z"}
    path = trial.path("Pod", "large")
    assert trial.call("PATCH", f"{path}/status", {"status": {"conditions": [old]}}).ok

    assert trial.call("PATCH", path, {"spec": {"schedulingGates": None}}).ok

    expect.pending("large", saying="1 Insufficient cpu")
    times = {each.type: each.last_transition_time or "" for each in trial.pod("large").status.conditions}
    assert times["PodScheduled"] > times["example.com/checked"] == old["lastTransitionTime"], times


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case("SH-027", severity="normal")
def test_the_message_counts_nodes_by_reason(trial: Trial, expect: Expect) -> None:
    """Two nodes lack CPU, one of them memory too. Both are too small even when empty, so preemption is no help, though
    there is a pod of lower priority."""
    trial.apply(priority_class("trial-low", 10), priority_class("trial-high", 1000))
    trial.add(node("n1").cpu(2).memory("64Gi"), node("n2").cpu(2).memory("4Gi"))
    trial.submit(pod("low").request(cpu=1).priority_class("trial-low"))
    expect.running("low")
    trial.submit(pod("large").request(cpu=4, memory="8Gi").priority_class("trial-high"))
    expect.pending("large", saying="0/2 nodes are available: 1 Insufficient memory, 2 Insufficient cpu. ")
    # Each plugin that was asked for victims adds its words; kube-scheduler has DynamicResources before preemption.
    expect.pending("large", saying="preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling.")


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case(
    "SC-675", severity="normal", source="kubernetes pkg/scheduler/framework/types.go@v1.35: FitError.Error"
)
def test_the_message_lists_reasons_by_their_text(trial: Trial, expect: Expect) -> None:
    """Ten nodes are too small and two are closed: 10 comes before 2, as words do. Without any node there is another
    message."""
    trial.submit(pod("early"))
    expect.pending("early", saying="no nodes available to schedule pods", cooled=False)
    trial.add(*(node(f"n{number}").cpu(2) for number in range(10)), *(node(name).taint("team") for name in ("a", "b")))
    trial.submit(pod("large").request(cpu=4))
    expect.pending("large", saying="0/12 nodes are available: 10 Insufficient cpu, 2 node(s) had untolerated taint")


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case(
    "SC-676", severity="normal", source="kubernetes 1.35 pkg/scheduler/schedule_one.go: findNodesThatFitPod"
)
def test_the_message_counts_nodes_that_were_not_asked(trial: Trial, expect: Expect) -> None:
    """A pod names one of four nodes, which lacks CPU and memory: the others are counted as well."""
    trial.add(*(node(f"n{number}").cpu(2).memory("4Gi") for number in range(4)))
    large = pod("large").request(cpu=4, memory="8Gi")
    named = [{"matchFields": [expression("metadata.name", "In", "n0")]}]
    large.manifest["spec"]["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": named}}}
    trial.submit(large)
    counted = "1 Insufficient cpu, 1 Insufficient memory, 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    expect.pending("large", saying=f"0/4 nodes are available: {counted}")


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case(
    "SC-464",
    severity="normal",
    source="kubernetes 1.34 pkg/scheduler/framework/plugins/tainttoleration/taint_toleration.go:"
    " isSchedulableAfterNodeChange",
)
@pytest.mark.long(seconds=15)
@pytest.mark.parametrize(
    ("closed", "opened", "saying"),
    [
        pytest.param(
            {"taints": [{"key": "a", "effect": "NoSchedule"}]}, {"taints": []}, "untolerated taint", id="taint"
        ),
        pytest.param({"unschedulable": True}, {"unschedulable": None}, "were unschedulable", id="cordon"),
        pytest.param(
            {"taints": [{"key": "a", "effect": "NoSchedule"}]},
            {"taints": [{"key": "tolerated", "effect": "NoSchedule"}]},
            "untolerated taint",
            id="other-taint",
        ),
    ],
)
def test_a_node_that_opens_is_no_reason_any_more(
    trial: Trial, expect: Expect, closed: Json, opened: Json, saying: str
) -> None:
    """Two pods wait, and the only node is closed and too small. The node opens: both say that it is too small."""
    trial.add(node("n1").cpu(2))
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": closed}).ok
    trial.settle()
    built = [pod("large").request(cpu=4), pod("larger").request(cpu=6)]
    for each in built:
        each.manifest["spec"]["tolerations"] = [{"key": "tolerated", "operator": "Exists"}]
    trial.submit(*built)
    expect.pending("large", "larger", saying=saying)
    trial.pass_time(2)
    assert trial.call("PATCH", "/api/v1/nodes/n1", {"spec": opened}).ok
    expect.pending("large", "larger", saying="1 Insufficient cpu", within=20)


@pytest.mark.feature("SHELL-5.refusal")
@pytest.mark.case(
    "SC-721",
    severity="normal",
    source="kubernetes pkg/scheduler/backend/queue/scheduling_queue.go@v1.34: isPodWorthRequeuing,"
    " a pod that no plugin rejected",
)
@pytest.mark.long(seconds=15)
def test_a_cluster_without_nodes_is_no_reason_after_the_first_node(trial: Trial, expect: Expect) -> None:
    """Two pods wait in a cluster without nodes. A node comes that is too small for them: both say so."""
    trial.submit(pod("large").request(cpu=4), pod("larger").request(cpu=6))
    expect.pending("large", "larger", saying="no nodes available to schedule pods")
    trial.add(node("n1").cpu(2))
    expect.pending("large", "larger", saying="0/1 nodes are available: 1 Insufficient cpu", within=20)
