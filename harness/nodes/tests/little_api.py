"""The least API server that a node agent can live with: objects by path, merge patches, watches, all on a SimClock.

Only for tests of single parts, where what was written must be looked at one by one. Suites and integration tests run
against the embedded server.
"""

import json
from collections import deque
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream, Transport

Object = dict[str, Any]

_BY_KEY = {"conditions": "type", "containerStatuses": "name", "addresses": "type", "taints": "key"}


class _Watch:
    def __init__(self, path: str, matches: Callable[[Object], bool], on_line: OnLine) -> None:
        self.path, self.matches, self.on_line = path, matches, on_line
        self.closed = False

    def close(self) -> None:
        self.closed = True


class LittleApi(Transport):
    """Objects live under their collection's path; namespaced ones under the collection without the namespace."""

    def __init__(self, clock: SimClock) -> None:
        self.clock = clock
        self.objects: dict[str, dict[str, Object]] = {}
        self.sent: list[Request] = []
        self.refuse: deque[int] = deque()  # codes for the next requests that write
        self._version = 0
        self._watches: list[_Watch] = []

    # -- what tests do ------------------------------------------------------------------------------------------------

    def put(self, path: str, body: Object) -> Object:
        """Create or replace an object."""
        meta = body["metadata"]
        collection, key = _collection(path), _key(meta)
        old = self.objects.get(collection, {}).get(key)
        meta.setdefault("uid", f"uid-{meta['name']}-{self._version}")
        self._keep(collection, key, body, "MODIFIED" if old else "ADDED")
        return body

    def patch(self, path: str, patch: Object) -> None:
        """A merge patch by another client."""
        collection, key = _split(path)
        body = _merged(self.objects[collection][key], patch)
        self._keep(collection, key, body, "MODIFIED")

    def drop(self, path: str) -> None:
        """Delete an object at once."""
        collection, key = _split(path)
        body = self.objects[collection].pop(key)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self._tell(collection, "DELETED", body)

    def get(self, path: str) -> Object:
        collection, key = _split(path)
        return self.objects[collection][key]

    def has(self, path: str) -> bool:
        collection, key = _split(path)
        return key in self.objects.get(collection, {})

    def writes(self, part: str) -> list[Request]:
        """Requests that changed something and have `part` in their path."""
        return [request for request in self.sent if request.method != "GET" and part in request.path]

    # -- the transport ------------------------------------------------------------------------------------------------

    def send(self, request: Request, done: Done) -> None:
        self.sent.append(request)
        response = self._answer(request)
        self.clock.call_soon(lambda: done(response))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        url = urlsplit(request.path)
        watch = _Watch(_collection(url.path), _matcher(url.query), on_line)
        self._watches.append(watch)
        return watch

    def _answer(self, request: Request) -> Response:
        url = urlsplit(request.path)
        if request.method == "GET":
            matches = _matcher(url.query)
            items = [stored for stored in self.objects.get(_collection(url.path), {}).values() if matches(stored)]
            return _json(200, {"metadata": {"resourceVersion": str(self._version)}, "items": items})
        if self.refuse:
            return _json(self.refuse.popleft(), {"kind": "Status", "message": "refused by the test"})
        body = json.loads(request.body)
        if request.method == "POST":
            collection, key = _collection(url.path), _key(body["metadata"])
            if key in self.objects.get(collection, {}):
                return _json(409, {"reason": "AlreadyExists"})
            return _json(201, self.put(url.path, body))
        path = url.path.removesuffix("/status")
        collection, key = _split(path)
        entry = self.objects.get(collection, {}).get(key)
        if entry is None:
            return _json(404, {"reason": "NotFound"})
        if request.method == "DELETE":
            if body.get("preconditions", {}).get("uid") not in {None, entry["metadata"]["uid"]}:
                return _json(409, {"reason": "Conflict"})
            self.drop(path)
            return _json(200, entry)
        strategic = request.content_type.startswith("application/strategic")
        self._keep(collection, key, _merged(entry, body, strategic=strategic), "MODIFIED")
        return _json(200, self.get(path))

    def _keep(self, collection: str, key: str, body: Object, event: str) -> None:
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.objects.setdefault(collection, {})[key] = body
        self._tell(collection, event, body)

    def _tell(self, collection: str, event: str, body: Object) -> None:
        line = json.dumps({"type": event, "object": body}).encode()
        for watch in self._watches:
            if watch.path == collection and watch.matches(body) and not watch.closed:
                self.clock.call_soon(lambda watch=watch: None if watch.closed else watch.on_line(line))  # type: ignore[misc]


def _json(code: int, body: Object) -> Response:
    return Response(code, json.dumps(body).encode())


def _collection(path: str) -> str:
    parts = path.strip("/").split("/")
    if "namespaces" in parts:
        at = parts.index("namespaces")
        parts = parts[:at] + parts[at + 2 :]
    return "/".join(parts)


def _split(path: str) -> tuple[str, str]:
    parts = path.strip("/").split("/")
    namespace = parts[parts.index("namespaces") + 1] + "/" if "namespaces" in parts else ""
    return _collection(path).rsplit("/", 1)[0], namespace + parts[-1]


def _key(meta: Object) -> str:
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def _matcher(query: str) -> Callable[[Object], bool]:
    qs = parse_qs(query)
    label = qs.get("labelSelector", [""])[0]
    field = qs.get("fieldSelector", [""])[0]
    negated = "!=" in field
    path, _, target = field.replace("!=", "=").partition("=")

    def chosen(item: Object) -> bool:
        if label and label not in item["metadata"].get("labels", {}):
            return False
        part, _, name = path.partition(".")
        return not field or (item.get(part, {}).get(name, "") == target) != negated

    return chosen


def _merged(old: Any, patch: Any, *, strategic: bool = False, name: str = "") -> Any:
    if isinstance(patch, list) and strategic and name in _BY_KEY and isinstance(old, list):
        key = _BY_KEY[name]
        rows = {item[key]: item for item in old}
        for change in patch:
            rows[change[key]] = _merged(rows.get(change[key]), change, strategic=True)
        return list(rows.values())
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, strategic=strategic, name=key)
    return merged
