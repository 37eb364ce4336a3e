"""Sends the requests of this folder to two servers and compares code, reason and causes of the answers.

The second server can be replaced by its recorded answers (`recorded.py`).
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from seatrial.scheduler.api.transport import JSON

Object = dict[str, Any]
FOLDER = Path(__file__).parent
NAME = "differential"  # of objects that the requests create
_CONTROLLERS = "kube-controller-manager"  # a field manager
ANONYMOUS, BAD_TOKEN = "anonymous", "bad-token"  # senders that are not impersonated


class Call(NamedTuple):
    """One request. `wait`: seconds to wait before it, for controllers. `sender`: "" is the administrator.

    `show`: paths of fields of the answer that are compared.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON
    sender: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    wait: float = 0.0
    show: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The call in one line, with a shortened body."""
        more = [f"as {self.sender}"] if self.sender else []
        more += [f"{name}: {value}" for name, value in self.headers]
        return " ".join([self.method, self.path, self.body.decode()[:160], self.content_type, *more])


class Outcome(NamedTuple):
    """What is compared of an answer. `causes` are pairs of field and reason; `shown` the fields that the call shows."""

    code: int
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()
    warned: bool = False
    shown: str = ""

    @property
    def text(self) -> str:
        causes = ", ".join(f"{field} {reason}" for field, reason in self.causes)
        warned = "with a warning" if self.warned else ""
        parts = (str(self.code), self.reason, f"[{causes}]" if causes else "", warned, self.shown)
        return " ".join(part for part in parts if part)


class Difference(NamedTuple):
    """A request with different outcomes, and why that is so, if it is known."""

    call: Call
    ours: Outcome
    theirs: Outcome
    reason: str = ""

    @property
    def text(self) -> str:
        return f"{self.call.text}: {self.ours.text} | {self.theirs.text}"


class Known(NamedTuple):
    """A difference that is meant."""

    pattern: re.Pattern[str]
    reason: str


Send = Callable[[Call], Outcome]


def calls(namespace: str, folder: Path = FOLDER) -> Iterator[Call]:
    """All requests in order; objects are created in `namespace`, which must exist."""
    data = yaml.safe_load((folder / "requests.yaml").read_text())
    for kind in data["kinds"]:
        collection = kind["path"].replace("$NS", namespace)
        for row in data["each"]:
            yield _call(row, collection, kind["body"])
    for row in data["single"]:
        yield _call(row, "", {})
    for group in yaml.safe_load((folder / "validation.yaml").read_text().replace("$NS", namespace)):
        for body in group["bodies"]:
            yield Call("POST", f"{group['base']}?dryRun=All", orjson.dumps(body))
    for row in yaml.safe_load((folder / "sequences.yaml").read_text().replace("$NS", namespace)):
        yield _call(row, "", {})
    core, apps = f"/api/v1/namespaces/{namespace}", f"/apis/apps/v1/namespaces/{namespace}"
    for name in ("apply.yaml", "clients.yaml", "values.yaml"):
        text = (folder / name).read_text().replace("$NS", namespace).replace("$C", core).replace("$A", apps)
        for row in yaml.safe_load(text):
            yield _call(row, "", {})


def _call(row: Object, collection: str, body: Object) -> Call:
    path = row["path"].replace("$C", collection).replace("$O", f"{collection}/{NAME}")
    sent = row.get("body", "")
    encoded = orjson.dumps(sent) if isinstance(sent, dict) else str(sent).encode()
    if row.get("object"):
        encoded = orjson.dumps({**body, "metadata": {"name": NAME, **row.get("set", {})}})
    headers = tuple(row.get("headers", {}).items())
    return Call(
        row["method"],
        path,
        encoded,
        row.get("type", JSON),
        row.get("as", ""),
        headers,
        float(row.get("wait", 0)),
        tuple(row.get("show", ())),
    )


def known_differences(path: Path = FOLDER / "known.yaml") -> list[Known]:
    """The differences that are meant."""
    return [Known(re.compile(row["pattern"]), row["reason"]) for row in yaml.safe_load(path.read_text())]


def compare(ours: Send, theirs: Send, schema: Iterator[Call], known: list[Known]) -> Iterator[Difference | None]:
    """One entry for each request: None where the outcomes are equal."""
    for call in schema:
        result, expected = ours(call), theirs(call)
        if result == expected:
            yield None
            continue
        difference = Difference(call, result, expected)
        reason = next((entry.reason for entry in known if entry.pattern.search(difference.text)), "")
        yield difference._replace(reason=reason)


def outcome(code: int, body: bytes, warning: str = "", show: tuple[str, ...] = ()) -> Outcome:
    """What is compared of an answer with this code, body and `Warning` header."""
    if code < 400 and not show:
        return Outcome(code, warned=bool(warning))
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Outcome(code)
    if not isinstance(status, dict):
        return Outcome(code)
    shown = {path: value for path in show if (value := _shown(status, path)) is not None}
    text = orjson.dumps(shown, option=orjson.OPT_SORT_KEYS).decode() if shown else ""
    if code < 400:
        return Outcome(code, warned=bool(warning), shown=text)
    causes = ((status.get("details") or {}).get("causes")) or ()
    rows = sorted({(str(cause.get("field", "")), str(cause.get("reason", ""))) for cause in causes})
    return Outcome(code, str(status.get("reason", "")), tuple(rows), shown=text)


def _shown(answer: Object, path: str) -> Any:
    """The value of a field, but for texts of columns, order of causes, and what depends on the moment."""
    value: Any = answer
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if path == "columnDefinitions" and value is not None:
        return [[column[key] for key in ("name", "type", "format", "priority")] for column in value]
    if path == "details" and isinstance(value, dict) and value.get("causes"):  # of conflicts, in no order
        return {**value, "causes": sorted(value["causes"], key=lambda cause: str(cause.get("message")))}
    if path != "metadata.managedFields" or value is None:
        return value
    entries = [{key: part for key, part in entry.items() if key != "time"} for entry in value]
    entries = [entry for entry in entries if entry.get("manager") != _CONTROLLERS]
    return sorted(entries, key=lambda entry: orjson.dumps(entry, option=orjson.OPT_SORT_KEYS))
