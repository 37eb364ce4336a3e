"""Workloads, usage reports and migration jobs of these cases."""

from typing import Any

import msgspec
import orjson

from seatrial.fixtures.trial import TRIAL_LABEL, Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.nodes.usage import RESOURCES_ANNOTATION
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.slo import NODE_METRICS_PATH

Manifest = dict[str, Any]
OFF = {"workload": {"duration": "0s"}}  # object limiters; an empty table means the default to koord-descheduler
# All three pods of a workload may be migrated at once. Deschedulers differ in what a round makes of pods beyond the
# limits: jobs that wait, or nothing.
ALL_AT_ONCE: Manifest = {
    "maxMigratingPerWorkload": 3,
    "maxUnavailablePerWorkload": 3,
    "maxMigratingPerNode": 100,
    "skipCheckExpectedReplicas": True,
    "objectLimiters": OFF,
}
REPORT = 30  # seconds between two reports, the shortest there is

_decode_job = msgspec.json.Decoder(PodMigrationJob).decode


def with_nodes(trial: Trial, *names: str, cpu: int = 16, reports: bool = False) -> None:
    """Nodes; `reports`: with a NodeMetric each, as Koordinator's manager makes it."""
    trial.add(*(node(name).cpu(cpu).memory("64Gi") for name in names))
    if reports:
        for name in names:
            metric(trial, name)


def metric(trial: Trial, name: str) -> None:
    """Ask the node for usage reports."""
    trial.apply(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "metadata": {"name": name},
            "spec": {"metricCollectPolicy": {"reportIntervalSeconds": REPORT}},
        }
    )


def deployment(
    trial: Trial,
    name: str,
    replicas: int,
    *,
    like: PodBuilder,
    uses: dict[str, str] | None = None,
    kind: str = "Deployment",
) -> None:
    """A Deployment (or another kind of workload) of pods like the given one, which use CPU and memory."""
    manifest = like.select({TRIAL_LABEL: trial.name}).label("app", name).manifest
    metadata = {
        "labels": {**manifest["metadata"].get("labels", {}), "app": name},
        "annotations": dict(manifest["metadata"].get("annotations", {})),
    }
    if uses is not None:
        metadata["annotations"][RESOURCES_ANNOTATION] = orjson.dumps(uses).decode()
    spec: Manifest = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": metadata, "spec": {**manifest["spec"], "restartPolicy": "Always"}},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    trial.apply({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec})


def daemon(trial: Trial, name: str, *, like: PodBuilder | None = None) -> None:
    """A DaemonSet on the nodes of the trial; its pods request one core, or are like the given one."""
    like = like or pod("x").request(cpu=1)
    template = like.select({TRIAL_LABEL: trial.name}).label("app", name).manifest
    trial.apply(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": template["metadata"]["labels"]},
                    "spec": {**template["spec"], "restartPolicy": "Always"},
                },
            },
        }
    )


def running(trial: Trial, app: str) -> list[Pod]:
    """The workload's pods that run."""
    return [
        pod
        for pod in trial.pods()
        if pod.metadata.labels.get("app") == app and pod.status.phase == "Running" and not pod.deleting
    ]


def wait_running(trial: Trial, app: str, count: int, *, within: float = 60.0) -> list[Pod]:
    assert trial.reaches(lambda: len(running(trial, app)) == count, within=within), (
        f"expected {count} running pods of {app}\n{trial.timeline()}"
    )
    return running(trial, app)


def spread_victim(trial: Trial, app: str, replicas: int, *, cpu: int = 1) -> str:
    """A workload whose pods are all on n1, while n2 is free; the name of one of its pods."""
    cordon(trial, "n2")
    deployment(trial, app, replicas, like=pod("x").request(cpu=cpu))
    names = sorted(pod.metadata.name for pod in wait_running(trial, app, replicas))
    cordon(trial, "n2", on=False)
    return names[0]


def cordon(trial: Trial, name: str, *, on: bool = True) -> None:
    patch = {"spec": {"unschedulable": on}}
    accepted(trial.call("PATCH", f"/api/v1/nodes/{name}", patch), f"cordon {name}")


def use(trial: Trial, pod: Pod, **amounts: str) -> None:
    """Change what a running pod uses."""
    annotate(trial, pod, **{RESOURCES_ANNOTATION: orjson.dumps(amounts).decode()})


def annotate(trial: Trial, pod: Pod, **annotations: str) -> None:
    """Set annotations of a running pod."""
    path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}"
    patch = {"metadata": {"annotations": annotations}}
    accepted(trial.call("PATCH", path, patch), f"annotate {pod.metadata.name}")


def migrate(
    trial: Trial,
    name: str,
    pod: str,
    *,
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> None:
    """A PodMigrationJob for a pod of the trial."""
    reference = {"namespace": trial.name, "name": pod}
    trial.apply(
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"podRef": reference, "ttl": "5m", "mode": "ReservationFirst", **spec},
        }
    )


def job(trial: Trial, name: str) -> PodMigrationJob:
    return _decode_job(accepted(trial.call("GET", f"{JOBS_PATH}/{name}"), f"read job {name}").body)


def jobs(trial: Trial) -> list[PodMigrationJob]:
    """All migration jobs for pods of the trial."""
    rows = orjson.loads(accepted(trial.call("GET", JOBS_PATH), "list jobs").body)["items"]
    jobs = [msgspec.convert(row, PodMigrationJob) for row in rows]
    return [job for job in jobs if job.spec.pod_ref.namespace == trial.name]


def shown(trial: Trial) -> str:
    """The migration jobs by pod, for the message of a failed case."""
    lines = [f"{job.spec.pod_ref.name} {job.status.phase} {job.status.reason}".rstrip() for job in jobs(trial)]
    return f"{len(lines)} migration jobs: {'; '.join(sorted(lines)) or 'none'}"


def ended(trial: Trial, name: str, *, within: float = 120.0) -> PodMigrationJob:
    """The job once it has ended."""
    assert trial.reaches(lambda: not job(trial, name).open, within=within), (
        f"expected job {name} to end within {within:g} s, it is {job(trial, name).status}\n{trial.timeline()}"
    )
    return job(trial, name)


def report_of(trial: Trial, name: str) -> Manifest:
    """The status of a node's NodeMetric; empty before the first report."""
    body: Manifest = orjson.loads(accepted(trial.call("GET", f"{NODE_METRICS_PATH}/{name}"), f"read {name}").body)
    return body.get("status") or {}


def evictions_by_uid(trial: Trial) -> None:
    """The API server refuses evictions in this namespace that do not name the UID of their pod."""
    name = f"{trial.name}-uid"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    fields = ("deleteOptions", "deleteOptions.preconditions", "deleteOptions.preconditions.uid")
    named = " && ".join(f"has(object.{field})" for field in fields)
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": named}]}
    mine = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": trial.name}}}
    binding = {"policyName": name, "validationActions": ["Deny"], "matchResources": mine}
    for kind, own in (("validatingadmissionpolicies", spec), ("validatingadmissionpolicybindings", binding)):
        body = {"metadata": {"name": name}, "spec": own}
        accepted(trial.call("POST", f"/apis/admissionregistration.k8s.io/v1/{kind}", body), f"make {kind}")
