"""What the shell tells the core of namespaces, services, controllers and storage."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, OwnerReference
from seatrial.scheduler.app import build_core, default_configuration
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.shell.watched_kinds import KINDS
from seatrial.scheduler.tests.scripted import Scripted, ok

OBJECTS: dict[str, dict[str, Any]] = {
    "/api/v1/namespaces": {"metadata": {"name": "n", "uid": "1", "labels": {"team": "x"}}},
    "/api/v1/services": {"metadata": {"name": "s", "namespace": "n", "uid": "2"}, "spec": {"selector": {"app": "a"}}},
    "/api/v1/replicationcontrollers": {
        "metadata": {"name": "c", "namespace": "n", "uid": "3"},
        "spec": {"selector": {"app": "c"}},
    },
    "/apis/apps/v1/replicasets": {
        "metadata": {"name": "r", "namespace": "n", "uid": "4"},
        "spec": {"selector": {"matchLabels": {"app": "r"}}},
    },
    "/apis/apps/v1/statefulsets": {
        "metadata": {"name": "t", "namespace": "n", "uid": "5"},
        "spec": {"selector": {"matchLabels": {"app": "t"}}},
    },
    "/api/v1/persistentvolumeclaims": {
        "metadata": {"name": "p", "namespace": "n", "uid": "6"},
        "spec": {"volumeName": "v"},
    },
    "/api/v1/persistentvolumes": {"metadata": {"name": "v", "uid": "7"}},
    "/apis/storage.k8s.io/v1/storageclasses": {"metadata": {"name": "k", "uid": "8"}},
    "/apis/storage.k8s.io/v1/csinodes": {
        "metadata": {"name": "m", "uid": "9"},
        "spec": {"drivers": [{"name": "d", "allocatable": {"count": 3}}]},
    },
    "/apis/storage.k8s.io/v1/volumeattachments": {
        "metadata": {"name": "a", "uid": "11"},
        "spec": {"attacher": "d", "nodeName": "m", "source": {"persistentVolumeName": "v"}},
    },
    "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies": {
        "metadata": {"name": "m", "uid": "10"},
        "topologyPolicies": ["Restricted"],
        "zones": [],
    },
}


def synced() -> tuple[Core, Scripted, SimClock]:
    """A shell that has listed one object of each kind."""
    clock = SimClock()
    api = Scripted(clock)
    api.answer = lambda request: ok(
        {
            "metadata": {"resourceVersion": "1"},
            "items": [entry] if (entry := OBJECTS.get(request.path.partition("?")[0])) else [],
        }
    )
    core = build_core(default_configuration(), clock)
    shell = Shell(core, api, clock)
    shell.start()
    clock.settle()
    assert shell.ready
    return core, api, clock


def replica(kind: str, name: str, app: str) -> Pod:
    owner = OwnerReference(kind=kind, name=name, controller=True)
    return Pod(ObjectMeta(name="x", namespace="n", labels={"app": app}, owner_references=(owner,)))


def test_every_kind_has_its_object_here() -> None:
    core, _, _ = synced()
    of_plugins = {watch.path for watch in core.handle.watches}
    assert {kind.path for kind in KINDS} <= OBJECTS.keys()
    assert OBJECTS.keys() <= {kind.path for kind in KINDS} | of_plugins


def test_objects_reach_the_plugins() -> None:
    core, _, _ = synced()
    assert core.cache.namespaces == {"n": {"team": "x"}}
    assert set(core.cache.volumes.claims) == {("n", "p")}
    assert set(core.cache.volumes.volumes) == {"v"}
    assert set(core.cache.volumes.classes) == {"k"}
    assert core.cache.volumes.limits("m") == {"d": 3}
    assert [attachment.spec.source.persistent_volume_name for attachment in core.cache.volumes.attachments("m")] == [
        "v"
    ]
    numa = NumaCache.of(core.handle).find("m")
    assert numa is not None
    assert numa.state.options.kubelet_policy == "Restricted"


@pytest.mark.parametrize(
    ("pod", "selector"),
    [
        pytest.param(Pod(ObjectMeta(namespace="n", labels={"app": "a"})), {"app": "a"}, id="of-a-service"),
        pytest.param(Pod(ObjectMeta(namespace="m", labels={"app": "a"})), None, id="in-another-namespace"),
        pytest.param(Pod(ObjectMeta(namespace="n", labels={"app": "z"})), None, id="of-nothing"),
        pytest.param(replica("ReplicationController", "c", "c"), {"app": "c"}, id="of-a-replication-controller"),
        pytest.param(replica("ReplicaSet", "r", "r"), {"app": "r"}, id="of-a-replica-set"),
        pytest.param(replica("StatefulSet", "t", "t"), {"app": "t"}, id="of-a-stateful-set"),
        pytest.param(replica("Job", "r", "z"), None, id="of-a-job"),
    ],
)
def test_whose_replica_a_pod_is(pod: Pod, selector: dict[str, str] | None) -> None:
    core, _, _ = synced()
    assert core.cache.owners.selector_of(pod) == (LabelSelector(selector) if selector else None)


def test_objects_that_go_are_forgotten() -> None:
    core, api, clock = synced()
    for watch in api.streams:
        entry = OBJECTS.get(watch.request.path.partition("?")[0])
        if entry is not None:
            gone = json.loads(json.dumps(entry))
            gone["metadata"]["resourceVersion"] = "2"
            watch.event("DELETED", gone)
    clock.settle()
    volumes = core.cache.volumes
    left = [core.cache.namespaces, core.cache.owners, *vars(volumes).values()]
    assert not any(left)
    numa = NumaCache.of(core.handle).find("m")
    assert numa is None or not numa.state.options.affects_plain_pods
