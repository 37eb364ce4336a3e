"""Stores the objects that every cluster starts with, without admission: they are recorded from kube-apiserver.

About 180 objects: they are written to the store directly. Their UIDs are derived from their names, so that the UIDs of
later objects do not depend on how many there are. Stores that get them at the same time and revision share them: a
process that runs cases in virtual time starts a cluster for each.
"""

from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid5

import orjson

from seatrial.harness.apiserver.discovery.resources import Registry
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Object, Store

Versions = tuple[tuple[str, str], ...]  # served groups and versions

RECORDED: Final = Path(__file__).with_name("objects.json")
APISERVICES: Final = ("apiregistration.k8s.io", "apiservices")
_CONFIG_MAPS: Final = ("", "configmaps")
# Upstream also probes a scheduler on port 10259 of its own machine; the scheduler of a cluster is not known here.
_COMPONENTS: Final = ("controller-manager", "etcd-0")  # they run in this process: healthy while it answers
_METRICS_READER: Final[Object] = {  # metrics.k8s.io is served; upstream's metrics-server brings this role
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {
        "name": "system:aggregated-metrics-reader",
        "labels": {f"rbac.authorization.k8s.io/aggregate-to-{role}": "true" for role in ("admin", "edit", "view")},
    },
    "rules": [{"apiGroups": ["metrics.k8s.io"], "resources": ["nodes", "pods"], "verbs": ["get", "list", "watch"]}],
}
MAX_KEPT = 4  # sets of objects, for different times and certificates
_created: dict[tuple[int, str, str, Versions], list[tuple[CollectionKey, Change]]] = {}


@cache
def _recorded() -> dict[str, list[Object]]:
    document: dict[str, list[Object]] = orjson.loads(RECORDED.read_bytes())
    return document


def store_bootstrap_objects(store: Store, registry: Registry, now: str, client_ca: str) -> None:
    """Store them with creation time `now` (RFC 3339). `client_ca` (PEM) verifies client certificates; may be empty."""
    versions = tuple(dict.fromkeys((row.group, row.version) for row in registry if row.custom is None))
    same = (store.version, now, client_ca, versions)
    known = _created.get(same)
    if known is not None:
        for collection, change in known:
            store.collection(collection).adopt(change)
        return
    created: list[tuple[CollectionKey, Change]] = []

    def keep(collection: CollectionKey, change: Change) -> None:
        created.append((collection, change))

    store.listeners.append(keep)
    _create(store, versions, now, client_ca)
    store.listeners.remove(keep)
    if len(_created) >= MAX_KEPT:
        _created.clear()
    if all(change.old is None for _, change in created):
        _created[same] = created


def _create(store: Store, versions: Versions, now: str, client_ca: str) -> None:
    for name, items in _recorded().items():
        group, _, plural = name.rpartition("/")
        for item in items:
            conditions = [
                {**row, "lastTransitionTime": now} for row in (item.get("status") or {}).get("conditions", ())
            ]
            put_object(
                store, (group, plural), {**item, "status": {"conditions": conditions}} if conditions else item, now
            )
    put_object(store, ("rbac.authorization.k8s.io", "clusterroles"), _METRICS_READER, now)
    for service in _api_services(versions):
        service["status"]["conditions"][0]["lastTransitionTime"] = now
        put_object(store, APISERVICES, service, now)
    for name in _COMPONENTS:
        healthy = {"type": "Healthy", "status": "True", "message": "ok"}
        body = {"apiVersion": "v1", "kind": "ComponentStatus", "metadata": {"name": name}, "conditions": [healthy]}
        put_object(store, ("", "componentstatuses"), body, now)
    data = {"client-ca-file": client_ca} if client_ca else {}
    metadata = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    put_object(store, _CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}, now)


def put_object(store: Store, collection: CollectionKey, body: Object, now: str) -> None:
    """Store an object with creation time `now` and a UID derived from its name."""
    metadata = body["metadata"]
    key = (metadata.get("namespace", ""), metadata["name"])
    uid = _uid_of(f"{collection[0]}/{collection[1]}/{key[0]}/{key[1]}")
    store.collection(collection).put(key, {**body, "metadata": {**metadata, "uid": uid, "creationTimestamp": now}})


@lru_cache(maxsize=1024)  # each server has the same objects, and a process may build hundreds of servers
def _uid_of(path: str) -> str:
    return str(uuid5(NAMESPACE_URL, path))


def _api_services(versions: Versions) -> Iterator[Object]:
    """An APIService for each served version of each built-in group."""
    for group, version in versions:
        yield {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": f"{version}.{group}",
                "labels": {"kube-aggregator.kubernetes.io/automanaged": "onstart"},
            },
            "spec": {
                **({"group": group} if group else {}),
                "groupPriorityMinimum": 17_000 if group else 18_000,
                "version": version,
                "versionPriority": 15 if version == "v1" else 30,
            },
            "status": {
                "conditions": [
                    {
                        "type": "Available",
                        "status": "True",
                        "reason": "Local",
                        "message": "Local APIServices are always available",
                    }
                ]
            },
        }
