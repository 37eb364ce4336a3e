"""pods/log: what a container has printed, cut as asked, at once or as it comes.

Whoever runs the containers hands over their whole output; nothing tells when a line was printed, so every line counts
as printed when its container started.
"""

from collections.abc import Callable, Mapping
from typing import Any

from harness.apiserver import errors
from harness.apiserver.storage.store import Item, Object
from harness.apiserver.storage.watch import Reader
from harness.apiserver.streams.responses import Streaming
from scheduler.api.clock import Clock, Timer, from_rfc3339
from scheduler.api.transport import Response

Source = Callable[[str, str, str], bytes | None]  # namespace, pod, container → what it has printed; None: not started
HEADERS = {"content-type": "text/plain; charset=utf-8"}
_LOOK_EVERY = 0.25  # seconds between looks at a log that somebody follows
_TRUE = frozenset({"1", "true"})


def read_log(
    pod: Item, query: Mapping[str, str], source: Source, find: Callable[[], Item | None], clock: Clock
) -> Response | Streaming:
    """The answer to a GET of a pod's log; `find` finds the pod again as long as it is there.

    Raises:
        ApiStatusError: no such container, or it has not started.
    """
    container = container_of(pod.obj, query.get("container", ""))
    state = _state(pod.obj, container)
    if query.get("previous", "") in _TRUE and not state.get("restartCount"):
        raise errors.bad_request(f'previous terminated container "{container}" in pod "{pod.key[1]}" not found')

    def whole() -> bytes | None:
        return source(pod.key[0], pod.key[1], container)

    data = whole()
    following = query.get("follow", "") in _TRUE
    if data is None:
        if not pod.obj["spec"].get("nodeName"):
            return Response(200, b"", HEADERS)
        raise errors.bad_request(
            f'container "{container}" in pod "{pod.key[1]}" is waiting to start: {_waits_for(state)}'
        )
    started = _started(state)
    if not following:
        return Response(200, _cut(data, query, started, clock.now()), HEADERS)

    def ended() -> bool:
        found = find()
        return (
            found is None or found.obj["metadata"]["uid"] != pod.obj["metadata"]["uid"] or not _runs(found, container)
        )

    def start(reader: Reader) -> _Follower:
        return _Follower(reader, _cut(data, query, started, clock.now()), len(data), whole, ended, clock)

    return Streaming(start, content_type=HEADERS["content-type"])


class _Follower:
    """Hands on what is added until the container ends."""

    def __init__(  # noqa: PLR0917
        self,
        reader: Reader,
        first: bytes,
        seen: int,
        whole: Callable[[], bytes | None],
        ended: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._reader, self._seen, self._whole, self._ended, self._clock = reader, seen, whole, ended, clock
        self._timer: Timer | None = None
        if not first or reader.feed(first):
            self._timer = clock.call_later(_LOOK_EVERY, self._look)

    def _look(self) -> None:
        data = self._whole() or b""
        more, self._seen = data[self._seen :], len(data)
        if more and not self._reader.feed(more):
            return
        if self._ended():
            self._reader.end()
        else:
            self._timer = self._clock.call_later(_LOOK_EVERY, self._look)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def container_of(pod: Object, asked: str) -> str:
    """The container that is meant by a name, or by none.

    Raises:
        ApiStatusError: it is not there, or must be named.
    """
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [one["name"] for part in ("initContainers", "containers") for one in spec.get(part) or ()]
    if asked:
        if asked not in names:
            raise errors.bad_request(f"container {asked} is not valid for pod {name}")
        return asked
    if len(spec["containers"]) > 1:
        listed = " ".join(one["name"] for one in spec["containers"])
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(spec["containers"][0]["name"])


def _state(pod: Object, container: str) -> Mapping[str, Any]:
    rows = [*(pod.get("status", {}).get("containerStatuses") or ())]
    return next((one for one in rows if one.get("name") == container), {})


def _runs(pod: Item, container: str) -> bool:
    return "running" in (_state(pod.obj, container).get("state") or {})


def _waits_for(state: Mapping[str, Any]) -> str:
    return str(((state.get("state") or {}).get("waiting") or {}).get("reason") or "ContainerCreating")


def _started(state: Mapping[str, Any]) -> str:
    for phase in (state.get("state") or {}).values():
        if phase.get("startedAt"):
            return str(phase["startedAt"])
    return ""


def _cut(data: bytes, query: Mapping[str, str], started: str, now: float) -> bytes:
    """
    Raises:
        ApiStatusError: a parameter is no such number or time.
    """
    since = None
    if "sinceSeconds" in query:
        since = now - _number(query, "sinceSeconds")
    elif query.get("sinceTime"):
        try:
            since = from_rfc3339(query["sinceTime"])
        except ValueError as error:
            raise errors.bad_request(f"sinceTime: {error}") from error
    if since is not None and started and from_rfc3339(started) < since:
        data = b""
    lines = data.splitlines(keepends=True)
    if "tailLines" in query:
        lines = lines[len(lines) - min(_number(query, "tailLines"), len(lines)) :]
    if query.get("timestamps", "") in _TRUE and started:
        lines = [started.encode() + b" " + line for line in lines]
    data = b"".join(lines)
    return data[: _number(query, "limitBytes")] if "limitBytes" in query else data


def _number(query: Mapping[str, str], name: str) -> int:
    if not query[name].isdigit():
        raise errors.bad_request(f"{name}: expected a whole number of 0 and more, found {query[name]!r}")
    return int(query[name])
