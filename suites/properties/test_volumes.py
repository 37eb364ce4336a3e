"""Random stories of volumes, claims and the pods that use them against an oracle of which volume suits."""

from typing import Any

import pytest
from hypothesis import strategies as st

from seatrial.harness.clusters.protocol import Capability
from seatrial.suites.properties.stories import Setting, Step, again, bare, eventful, judge, setting
from seatrial.suites.properties.volume_rules import volume_rules

__all__ = ["setting"]

_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_RACK = "rack"
_PODS, _CLAIMS, _VOLUMES = st.integers(0, 3), st.integers(0, 2), st.integers(0, 4)
_SIZES = st.sampled_from(["1Gi", "1536Mi", "2Gi", "3Gi"])
_CLASS = st.sampled_from(["late", "late", "late", "now", "made"])
_NODES, _ZONES, _RACKS = st.sampled_from(["n1", "n2", "n3"]), st.sampled_from(["a", "b"]), st.sampled_from(["r", "s"])


def _class(name: str, mode: str, provisioner: str = "kubernetes.io/no-provisioner") -> Step:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
    }


@st.composite
def _made(draw: st.DrawFn) -> Step:
    """A class with a provisioner, for some zones and racks."""
    pairs = st.lists(st.sampled_from([(_ZONE, "a"), (_ZONE, "b"), (_RACK, "r"), (_RACK, "s")]), min_size=1, max_size=2)
    terms = [
        {"matchLabelExpressions": [{"key": key, "values": [value]} for key, value in dict(draw(pairs)).items()]}
        for _ in range(draw(st.sampled_from([0, 1, 2, 2])))
    ]
    return _class("made", "WaitForFirstConsumer", "made.example.com") | ({"allowedTopologies": terms} if terms else {})


@st.composite
def _expressions(draw: st.DrawFn) -> Step:
    key, values = draw(st.sampled_from([(_ZONE, _ZONES), (_HOST, _NODES), (_HOST, _NODES), (_RACK, _RACKS)]))
    operator = draw(st.sampled_from(["In", "In", "In", "NotIn"]))
    return {"key": key, "operator": operator, "values": draw(st.lists(values, unique=True, min_size=1, max_size=2))}


_MODES = st.sampled_from(
    [["ReadWriteOnce", "ReadWriteMany"], ["ReadWriteOncePod"], ["ReadWriteMany"], ["ReadOnlyMany"], ["ReadWriteOnce"]]
)
_BLOCK = st.just({"volumeMode": "Block"})
_SUITS: Step = {"accessModes": ["ReadWriteOnce"], "storageClassName": "late"}  # others differ from it in little


def _terms(number: int) -> st.SearchStrategy[Step]:
    """Node affinity with so many terms."""
    term = st.lists(_expressions(), min_size=1, max_size=2).map(lambda each: {"matchExpressions": each})
    terms = st.lists(term, min_size=number, max_size=number)
    return terms.map(lambda each: {"nodeAffinity": {"required": {"nodeSelectorTerms": each}}} if each else {})


_REFERENCES = st.tuples(
    _CLAIMS, st.sampled_from([{"namespace": "story"}, {"namespace": "other"}, {"namespace": "story", "uid": "gone"}])
).map(lambda drawn: {"claimRef": {"kind": "PersistentVolumeClaim", "name": f"c{drawn[0]}", **drawn[1]}})


