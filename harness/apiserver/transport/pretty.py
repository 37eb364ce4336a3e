"""JSON answers with line breaks, for people: by the parameter `pretty`, and by default for curl, Wget and browsers.

Follows `isPrettyPrint` of `apiserver/pkg/endpoints/handlers/negotiation`.
"""

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qs, urlsplit

import orjson

from seatrial.scheduler.api.transport import Response

MAX_SIZE: Final = 1024 * 1024  # bytes; longer answers stay as they are, because this blocks the server for 10 ms
_TOOLS: Final = ("curl", "Wget", "Mozilla/5.0")
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})


def is_wanted(path: str, headers: Mapping[str, str]) -> bool:
    """Whether the response is to have line breaks. `path` includes the query."""
    if "pretty=" in path:
        entry = parse_qs(urlsplit(path).query).get("pretty")
        if entry:
            return entry[0] in _TRUE
    return headers.get("user-agent", "").startswith(_TOOLS)


def indented(response: Response) -> Response:
    """The answer with line breaks, if it is JSON of a moderate size."""
    kind = response.headers.get("content-type", "")
    if not response.body or len(response.body) > MAX_SIZE or not kind.startswith("application/json"):
        return response
    body = orjson.dumps(orjson.loads(response.body), option=orjson.OPT_INDENT_2)
    return Response(response.code, body, response.headers)
