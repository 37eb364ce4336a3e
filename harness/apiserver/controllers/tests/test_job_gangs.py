"""PodGroups of Jobs, with the feature gate WorkloadWithJob."""

from collections.abc import Iterator
from typing import Any

import pytest

from seatrial.harness.apiserver.admission.pod_groups import drop_job_scheduling
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.job_gangs import DELEGATED, JobGangs, group_name
from seatrial.harness.apiserver.controllers.jobs import JOBS
from seatrial.harness.apiserver.controllers.templates import name_hash
from seatrial.harness.apiserver.controllers.tests.bench import Bench, Object, owner, running
from seatrial.harness.apiserver.controllers.tests.test_jobs import job
from seatrial.harness.apiserver.storage.store import Item
from seatrial.scheduler.api.transport import MERGE_PATCH

GANG: Object = {"schedulingPolicy": {"gang": {}}}


@pytest.fixture
def bench() -> Iterator[Bench]:
    with running(workload_with_job=True) as bench:
        yield bench


def named(name: str, **spec: Any) -> Object:
    return {**job("sleep 100", **{"parallelism": 2, "completions": 2, **spec}), "metadata": {"name": name}}


def groups_of_pods(bench: Bench, count: int) -> set[str]:
    """The PodGroups that the pods name, once there are `count`; "" for none."""
    bench.wait(lambda: len(bench.all("pods")) == count)
    return {(pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "") for pod in bench.all("pods")}


def update(bench: Bench, name: str, spec: Object) -> str:
    """The message of the refusal; "" if the update is accepted."""
    response = bench.call("PATCH", bench.path("jobs", name), {"spec": spec}, MERGE_PATCH)
    return "" if response.code == 200 else response.body.decode()


def test_a_gang_is_made_of_a_job(bench: Bench) -> None:
    made = bench.create("jobs", named("j", scheduling={**GANG, "disruptionMode": {"all": {}}}))
    bench.wait(lambda: len(bench.all("pods")) == 2)
    [workload], [group] = bench.all("workloads"), bench.all("podgroups")
    assert workload["spec"] == {
        "controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"},
        "podGroupTemplates": [
            {"name": "j-pgt-0", "schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"all": {}}}
        ],
    }
    uid = made["metadata"]["uid"]
    assert workload["metadata"]["name"] == f"j-{name_hash(f'(types.UID){uid}'.encode())}"
    assert owner(workload)["uid"] == uid
    assert group["spec"] == {
        "workloadRef": {"workloadName": workload["metadata"]["name"], "templateName": "j-pgt-0"},
        "schedulingPolicy": {"gang": {"minCount": 2}},
        "disruptionMode": {"all": {}},
        "priority": 0,
    }
    first, second = group["metadata"]["ownerReferences"]
    assert (first["kind"], first["controller"]) == ("Job", True)
    assert (second["kind"], second["uid"], "controller" in second) == ("Workload", workload["metadata"]["uid"], False)
    assert groups_of_pods(bench, 2) == {group["metadata"]["name"]}
    assert {len(pod["metadata"]["ownerReferences"]) for pod in bench.all("pods")} == {1}
    assert bench.events("WorkloadCreated") == [f"Created Workload {workload['metadata']['name']} for Job j"]
    assert bench.events("PodGroupCreated") == [f"Created PodGroup {group['metadata']['name']} for Job j"]
    bench.delete("jobs", "j", "?propagationPolicy=Background")
    bench.wait(lambda: not (bench.all("pods") or bench.all("workloads") or bench.all("podgroups")))


def test_names_are_those_of_kube_controller_manager() -> None:
    """Taken from kube-controller-manager 1.37.2, with the UID of its Job."""
    assert name_hash(b"(types.UID)458678df-20f8-4795-aa7b-4d26389f83af") == "6cfc467d75"
    assert group_name("j-6cfc467d75", "j-pgt-0") == "j-6cfc467d75-j-pgt-0-d5cdc456b"
    for workload, template in (("w" * 253, "t" * 63), ("w" * 253, "t" * 200), ("w" * 63, "t" * 200)):
        assert len(group_name(workload, template)) == 253
    assert group_name("w" * 253, "t" * 63).startswith("w" * 178 + "-" + "t" * 63 + "-")
    assert group_name("w" * 253, "t" * 200).startswith("w" * 121 + "-" + "t" * 120 + "-")


def test_a_job_without_scheduling_has_the_policy_basic(bench: Bench) -> None:
    bench.create("jobs", named("j"))
    bench.wait(lambda: bench.all("podgroups"))
    [workload] = bench.all("workloads")
    policy: Object = {"schedulingPolicy": {"basic": {}}}
    assert workload["spec"]["podGroupTemplates"] == [{"name": "j-pgt-0", **policy}]
    group = bench.all("podgroups")[0]["spec"]
    assert group | policy | {"disruptionMode": {"single": {}}} == group


