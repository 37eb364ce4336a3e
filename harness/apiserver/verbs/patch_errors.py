"""The answer to a patch whose result has a value of a wrong type: 422 with the cause `patch`, not 400 as for an object.

Follows `apiserver/pkg/endpoints/handlers/patch.go`. The problem of a strategic merge patch is worded as
`apimachinery/pkg/runtime/converter.go` does, that of the other patches as the JSON decoder does.
"""

from collections.abc import Sequence
from typing import Any, Final

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.field_errors import details, invalid, message
from seatrial.harness.apiserver.schemas.shapes import TypeMismatch

_KINDS: Final = {"array": "slice", "object": "map", "number": "int64"}  # JSON type → Go kind


def of_mismatch(mismatch: TypeMismatch, patched: Any, strategic_patch: Any = None) -> ApiStatusError:
    """The error for a patched object; `strategic_patch` is the patch if it is a strategic merge patch."""
    if strategic_patch is not None:
        cause = invalid("patch", go_text(strategic_patch), _restoring(mismatch))
    else:
        cause = invalid("patch", orjson.dumps(patched).decode(), mismatch.message())
    return errors.invalid("", "", "", message("", "", [cause]), details([cause]))


def of_problems(problems: Sequence[str], patched: Any, strategic_patch: Any = None) -> ApiStatusError:
    """The error for a patched object with unknown or duplicate fields, where they are neither ignored nor warned of."""
    value = orjson.dumps(patched).decode() if strategic_patch is None else go_text(strategic_patch)
    cause = invalid("patch", value, f"strict decoding error: {', '.join(problems)}")
    return errors.invalid("", "", "", message("", "", [cause]), details([cause]))


def go_text(value: Any) -> str:
    """The value as Go's `%v` prints it."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{name}:{go_text(value[name])}' for name in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return "<nil>" if value is None else str(value)


def _restoring(mismatch: TypeMismatch) -> str:
    if not mismatch.go_type:
        return mismatch.text
    word = mismatch.text.removeprefix("json: cannot unmarshal ").partition(" ")[0]
    kind = _KINDS.get(word, word)
    if mismatch.go_type.startswith("map["):
        return f"cannot restore map from {kind}"
    if mismatch.go_type.startswith("[]"):
        return f"cannot restore slice from {kind}"
    if "." in mismatch.go_type:
        return f"cannot restore struct from: {kind}"
    if kind == "int64" and mismatch.go_type != "bool":  # Go converts integers only, if to another type
        return f"cannot convert {kind} to {mismatch.go_type}"
    return f"unrecognized type: {mismatch.go_type}"
