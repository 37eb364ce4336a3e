"""Jobs as native gangs: the Job controller makes their Workload and PodGroup.

The feature gate WorkloadWithJob is alpha in 1.37 and off by default; without it the API server drops `spec.scheduling`.
The clusters that the suite starts have it with `--seatrial-feature-gates WorkloadWithJob=true`. In virtual time, where
a cluster costs little, each case has one of its own with the gate.
"""

from collections.abc import Iterator

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.backends import backend_named
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.harness.subject.protocol import open_subject
from seatrial.scheduler.api.builders import Manifest, node, pod, priority_class
from seatrial.suites.gang.members import bound
from seatrial.suites.gang.native import API, condition, reaches

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.gate("GenericWorkload")]

UPSTREAM = "kubernetes pkg/controller/job/job_scheduling_manager.go@v1.37.2"
GANG: Manifest = {"schedulingPolicy": {"gang": {}}}


@pytest.fixture
def seatrial_trial(
    seatrial_trial: Trial, seatrial_backend: ClusterBackend, pytestconfig: pytest.Config
) -> Iterator[Trial]:
    """A trial on a cluster with the gate."""
    path, probe = f"{seatrial_trial.path('Job', '')[:-1]}?dryRun=All", job(seatrial_trial, "probe", 1, scheduling=GANG)
    response = seatrial_trial.call("POST", path, probe)
    if response.ok and "scheduling" in orjson.loads(response.body)["spec"]:
        yield seatrial_trial
    elif Capability.VIRTUAL_TIME not in seatrial_backend.capabilities:
        pytest.skip("the API server drops spec.scheduling of Jobs (feature gate WorkloadWithJob is off)")
    else:
        backend = backend_named(seatrial_backend.name, feature_gates="WorkloadWithJob=true")
        with (
            backend.start() as cluster,
            open_subject(pytestconfig.getoption("--seatrial-subject"), cluster, seed=0) as subject,
        ):
            yield Trial(cluster, "case")
            if subject is not None:
                subject.check()


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


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-400", severity="normal", source=f"{UPSTREAM}; spec WAS-R70, WAS-R74")
@pytest.mark.parametrize("changed", ["minimum", "size"])
def test_the_gang_of_a_job_follows_its_minimum(trial: Trial, expect: Expect, changed: str) -> None:
    """A Job of four has a gang policy, with a minimum of three or without one, and two CPUs. Its minimum, or its
    parallelism, becomes two: Workload and PodGroup follow, and two pods are bound."""
    trial.add(node("n1").cpu(2))
    policy: Manifest = {"gang": {"minCount": 3} if changed == "minimum" else {}}
    whole = job(trial, "train", 4, scheduling={"schedulingPolicy": policy})
    del whole["spec"]["completionMode"]  # the completions of an Indexed Job change with its parallelism alone
    trial.apply(whole)
    assert trial.wait(lambda: len(trial.pods()) == 4, within=30)
    expect.stable(seconds=5)
    assert bound(trial) == []

    two = {"gang": {"minCount": 2}}
    change: Manifest = {"scheduling": {"schedulingPolicy": two}} if changed == "minimum" else {"parallelism": 2}
    assert trial.call("PATCH", trial.path("Job", "train"), {"spec": change}).ok

    assert trial.wait(lambda: len(bound(trial)) == 2, within=60), bound(trial)
    [workload], [group] = listed(trial, "workloads"), listed(trial, "podgroups")
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == two
    assert group["spec"]["schedulingPolicy"] == two


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-401", severity="normal", source=f"{UPSTREAM}; spec WAS-R70, WAS-R71")
def test_what_the_gang_of_a_job_has_of_it(trial: Trial) -> None:
    """A Job has a priority class in its template and a disruptionMode: so have its Workload and its PodGroup, of whose
    priority its pods are."""
    trial.add(node("n1").cpu(2))
    trial.apply(priority_class("was-high", 1000))
    whole = job(trial, "train", 2, scheduling=GANG | {"disruptionMode": {"all": {}}})
    whole["spec"]["template"]["spec"]["priorityClassName"] = "was-high"
    trial.apply(whole)

    assert trial.wait(lambda: len(bound(trial)) == 2, within=60), bound(trial)

    [workload], [group] = listed(trial, "workloads"), listed(trial, "podgroups")
    for spec in (workload["spec"]["podGroupTemplates"][0], group["spec"]):
        assert (spec["disruptionMode"], spec["priorityClassName"]) == ({"all": {}}, "was-high")
    assert group["spec"]["priority"] == 1000
    assert reaches(trial, "True", "Scheduled", group["metadata"]["name"])


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-402", severity="normal", source=f"{UPSTREAM}; spec WAS-R72")
@pytest.mark.parametrize("named", [True, False], ids=["named", "not-named"])
def test_a_job_of_another_controller_is_a_gang_where_its_owner_says_so(
    trial: Trial, expect: Expect, *, named: bool
) -> None:
    """A Workload of a Deployment has two templates. A Job of three that belongs to the Deployment names the second one,
    a gang of three, and has two CPUs: its PodGroup is made of it, and no pod is bound before there is a third CPU. A
    Job that names none gets no PodGroup: two pods are bound at once."""
    trial.add(node("n1").cpu(2))
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10"}
    labels = {"matchLabels": {"app": "parent"}}
    template = {"metadata": {"labels": {"app": "parent"}}, "spec": {"containers": [container]}}
    parent = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "parent"}}
    trial.apply({**parent, "spec": {"replicas": 0, "selector": labels, "template": template}})
    uid = orjson.loads(trial.call("GET", trial.path("Deployment", "parent")).body)["metadata"]["uid"]
    policies: list[Manifest] = [{"basic": {}}, {"gang": {"minCount": 3}}]
    templates = [{"name": name, "schedulingPolicy": one} for name, one in zip("ab", policies, strict=True)]
    reference = {"apiGroup": "apps", "kind": "Deployment", "name": "parent"}
    workload = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "whole"}}
    workload["spec"] = {"controllerRef": reference, "podGroupTemplates": templates}
    assert trial.call("POST", f"{API}/namespaces/{trial.name}/workloads", workload).ok
    whole = job(trial, "train", 3)
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "parent", "uid": uid, "controller": True}
    whole["metadata"]["ownerReferences"] = [owner]
    if named:
        whole["metadata"]["annotations"] = {"scheduling.k8s.io/group-template-name": "b"}
    trial.apply(whole)
    assert trial.wait(lambda: len(trial.pods()) == 3, within=30)
    expect.stable(seconds=5)

    groups = listed(trial, "podgroups")

    if named:
        [group] = groups
        assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        assert group["spec"]["workloadRef"] == {"workloadName": "whole", "templateName": "b"}
        assert groups_of_pods(trial) == {group["metadata"]["name"]}
        assert bound(trial) == []
    else:
        assert groups == []
        assert len(bound(trial)) == 2
    assert len(listed(trial, "workloads")) == 1
    trial.add(node("n2").cpu(1))
    assert trial.wait(lambda: len(bound(trial)) == 3, within=60), bound(trial)


