"""Decoding of what Go programs write: null for empty lists and maps, unknown values, fields of later versions.

`corpus/` has lists as kube-apiserver wrote them, without managedFields: `v1.34.2.json` with what its controllers
wrote, `koordinator-1.7.0.json` with what koord-scheduler, koord-manager, koord-descheduler and, on kind, kubelet wrote.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.scheduler.api.core import ConfigMap, Node, Pod, PodDisruptionBudget
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.migration import JOBS_PATH, PodMigrationJob
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.podgroup import PODGROUPS_PATH, PodGroup
from seatrial.scheduler.api.quota import QUOTAS_PATH, ElasticQuota
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.slo import NODE_METRICS_PATH, NodeMetric
from seatrial.scheduler.api.storage import CsiNode, PersistentVolumeClaim, StorageClass
from seatrial.scheduler.api.wire import Wire, decode_as, decoder, from_plain, to_plain
from seatrial.scheduler.api.workloads import Namespace, ReplicationController, Service, Workload
from seatrial.scheduler.client.pods import PodDecoder
from seatrial.scheduler.plugins.reservation.reserve_pods import template_requests
from seatrial.scheduler.shell.watched_kinds import KINDS

FOLDER = Path(__file__).parent / "corpus"
CORPUS: dict[str, Any] = json.loads((FOLDER / "v1.34.2.json").read_text())
KOORDINATOR: dict[str, Any] = json.loads((FOLDER / "koordinator-1.7.0.json").read_text())
TYPES: dict[str, type[Any]] = {
    "/api/v1/nodes": Node,
    "/api/v1/pods": Pod,
    "/api/v1/configmaps": ConfigMap,
    "/apis/policy/v1/poddisruptionbudgets": PodDisruptionBudget,
    "/apis/scheduling.koordinator.sh/v1alpha1/devices": Device,
    "/apis/scheduling.koordinator.sh/v1alpha1/reservations": Reservation,
    JOBS_PATH: PodMigrationJob,
    PODGROUPS_PATH: PodGroup,
    QUOTAS_PATH: ElasticQuota,
    NODE_METRICS_PATH: NodeMetric,
    "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies": NodeResourceTopology,
    **{kind.path: kind.type for kind in KINDS},
}

KEPT = {("spec", "template"), ("spec", "reservationOptions", "template")}  # as they are; pods have a test of their own
AMOUNTS = {
    "allocatable",
    "allocated",
    "allocatedResources",
    "capacity",
    "limits",
    "max",
    "min",
    "requests",
    "resources",
    "used",
}


def recorded() -> Iterator[Any]:
    for corpus, mark in ((CORPUS, ""), (KOORDINATOR, "koordinator-")):
        for path in sorted(corpus.keys() & TYPES.keys()):  # the same order in all processes of pytest-xdist
            for item in corpus[path]["items"]:
                name = f"{mark}{path.rpartition('/')[2]}-{item['metadata']['name']}"
                yield pytest.param(TYPES[path], item, id=name)


def containers(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all lists and maps below an object."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in entries:
        if isinstance(item, dict | list):
            yield (*path, key)
        if (*path, key) not in KEPT:
            yield from containers(item, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = new
    return copy


def without(value: Any, path: tuple[Any, ...]) -> Any:
    copy = json.loads(json.dumps(value))
    at = copy
    for key in path[:-1]:
        at = at[key]
    del at[path[-1]]
    return copy


def without_nulls(value: Any) -> Any:
    """Null fields stay in what is kept as it is, such as `creationTimestamp` of a template."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def decoders(kind: type[Any]) -> tuple[Callable[[bytes], Any], ...]:
    return (decoder(kind), *([PodDecoder()] if kind is Pod else []))


@pytest.mark.parametrize(("kind", "item"), list(recorded()))
def test_recorded_object_decodes(kind: type[Any], item: dict[str, Any]) -> None:
    for decode in decoders(kind):
        encoding = decode(json.dumps(item).encode())
        assert encoding.metadata.name == item["metadata"]["name"]
        assert encoding.metadata.uid == item["metadata"]["uid"]


@pytest.mark.parametrize(("kind", "item"), list(recorded()))
def test_null_for_any_list_or_map_is_as_if_it_were_absent(kind: type[Any], item: dict[str, Any]) -> None:
    """Each list and each map of a recorded object becomes null, one after another."""
    for path in containers(item):
        for decode in decoders(kind):
            null = decode(json.dumps(replaced(item, path, None)).encode())
            absent = decode(json.dumps(without(item, path)).encode())
            assert without_nulls(to_plain(null)) == without_nulls(to_plain(absent)), path


