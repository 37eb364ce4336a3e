"""`/debug/flags`: changes what a running scheduler logs, with Koordinator's messages (rules FWK-R32 to FWK-R35).

The body is used as it is: a line break after the value makes it invalid.
"""

import html
import logging
from collections.abc import Callable

from seatrial.scheduler.framework.handle import DebugFlags
from seatrial.scheduler.serving.process import level_of
from seatrial.scheduler.serving.routes import HTML, Answer, RequestContext, Routes, text

BASE = "/debug/flags"
VERBOSITY, TOP_SCORES, FAILURES = "klog.logging.verbosity", "debugTopNScores", "debugFilterFailure"

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


class FlagRefused(ValueError):
    """The value cannot be parsed."""


class Flags:
    """The flags of one scheduler."""

    def __init__(self, debug: DebugFlags, logger: logging.Logger) -> None:
        self._debug = debug
        self._logger = logger
        self._flags: dict[str, tuple[str, Callable[[str], str]]] = {
            "d": (FAILURES, self._set_diagnoses),  # both answer with the name of f's, as Koordinator's do
            "db": (FAILURES, self._set_diagnoses_at_once),
            "f": (FAILURES, self._set_failures),
            "s": (TOP_SCORES, self._set_top_scores),
            "v": (VERBOSITY, self._set_verbosity),
        }

    def install(self, routes: Routes) -> None:
        for name in self._flags:
            routes.add("*", f"{BASE}/{name}", self._answer)
        routes.add("*", BASE, self._index)
        routes.add("*", f"{BASE}/", self._index)
        routes.add("*", f"{BASE}/:flag", self._index)

    def _answer(self, request: RequestContext) -> Answer:
        if request.method != "PUT":
            return text("unsupported http method", 406)
        title, change = self._flags[request.path.rpartition("/")[2]]
        value = request.body.decode(errors="replace")
        try:
            shown = change(value)
        except FlagRefused as error:
            return text(f"failed set {title} {value}: {error}", 400)
        return text(f"successfully set {title} to {shown}")

    def _index(self, _: RequestContext) -> Answer:
        links = "".join(
            f'<a href="{BASE}/{name}">{name}</a> {html.escape(title)}<br>' for name, (title, _) in self._flags.items()
        )
        page = f"<html><head><title>{BASE}/</title></head><body>{BASE}/<br><br>flags:<br>{links}</body></html>"
        return Answer(200, page.encode(), HTML)

    def _set_verbosity(self, value: str) -> str:
        self._logger.setLevel(level_of(_integer(value, "ParseInt")))
        return value

    def _set_top_scores(self, value: str) -> str:
        self._debug.top_scores = _integer(value, "Atoi")
        return value

    def _set_failures(self, value: str) -> str:
        self._debug.filter_failures = _boolean(value)
        return str(self._debug.filter_failures).lower()

    def _set_diagnoses(self, value: str) -> str:
        self._debug.diagnoses = _boolean(value)
        return str(self._debug.diagnoses).lower()

    def _set_diagnoses_at_once(self, value: str) -> str:
        self._debug.diagnoses_at_once = _boolean(value)
        return str(self._debug.diagnoses_at_once).lower()


def _boolean(value: str) -> bool:
    if value not in _TRUE | _FALSE:
        raise FlagRefused(f"strconv.ParseBool: parsing {_quoted(value)}: invalid syntax")
    return value in _TRUE


def _quoted(value: str) -> str:
    shown = value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return f'"{shown}"'


def _integer(value: str, function: str) -> int:
    digits = value[1:] if value[:1] in {"+", "-"} else value
    if not (digits.isascii() and digits.isdigit()):
        raise FlagRefused(f"strconv.{function}: parsing {_quoted(value)}: invalid syntax")
    return int(value)
