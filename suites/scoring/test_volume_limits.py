"""Limits of attached volumes, as a node's CSINode states them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, storage, wait_bound
from seatrial.suites.scoring.rules import patch, pod_with

__all__ = ["storage"]

pytestmark = [pytest.mark.needs(Capability.NODES)]

DRIVER = "limited.example.com"


MIGRATED = {"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/aws-ebs,kubernetes.io/gce-pd"}
LIMITS = "kubernetes pkg/scheduler/framework/plugins/nodevolumelimits/csi.go@v1.34"


def using_volume(trial: Trial, name: str, **source: Any) -> PodBuilder:
    """A pod with a volume of its own, which is bound to its claim; `source` is where its data are, if not a driver."""
    volume = f"{trial.name}-{name}"
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    trial.accept(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **spec,
                "capacity": {"storage": "1Gi"},
                **(source or {"csi": {"driver": DRIVER, "volumeHandle": volume}}),
                "claimRef": {"namespace": trial.name, "name": name},
            },
        },
        "/api/v1/persistentvolumes",
    )
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {**spec, "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}},
    }
    trial.accept(claim, f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims")
    wait_bound(trial, name)
    builder = pod(name)
    builder.manifest["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]
    return builder


@contextmanager
def limited(trial: Trial, count: int, driver: str = DRIVER, before: Mapping[str, int] | None = None) -> Iterator[None]:
    """Node n1 attaches so many volumes of the driver, which is listed after those in `before`.

    As kubelet writes it, the CSINode also names the in-tree plugins that are migrated.
    """
    trial.add(node("n1"))
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "n1", "annotations": MIGRATED},
        "spec": {
            "drivers": [
                {"name": name, "nodeID": "n1", "allocatable": {"count": most}}
                for name, most in {**(before or {}), driver: count}.items()
            ]
        },
    }
    trial.accept(body, "/apis/storage.k8s.io/v1/csinodes")
    try:
        trial.settle()
        yield
    finally:
        trial.call("DELETE", "/apis/storage.k8s.io/v1/csinodes/n1")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-174", severity="normal", source=f"{LIMITS}: Filter")
def test_a_node_attaches_so_many_volumes(trial: Trial, expect: Expect) -> None:
    """A node that attaches two volumes gets two pods with one each; a third waits until one is gone."""
    with limited(trial, 2):
        trial.submit(using_volume(trial, "a"), using_volume(trial, "b"))
        expect.bound("a", "b")
        trial.submit(using_volume(trial, "c"))
        expect.pending("c", saying="max volume count")
        trial.delete("a")
        expect.bound("c")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-292", severity="critical", source=f"{LIMITS}: getCSIDriverInfoFromSC")
@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [(PROVISIONER, PROVISIONER), ("kubernetes.io/aws-ebs", "ebs.csi.aws.com")],
    ids=["csi", "in-tree"],
)
def test_volumes_that_are_not_made_yet_count(
    trial: Trial, expect: Expect, storage: StorageOfCase, provisioner: str, driver: str
) -> None:
    """A node that attaches one volume is chosen for one claim only while no volume is made; its class names the
    driver."""
    storage.of_class(provisioner)
    with limited(trial, 1, driver):
        for name in ("a", "b"):
            storage.claim(name)
        storage.submit("first", "a")
        assert storage.selected_node("a") == "n1"
        storage.submit("second", "b")
        expect.pending("second", saying="max volume count")
        trial.submit(pod_with("third", volumes=[storage.ephemeral("scratch")]))
        expect.pending("third")  # for its claim or for the limit: the controller may be slower than the scheduler
        expect.stable(seconds=2)


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case(
    "SC-293", severity="normal", source="kubernetes 1.34 nodevolumelimits/csi.go: getNodeVolumeAttachmentInfo"
)
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_a_volume_that_is_still_attached_counts(trial: Trial, expect: Expect) -> None:
    """A VolumeAttachment without a pod takes the only place of a node; when it is gone, the waiting pod is bound."""
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    with limited(trial, 1):
        using_volume(trial, "left")
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "VolumeAttachment",
            "metadata": {"name": trial.name},
            "spec": {"attacher": DRIVER, "nodeName": "n1", "source": {"persistentVolumeName": f"{trial.name}-left"}},
        }
        trial.accept(body, path)
        trial.settle()
        try:
            trial.submit(using_volume(trial, "p"))
            expect.pending("p", saying="max volume count")
        finally:
            trial.call("DELETE", f"{path}/{trial.name}")
        expect.bound("p")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-419", severity="critical", source=f"{LIMITS}: Filter")
def test_a_volume_that_pods_share_counts_once(trial: Trial, expect: Expect) -> None:
    """A node that attaches one volume gets two pods that share it; a pod with another volume waits. The node attaches
    none any more: a third pod may share the volume that is there."""
    with limited(trial, 1):
        first = using_volume(trial, "a")
        shared, third = pod("shared"), pod("third")
        for builder in (shared, third):
            builder.manifest["spec"]["volumes"] = first.manifest["spec"]["volumes"]
        trial.submit(first)
        expect.bound("a")
        trial.submit(shared)
        expect.bound("shared")
        trial.submit(using_volume(trial, "b"))
        expect.pending("b", saying="max volume count")
        trial.delete("b")
        none = [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 0}}]
        for each in ([], none):  # an entry may be removed and added, not changed
            patch(trial, "/apis/storage.k8s.io/v1/csinodes/n1", {"spec": {"drivers": each}})
        trial.settle()
        trial.submit(third)
        expect.bound("third")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-420", severity="normal", source=f"{LIMITS}: EventsToRegister, CSINode update")
def test_a_node_attaches_more_than_before(trial: Trial, expect: Expect) -> None:
    """The CSINode's limit goes from one to two: the pod that waited for it is bound, and the next one waits. Without
    the driver's entry, or without the CSINode, there is no limit."""
    with limited(trial, 1):
        trial.submit(using_volume(trial, "a"))
        expect.bound("a")
        trial.submit(using_volume(trial, "b"))
        expect.pending("b", saying="max volume count")
        drivers = [{"name": DRIVER, "nodeID": "n1", "allocatable": {"count": 2}}]
        for each in ([], drivers):  # an entry may be removed and added, not changed
            patch(trial, "/apis/storage.k8s.io/v1/csinodes/n1", {"spec": {"drivers": each}})
        expect.bound("b")
        trial.submit(using_volume(trial, "c"))
        expect.pending("c", saying="max volume count")
        patch(trial, "/apis/storage.k8s.io/v1/csinodes/n1", {"spec": {"drivers": []}})
        expect.bound("c")
        patch(trial, "/apis/storage.k8s.io/v1/csinodes/n1", {"spec": {"drivers": drivers}})
    trial.settle()
    trial.submit(using_volume(trial, "d"))
    expect.bound("d")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-422", severity="critical", source=f"{LIMITS}: Filter, the limit of each driver")
