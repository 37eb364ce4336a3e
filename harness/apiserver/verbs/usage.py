"""The API metrics.k8s.io: usage of nodes and pods.

Simulated pods cannot be measured, so a running pod is reported to use what its annotation `seatrial.dev/usage` says,
else what it requests. A node uses what its pods use and what its own annotation says. Pods that do not run and nodes
that are not ready have no metrics, as with metrics-server.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.discovery.resources import Registry, Resource
from seatrial.harness.apiserver.quantities import binary, milli, units
from seatrial.harness.apiserver.storage.store import Item, Object, Store
from seatrial.harness.apiserver.verbs.reads import Reads
from seatrial.scheduler.api.clock import Clock

GROUP: Final = "metrics.k8s.io"
_WINDOW: Final = "10s"
_RESOURCES: Final = ("cpu", "memory")
_ANNOTATION: Final = "seatrial.dev/usage"


class Usage:
    """Computes metrics of nodes and pods on request."""

    def __init__(self, store: Store, registry: Registry, reads: Reads, clock: Clock) -> None:
        self._store, self._registry, self._reads, self._clock = store, registry, reads, clock

    def list(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> list[Item]:
        """The metrics of the nodes or pods that the query selects."""
        selection = self._reads.select(self._source(resource), namespace, query)
        loads = {} if resource.namespaced else self._loads()
        return [self._metrics(resource, item.obj, loads) for item in selection if _has_metrics(item.obj)]

    def find(self, resource: Resource, key: tuple[str, str]) -> Item:
        """The metrics of one node or pod.

        Raises:
            ApiStatusError: 404, it does not exist or has no metrics.
        """
        item = self._store.collection(self._source(resource).key).get(key)
        if item is None or not _has_metrics(item.obj):
            raise errors.not_found(resource.plural, GROUP, key[1])
        return self._metrics(resource, item.obj, {} if resource.namespaced else self._loads())

    def _source(self, resource: Resource) -> Resource:
        source = self._registry.find("", "v1", resource.plural)
        assert source is not None
        return source

    def _metrics(self, resource: Resource, obj: Object, loads: Mapping[str, tuple[int, int]]) -> Item:
        value = obj["metadata"]
        metadata = {name: value[name] for name in ("name", "namespace", "labels") if name in value}
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
                {"name": container["name"], "usage": _written(use)}
                for container, use in zip(obj["spec"]["containers"], _used(obj), strict=True)
            ]
        else:
            body["usage"] = _written(_sum([loads.get(value["name"], (0, 0)), _annotated_usage(obj) or (0, 0)]))
        return Item((metadata.get("namespace", ""), metadata["name"]), body, self._store.version)

    def _loads(self) -> dict[str, tuple[int, int]]:
        """Usage of the running pods of each node: node → (millicores, bytes)."""
        loads: dict[str, tuple[int, int]] = {}
        for item in self._store.collection(("", "pods")).each():
            if _has_metrics(item.obj):
                node = item.obj["spec"].get("nodeName", "")
                loads[node] = _sum([loads.get(node, (0, 0)), *_used(item.obj)])
        return loads


def _has_metrics(obj: Object) -> bool:
    """Whether there are metrics: for running pods and ready nodes."""
    status = obj.get("status", {})
    if obj["kind"] == "Pod":
        return bool(status.get("phase") == "Running")
    return any(row.get("type") == "Ready" and row.get("status") == "True" for row in status.get("conditions") or ())


def _used(pod: Object) -> list[tuple[int, int]]:
    """What each container uses. What an annotation says is of the whole pod, and shown as that of the first one."""
    usage, containers = _annotated_usage(pod), pod["spec"]["containers"]
    if usage is None:
        return [_requested(container) for container in containers]
    return [usage, *((0, 0) for _ in containers[1:])]


def _annotated_usage(obj: Object) -> tuple[int, int] | None:
    """What the annotation says, programs beside pods included; None if there is none that can be read."""
    try:
        body = orjson.loads((obj["metadata"].get("annotations") or {})[_ANNOTATION])
        parts = [body, *(body.get("hostApplications") or {}).values()]
        return _sum([(milli(part.get("cpu", 0)), units(part.get("memory", 0))) for part in parts])
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def _sum(parts: Sequence[tuple[int, int]]) -> tuple[int, int]:
    return sum(cpu for cpu, _ in parts), sum(memory for _, memory in parts)


def _requested(container: Mapping[str, Any]) -> tuple[int, int]:
    """The requests of a container: CPU in millicores, memory in bytes."""
    requests = (container.get("resources") or {}).get("requests") or {}
    return milli(requests.get("cpu", "0")), units(requests.get("memory", "0"))


def _written(usage: tuple[int, int]) -> dict[str, str]:
    return dict(zip(_RESOURCES, (f"{usage[0]}m", binary(usage[1])), strict=True))