@st.composite
def _volumes(draw: st.DrawFn, number: int) -> Step:
    spec = _SUITS | {
        "capacity": {"storage": draw(_SIZES)},
        "hostPath": {"path": "/data"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    spec |= draw(st.sampled_from([0, 1, 1, 2]).flatmap(_terms))
    if draw(st.booleans()):
        spec |= draw(
            st.one_of(
                _MODES.map(lambda modes: {"accessModes": modes}),
                _CLASS.map(lambda name: {"storageClassName": name}),
                _BLOCK,
                _REFERENCES,
            )
        )
    metadata: dict[str, Any] = {"name": f"v{number}", "labels": {"speed": draw(st.sampled_from(["fast", "slow"]))}}
    match draw(st.integers(0, 5)):
        case 0:
            metadata["finalizers"] = ["example.com/kept"]
        case 1:
            key = draw(st.sampled_from([_ZONE, "failure-domain.beta.kubernetes.io/zone"]))
            metadata["labels"][key] = draw(st.sampled_from(["a", "b", "b__a"]))
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}


_SELECTORS: list[Step] = [
    {"matchLabels": {"speed": "fast"}},
    {"matchExpressions": [{"key": "speed", "operator": "NotIn", "values": ["fast"]}]},
]


@st.composite
def _claim_specs(draw: st.DrawFn) -> Step:
    spec = _SUITS | {"resources": {"requests": {"storage": draw(_SIZES)}}}
    if draw(st.booleans()):
        spec |= draw(
            st.one_of(
                _MODES.map(lambda modes: {"accessModes": modes}),
                _CLASS.map(lambda name: {"storageClassName": name}),
                st.just({"storageClassName": "made"}),
                _BLOCK,
                st.sampled_from(_SELECTORS).map(lambda selector: {"selector": selector}),
            )
        )
    return spec


@st.composite
def _claims(draw: st.DrawFn, number: int) -> Step:
    spec = draw(_claim_specs())
    if draw(st.sampled_from([False] * 9 + [True])):
        spec["volumeName"] = f"v{draw(_VOLUMES)}"
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": f"c{number}"}, "spec": spec}


@st.composite
def _pods(draw: st.DrawFn, number: int) -> Step:
    one = bare(f"p{number}").request(cpu=draw(st.integers(1, 3)))
    claims = draw(st.lists(_CLAIMS, unique=True, min_size=1, max_size=2))
    volumes: list[Step] = [
        {"name": f"c{claim}", "persistentVolumeClaim": {"claimName": f"c{claim}"}} for claim in claims
    ]
    if draw(st.sampled_from([False] * 5 + [True])):
        volumes[0] = {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": draw(_claim_specs())}}}
    one.manifest["spec"]["volumes"] = volumes
    if draw(st.sampled_from([False, False, True])):
        one.select({_ZONE: draw(_ZONES)})
    return one.manifest


def _node(name: str, zone: str, rack: str) -> Step:
    return {"name": name, "cpu": 4, "memory": "8Gi", "labels": {_ZONE: zone, _RACK: rack}}


def _labels(drawn: tuple[str, str | None, str]) -> Step:
    return {"patch": [f"/api/v1/nodes/{drawn[0]}", {"metadata": {"labels": {_ZONE: drawn[1], _RACK: drawn[2]}}}]}


_STEPS = st.one_of(
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _PODS.flatmap(_pods).map(lambda one: {"create": [one]}),
    _PODS.flatmap(_pods).map(again),
    _VOLUMES.flatmap(_volumes).map(lambda one: {"create": [one]}),
    _VOLUMES.flatmap(_volumes).map(again),
    _CLAIMS.flatmap(_claims).map(lambda one: {"create": [one]}),
    _CLAIMS.flatmap(_claims).map(again),
    _CLAIMS.map(lambda number: {"provision": f"c{number}"}),
    st.tuples(_CLAIMS, _ZONES).map(lambda drawn: {"provision": f"c{drawn[0]}", "zone": drawn[1]}),
    _PODS.map(lambda number: {"delete": ["Pod", f"p{number}"]}),
    _CLAIMS.map(lambda number: {"delete": ["PersistentVolumeClaim", f"c{number}"]}),
    _VOLUMES.map(lambda number: {"delete": ["PersistentVolume", f"v{number}"]}),
    st.just({"nodes": [_node("n3", "a", "s")]}),
    st.tuples(_NODES, st.sampled_from(["a", "b", None]), _RACKS).map(_labels),
    st.booleans().map(lambda closed: {"patch": ["/api/v1/nodes/n1", {"spec": {"unschedulable": closed}}]}),
)


@st.composite
def _starts(draw: st.DrawFn) -> list[Step]:
    volumes = [draw(_volumes(number)) for number in draw(st.lists(_VOLUMES, unique=True, min_size=2))]
    claims = [draw(_claims(number)) for number in draw(st.lists(_CLAIMS, unique=True, min_size=1))]
    pods = [draw(_pods(number)) for number in draw(st.lists(_PODS, unique=True, min_size=1))]
    classes = [_class("late", "WaitForFirstConsumer"), _class("now", "Immediate"), draw(_made())]
    return [
        {"nodes": [_node("n1", "a", "r"), _node("n2", "b", "s")]},
        {"create": [*classes, *volumes]},
        {"create": claims},
        *({"create": [one]} for one in pods),
    ]


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-400", severity="blocker", source="kubernetes: pkg/scheduler/framework/plugins/volumebinding")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_claims_get_volumes_that_suit(setting: Setting) -> None:
    """Volumes, claims and pods come and go: a pod waits if and only if no node has room and volumes for it, and its
    claims get the smallest volumes that suit them, in reach of its node, or are made there."""
    judge(setting, eventful(_starts(), _STEPS), volume_rules)
