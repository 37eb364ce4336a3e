"""kube-scheduler and Koordinator's scheduler, unchanged, as processes on a cluster of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.harness.apiserver.tests.foreign import binary, create, read, wait_until
from seatrial.harness.apiserver.tests.kubectl import MANIFESTS
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.subject.protocol import Subject, open_subject
from seatrial.scheduler.api.device import DEVICE_ALLOCATED

CONFIGS = Path(__file__).resolve().parents[3] / "suites" / "configs"
PODS = "/api/v1/namespaces/default/pods"
CLAIM = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/oar"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/koordinator-system/elasticquotas"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
COLLECTIONS = {
    "DeviceClass": "/apis/resource.k8s.io/v1/deviceclasses",
    "ResourceSlice": "/apis/resource.k8s.io/v1/resourceslices",
    "ResourceClaim": "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
    "Pod": PODS,
}


def pod(name: str, **resources: str) -> dict[str, Any]:
    container = {"name": "c", "image": "busybox:1", "resources": {"limits": resources, "requests": resources}}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


@contextmanager
def working(command: str, config: Path) -> Iterator[tuple[EmbeddedCluster, Subject]]:
    """A cluster of its own for each, since every scheduler takes every pod."""
    with (
        EmbeddedBackend(seed=1).start(fleet="default") as cluster,
        open_subject(command, cluster, config=config) as subject,
    ):
        assert subject is not None
        yield cluster, subject
        subject.check()
        complaints = [line for line in subject.log().splitlines() if "reflector.go" in line and "ailed to" in line]
        assert not complaints, "an informer could not follow its kind:\n" + "\n".join(complaints)


def running(cluster: EmbeddedCluster, name: str) -> bool:
    return read(cluster, f"{PODS}/{name}").get("status", {}).get("phase") == "Running"


def test_kube_scheduler(tmp_path: Path) -> None:
    command = f"{binary('kube-scheduler')} --secure-port 0"
    config = yaml.safe_load((CONFIGS / "kube-scheduler.yaml").read_text())
    config["leaderElection"] = {"leaderElect": True}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    with working(command, path) as (cluster, subject):
        for number in range(5):
            create(cluster, PODS, pod(f"p{number}", cpu="1"))
        wait_until(lambda: all(running(cluster, f"p{number}") for number in range(5)), "five pods", subject.log)
        assert read(cluster, LEASE)["spec"]["holderIdentity"]

        for manifest in yaml.safe_load_all((MANIFESTS / "oars.yaml").read_text()):
            create(cluster, COLLECTIONS[manifest["kind"]], manifest)
        wait_until(lambda: running(cluster, "rower"), "a pod with a claimed device", subject.log)
        assert read(cluster, f"{PODS}/rower")["spec"]["nodeName"] == "cpu-1"
        status = read(cluster, CLAIM)["status"]
        assert [result["device"] for result in status["allocation"]["devices"]["results"]] == ["long"]
        assert [consumer["name"] for consumer in status["reservedFor"]] == ["rower"]

        create(cluster, PODS, pod("giant", cpu="100k"))
        events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dgiant"
        wait_until(lambda: bool(read(cluster, events)["items"]), "an event that says why not", subject.log)
        (event,) = read(cluster, events)["items"]
        assert event["reason"] == "FailedScheduling"
        assert "Insufficient cpu" in event["message"]


def test_koord_scheduler() -> None:
    command = f"{binary('koord-scheduler')} --secure-port 0 --port 0"
    with working(command, CONFIGS / "koord-scheduler.yaml") as (cluster, subject):
        gpu = {"koordinator.sh/gpu": "100"}
        create(cluster, PODS, pod("whole", **gpu))
        create(cluster, PODS, pod("plain", cpu="1"))
        wait_until(lambda: running(cluster, "whole") and running(cluster, "plain"), "two pods", subject.log)
        quotas = read(cluster, QUOTAS)["items"]
        assert "koordinator-root-quota" in {quota["metadata"]["name"] for quota in quotas}
        assert '"gpu":[{"minor":' in read(cluster, f"{PODS}/whole")["metadata"]["annotations"][DEVICE_ALLOCATED]


@pytest.mark.parametrize("name", ["kube-scheduler.yaml", "koord-scheduler.yaml"])
def test_their_configurations_have_the_profile_of_pods_that_name_none(name: str) -> None:
    profiles = yaml.safe_load((CONFIGS / name).read_text())["profiles"]
    assert "default-scheduler" in {profile["schedulerName"] for profile in profiles}