def test_a_template_with_a_group_is_left_alone(bench: Bench) -> None:
    body = named("j", scheduling=GANG)
    body["spec"]["template"]["spec"]["schedulingGroup"] = {"podGroupName": "own"}
    bench.create("jobs", body)
    assert groups_of_pods(bench, 2) == {"own"}
    assert bench.all("workloads") == bench.all("podgroups") == []


def test_a_job_of_another_controller_gets_a_group_where_its_owner_says_so(bench: Bench) -> None:
    owners = [{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": _uid(bench), "controller": True}]
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    templates = [{"name": "a", **policy}, {"name": "b", **policy}]
    reference = {"apiGroup": "", "kind": "Namespace", "name": "default"}
    workload = {"metadata": {"name": "w"}, "spec": {"controllerRef": reference, "podGroupTemplates": templates}}
    bench.create("workloads", workload)
    for name, annotations in (("mine", {}), ("unknown", {DELEGATED: "c"}), ("given", {DELEGATED: "b"})):
        body = named(name)
        body["metadata"] |= {"ownerReferences": owners, "annotations": annotations}
        bench.create("jobs", body)
    made = group_name("w", "b")
    assert groups_of_pods(bench, 6) == {"", made}
    [group] = bench.all("podgroups")
    assert group["metadata"]["name"] == made
    assert owner(group)["name"] == "given"
    templates[1]["schedulingPolicy"] = {"gang": {"minCount": 1}}
    bench.patch("workloads", "w", {"spec": {"podGroupTemplates": templates}})
    bench.patch("jobs", "given", {"metadata": {"labels": {"wake": "up"}}})
    bench.wait(lambda: bench.get("podgroups", made)["spec"]["schedulingPolicy"] == {"gang": {"minCount": 1}})


def _uid(bench: Bench) -> str:
    return str(bench.get("namespaces", "default")["metadata"]["uid"])


def test_the_minimum_follows_the_job(bench: Bench) -> None:
    bench.create("jobs", named("j", scheduling=GANG, completionMode="Indexed"))
    bench.wait(lambda: len(bench.all("pods")) == 2)
    [before] = bench.all("podgroups")
    bench.patch("jobs", "j", {"spec": {"parallelism": 3, "completions": 3}})
    assert groups_of_pods(bench, 3) == {before["metadata"]["name"]}
    [workload], [group] = bench.all("workloads"), bench.all("podgroups")
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert workload["spec"]["podGroupTemplates"][0]["schedulingPolicy"] == {"gang": {"minCount": 3}}


def test_a_job_that_was_suspended_without_a_workload_stays_ordinary(bench: Bench) -> None:
    """As one that is older than the gate; one made suspended with the gate on has its objects at once."""
    bench.create("jobs", named("new", suspend=True))
    bench.wait(lambda: len(bench.all("podgroups")) == 1)
    [workload] = bench.all("workloads")
    bench.settle()
    bench.delete("workloads", workload["metadata"]["name"])
    bench.patch("jobs", "new", {"spec": {"suspend": False}})
    assert groups_of_pods(bench, 2) == {""}
    assert bench.all("workloads") == []


def test_a_workload_of_a_user_is_ignored_and_a_second_one_of_the_job_ends_it(bench: Bench) -> None:
    reference = {"apiGroup": "batch", "kind": "Job", "name": "j"}
    templates = [{"name": "mine", "schedulingPolicy": {"gang": {"minCount": 9}}}]
    spec = {"controllerRef": reference, "podGroupTemplates": templates}
    bench.create("workloads", {"metadata": {"name": "mine"}, "spec": spec})
    made = bench.create("jobs", named("j", suspend=True))
    bench.wait(lambda: bench.all("podgroups"))
    assert bench.all("podgroups")[0]["spec"]["schedulingPolicy"] == {"basic": {}}
    assert len(bench.all("workloads")) == 2
    owners = [
        {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": made["metadata"]["uid"], "controller": True}
    ]
    bench.create("workloads", {"metadata": {"name": "second", "ownerReferences": owners}, "spec": spec})
    bench.patch("jobs", "j", {"spec": {"suspend": False}})
    assert groups_of_pods(bench, 2) == {""}


def test_a_new_job_with_two_workloads_gets_no_third() -> None:
    with running() as bench:
        uid = bench.create("jobs", named("j", suspend=True))["metadata"]["uid"]
        owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": True}]
        templates = [{"name": "mine", "schedulingPolicy": {"basic": {}}}]
        spec = {"controllerRef": {"apiGroup": "batch", "kind": "Job", "name": "j"}, "podGroupTemplates": templates}
        server = bench.cluster.server
        control = Control(server.objects, server.registry)
        gangs = JobGangs(control, control.resource(JOBS))
        for name in ("a", "b"):
            bench.create("workloads", {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec})
        item = control.get(control.resource(JOBS), ("default", "j"))
        assert item is not None
        new = Item(item.key, {**item.obj, "status": {}}, item.version)
        assert gangs.group_of(new, []) is None
        assert bench.names("workloads") == ["a", "b"]


def test_a_workload_that_is_refused_holds_its_job_only(bench: Bench) -> None:
    """As upstream: the name of the template is the Job's with five characters more, and has to be a DNS label."""
    bench.create("jobs", named("j" * 60))
    bench.create("jobs", named("short"))
    assert {name.partition("-")[0] for name in groups_of_pods(bench, 2)} == {"short"}
    message = bench.events("FailedWorkloadCreate")[0]
    assert message.startswith(f"Failed to create Workload for Job {'j' * 60}: Workload.scheduling.k8s.io")


@pytest.mark.parametrize(
    ("scheduling", "why"),
    [
        ({"schedulingPolicy": {}}, "schedulingPolicy: Invalid value: {}: must specify one of: `basic`, `gang`"),
        ({"schedulingPolicy": {"gang": {}, "basic": {}}}, "must specify exactly one of: `basic`, `gang`"),
        ({"schedulingPolicy": {"gang": {"minCount": 0}}}, "gang.minCount: Invalid value: 0: must be greater than or"),
        ({"schedulingPolicy": {"gang": {"minCount": 3}}}, "must not be greater than parallelism (2)"),
        ({"disruptionMode": {"all": {}}}, "`all` is not supported with the Basic scheduling policy"),
        ({"disruptionMode": {}}, "disruptionMode: Invalid value: {}: must specify one of: `single`, `all`"),
        ({"schedulingConstraints": {"topology": [{"key": "a"}, {"key": "b"}]}}, "topology: Too many: 2"),
        ({"resourceClaims": [{"name": "a"}]}, "resourceClaims[0]: Invalid value"),
    ],
)
def test_bad_scheduling_is_refused(bench: Bench, scheduling: Object, why: str) -> None:
    made = bench.create("jobs", named("j", scheduling=scheduling), code=422)
    assert why in made["message"]
    schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": named("j", scheduling=scheduling)["spec"]}}
    made = bench.create("cronjobs", {"metadata": {"name": "c"}, "spec": schedule}, code=422)
    assert f"spec.jobTemplate.spec.scheduling.{made['message'].partition('.scheduling.')[2]}" in made["message"]
    assert why in made["message"]


def test_of_scheduling_only_the_minimum_changes(bench: Bench) -> None:
    bench.create("jobs", named("j", scheduling=GANG))
    bench.create("jobs", named("plain"))
    policy = "schedulingPolicy"
    assert not update(bench, "j", {"scheduling": {policy: {"gang": {"minCount": 1}}}})
    assert "variant is immutable" in update(bench, "j", {"scheduling": {policy: {"gang": None, "basic": {}}}})
    assert "field cannot be cleared once set" in update(bench, "j", {"scheduling": {policy: None}})
    assert "field cannot be cleared once set" in update(bench, "j", {"scheduling": None})
    assert "field cannot be set once created" in update(bench, "plain", {"scheduling": GANG})
    assert "field is immutable" in update(bench, "j", {"scheduling": {"disruptionMode": {"all": {}}}})
    assert "must not be greater than parallelism (0)" in update(bench, "j", {"parallelism": 0})


def test_without_the_gate_the_field_is_dropped() -> None:
    with running() as bench:
        scheduling = {"schedulingPolicy": {"gang": {"minCount": 0}}}
        assert "scheduling" not in bench.create("jobs", named("j", scheduling=scheduling))["spec"]
        schedule = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": named("j", scheduling=scheduling)["spec"]}}
        made = bench.create("cronjobs", {"metadata": {"name": "c"}, "spec": schedule})
        assert "scheduling" not in made["spec"]["jobTemplate"]["spec"]
        assert groups_of_pods(bench, 2) == {""}
        assert not update(bench, "j", {"scheduling": GANG})
        assert "scheduling" not in bench.get("jobs", "j")["spec"]
        assert bench.all("workloads") == bench.all("podgroups") == []
        resource = bench.cluster.server.registry.storage(JOBS)
        assert resource is not None
        stored = named("j", scheduling=GANG)  # since the gate was on
        kept = named("j", scheduling=GANG)
        drop_job_scheduling(resource, kept, stored, "")
        assert kept == stored
