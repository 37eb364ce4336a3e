"""Printers of volumes and storage kinds."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import CREATED, made, printed

STORAGE = "storage.k8s.io"


def volume(**metadata: Any) -> dict[str, Any]:
    return made(
        "pv",
        metadata=metadata,
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "ns", "name": "c"},
            "storageClassName": "fast",
            "volumeMode": "Filesystem",
        },
        status={"phase": "Bound"},
    )


def test_a_volume() -> None:
    assert printed("", "persistentvolumes", volume()) == [
        ("Name", "pv"),
        ("Capacity", "10Gi"),
        ("Access Modes", "RWO,RWX"),
        ("Reclaim Policy", "Retain"),
        ("Status", "Bound"),
        ("Claim", "ns/c"),
        ("StorageClass", "fast"),
        ("VolumeAttributesClass", "<unset>"),
        ("Reason", ""),
        ("Age", "60s"),
        ("[VolumeMode]", "Filesystem"),
    ]


def test_a_volume_that_is_being_deleted_and_has_its_class_in_the_old_place() -> None:
    values = volume(deletionTimestamp=CREATED, annotations={"volume.beta.kubernetes.io/storage-class": "old"})
    shown = dict(printed("", "persistentvolumes", values))
    assert (shown["Status"], shown["StorageClass"]) == ("Terminating", "old")


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param(
            {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}},
            {"phase": "Pending"},
            ["Pending", "", "", "", "fast", "<unset>", "60s", "<unset>"],
            id="not-bound",
        ),
        pytest.param(
            {"volumeName": "pv", "volumeMode": "Block", "volumeAttributesClassName": "gold"},
            {"phase": "Bound", "capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOncePod"]},
            ["Bound", "pv", "2Gi", "RWOP", "", "gold", "60s", "Block"],
            id="bound",
        ),
    ],
)
def test_a_claim(spec: dict[str, Any], status: dict[str, Any], want: list[str]) -> None:
    heads = ["Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age"]
    assert printed("", "persistentvolumeclaims", made(spec=spec, status=status)) == list(
        zip([*heads, "[VolumeMode]"], ["x", *want], strict=True)
    )


DEFAULT = {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}


@pytest.mark.parametrize(
    ("plural", "values", "want"),
    [
        pytest.param(
            "storageclasses",
            made(metadata=DEFAULT, provisioner="p", allowVolumeExpansion=True, reclaimPolicy="Retain"),
            [
                ("Name", "x (default)"),
                ("Provisioner", "p"),
                ("ReclaimPolicy", "Retain"),
                ("VolumeBindingMode", "Immediate"),
                ("AllowVolumeExpansion", True),
                ("Age", "60s"),
            ],
            id="the-default-class",
        ),
        pytest.param(
            "storageclasses",
            made(provisioner="p", volumeBindingMode="WaitForFirstConsumer"),
            [
                ("Name", "x"),
                ("Provisioner", "p"),
                ("ReclaimPolicy", "Delete"),
                ("VolumeBindingMode", "WaitForFirstConsumer"),
                ("AllowVolumeExpansion", False),
                ("Age", "60s"),
            ],
            id="another-class",
        ),
        pytest.param(
            "volumeattachments",
            made(
                spec={"attacher": "d", "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
                status={"attached": True},
            ),
            [("Name", "x"), ("Attacher", "d"), ("PV", "pv"), ("Node", "n"), ("Attached", True), ("Age", "60s")],
            id="an-attachment",
        ),
        pytest.param("csinodes", made(spec={"drivers": [{}, {}]}), [("Name", "x"), ("Drivers", 2), ("Age", "60s")]),
        pytest.param(
            "csidrivers",
            made(spec={"tokenRequests": [{"audience": "a"}, {"audience": "b"}], "volumeLifecycleModes": ["Ephemeral"]}),
            [
                ("Name", "x"),
                ("AttachRequired", True),
                ("PodInfoOnMount", False),
                ("StorageCapacity", False),
                ("TokenRequests", "a,b"),
                ("RequiresRepublish", False),
                ("Modes", "Ephemeral"),
                ("Age", "60s"),
            ],
            id="a-driver",
        ),
        pytest.param(
            "volumeattributesclasses",
            made(driverName="d"),
            [("Name", "x"), ("DriverName", "d"), ("Age", "60s")],
            id="an-attributes-class",
        ),
        pytest.param("csistoragecapacities", made(), [("Name", "x"), ("Created At", CREATED)], id="a-capacity"),
    ],
)
def test_a_kind_of_the_storage_group(plural: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed(STORAGE, plural, values) == want
