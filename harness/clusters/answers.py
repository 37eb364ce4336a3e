"""Answers of an API server: refusals as exceptions, and items of lists."""

from collections.abc import Callable
from typing import Any

import orjson

from seatrial.harness.errors import ApiRefused, shown_at_the_case
from seatrial.scheduler.api.transport import Request, Response

__tracebackhide__ = shown_at_the_case


def accepted(response: Response, what: str) -> Response:
    """The answer to a request that must not be refused; `what` names the request, as in "create pod 'a'".

    Raises:
        ApiRefused: the answer is a refusal, or there is none.
    """
    if response.ok:
        return response
    try:
        status = orjson.loads(response.body)
    except orjson.JSONDecodeError:
        status = {"message": response.body.decode(errors="replace")}
    raise ApiRefused(what, code=response.code, reason=status.get("reason", ""), message=status.get("message", ""))


def listed(call: Callable[[Request], Response], path: str) -> list[dict[str, Any]]:
    """The items of a collection.

    Raises:
        ApiRefused: the request is refused, or no answer came.
    """
    items: list[dict[str, Any]] = orjson.loads(accepted(call(Request("GET", path)), f"list {path}").body)["items"]
    return items
