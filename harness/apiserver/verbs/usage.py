"""metrics.k8s.io: what nodes and pods use, as far as this server knows it: what running containers requested.

There is nothing to measure in a simulated pod, so it is taken to use what it asked for. A pod that does not run, and a
node that is not ready, have no figures, as with a real metrics server.
"""

from collections.abc import Mapping
from typing import Any, Final

from harness.apiserver import errors
from harness.apiserver.discovery.resources import Registry, Resource
from harness.apiserver.storage.store import Item, Object, Store
from harness.apiserver.verbs.reads import Reads
from scheduler.api.clock import Clock
from scheduler.api.quantity import binary, milli, units

GROUP: Final = "metrics.k8s.io"
_WINDOW: Final = "10s"
_RESOURCES: Final = ("cpu", "memory")


class Usage:
    """Figures of one store's nodes and pods, worked out when asked for."""

    def __init__(self, store: Store, registry: Registry, reads: Reads, clock: Clock) -> None:
        self._store, self._registry, self._reads, self._clock = store, registry, reads, clock

    def list(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> list[Item]:
        """Figures of the nodes or pods that the query's selectors mean."""
        found = self._reads.select(self._source(resource), namespace, query)
        loads = {} if resource.namespaced else self._loads()
        return [self._figures(resource, item.obj, loads) for item in found if _counts(item.obj)]

    def find(self, resource: Resource, key: tuple[str, str]) -> Item:
        """
        Raises:
            ApiStatusError: 404, it is not there or has no figures.
        """
        found = self._store.collection(self._source(resource).key).get(key)
        if found is None or not _counts(found.obj):
            raise errors.not_found(resource.plural, GROUP, key[1])
        return self._figures(resource, found.obj, {} if resource.namespaced else self._loads())

    def _source(self, resource: Resource) -> Resource:
        source = self._registry.find("", "v1", resource.plural)
        assert source is not None  # noqa: S101
        return source

    def _figures(self, resource: Resource, obj: Object, loads: Mapping[str, tuple[int, int]]) -> Item:
        given = obj["metadata"]
        metadata = {name: given[name] for name in ("name", "namespace", "labels") if name in given}
        metadata["creationTimestamp"] = now = self._clock.timestamp()
        body: Object = {
            "kind": resource.kind,
            "apiVersion": resource.api_version,
            "metadata": metadata,
            "timestamp": now,
            "window": _WINDOW,
        }
        if resource.namespaced:
            body["containers"] = [
                {"name": one["name"], "usage": _written(_requested(one))} for one in obj["spec"]["containers"]
            ]
        else:
            body["usage"] = _written(loads.get(given["name"], (0, 0)))
        return Item((metadata.get("namespace", ""), metadata["name"]), body, self._store.version)

    def _loads(self) -> dict[str, tuple[int, int]]:
        """Node → what its running pods use."""
        loads: dict[str, tuple[int, int]] = {}
        for item in self._store.collection(("", "pods")).each():
            if _counts(item.obj):
                node = item.obj["spec"].get("nodeName", "")
                cpu, memory = loads.get(node, (0, 0))
                for container in item.obj["spec"]["containers"]:
                    more = _requested(container)
                    cpu, memory = cpu + more[0], memory + more[1]
                loads[node] = (cpu, memory)
        return loads


def _counts(obj: Object) -> bool:
    """Whether it has figures: a pod that runs, a node that is ready."""
    status = obj.get("status", {})
    if obj["kind"] == "Pod":
        return bool(status.get("phase") == "Running")
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in status.get("conditions") or ())


def _requested(container: Mapping[str, Any]) -> tuple[int, int]:
    """CPU in thousandths of a core, memory in bytes."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return milli(requests.get("cpu", "0")), units(requests.get("memory", "0"))


def _written(usage: tuple[int, int]) -> dict[str, str]:
    return dict(zip(_RESOURCES, (f"{usage[0]}m", binary(usage[1])), strict=True))
