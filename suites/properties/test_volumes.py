"""Random stories of volumes, claims and the pods that use them against an oracle of which volume suits."""

from typing import Any

import pytest
from hypothesis import strategies as st

from seatrial.harness.clusters.protocol import Capability
from seatrial.suites.properties.stories import Setting, Step, bare, eventful, judge, setting
from seatrial.suites.properties.volume_rules import volume_rules

__all__ = ["setting"]

_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_PODS, _CLAIMS, _VOLUMES = st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)
_SIZES = st.integers(1, 3).map(lambda size: f"{size}Gi")
_CLASS = st.sampled_from(["late", "late", "late", "now"])


def _class(name: str, mode: str) -> Step:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": mode,
    }


@st.composite
def _volumes(draw: st.DrawFn, number: int) -> Step:
    key, value = draw(st.sampled_from([(_ZONE, "a"), (_ZONE, "b"), (_HOST, "n1"), (_HOST, "n2")]))
    operator = draw(st.sampled_from(["In", "In", "NotIn"]))
    expression = {"key": key, "operator": operator, "values": [value]}
    spec: dict[str, Any] = {
        "accessModes": draw(
            st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce", "ReadWriteMany"], ["ReadWriteOncePod"]])
        ),
        "capacity": {"storage": draw(_SIZES)},
        "local": {"path": "/data"},
        "storageClassName": draw(_CLASS),
        "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
    }
    metadata = {"name": f"v{number}", "labels": {"speed": draw(st.sampled_from(["fast", "slow"]))}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


@st.composite
def _claims(draw: st.DrawFn, number: int) -> Step:
    spec: dict[str, Any] = {
        "accessModes": [draw(st.sampled_from(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"]))],
        "storageClassName": draw(_CLASS),
        "resources": {"requests": {"storage": draw(_SIZES)}},
    }
    if draw(st.booleans()):
        spec["selector"] = draw(
            st.sampled_from(
                [
                    {"matchLabels": {"speed": "fast"}},
                    {"matchExpressions": [{"key": "speed", "operator": "NotIn", "values": ["fast"]}]},
                ]
            )
        )
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"c{number}"}, "spec": spec}


@st.composite
def _pods(draw: st.DrawFn, number: int) -> Step:
    one = bare(f"p{number}").request(cpu=draw(st.integers(1, 3)))
    claims = draw(st.lists(_CLAIMS, unique=True, min_size=1, max_size=2))
    one.manifest["spec"]["volumes"] = [
        {"name": f"c{claim}", "persistentVolumeClaim": {"claimName": f"c{claim}"}} for claim in claims
    ]
    if draw(st.sampled_from([False, False, True])):
        one.select({_ZONE: draw(st.sampled_from(["a", "b"]))})
    return one.manifest


def _node(name: str, zone: str) -> Step:
    return {"name": name, "cpu": 4, "memory": "8Gi", "labels": {_ZONE: zone}}


_STEPS = st.one_of(
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _VOLUMES.flatmap(_volumes).map(lambda one: {"create": [one]}),
    _CLAIMS.flatmap(_claims).map(lambda one: {"create": [one]}),
    _PODS.map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    _PODS.map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    _CLAIMS.map(lambda number: {"delete": ["PersistentVolumeClaim", f"c{number}"]}),
    _VOLUMES.map(lambda number: {"delete": ["PersistentVolume", f"v{number}"]}),
    st.just({"nodes": [_node("n3", "a")]}),
    st.booleans().map(lambda closed: {"patch": ["/api/v1/nodes/n1", {"spec": {"unschedulable": closed}}]}),
)


@st.composite
def _starts(draw: st.DrawFn) -> list[Step]:
    volumes = [draw(_volumes(number)) for number in draw(st.lists(_VOLUMES, unique=True, min_size=1))]
    claims = [draw(_claims(number)) for number in draw(st.lists(_CLAIMS, unique=True, min_size=1))]
    pods = [draw(_pods(number)) for number in draw(st.lists(_PODS, unique=True, min_size=1))]
    return [
        {"nodes": [_node("n1", "a"), _node("n2", "b")]},
        {"create": [_class("late", "WaitForFirstConsumer"), _class("now", "Immediate"), *volumes]},
        {"create": claims},
        {"create": pods},
    ]


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-400", severity="blocker", source="kubernetes: pkg/scheduler/framework/plugins/volumebinding")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_claims_get_volumes_that_suit(setting: Setting) -> None:
    """Volumes, claims and pods come and go: a pod waits if and only if no node has room and volumes for it, and its
    claims get the smallest volumes that suit them, in reach of its node."""
    judge(setting, eventful(_starts(), _STEPS), volume_rules)
