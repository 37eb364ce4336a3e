"""Who wrote what, kept so that writing stays cheap: the writes themselves, read as `managedFields` when somebody asks.

Working out which fields a write has set costs more than the write. So an object carries a book of its last writes, as
the states before and after each; these share nearly all their parts with one another and with the object. Reading the
object, or applying to it, settles the book. What is settled is kept as text, a tenth of the size of its objects.
"""

from collections.abc import Callable
from typing import Any

import orjson

from harness.apiserver.patching.field_ownership import update_managed
from harness.apiserver.schemas.schema_nodes import SchemaNode

Object = dict[str, Any]
_MOST_WRITES = 4  # kept before the book is settled, so that an object cannot hold its whole history


class Write:
    """One write by `manager`: the states before (None: a create) and after it. `now` is RFC 3339."""

    __slots__ = ("after", "api_version", "before", "manager", "now", "subresource")

    def __init__(
        self, before: Object | None, after: Object, *, manager: str, now: str, api_version: str, subresource: str = ""
    ) -> None:
        self.before, self.after, self.manager, self.now = before, after, manager, now
        self.api_version, self.subresource = api_version, subresource

    def follows(self, earlier: "Write") -> bool:
        """Whether both may be seen as one write: by the same manager, and nobody wrote in between."""
        return (
            self.before is earlier.after
            and self.manager == earlier.manager
            and self.api_version == earlier.api_version
            and self.subresource == earlier.subresource
        )


class Book:
    """Settled entries, and the writes since."""

    __slots__ = ("_settled", "_writes")

    def __init__(self, entries: list[Object]) -> None:
        self._settled = orjson.dumps(entries) if entries else b""
        self._writes: tuple[Write, ...] = ()

    @staticmethod
    def begun(write: Write) -> "Book":
        """The book of an object that nobody has written before."""
        return _book(b"", (write,))

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

    def noted(self, write: Write, schema: Callable[[], SchemaNode | None]) -> "Book":
        """The book of the object after another write; this one stays as it is."""
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
            return _book(self._settled, (*writes[:-1], merged))
        if len(writes) >= _MOST_WRITES:
            return _book(self.text(schema()), (write,))
        return _book(self._settled, (*writes, write))


def _book(settled: bytes, writes: tuple[Write, ...]) -> Book:
    book = Book.__new__(Book)
    book._settled, book._writes = settled, writes  # noqa: SLF001 its own maker
    return book


def spliced(raw: bytes, uid: str, text: bytes) -> bytes | None:
    """An encoded object with its encoded `managedFields`; None where its metadata cannot be told by the uid.

    Encoding it anew would cost three times as much.
    """
    mark = b'"uid":"' + uid.encode() + b'"'
    before, found, after = raw.partition(mark)
    if not found or mark in after:
        return None
    return before + mark + b',"managedFields":' + text + after


def with_entries(obj: Object, entries: list[Object]) -> Object:
    """The object with these `managedFields`."""
    if not entries:
        return obj
    return {**obj, "metadata": {**obj["metadata"], "managedFields": entries}}


def about_managers(patch: Any) -> bool:
    """Whether a patch reads or writes managedFields."""
    if isinstance(patch, list):
        return any(
            isinstance(step, dict) and "/metadata/managedFields" in f"{step.get('path')} {step.get('from')}"
            for step in patch
        )
    metadata = patch.get("metadata") if isinstance(patch, dict) else None
    return isinstance(metadata, dict) and "managedFields" in metadata
