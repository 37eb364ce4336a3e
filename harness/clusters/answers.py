"""Answers of an API server: refusals as exceptions."""

import orjson

from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.transport import Response


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
