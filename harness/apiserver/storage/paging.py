"""Options of lists and watches: revision, resourceVersionMatch, limit, continue tokens.

Follows `ValidateListOptions` of apimachinery, and the messages of apiserver's `pkg/storage`.
"""

import base64
from collections.abc import Mapping

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.field_errors import quoted
from seatrial.harness.apiserver.storage.store import Key
from seatrial.scheduler.api.integers import MAX_LENGTH, integer

_FALSE = frozenset({"0", "false"})
_MATCHES = ("Exact", "NotOlderThan")
_INITIAL_NEEDS = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
_MATCH_NEEDS = "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
_MAX_NUMBER = 10**9  # of limit, and of timeoutSeconds; larger numbers count as this one


def flag(query: Mapping[str, str], name: str) -> bool | None:
    """A boolean query parameter; None if it is missing or empty. As upstream, whatever is not false is true."""
    text = query.get(name, "")
    return text not in _FALSE if text else None


def number(query: Mapping[str, str], name: str, least: int = 0, most: int = _MAX_NUMBER) -> int:
    """A numeric query parameter, from `least` to `most`; 0 if it is missing.

    Raises:
        ApiStatusError: 400, it is not a whole number of 64 bits.
    """
    text = query.get(name, "0")
    value = integer(text)
    if value is None:
        why = "value out of range" if text.lstrip("+-").isdecimal() else "invalid syntax"
        raise errors.bad_request(f"strconv.ParseInt: parsing {quoted(text[:MAX_LENGTH])}: {why}")
    return min(max(value, least), most)


def revision(text: str) -> int:
    """A resourceVersion as a number.

    Raises:
        ApiStatusError: 400, it is not a number.
    """
    value = integer(text) if text[:1].isdecimal() else None
    if value is None:
        shown = f'"{text:.256}"'
        raise errors.bad_request(
            f"invalid resource version: resourceVersion: Invalid value: {shown}: strconv.ParseUint: parsing {shown}:"
            " invalid syntax"
        )
    return value


def check_options(query: Mapping[str, str], *, watch: bool) -> None:
    """Check that numbers among the query parameters are such, and that the others can be combined.

    Raises:
        ApiStatusError: 400 or 422, they are not, or cannot.
    """
    for name in ("timeoutSeconds", "limit"):
        number(query, name)
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    initial = query.get("sendInitialEvents", "")
    if watch:
        if query.get("continue"):
            raise _invalid(
                "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden for watch with continue"
            )
        if initial and match != "NotOlderThan":
            raise _match_refused(match, _INITIAL_NEEDS) if match else _invalid("resourceVersionMatch", _INITIAL_NEEDS)
        if match and not initial:
            if match != "NotOlderThan":
                raise _match_refused(match, _MATCH_NEEDS)
            raise _invalid("resourceVersionMatch", _MATCH_NEEDS)
        return
    if initial:
        raise _invalid("sendInitialEvents", "Forbidden: sendInitialEvents is forbidden for list")
    if not match:
        return
    if match not in _MATCHES:
        supported = ", ".join(f'"{supported_match}"' for supported_match in _MATCHES)
        raise _invalid("resourceVersionMatch", f'Unsupported value: "{match}": supported values: {supported}')
    if query.get("continue"):
        raise _invalid("resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden when continue is provided")
    if not version:
        raise _invalid(
            "resourceVersionMatch", "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        )
    if match == "Exact" and version == "0":
        raise _invalid(
            "resourceVersionMatch", 'Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
        )


def _match_refused(match: str, forbidden: str) -> ApiStatusError:
    """The error for a watch with a `resourceVersionMatch` that no watch may have."""
    refused = _invalid("resourceVersionMatch", forbidden)
    text = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
    refused.details["causes"].append(
        {"reason": "FieldValueNotSupported", "message": text, "field": "resourceVersionMatch"}
    )
    return refused


def _invalid(field: str, text: str) -> ApiStatusError:
    word = text.partition(":")[0]
    reasons = {"Forbidden": "FieldValueForbidden", "Unsupported value": "FieldValueNotSupported"}
    return errors.invalid(
        "ListOptions",
        "meta.k8s.io",
        "",
        f'ListOptions.meta.k8s.io "" is invalid: {field}: {text}',
        [{"reason": reasons.get(word, "FieldValueInvalid"), "message": text, "field": field}],
    )


def too_large_version(version: int, newest: int) -> ApiStatusError:
    """The error for a revision above the newest one; client-go waits and tries again."""
    return ApiStatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {version}, current: {newest}",
        details={
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            "retryAfterSeconds": 1,
        },
        headers={"retry-after": "1"},
    )


def page_expired() -> ApiStatusError:
    """Status 410 Expired: the objects at the continue token's revision are not kept any more."""
    return errors.expired(
        "The provided continue parameter is too old to display a consistent list result."
        " You must start a new list without the continue parameter."
    )


def encode_token(version: int, key: Key) -> str:
    """The continue token of the page that begins after `key`, at revision `version`."""
    data = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": list(key)})
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode_token(token: str) -> tuple[int, Key]:
    """The revision of a continue token and the key after which its page begins.

    Raises:
        ApiStatusError: 400, the token was not made by this server.
    """
    try:
        document = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, (namespace, name) = document["rv"], document["start"]
    except (ValueError, KeyError, TypeError) as error:
        raise errors.bad_request("continue key is not valid: the token was not made by this server") from error
    if type(version) is not int or type(namespace) is not str or type(name) is not str:
        raise errors.bad_request("continue key is not valid: the token was not made by this server")
    return version, (namespace, name)