@pytest.mark.parametrize(("count", "fits"), [(1, True), (0, False)])
def test_each_driver_has_its_own_limit(trial: Trial, expect: Expect, count: int, fits: bool) -> None:
    """A driver that is listed before attaches many volumes, and two of its volumes are there: the second driver's limit
    is for its own volumes alone, and 0 is a limit."""
    other = "another.example.com"
    with limited(trial, count, before={other: 8}):
        for name in ("x", "y"):
            trial.submit(using_volume(trial, name, csi={"driver": other, "volumeHandle": f"{trial.name}-{name}"}))
            expect.bound(name)
        if fits:
            trial.submit(using_volume(trial, "a"))
            expect.bound("a")
        trial.submit(using_volume(trial, "b"))
        expect.pending("b", saying="max volume count")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-423", severity="normal", source=f"{LIMITS}: checkAttachableInlineVolume, TranslateInTreePVToCSI")
@pytest.mark.parametrize(
    ("driver", "source", "key", "more"),
    [
        ("pd.csi.storage.gke.io", "gcePersistentDisk", "pdName", {}),
        ("disk.csi.azure.com", "azureDisk", "diskURI", {"diskName": "disk", "kind": "Managed"}),
        ("cinder.csi.openstack.org", "cinder", "volumeID", {}),
    ],
    ids=["gce", "azure", "cinder"],
)
def test_disks_of_a_migrated_plugin_count_each(  # noqa: PLR0917
    trial: Trial, expect: Expect, driver: str, source: str, key: str, more: dict[str, str]
) -> None:
    """A node attaches two disks of the driver that in-tree disks are migrated to: the third disk waits."""
    with limited(trial, 2, driver):
        names = ("a", "b", "c")
        for name in names:
            trial.submit(using_volume(trial, name, **{source: {key: f"disk-{name}", **more}}))
            if name != "c":
                expect.bound(name)
        expect.pending("c", saying="max volume count")
