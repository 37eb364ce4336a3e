"""The write ledger of an object: computes `managedFields` lazily, when they are read.

Computing which fields a write sets costs more than the write itself. So an object carries a ledger of its last writes:
the states before and after each, which share nearly all their parts. Reading `managedFields`, or applying to the
object, settles the ledger: computes the entries and keeps them as JSON text, a tenth of the decoded size.
"""

from collections.abc import Callable
from typing import Any

import orjson

from seatrial.harness.apiserver.patching.field_ownership import update_managed
from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode

Object = dict[str, Any]
_MAX_WRITES = 4  # unsettled writes; bounds the history that an object holds


class Write:
    """One write by `manager`: the states before (None: a create) and after it. `now` is RFC 3339."""

    __slots__ = ("after", "api_version", "before", "manager", "now", "subresource")

    def __init__(
        self, before: Object | None, after: Object, *, manager: str, now: str, api_version: str, subresource: str = ""
    ) -> None:
        self.before, self.after, self.manager, self.now = before, after, manager, now
        self.api_version, self.subresource = api_version, subresource

    def follows(self, earlier: "Write") -> bool:
        """Whether both can be merged: same manager, version and subresource, and no write in between."""
        return (
            self.before is earlier.after
            and self.manager == earlier.manager
            and self.api_version == earlier.api_version
            and self.subresource == earlier.subresource
        )


class WriteLedger:
    """Settled entries of `managedFields`, and the writes since."""

    __slots__ = ("_settled", "_writes")

    def __init__(self, entries: list[Object]) -> None:
        self._settled = orjson.dumps(entries) if entries else b""
        self._writes: tuple[Write, ...] = ()

    @staticmethod
    def begun(write: Write) -> "WriteLedger":
        """The ledger of a new object."""
        return _ledger(b"", (write,))

    def entries(self, schema: SchemaNode | None) -> list[Object]:
        """`managedFields`; the schema is that of the object's kind."""
        text = self.text(schema)
        entries: list[Object] = orjson.loads(text) if text else []
        return entries

    def text(self, schema: SchemaNode | None) -> bytes:
        """`managedFields` as JSON; empty if there are none."""
        if self._writes:
            entries: list[Object] = orjson.loads(self._settled) if self._settled else []
            for write in self._writes:
                before = write.before
                entries = update_managed(
                    with_entries(before, entries) if before is not None else None,
                    write.after,
                    manager=write.manager,
                    schema=schema,
                    now=write.now,
                    api_version=write.api_version,
                    subresource=write.subresource,
                )
            self._settled = orjson.dumps(entries) if entries else b""
            self._writes = ()
        return self._settled

    def noted(self, write: Write, schema: Callable[[], SchemaNode | None]) -> "WriteLedger":
        """The ledger after a further write; this one is not changed."""
        writes = self._writes
        if writes and write.follows(writes[-1]):
            first = writes[-1]
            merged = Write(
                first.before,
                write.after,
                manager=write.manager,
                now=write.now,
                api_version=write.api_version,
                subresource=write.subresource,
            )
            return _ledger(self._settled, (*writes[:-1], merged))
        if len(writes) >= _MAX_WRITES:
            return _ledger(self.text(schema()), (write,))
        return _ledger(self._settled, (*writes, write))


def _ledger(settled: bytes, writes: tuple[Write, ...]) -> WriteLedger:
    ledger = WriteLedger.__new__(WriteLedger)
    ledger._settled, ledger._writes = settled, writes  # noqa: SLF001 a constructor
    return ledger


def with_encoded_entries(raw: bytes, uid: str, text: bytes) -> bytes | None:
    """Insert encoded `managedFields` into an encoded object behind its uid; None if the uid is not unique in `raw`.

    Encoding the object again takes three times as long.
    """
    mark = b'"uid":"' + uid.encode() + b'"'
    before, result, after = raw.partition(mark)
    if not result or mark in after:
        return None
    return before + mark + b',"managedFields":' + text + after


def with_entries(obj: Object, entries: list[Object]) -> Object:
    """The object with these `managedFields`."""
    if not entries:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def touches_managed_fields(patch: Any) -> bool:
    """Whether a patch reads or writes managedFields."""
    if isinstance(patch, list):
        return any(
            isinstance(step, dict) and "/metadata/managedFields" in f"{step.get('path')} {step.get('from')}"
            for step in patch
        )
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    return isinstance(metadata, dict) and "managedFields" in metadata
