"""Sends the requests of `requests.yaml` to two servers and compares code, reason and causes of the answers."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import yaml

from seatrial.scheduler.api.transport import JSON

Send = Callable[[str, str, bytes, str], tuple[int, bytes]]  # method, path, body, content type → code, body
Object = dict[str, Any]
_FOLDER = Path(__file__).parent
NAME = "differential"  # of all objects


class Call(NamedTuple):
    """One request."""

    method: str
    path: str
    body: bytes = b""
    content_type: str = JSON


class Outcome(NamedTuple):
    """What is compared of an answer. `causes` are pairs of field and reason."""

    code: int
    reason: str = ""
    causes: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        causes = ", ".join(f"{field} {reason}" for field, reason in self.causes)
        return " ".join(part for part in (str(self.code), self.reason, f"[{causes}]" if causes else "") if part)


class Difference(NamedTuple):
    """A request with different outcomes, and why that is so, if it is known."""

    call: Call
    ours: Outcome
    theirs: Outcome
    reason: str = ""

    @property
    def text(self) -> str:
        call = self.call
        body = call.body.decode()[:80]
        return f"{call.method} {call.path} {body} {call.content_type}: {self.ours.text} | {self.theirs.text}"


class Known(NamedTuple):
    """A difference that is meant."""

    pattern: re.Pattern[str]
    reason: str


def calls(namespace: str, path: Path = _FOLDER / "requests.yaml") -> Iterator[Call]:
    """All requests in order; objects are created in `namespace`, which must exist."""
    data = yaml.safe_load(path.read_text())
    for kind in data["kinds"]:
        collection = kind["path"].replace("$NS", namespace)
        for row in data["each"]:
            yield _call(row, collection, kind["body"])
    for row in data["single"]:
        yield _call(row, "", {})


def _call(row: Object, collection: str, body: Object) -> Call:
    path = row["path"].replace("$C", collection).replace("$O", f"{collection}/{NAME}")
    sent = str(row.get("body", "")).encode()
    if row.get("object"):
        sent = orjson.dumps({**body, "metadata": {"name": NAME, **row.get("set", {})}})
    return Call(row["method"], path, sent, row.get("type", JSON))


def known_differences(path: Path = _FOLDER / "known.yaml") -> list[Known]:
    """The differences that are meant."""
    return [Known(re.compile(re.escape(row["pattern"])), row["reason"]) for row in yaml.safe_load(path.read_text())]


def compare(ours: Send, theirs: Send, wanted: Iterator[Call], known: list[Known]) -> Iterator[Difference | None]:
    """One entry for each request: None where the outcomes are equal."""
    for call in wanted:
        found, expected = outcome(*ours(*call)), outcome(*theirs(*call))
        if found == expected:
            yield None
            continue
        difference = Difference(call, found, expected)
        reason = next((entry.reason for entry in known if entry.pattern.search(difference.text)), "")
        yield difference._replace(reason=reason)


def outcome(code: int, body: bytes) -> Outcome:
    """What is compared of an answer with this code and body."""
    if code < 400:
        return Outcome(code)
    try:
        status = orjson.loads(body)
    except orjson.JSONDecodeError:
        return Outcome(code)
    if not isinstance(status, dict):
        return Outcome(code)
    causes = ((status.get("details") or {}).get("causes")) or ()
    rows = sorted({(str(cause.get("field", "")), str(cause.get("reason", ""))) for cause in causes})
    return Outcome(code, str(status.get("reason", "")), tuple(rows))