@pytest.mark.parametrize(("kind", "item"), list(recorded()))
def test_fields_of_a_later_version_are_ignored(kind: type[Any], item: dict[str, Any]) -> None:
    for path in containers(item):
        at: Any = item
        for key in path:
            at = at[key]
        if isinstance(at, dict) and path[-1] not in {"labels", "annotations", "data", "selector", "matchLabels"}:
            later = replaced(item, path, {**at, "fieldOfTomorrow": {"deep": [1, None]}})
            if path[-1] not in {*AMOUNTS, "nodeSelector"} and path not in KEPT:
                decoded = decoder(kind)(json.dumps(later).encode())
                assert to_plain(decoded) == to_plain(decoder(kind)(json.dumps(item).encode())), path


@pytest.mark.parametrize(
    ("kind", "path", "of"),
    [
        pytest.param("/api/v1/pods", ("spec", "restartPolicy"), "restart-policy", id="restart-policy"),
        pytest.param("/api/v1/pods", ("status", "phase"), "phase", id="phase"),
        pytest.param("/api/v1/pods", ("spec", "preemptionPolicy"), "preemption", id="preemption-policy"),
        pytest.param("/apis/storage.k8s.io/v1/storageclasses", ("volumeBindingMode",), "mode", id="binding-mode"),
    ],
)
def test_unknown_value_of_an_enumeration_is_kept(kind: str, path: tuple[str, ...], of: str) -> None:
    item = CORPUS[kind]["items"][0]
    result = decoder(TYPES[kind])(json.dumps(replaced(item, path, f"Tomorrow-{of}")).encode())
    at: Any = msgspec.to_builtins(result)
    for key in path:
        at = at[key]
    assert at == f"Tomorrow-{of}"


def test_kubelet_writes_a_csinode_without_drivers_as_null() -> None:
    """The corpus has it as kube-apiserver returns it."""
    items = CORPUS["/apis/storage.k8s.io/v1/csinodes"]["items"]
    (node,) = [item for item in items if item["spec"]["drivers"] is None]
    assert decoder(CsiNode)(json.dumps(node).encode()).spec.drivers == ()


def test_a_wrong_type_is_still_an_error() -> None:
    with pytest.raises(msgspec.ValidationError, match="unschedulable"):
        decoder(Node)(b'{"spec": {"unschedulable": "yes", "taints": null}}')


def nulls_in(kind: type[Any], depth: int = 4) -> st.SearchStrategy[Any]:
    """Objects of a type in which each field is absent or null, or an object whose fields are."""
    fields = {}
    for name, encoded in zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True):
        inner = msgspec.inspect.type_info(kind.__annotations__[name]) if name in kind.__annotations__ else None
        choices: list[st.SearchStrategy[Any]] = [st.none()]
        if isinstance(inner, msgspec.inspect.StructType) and depth:
            choices.append(nulls_in(inner.cls, depth - 1))
        fields[encoded] = st.one_of(choices)
    return st.fixed_dictionaries({}, optional=fields)


@pytest.mark.parametrize(
    "kind", [Pod, Node, Service, Workload, ReplicationController, Namespace, PersistentVolumeClaim, StorageClass]
)
def test_null_in_any_field_decodes(kind: type[Wire]) -> None:
    """Objects are made from the type itself, so that a new field is covered."""

    @settings(max_examples=60, deadline=None, derandomize=True)
    @given(nulls_in(kind))
    def check(value: Any) -> None:
        data = json.dumps(value).encode()
        assert to_plain(decoder(kind)(data)) == to_plain(from_plain(value, kind)) == to_plain(decode_as(data, kind))

    check()


def test_template_of_a_reservation_may_have_nulls() -> None:
    """Reserve pods are made from the template."""
    (item,) = CORPUS["/apis/scheduling.koordinator.sh/v1alpha1/reservations"]["items"]
    template = item["spec"]["template"]
    template["spec"].update(tolerations=None, nodeSelector=None, volumes=None)
    result = decoder(Reservation)(json.dumps(item).encode())
    assert template_requests(result) == {"cpu": 1000}


def test_what_is_nested_too_deeply_is_left_out_of_an_object_and_refused_in_an_annotation() -> None:
    """An API server stores deep values in fields of free form; brackets inside of texts do not count."""
    deep = '{"q":' * 5000 + "1" + "}" * 5000
    document = (
        f'{{"metadata": {{"name": "]}}\\""}}, "spec": {{"nodeName": "n"}}, "x": {deep}, "y": {"[" * 5000}{"]" * 5000}}}'
    )
    result = decoder(Pod)(document.encode())
    assert (result.metadata.name, result.spec.node_name) == (']}"', "n")
    with pytest.raises(msgspec.DecodeError, match="nested too deeply"):
        decode_as(document, Pod)
    with pytest.raises(msgspec.DecodeError):
        decoder(Pod)(b'{"x":' + b"[" * 100_000)
