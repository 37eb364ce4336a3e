"""Field errors: why an object is invalid, one entry for each field.

Scripts and people match on the messages, so they are upstream's to the letter (`util/validation/field/errors.go`).
"""

import json
from typing import Any, NamedTuple

MAX_SHOWN = 10_000  # characters of a value in a message; upstream shows all
_QUOTE = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


class Cause(NamedTuple):
    """One entry of `details.causes` in a Status with reason Invalid."""

    field: str
    reason: str
    message: str


Causes = list[Cause]


def required(field: str, detail: str = "") -> Cause:
    """The field is missing or empty."""
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid(field: str, value: Any, detail: str) -> Cause:
    """The field's value does not have the required form."""
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: Any, supported: tuple[str, ...]) -> Cause:
    """The field's value is none of the supported ones."""
    listed = ", ".join(quoted(choice) for choice in supported)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {listed}")


def duplicate(field: str, value: Any) -> Cause:
    """The value occurs twice in a list or map."""
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def forbidden(field: str, detail: str) -> Cause:
    """The field must not be set here."""
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def not_found(field: str, value: Any) -> Cause:
    """The value refers to something that does not exist."""
    return Cause(field, "FieldValueNotFound", f"Not found: {shown(value)}")


def immutable(field: str, value: Any, before: Any) -> Causes:
    """A cause if an immutable field changed. Absent, null and empty count as equal."""
    if value == before or not (value or before):
        return []
    return [invalid(field, value, "field is immutable")]


def too_long(field: str, limit: int) -> Cause:
    """The value has more than `limit` bytes; the message does not repeat it."""
    return Cause(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> Cause:
    """The list or map has `count` entries, more than `limit`."""
    items = "1 item" if limit == 1 else f"{limit} items"
    return Cause(field, "FieldValueTooMany", f"Too many: {count}: must have at most {items}")


def message(kind: str, name: str, causes: Causes, *, group: str = "") -> str:
    """The `message` of the Status: a single cause as it is, several in brackets, without duplicates."""
    qualified = f"{kind}.{group}" if group else kind
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    if not texts:
        return f"{qualified} {quoted(name)} is invalid"
    return f"{qualified} {quoted(name)} is invalid: {texts[0] if len(texts) == 1 else '[' + ', '.join(texts) + ']'}"


def details(causes: Causes) -> list[dict[str, str]]:
    """The causes as the details of a Status have them."""
    return [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]


def shown(value: Any) -> str:
    """A value as messages show it: strings quoted, numbers bare, objects and lists as JSON (upstream: Go syntax)."""
    if isinstance(value, str):
        return quoted(value)
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def quoted(text: str) -> str:
    """A text in double quotes with escapes as in Go; cut after MAX_SHOWN characters."""
    if len(text) > MAX_SHOWN:
        text = f"{text[:MAX_SHOWN]}... ({len(text)} characters)"
    return f'"{text.translate(_QUOTE)}"'
