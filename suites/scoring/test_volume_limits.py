"""Limits of attached volumes, as a node's CSINode states them."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.suites.scoring.claims import wait_bound

pytestmark = [pytest.mark.needs(Capability.NODES)]

DRIVER = "limited.example.com"


def using_volume(cluster: Trial, name: str) -> PodBuilder:
    """A pod with a volume of its own, which is bound to its claim."""
    volume = f"{cluster.name}-{name}"
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    cluster.accept(
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": volume},
         "spec": {**spec, "capacity": {"storage": "1Gi"}, "csi": {"driver": DRIVER, "volumeHandle": volume},
                  "claimRef": {"namespace": cluster.name, "name": name}}},
        "/api/v1/persistentvolumes",
    )  # fmt: skip
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
             "spec": {**spec, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}}  # fmt: skip
    cluster.accept(claim, f"/api/v1/namespaces/{cluster.name}/persistentvolumeclaims")
    wait_bound(cluster, name)
    found = pod(name)
    found.manifest["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    return found


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-174", severity="normal")
def test_a_node_attaches_so_many_volumes(cluster: Trial, expect: Expect) -> None:
    """A node that attaches two volumes gets two pods with one each; a third waits until one is gone."""
    cluster.add(node("n1"))
    body = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "n1"},
            "spec": {"drivers": [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 2}}]}}  # fmt: skip
    cluster.accept(body, "/apis/storage.k8s.io/v1/csinodes")
    try:
        cluster.settle()
        cluster.submit(using_volume(cluster, "a"), using_volume(cluster, "b"))
        expect.bound("a", "b")
        cluster.submit(using_volume(cluster, "c"))
        expect.pending("c", saying="max volume count")
        cluster.delete("a")
        expect.bound("c")
    finally:
        cluster.call("DELETE", "/apis/storage.k8s.io/v1/csinodes/n1")
