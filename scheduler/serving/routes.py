"""HTTP routes: patterns with `:name` for one part of a path, requests and answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.wire import to_json

TEXT, JSON, HTML = "text/plain; charset=utf-8", "application/json; charset=utf-8", "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """One request. `parameters`: parts of the path by name in the pattern; `query`: the first value of each key;
    `accept`: the header Accept."""

    method: str
    path: str
    parameters: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes = b""
    accept: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a route; `headers`: those beside its type and length."""

    code: int
    body: bytes
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


Handler = Callable[[RequestContext], Answer]


def text(words: str, code: int = 200) -> Answer:
    """A plain text answer; a line feed is appended."""
    return Answer(code, f"{words}\n".encode())


def json(value: Any, code: int = 200) -> Answer:
    """A JSON answer."""
    return Answer(code, to_json(value), JSON)


def missing(words: str) -> Answer:
    """404 in the format of the services API."""
    return json({"message": words}, 404)


class Routes:
    """A table of routes. The first route added for a pattern stays (FWK-R37)."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._routes: dict[tuple[str, str], Handler] = {}

    def add(self, method: str, pattern: str, handler: Handler) -> None:
        """`method` may be "*" for any."""
        self._routes.setdefault((method, pattern), handler)

    def add_health(self, ready: Callable[[], bool], unready: Answer) -> None:
        """`/healthz`, `/livez` and `/readyz`. With `?verbose` they name the objects whose work fails.

        One object that fails does not make the program unready: its user would stop it for all others.
        """

        def answer(request: RequestContext) -> Answer:
            if request.path == "/readyz" and not ready():
                return unready
            return text("\n".join([*self._faults.report(), "ok"])) if "verbose" in request.query else Answer(200, b"ok")

        for name in ("healthz", "livez", "readyz"):
            self.add("GET", f"/{name}", answer)

    def patterns(self, prefix: str) -> dict[str, list[str]]:
        """Patterns below `prefix` by method, sorted."""
        patterns: dict[str, list[str]] = {}
        for method, pattern in sorted(self._routes):
            if pattern.startswith(prefix):
                patterns.setdefault(method, []).append(pattern)
        return patterns

    def answer(self, method: str, target: str, body: bytes = b"", accept: str = "") -> Answer:
        """Call the handler of the route: 404 if there is none, 405 if the route has other methods only."""
        parts = urlsplit(target)
        query = {key: values[0] for key, values in parse_qs(parts.query, keep_blank_values=True).items()}
        other_method = False
        for (requirement, pattern), handler in self._routes.items():
            parameters = _match(pattern, parts.path)
            if parameters is None:
                continue
            if requirement in {"*", method}:
                try:
                    return handler(RequestContext(method, parts.path, parameters, query, body, accept))
                except Exception as error:  # noqa: BLE001 an error in one handler must not stop the program
                    fault = self._faults.note(error, f"{method} {pattern}", parts.path)
                    return text(f"500 internal server error, see fault id={fault} in the log", 500)
            other_method = True
        return text("405 method not allowed", 405) if other_method else text("404 page not found", 404)


def _match(pattern: str, path: str) -> dict[str, str] | None:
    targets, parts = pattern.split("/"), path.split("/")
    if len(targets) != len(parts):
        return None
    parameters: dict[str, str] = {}
    for expected, other in zip(targets, parts, strict=True):
        if expected.startswith(":") and other:
            parameters[expected[1:]] = unquote(other)
        elif expected != other:
            return None
    return parameters
