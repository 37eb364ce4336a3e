"""Pods with claims: which nodes their volumes leave them, what they are told, and when they are tried again."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.storage import (
    BIND_COMPLETED,
    CsiNode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from seatrial.scheduler.tests.rig import Rig

NOT_OWNER = "PVC default/p-scratch was not created for pod default/p (pod is not owner)"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


class Storage(Rig):
    """A cluster of nodes a (zone a), b (zone b) and x (no zone) with things to be stored on."""

    def __init__(self) -> None:
        super().__init__()
        self.node("a", labels={"kubernetes.io/hostname": "a", ZONE: "a"})
        self.node("b", labels={"kubernetes.io/hostname": "b", ZONE: "b"})
        self.node("x", labels={"kubernetes.io/hostname": "x"})

    def claim(
        self,
        name: str,
        volume: str = "",
        *,
        of: str = "",
        phase: str = "Bound",
        mode: str = "",
        size: str = "1Gi",
        annotations: dict[str, str] | None = None,
        version: int = 1,
        selector: Any = None,
        **meta: Any,
    ) -> None:
        modes = (mode,) if mode else ()
        spec = {
            "volumeName": volume,
            "storageClassName": of,
            "accessModes": modes,
            "selector": selector,
            "resources": {"requests": {"storage": size}},
        }
        marks = {**({BIND_COMPLETED: "yes"} if volume else {}), **(annotations or {})}
        metadata = {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "annotations": marks,
            "resourceVersion": str(version),
            **meta,
        }
        manifest = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        self.core.cache.volumes.set_claim(msgspec.convert(manifest, PersistentVolumeClaim))
        self.core.intake.storage_changed()

    def volume(
        self,
        name: str,
        *,
        host: str = "",
        labels: dict[str, str] | None = None,
        csi: str = "",
        size: str = "1Gi",
        phase: str = "Available",
        version: int = 1,
        **spec: Any,
    ) -> None:
        spec["capacity"] = {"storage": size}
        if host:
            expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
        if csi:
            spec["csi"] = {"driver": csi, "volumeHandle": name}
        metadata = {"name": name, "uid": f"uid-{name}", "labels": labels or {}, "resourceVersion": str(version)}
        manifest = {"metadata": metadata, "spec": spec, "status": {"phase": phase}}
        self.core.cache.volumes.set_volume(msgspec.convert(manifest, PersistentVolume))
        self.core.intake.storage_changed()

    def storage_class(self, name: str, mode: str, provisioner: str = "example.com/disks", zone: str = "") -> None:
        results: dict[str, Any] = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode}
        if zone:
            results["allowedTopologies"] = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
        self.core.cache.volumes.set_class(msgspec.convert(results, StorageClass))
        self.core.intake.storage_changed()

    def attachment(self, name: str, node: str, volume: str, driver: str, *, gone: bool = False) -> None:
        source = {"persistentVolumeName": volume}
        manifest = {"metadata": {"name": name}, "spec": {"attacher": driver, "nodeName": node, "source": source}}
        self.core.cache.volumes.set_attachment(msgspec.convert(manifest, VolumeAttachment), gone=gone)
        self.core.intake.storage_changed()

    def limit(self, node: str, driver: str, count: int) -> None:
        drivers = [{"name": driver, "nodeID": node, "allocatable": {"count": count}}]
        manifest = {"metadata": {"name": node}, "spec": {"drivers": drivers}}
        self.core.cache.volumes.set_csi_node(msgspec.convert(manifest, CsiNode))

    def outcome(self, builder: PodBuilder) -> str:
        self.submit(builder)
        self.run()
        return self.where(builder.name) or self.message(builder.name)


def using(name: str, *claims: str) -> PodBuilder:
    builder = pod(name).request(cpu="1")
    builder.manifest["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}} for number, claim in enumerate(claims)
    ]
    return builder


def with_scratch(name: str, **template: Any) -> PodBuilder:
    """A pod with a generic ephemeral volume `scratch`."""
    builder = pod(name).request(cpu="1")
    builder.manifest["spec"]["volumes"] = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    return builder


def owned_by(name: str, *, controller: bool = True) -> list[dict[str, Any]]:
    """Owner references of a claim."""
    return [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": controller}]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param(None, 'persistentvolumeclaim "c" not found', id="missing"),
        pytest.param(
            {"volume": "v", "deletion_timestamp": "2026-01-01T00:00:00Z"},
            'persistentvolumeclaim "c" is being deleted',
            id="going",
        ),
        pytest.param(
            {"volume": "v", "phase": "Lost"},
            'persistentvolumeclaim "c" bound to non-existent persistentvolume "v"',
            id="lost",
        ),
        pytest.param({"of": "now"}, "pod has unbound immediate PersistentVolumeClaims", id="unbound"),
        pytest.param({"of": "unknown"}, "pod has unbound immediate PersistentVolumeClaims", id="unknown-class"),
        pytest.param(
            {"volume": "nowhere"},
            "3 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
            id="unknown-volume",
        ),
        pytest.param({"volume": "v"}, "", id="bound"),
    ],
)
def test_claims_that_keep_a_pod_waiting(claim: dict[str, Any] | None, message: str) -> None:
    rig = Storage()
    rig.volume("v")
    rig.storage_class("now", "Immediate")
    if claim is not None:
        rig.claim("c", **{"deletionTimestamp" if key.startswith("del") else key: value for key, value in claim.items()})
    outcome = rig.outcome(using("p", "c"))
    if message:
        assert outcome.startswith(f"0/3 nodes are available: {message}."), outcome
    else:
        assert outcome in {"a", "b", "x"}


@pytest.mark.parametrize(
    ("volume", "where"),
    [
        pytest.param({"host": "b"}, {"b"}, id="a-local-volume"),
        pytest.param({"labels": {ZONE: "a"}}, {"a", "x"}, id="a-volume-of-one-zone"),
        pytest.param({"labels": {ZONE: "b__c"}}, {"b", "x"}, id="a-volume-of-several-zones"),
        pytest.param({"labels": {"failure-domain.beta.kubernetes.io/zone": "a"}}, {"a", "x"}, id="the-labels-old-name"),
        pytest.param({"labels": {ZONE: "a", REGION: "r"}}, {"x"}, id="zone-and-region-must-both-fit"),
        pytest.param({}, {"a", "b", "x"}, id="a-volume-that-is-everywhere"),
    ],
)
def test_nodes_that_a_bound_volume_leaves(volume: dict[str, Any], where: set[str]) -> None:
    for node in ("a", "b", "x"):
        rig = Storage()
        rig.volume("v", **volume)
        rig.claim("c", "v")
        builder = using("p", "c").select({"kubernetes.io/hostname": node})
        assert (rig.outcome(builder) == node) is (node in where), node


def test_messages_count_nodes_by_what_is_wrong_there() -> None:
    rig = Storage()
    rig.volume("v", host="b", labels={ZONE: "a"})
    rig.claim("c", "v")
    assert rig.outcome(using("p", "c")).startswith(
        "0/3 nodes are available: 1 node(s) had no available volume zone, "
        "2 node(s) didn't match PersistentVolume's node affinity. "
    )


@pytest.mark.parametrize(
    ("setup", "where"),
    [
        pytest.param({"zone": "b"}, "b", id="where-the-class-may-provide"),
        pytest.param({"provisioner": "kubernetes.io/no-provisioner"}, "a", id="where-a-free-volume-is"),
    ],
)
def test_claims_that_wait_for_their_pod(setup: dict[str, str], where: str) -> None:
    rig = Storage()
    rig.storage_class("later", "WaitForFirstConsumer", **setup)
    if "provisioner" in setup:
        rig.volume("free", host="a", storageClassName="later")
        rig.volume("taken", host="b", storageClassName="later", claimRef={"namespace": "default", "name": "other"})
    rig.claim("c", of="later", phase="Pending")
    assert rig.outcome(using("p", "c")) == where


def test_a_pod_goes_once_its_claim_is_bound() -> None:
    rig = Storage()
    rig.storage_class("later", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    rig.claim("c", of="later", phase="Pending")
    assert "3 node(s) didn't find available persistent volumes to bind." in rig.outcome(using("p", "c"))
    rig.clock.advance(30)
    assert not rig.run(), "nothing has changed"
    rig.volume("v", host="x", storageClassName="later")
    rig.run()
    assert rig.where("p") == "x"


def test_a_claim_for_one_pod_is_for_one_pod() -> None:
    rig = Storage()
    rig.volume("v")
    rig.claim("c", "v", mode="ReadWriteOncePod")
    assert rig.outcome(using("first", "c")) in {"a", "b", "x"}
    assert "3 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode" in rig.outcome(
        using("second", "c")
    )
    rig.delete("first")
    rig.clock.advance(30)
    rig.run()
    assert rig.where("second")


def test_a_more_important_pod_takes_the_claim() -> None:
    rig = Storage()
    rig.volume("v")
    rig.claim("c", "v", mode="ReadWriteOncePod")
    rig.outcome(using("first", "c"))
    rig.outcome(using("second", "c").priority(10))
    assert rig.victims() == ["first"]


def test_a_node_takes_so_many_volumes_of_a_driver() -> None:
    rig = Storage()
    for node in ("a", "b", "x"):
        rig.limit(node, "disks.example.com", 2 if node == "a" else 0)
    for number in range(3):
        rig.volume(f"v{number}", csi="disks.example.com")
        rig.claim(f"c{number}", f"v{number}")
    assert rig.outcome(using("one", "c0")) == "a"
    assert rig.outcome(using("same-volume", "c0")) == "a"
    assert "3 node(s) exceed max volume count" in rig.outcome(using("two-more", "c1", "c2"))
    assert rig.outcome(using("another", "c1")) == "a"


@pytest.mark.parametrize(
    ("owners", "message"),
    [
        pytest.param(
            None,
            'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"',
            id="missing",
        ),
        pytest.param([], NOT_OWNER, id="of-nobody"),
        pytest.param(owned_by("q"), NOT_OWNER, id="of-another"),
        pytest.param(owned_by("p", controller=False), NOT_OWNER, id="not-controlled"),
        pytest.param(owned_by("p"), "", id="its-own"),
    ],
)
def test_a_pod_waits_for_the_claim_of_its_ephemeral_volume(owners: Any, message: str) -> None:
    """The volume of the claim is on node b. A pod that waits is placed when its own claim is there."""
    rig = Storage()
    rig.volume("v", host="b")
    if owners is not None:
        rig.claim("p-scratch", "v", ownerReferences=owners)
    outcome = rig.outcome(with_scratch("p"))
    if message:
        assert outcome.startswith(f"0/3 nodes are available: {message}."), outcome
        rig.claim("p-scratch", "v", ownerReferences=owned_by("p"), version=2)
        rig.clock.advance(30)
        rig.run()
    assert rig.where("p") == "b"


def test_pods_with_ephemeral_volumes_are_each_asked_when_a_claim_comes() -> None:
    """Both are of one class and wait. The claim of the second comes first."""
    rig = Storage()
    rig.volume("v", host="b")
    rig.submit(with_scratch("p"), with_scratch("q"))
    rig.run()
    rig.claim("q-scratch", "v", ownerReferences=owned_by("q"))
    rig.clock.advance(30)
    rig.run()
    assert (rig.where("p"), rig.where("q")) == ("", "b")


@pytest.mark.parametrize(
    ("provisioner", "driver"),
    [
        pytest.param("disks.example.com", "disks.example.com", id="a-csi-driver"),
        pytest.param("kubernetes.io/aws-ebs", "ebs.csi.aws.com", id="an-in-tree-plugin"),
    ],
)
def test_volumes_to_be_provisioned_count_for_the_limit(provisioner: str, driver: str) -> None:
    """Two claims wait for their volumes; the node takes one of the driver, whose second pod with it counts no more."""
    rig = Storage()
    for node in ("a", "b", "x"):
        rig.limit(node, driver, 1 if node == "a" else 0)
    rig.storage_class("later", "WaitForFirstConsumer", provisioner)
    for name in "cd":
        rig.claim(name, of="later", phase="Pending")
    assert rig.outcome(using("one", "c")) == "a"
    assert rig.outcome(using("same-claim", "c")) == "a"
    assert "3 node(s) exceed max volume count" in rig.outcome(using("two", "d"))
    rig.volume("made", awsElasticBlockStore={"volumeID": "made"}, csi="" if "aws" in provisioner else driver)
    rig.claim("c", "made", of="later")
    assert "3 node(s) exceed max volume count" in rig.outcome(using("three", "d")), "counted by its volume now"


def test_claims_of_ephemeral_volumes_count_for_the_limit() -> None:
    """A claim that was not made for its pod counts for nothing there, and stops no other pod."""
    rig = Storage()
    for node in ("a", "b", "x"):
        rig.limit(node, "disks.example.com", 1 if node == "a" else 0)
    rig.storage_class("later", "WaitForFirstConsumer", "disks.example.com")
    rig.claim("stranger-scratch", of="later", phase="Pending")
    rig.running(with_scratch("stranger"), "a")
    for name in "pq":
        rig.claim(f"{name}-scratch", of="later", phase="Pending", ownerReferences=owned_by(name))
    assert rig.outcome(with_scratch("p")) == "a"
    assert "3 node(s) exceed max volume count" in rig.outcome(with_scratch("q"))


def test_a_volume_that_is_still_attached_counts_for_the_limit() -> None:
    """Its pod is gone, and the VolumeAttachment is not; the pod that gets the same volume does not count it twice."""
    rig = Storage()
    for node in ("a", "b", "x"):
        rig.limit(node, "disks.example.com", 1 if node == "a" else 0)
    for number in range(2):
        rig.volume(f"v{number}", csi="disks.example.com")
        rig.claim(f"c{number}", f"v{number}")
    rig.attachment("csi-1", "a", "v0", "disks.example.com")
    assert "3 node(s) exceed max volume count" in rig.outcome(using("other", "c1"))
    assert rig.outcome(using("same", "c0")) == "a"
    rig.delete("same")
    rig.attachment("csi-1", "a", "v0", "disks.example.com", gone=True)
    rig.clock.advance(30)
    rig.run()
    assert rig.where("other") == "a"
