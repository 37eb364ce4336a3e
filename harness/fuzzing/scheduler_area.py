"""The scheduler on objects with odd values: no exception, no super-linear cost, and other pods are bound meanwhile."""

import copy
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final

from hypothesis import strategies as st

from seatrial.harness.fuzzing.long_texts import (
    LongText,
    Path,
    check_cost,
    long_texts,
    processor_time,
    text_of,
    text_paths,
    with_text,
)
from seatrial.harness.fuzzing.running import Area, FaultError
from seatrial.harness.fuzzing.scheduler_objects import CREATED, OBJECTS, Object, vocabulary
from seatrial.harness.fuzzing.values import mutated
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response
from seatrial.scheduler.app import build_shell, parse

_PODS: Final = "/api/v1/pods"
_ARGUMENTS: Final = {
    "Coscheduling": {"enablePreemption": True},
    "ElasticQuota": {"monitorAllQuotas": True, "multiQuotaTree": True},
    "LoadAwareScheduling": {
        "usageThresholds": {"cpu": 65}, "allowCustomizeEstimation": True,
        "aggregated": {"usageThresholds": {"cpu": 65}, "usageAggregationType": "p95", "usageAggregatedDuration": "5m"},
    },
}  # fmt: skip
_CONFIGURATION: Final = parse({
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{
        "schedulerName": "koord-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
        "pluginConfig": [{"name": name, "args": args} for name, args in _ARGUMENTS.items()],
    }],
})  # fmt: skip
PROBE_SECONDS: Final = 20.0  # of virtual time


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
        name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
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
            items = [] if "status.phase" in request.path and path != _PODS else list(self._objects[path].values())
            return _json({"metadata": {"resourceVersion": str(self._version)}, "items": items})
        own = path.removesuffix("/binding").removesuffix("/status").removesuffix("/eviction")
        where, found = self._by_path().get(own, ("", {}))
        if not where:
            return _json(json.loads(request.body or b"{}"), 201)
        changed = copy.deepcopy(found)
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
        found = {}
        for where, listed in self._objects.items():
            head, _, plural = where.rpartition("/")
            for key, obj in listed.items():
                namespace, _, name = key.partition("/")
                own = f"{head}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{where}/{name}"
                found[own] = (where, obj)
        return found


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
            "schedulerName": "koord-scheduler", "nodeSelector": {"for": "probes"},
            "tolerations": [{"key": "probes", "operator": "Exists"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Pending"},
    }  # fmt: skip


_SPARE: Final[Object] = {
    "metadata": {"name": "spare", "uid": "spare", "labels": {"for": "probes"}},
    "spec": {"taints": [{"key": "probes", "effect": "NoSchedule"}]},
    "status": {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"}},
}


class World:
    """A scheduler in virtual time on a small cluster with one object of each kind."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.server = ObjectServer(self.clock)
        for where, obj in (*OBJECTS, ("/api/v1/nodes", _SPARE)):
            self.server.put(where, copy.deepcopy(obj))
        self.shell = build_shell(self.server, self.clock, configuration=_CONFIGURATION, seed=1)
        self.shell.start()
        self.clock.advance(1)

    def take(self, where: str, obj: Any) -> None:
        """Change an object, and expect that a new pod is bound nevertheless.

        Raises:
            FaultError: it is not, or a plugin raised an exception.
            Exception: a fault of the scheduler.
        """
        self.server.put(where, obj)
        self.clock.advance(1)
        self.expect_bound("probe")
        self.server.put(where, obj, "DELETED")
        self.expect_bound("later")
        raised = self.shell.core.handle.plugin_errors.counts
        if raised:
            raise FaultError(f"plugins raised exceptions: {dict(raised)}")

    def expect_bound(self, name: str) -> None:
        self.server.put(_PODS, _plain_pod(name))
        self.clock.advance(PROBE_SECONDS)
        pod = self.server.find(_PODS, f"probes/{name}")
        if pod is None or not pod["spec"].get("nodeName"):
            raise FaultError(f"the pod {name} is not bound within {PROBE_SECONDS:.0f} s")


def places() -> Iterator[tuple[int, Path]]:
    """Each object's texts, and the labels and annotations of the vocabulary on each object."""
    keys = vocabulary()
    for number, (_, obj) in enumerate(OBJECTS):
        yield from ((number, path) for path in text_paths(obj))
        for part in ("labels", "annotations"):
            yield from ((number, ("metadata", part, key)) for key in keys if key not in obj["metadata"].get(part, {}))


PLACES: Final = tuple(places())


def cost_in(number: int, path: Path) -> Callable[[LongText], float]:
    """The processor time of a scheduler that takes in an object with a text."""
    where, obj = OBJECTS[number]

    def cost(run: LongText) -> float:
        changed = with_text(obj, path, text_of(run))
        world = World()
        return processor_time(lambda: world.take(where, changed))

    return cost


def _run_text(given: tuple[tuple[int, Path], LongText]) -> None:
    (number, path), run = given
    check_cost(run, cost_in(number, path))


def _run_object(given: tuple[int, Any]) -> None:
    number, changed = given
    World().take(OBJECTS[number][0], changed)


@st.composite
def _objects(draw: st.DrawFn) -> tuple[int, Any]:
    number = draw(st.integers(0, len(OBJECTS) - 1))
    return number, draw(mutated([OBJECTS[number][1]]))


SCHEDULER_AREAS: Final = (
    Area("scheduler-texts", "long texts in objects that the scheduler reads",
         st.tuples(st.sampled_from(PLACES), long_texts), _run_text),
    Area("scheduler-objects", "objects that the scheduler reads, with random changes", _objects(), _run_object),
)  # fmt: skip