@pytest.mark.feature("WAS-1.jobs")
@pytest.mark.case("GA-403", severity="normal", source=f"{UPSTREAM}; spec WAS-R73")
def test_a_workload_that_only_names_a_job_is_not_its_own(trial: Trial) -> None:
    """A user made a Workload whose controllerRef is a Job, which does not own it: the Job makes one of its own."""
    trial.add(node("n1").cpu(2))
    reference = {"apiGroup": "batch", "kind": "Job", "name": "train"}
    workload: Manifest = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload", "metadata": {"name": "other"}}
    templates = [{"name": "a", "schedulingPolicy": {"gang": {"minCount": 9}}}]
    workload["spec"] = {"controllerRef": reference, "podGroupTemplates": templates}
    assert trial.call("POST", f"{API}/namespaces/{trial.name}/workloads", workload).ok

    trial.apply(job(trial, "train", 2, scheduling=GANG))

    assert trial.wait(lambda: len(bound(trial)) == 2, within=60), bound(trial)
    own = [name for one in listed(trial, "workloads") if (name := one["metadata"]["name"]) != "other"]
    assert len(own) == 1
    [group] = listed(trial, "podgroups")
    assert group["spec"]["workloadRef"] == {"workloadName": own[0], "templateName": "train-pgt-0"}
    assert reaches(trial, "True", "Scheduled", group["metadata"]["name"])
