"""Claims of volumes."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from seatrial.fixtures.trial import Trial
from seatrial.suites.scoring.rules import HOST, Json, expression, pod_with

PROVISIONER = "made.example.com"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def on_host(host: str, key: str = HOST) -> Json:
    """The nodeAffinity of a volume for nodes whose label `key` is `host`."""
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression(key, "In", host)]}]}}


def wait_bound(trial: Trial, name: str) -> None:
    """Wait until the controller has bound a claim to its volume.

    A claim that a test marks as bound before the controller knows the volume would be Lost, and schedulers take a claim
    without the controller's annotation as unbound.
    """
    path = f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims/{name}"
    phase = ""

    def is_bound() -> bool:
        nonlocal phase
        phase = orjson.loads(trial.call("GET", path).body)["status"].get("phase", "")
        return phase == "Bound"

    assert trial.wait(is_bound, within=30), f"expected claim {name} to be Bound within 30 s, it is {phase!r}"


class StorageOfCase:
    """A storage class that waits for the first consumer, with volumes and claims of it."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial

    def of_class(self, provisioner: str = "kubernetes.io/no-provisioner", **more: Any) -> None:
        body = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": self._trial.name},
            "provisioner": provisioner,
            "volumeBindingMode": "WaitForFirstConsumer",
            **more,
        }
        self._trial.accept(body, CLASSES)

    def volume(
        self, name: str, host: str, size: str = "1Gi", *, key: str = HOST, spec: Json | None = None, **labels: str
    ) -> str:
        """A volume of the class for nodes whose label `key` is `host`, or as `spec` says; returns its cluster name.

        Waits until the controller has said that it is Available: schedulers choose among those alone.
        """
        full = f"{self._trial.name}-{name}"
        self._trial.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": full, "labels": labels},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": size},
                    "local": {"path": "/data"},
                    "storageClassName": self._trial.name,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "nodeAffinity": on_host(host, key),
                    **(spec or {}),
                },
            }
        )
        path = f"/api/v1/persistentvolumes/{full}"

        def is_available() -> bool:
            status = orjson.loads(self._trial.call("GET", path).body).get("status") or {}
            return status.get("phase") in {"Available", "Bound", "Released"}

        assert self._trial.reaches(is_available, within=30), f"expected volume {full} to be Available"
        return full

    def claim(self, name: str, size: str = "1Gi", **spec: Any) -> None:
        self._trial.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": name},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "storageClassName": self._trial.name,
                    "resources": {"requests": {"storage": size}},
                    **spec,
                },
            }
        )

    def ephemeral(self, name: str) -> dict[str, Any]:
        """A generic ephemeral volume of the class, for a pod's spec."""
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": self._trial.name,
            "resources": {"requests": {"storage": "1Gi"}},
        }
        return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}

    def submit(self, name: str, *claims: str, **more: Any) -> None:
        volumes = [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]
        self._trial.submit(pod_with(name, volumes=volumes, **more))

    def seen(self, claim: str) -> Any:
        """The claim as the API server has it."""
        path = f"/api/v1/namespaces/{self._trial.name}/persistentvolumeclaims/{claim}"
        return orjson.loads(self._trial.call("GET", path).body)

    def selected_node(self, claim: str) -> str:
        """The node that the provisioner is told; waits until there is one."""

        def node_name() -> str:
            node: str = (self.seen(claim)["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")
            return node

        assert self._trial.reaches(lambda: bool(node_name()), within=30), f"expected {SELECTED_NODE} on claim {claim}"
        return node_name()

    def made(self, claim: str, **spec: Any) -> str:
        """Do what a provisioner does: make a volume for the claim. Returns the volume's name."""
        name = f"{self._trial.name}-made-for-{claim}"
        self._trial.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": "1Gi"},
                    "storageClassName": self._trial.name,
                    "csi": {"driver": PROVISIONER, "volumeHandle": name},
                    "claimRef": {
                        "apiVersion": "v1",
                        "kind": "PersistentVolumeClaim",
                        "name": claim,
                        "namespace": self._trial.name,
                        "uid": self.seen(claim)["metadata"]["uid"],
                    },
                    **spec,
                },
            }
        )
        return name

    def volume_of(self, claim: str) -> str:
        """The volume that the claim is bound to; waits for that."""
        wait_bound(self._trial, claim)
        volume_name: str = self.seen(claim)["spec"]["volumeName"]
        return volume_name


@pytest.fixture
def storage(trial: Trial) -> Iterator[StorageOfCase]:
    """Removes the storage class afterwards; the trial removes the rest."""
    yield StorageOfCase(trial)
    trial.call("DELETE", f"{CLASSES}/{trial.name}")
