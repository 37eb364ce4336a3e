"""Workloads of Kruise: CloneSet and Advanced StatefulSet, known by their custom resource definitions.

No controller of Kruise runs here. The cases make the pods of a workload, and new ones for those that were evicted.
"""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.fixtures.descheduler import StartDescheduler
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import pod
from seatrial.suites.descheduling.workloads import OFF, ended, jobs, migrate, running, with_nodes

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "apps.kruise.io"
KINDS = {"CloneSet": ("clonesets", "v1alpha1"), "StatefulSet": ("statefulsets", "v1beta1")}


def definition(kind: str) -> dict[str, Any]:
    """The definition of one of Kruise's kinds, with an open schema and the subresources of the real one."""
    plural, version = KINDS[kind]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.labelSelector",
    }
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": scale},
                }
            ],
        },
    }


@pytest.fixture
def kruise(trial: Trial) -> Iterator[None]:
    """Kruise's kinds are served; definitions that were there before stay."""
    made = []
    for kind, (plural, version) in KINDS.items():
        if trial.call("POST", DEFINITIONS, definition(kind)).code == 201:
            made.append(f"{DEFINITIONS}/{plural}.{GROUP}")
        path = f"/apis/{GROUP}/{version}/{plural}"
        assert trial.reaches(lambda path=path: trial.call("GET", path).code == 200, within=15), path  # type: ignore[misc]
    yield
    for path in made:
        trial.call("DELETE", path)


def workload(trial: Trial, kind: str, name: str, replicas: int) -> dict[str, Any]:
    """A workload without pods; the reference that its pods have."""
    plural, version = KINDS[kind]
    body = {
        "apiVersion": f"{GROUP}/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main"}]}},
        },
    }
    path = f"/apis/{GROUP}/{version}/namespaces/{trial.name}/{plural}"
    made = orjson.loads(accepted(trial.call("POST", path, body), f"create {kind} {name}").body)
    return {
        "apiVersion": body["apiVersion"],
        "kind": kind,
        "name": name,
        "uid": made["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def fill(trial: Trial, owner: dict[str, Any], names: list[str]) -> None:
    """Pods of the workload, and wait until all of them run; others may be evicted meanwhile."""
    for name in names:
        built = pod(name).request(cpu=1).label("app", owner["name"])
        built.manifest["metadata"]["ownerReferences"] = [owner]
        trial.submit(built)

    def all_run() -> bool:
        return {*names} <= {pod.metadata.name for pod in running(trial, owner["name"])}

    assert trial.reaches(all_run, within=60), trial.timeline()


@pytest.mark.usefixtures("kruise")
@pytest.mark.feature("DES-2.workloads")
@pytest.mark.case("DC-050", severity="critical")
@pytest.mark.long(seconds=45)
@pytest.mark.parametrize("kind", list(KINDS))
def test_a_workload_of_kruise_keeps_its_budget(trial: Trial, start_descheduler: StartDescheduler, kind: str) -> None:
    """Ten pods of which 30 % may be missing: three are evicted, and no more until three new ones run.

    The missing pods are known by the workload's replicas alone: of the pods that exist, all are Ready.
    """
    with_nodes(trial, "n1", "n2")
    owner = workload(trial, kind, "web", 10)
    fill(trial, owner, [f"old-{number}" for number in range(10)])
    limits = {
        "maxUnavailablePerWorkload": "30%",
        "maxMigratingPerWorkload": "30%",
        "maxMigratingPerNode": 10,
        "defaultJobMode": "EvictDirectly",
        "objectLimiters": OFF,
        "evictBurst": 10,
    }
    trial.pass_time(2)
    start_descheduler({"PodLifeTime": {"maxPodLifeTimeSeconds": 1}}, migration=limits, deschedulingInterval="1h")

    assert trial.reaches(lambda: len(running(trial, "web")) == 7, within=30), trial.timeline()
    trial.pass_time(20)
    assert len(running(trial, "web")) == 7
    fill(trial, owner, [f"new-{number}" for number in range(3)])
    assert trial.reaches(lambda: len(running(trial, "web")) == 7, within=30), trial.timeline()
    trial.pass_time(20)
    assert sorted(pod.metadata.name.split("-")[0] for pod in running(trial, "web")) == ["new"] * 3 + ["old"] * 4
    assert len(jobs(trial)) == 10


@pytest.mark.usefixtures("kruise")
@pytest.mark.feature("DES-2.workloads", "MIG-2.filter")
@pytest.mark.case("DC-051", severity="normal")
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_only_replica_of_kruise_stays(trial: Trial, start_descheduler: StartDescheduler, kind: str) -> None:
    """A workload of one replica may lose none, although two of its pods exist: the job fails."""
    with_nodes(trial, "n1", "n2")
    owner = workload(trial, kind, "web", 1)
    fill(trial, owner, ["web-0", "web-1"])
    start_descheduler({}, migration={"maxUnavailablePerWorkload": 1, "maxMigratingPerWorkload": 1})

    migrate(trial, "move", "web-0")

    done = ended(trial, "move")
    assert (done.status.phase, done.status.reason) == ("Failed", "ForbiddenMigratePod")
    assert len(running(trial, "web")) == 2
