"""The subresource pods/log: a container's output, with tailLines, limitBytes, sinceTime and follow.

A log source returns the complete output without times, so every line carries the time at which its container started.
"""

from collections.abc import Callable, Mapping
from typing import Any

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.field_errors import details, forbidden, invalid, message
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.harness.apiserver.storage.watch import Reader
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.times import parse, seconds_of
from seatrial.scheduler.api.clock import Clock, Timer
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.transport import Response

Source = Callable[[str, str, str], bytes | None]  # namespace, pod, container → its output; None: not started
HEADERS = {"content-type": "text/plain; charset=utf-8"}
_POLL_INTERVAL = 0.25  # seconds, for followed logs
_TRUE = frozenset({"1", "true"})


def read_log(
    pod: Item, query: Mapping[str, str], source: Source, find: Callable[[], Item | None], clock: Clock
) -> Response | Streaming:
    """The response to a GET of a pod's log. `find` returns the pod as it is now, None if it is gone.

    Raises:
        ApiStatusError: 400, no such container, it has not started, or an option is invalid.
    """
    _check_options(query, pod.key[1])
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
        result = find()
        return (
            result is None
            or result.obj["metadata"]["uid"] != pod.obj["metadata"]["uid"]
            or not _runs(result, container)
        )

    def start(reader: Reader) -> _Follower:
        return _Follower(reader, _cut(data, query, started, clock.now()), len(data), whole, ended, clock)

    return Streaming(start, content_type=HEADERS["content-type"])


class _Follower:
    """Sends further output until the container ends."""

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
            self._timer = clock.call_later(_POLL_INTERVAL, self._poll)

    def _poll(self) -> None:
        data = self._whole() or b""
        more, self._seen = data[self._seen :], len(data)
        if more and not self._reader.feed(more):
            return
        if self._ended():
            self._reader.end()
        else:
            self._timer = self._clock.call_later(_POLL_INTERVAL, self._poll)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


def container_of(pod: Object, name_given: str) -> str:
    """The container of that name, or the only container if the name is empty.

    Raises:
        ApiStatusError: 400, there is no such container, or the pod has several.
    """
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [row["name"] for part in ("initContainers", "containers") for row in spec.get(part) or ()]
    if name_given:
        if name_given not in names:
            raise errors.bad_request(f"container {name_given} is not valid for pod {name}")
        return name_given
    if len(spec["containers"]) > 1:
        listed = " ".join(row["name"] for row in spec["containers"])
        raise errors.bad_request(f"a container name must be specified for pod {name}, choose one of: [{listed}]")
    return str(spec["containers"][0]["name"])


def _state(pod: Object, container: str) -> Mapping[str, Any]:
    rows = [*(pod.get("status", {}).get("containerStatuses") or ())]
    return next((row for row in rows if row.get("name") == container), {})


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
    """The part of the output that the query asks for.

    Raises:
        ApiStatusError: 400, a parameter is not a valid number or time.
    """
    since = None
    if "sinceSeconds" in query:
        since = now - _number(query, "sinceSeconds")
    elif query.get("sinceTime"):
        try:
            since = parse(query["sinceTime"])[0]
        except ValueError as error:
            raise errors.bad_request(f"sinceTime: {error}") from error
    if since is not None and started and seconds_of(started) < since:
        data = b""
    lines = data.splitlines(keepends=True)
    if "tailLines" in query:
        lines = lines[len(lines) - min(_number(query, "tailLines"), len(lines)) :]
    if query.get("timestamps", "") in _TRUE and started:
        lines = [started.encode() + b" " + line for line in lines]
    data = b"".join(lines)
    return data[: _number(query, "limitBytes")] if "limitBytes" in query else data


def _check_options(query: Mapping[str, str], pod: str) -> None:
    """
    Raises:
        ApiStatusError: 422, a number is too small, or both kinds of a start are given.
    """
    causes = [
        invalid(name, value, f"must be greater than {'or equal to 0' if not least else '0'}")
        for name, least in (("tailLines", 0), ("limitBytes", 1), ("sinceSeconds", 1))
        if (value := integer(query.get(name, ""))) is not None and value < least
    ]
    if "sinceSeconds" in query and "sinceTime" in query:
        causes.append(forbidden("[]", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if causes:
        raise errors.invalid("PodLogOptions", "", pod, message("PodLogOptions", pod, causes), details(causes))


def _number(query: Mapping[str, str], name: str) -> int:
    number = integer(query[name])
    if number is None:
        raise errors.bad_request(f"{name}: expected a whole number of 0 and more, found {query[name]!r:.256}")
    return number
