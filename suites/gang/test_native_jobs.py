"""Jobs as native gangs: the Job controller makes their Workload and PodGroup.

The feature gate WorkloadWithJob is alpha in 1.37 and off by default; without it the API server drops `spec.scheduling`.
The clusters that the suite starts have it with `--seatrial-feature-gates WorkloadWithJob=true`.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import Manifest, node, pod
from seatrial.suites.gang.members import bound
from seatrial.suites.gang.native import API, condition, reaches

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.gate("GenericWorkload")]

UPSTREAM = "kubernetes pkg/controller/job/job_scheduling_manager.go@v1.37.2"
GANG: Manifest = {"schedulingPolicy": {"gang": {}}}


@pytest.fixture(autouse=True)
def _gate(trial: Trial) -> None:
    response = trial.call("POST", f"{trial.path('Job', '')[:-1]}?dryRun=All", job(trial, "probe", 1, scheduling=GANG))
    if not response.ok or "scheduling" not in orjson.loads(response.body)["spec"]:
        pytest.skip("the API server drops spec.scheduling of Jobs (feature gate WorkloadWithJob is off)")


def job(trial: Trial, name: str, count: int, *, group: str = "", **spec: object) -> Manifest:
    """An Indexed Job whose pods ask for one CPU, and run until the end of the case; `group`: the PodGroup they name."""
    builder = pod("x").request(cpu=1)
    trial.keep_to_nodes(builder)
    template = {"spec": {**(builder.in_native_gang(group) if group else builder).manifest["spec"]}}
    template["spec"]["restartPolicy"] = "Never"
    whole = {"parallelism": count, "completions": count, "completionMode": "Indexed", "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": whole}


def listed(trial: Trial, plural: str) -> list[Manifest]:
    """The Workloads or PodGroups of the trial."""
    items: list[Manifest] = orjson.loads(trial.call("GET", f"{API}/namespaces/{trial.name}/{plural}").body)["items"]
    return items


def groups_of_pods(trial: Trial) -> set[str]:
    """The PodGroups that the pods name."""
    groups = [member.spec.scheduling_group for member in trial.pods()]
    return {group.pod_group_name if group is not None else "" for group in groups}


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-251", severity="critical", source=UPSTREAM)
def test_a_job_with_a_gang_policy_is_bound_whole_or_not_at_all(trial: Trial, expect: Expect) -> None:
    """A Job of four with a gang policy has three CPUs: a PodGroup with minCount 4 is made, and no pod is bound. A
    fourth CPU comes: all are bound. The Job is deleted: its pods, PodGroup and Workload go."""
    trial.add(node("n1").cpu(3))
    trial.apply(job(trial, "train", 4, scheduling=GANG))
    assert trial.wait(lambda: len(trial.pods()) == 4, within=30)
    [workload], [group] = listed(trial, "workloads"), listed(trial, "podgroups")
    assert workload["spec"]["controllerRef"] == {"apiGroup": "batch", "kind": "Job", "name": "train"}
    [template] = workload["spec"]["podGroupTemplates"]
    assert (template["name"], template["schedulingPolicy"]) == ("train-pgt-0", {"gang": {"minCount": 4}})
    name = group["metadata"]["name"]
    assert name.startswith(f"{workload['metadata']['name']}-train-pgt-0-")
    assert group["spec"]["workloadRef"] == {"workloadName": workload["metadata"]["name"], "templateName": "train-pgt-0"}
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 4}}
    owners = [(owner["kind"], owner.get("controller", False)) for owner in group["metadata"]["ownerReferences"]]
    assert owners == [("Job", True), ("Workload", False)]
    assert groups_of_pods(trial) == {name}
    assert reaches(trial, "False", "Unschedulable", name), condition(trial, name)
    expect.stable(seconds=10)
    assert bound(trial) == []

    trial.add(node("n2").cpu(1))

    assert trial.reaches(lambda: len(bound(trial)) == 4, within=60), bound(trial)
    assert reaches(trial, "True", "Scheduled", name), condition(trial, name)
    trial.call("DELETE", f"{trial.path('Job', 'train')}?propagationPolicy=Background")
    assert trial.reaches(
        lambda: not (trial.pods() or listed(trial, "workloads") or listed(trial, "podgroups")), within=60
    ), (trial.pods(), listed(trial, "workloads"), listed(trial, "podgroups"))


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-252", severity="normal", source=UPSTREAM)
def test_a_job_without_a_gang_policy_is_bound_as_far_as_there_is_room(trial: Trial) -> None:
    """A Job of three that says nothing gets a PodGroup of policy basic, and two pods where there are two CPUs. A Job
    whose template names a PodGroup gets none."""
    trial.add(node("n1").cpu(2))
    trial.apply(job(trial, "plain", 3))
    assert trial.wait(lambda: len(bound(trial)) == 2, within=60), bound(trial)
    [group] = listed(trial, "podgroups")
    assert group["spec"]["schedulingPolicy"] == {"basic": {}}

    trial.apply(job(trial, "own", 1, group="of-its-user"))

    assert trial.wait(lambda: len(trial.pods()) == 4, within=30)
    assert groups_of_pods(trial) == {group["metadata"]["name"], "of-its-user"}
    assert len(listed(trial, "podgroups")) == len(listed(trial, "workloads")) == 1
