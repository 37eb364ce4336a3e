"""A scheduler in virtual time beside an API server that validates nothing."""

import copy
import json
from collections import defaultdict
from typing import Any, Final

from seatrial.harness.fuzzing.scheduler_objects import CREATED, OBJECTS, Object
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response
from seatrial.scheduler.app import build_shell, parse

PODS: Final = "/api/v1/pods"
_ARGUMENTS: Final = {
    "Coscheduling": {"enablePreemption": True},
    "ElasticQuota": {"monitorAllQuotas": True, "multiQuotaTree": True},
    "LoadAwareScheduling": {
        "usageThresholds": {"cpu": 65},
        "allowCustomizeEstimation": True,
        "aggregated": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"},
    },
}
_CONFIGURATION: Final = parse(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
                "pluginConfig": [{"name": name, "args": args} for name, args in _ARGUMENTS.items()],
            }
        ],
    }
)
PROBE_SECONDS: Final = 20.0  # of virtual time, in which a pod must be bound


class _Watch:
    def __init__(self, watches: "set[_Watch]", on_line: OnLine) -> None:
        self._watches, self.on_line = watches, on_line
        watches.add(self)

    def close(self) -> None:
        self._watches.discard(self)


class ObjectServer:
    """Lists, watches, bindings and merge patches of objects that nothing validates."""

    def __init__(self, clock: SimClock) -> None:
        self._clock = clock
        self._objects: dict[str, dict[str, Object]] = defaultdict(dict)  # by collection and `namespace/name`
        self._watches: dict[str, set[_Watch]] = defaultdict(set)
        self._version = 1

    def put(self, where: str, obj: Any, event: str = "") -> None:
        self._version += 1
        metadata = obj.get("metadata") if isinstance(obj, dict) else None
        if not isinstance(metadata, dict):
            return  # no API server stores it
        metadata["resourceVersion"] = str(self._version)
        name = name_of(obj)
        event = event or ("MODIFIED" if name in self._objects[where] else "ADDED")
        self._objects[where][name] = obj
        if event == "DELETED":
            del self._objects[where][name]
        line = json.dumps({"type": event, "object": obj}).encode()
        for watch in list(self._watches[where]):
            self._clock.call_soon(lambda watch=watch: watch.on_line(line))  # type: ignore[misc]

    def find(self, where: str, name: str) -> Object | None:
        return self._objects[where].get(name)

    def send(self, request: Request, done: Done) -> None:
        self._clock.call_soon(lambda: done(self._answer(request)))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> _Watch:
        del on_end
        return _Watch(self._watches[request.path.partition("?")[0]], on_line)

    def _answer(self, request: Request) -> Response:
        path = request.path.partition("?")[0]
        if request.method == "GET" and (path in self._watches or path not in self._by_path()):
            items = [] if "status.phase" in request.path and path != PODS else list(self._objects[path].values())
            return _json({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        own = path.removesuffix("/binding").removesuffix("/status").removesuffix("/eviction")
        where, results = self._by_path().get(own, ("", {}))
        if not where:
            return _json(json.loads(request.body or b"{}"), 201)
        changed = copy.deepcopy(results)
        if request.method == "DELETE" or path.endswith("/eviction"):
            self.put(where, changed, "DELETED")
        elif path.endswith("/binding"):
            body = json.loads(request.body)
            _merge(changed, {"metadata": {"annotations": body.get("metadata", {}).get("annotations") or {}}})
            _merge(changed, {"spec": {"nodeName": body["target"]["name"]}})
            self.put(where, changed)
        elif request.method == "PATCH":
            _merge(changed, json.loads(request.body))
            self.put(where, changed)
        return _json(changed)

    def _by_path(self) -> dict[str, tuple[str, Object]]:
        path = {}
        for where, listed in self._objects.items():
            head, _, plural = where.rpartition("/")
            for key, obj in listed.items():
                namespace, _, name = key.partition("/")
                own = f"{head}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{where}/{name}"
                path[own] = (where, obj)
        return path


def name_of(obj: Object) -> str:
    """The namespace and the name of an object."""
    return f"{obj['metadata'].get('namespace', '')}/{obj['metadata'].get('name', '')}"


def _merge(below: Object, patch: Object) -> None:
    for key, value in patch.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _merge(below[key], value)
        else:
            below[key] = value


def _json(body: Any, code: int = 200) -> Response:
    return Response(code, json.dumps(body).encode())


def _plain_pod(name: str) -> Object:
    return {
        "metadata": {"name": name, "namespace": "probes", "uid": name, "creationTimestamp": CREATED},
        "spec": {
            "schedulerName": "koord-scheduler",
            "nodeSelector": {"for": "probes"},
            "tolerations": [{"key": "probes", "operator": "Exists"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Pending"},
    }


_SPARE: Final[Object] = {
    "metadata": {"name": "spare", "uid": "spare", "labels": {"for": "probes"}},
    "spec": {"taints": [{"key": "probes", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
}


class World:
    """A scheduler in virtual time on a small cluster with one object of each kind."""

    def __init__(self) -> None:
        self.clock, self.restored = SimClock(), 0
        self.server = ObjectServer(self.clock)
        for where, obj in (*OBJECTS, ("/api/v1/nodes", _SPARE)):
            self.server.put(where, copy.deepcopy(obj))
        self.shell = build_shell(self.server, self.clock, configuration=_CONFIGURATION, seed=1)
        self.shell.start()
        self.clock.advance(1)

    def create(self, name: str) -> None:
        """Create a pod that only the node `spare` takes."""
        self.server.put(PODS, _plain_pod(name))

    def is_bound(self, name: str) -> bool:
        """Whether the pod that `create` made has a node."""
        pod = self.server.find(PODS, f"probes/{name}")
        return pod is not None and bool(pod["spec"].get("nodeName"))

    def delete(self, name: str) -> None:
        """Delete the pod that `create` made."""
        if (pod := self.server.find(PODS, f"probes/{name}")) is not None:
            self.server.put(PODS, pod, "DELETED")

    def renew_pods(self, but: str = "") -> None:
        """Create the pods of OBJECTS anew, all but one, so that they are decided beside what has changed."""
        for where, obj in OBJECTS:
            name = name_of(obj)
            if where == PODS and name != but and (results := self.server.find(where, name)) is not None:
                self.server.put(where, results, "DELETED")
        self.restore()

    def restore(self) -> None:
        """Create the objects that are missing once more."""
        self.restored += 1
        for where, obj in OBJECTS:
            if self.server.find(where, name_of(obj)) is None:
                metadata = {**obj["metadata"], "uid": f"{obj['metadata']['uid']}-{self.restored}"}
                self.server.put(where, obj | {"metadata": metadata})
        self.clock.advance(1)
