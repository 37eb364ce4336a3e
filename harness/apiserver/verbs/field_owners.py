"""The `managedFields` of stored objects: read for whoever asks, kept up with every write.

What a write means for them is in `managed.py`; that it costs little is the work of `books.py`.
"""

from collections.abc import Mapping
from typing import Any

from harness.apiserver.discovery.resources import Resource
from harness.apiserver.patching.field_ownership import update_managed
from harness.apiserver.patching.managed_fields import Book, Write, with_entries
from harness.apiserver.request.options import Options
from harness.apiserver.schemas.schema_nodes import SchemaNode, schema_for, schema_of_crd
from harness.apiserver.storage.store import Item, Object
from scheduler.api.clock import Clock


def schema_of(resource: Resource) -> SchemaNode | None:
    """The schema by which the fields of these objects are told apart."""
    if resource.custom is not None:
        schema: Mapping[str, Any] = resource.custom.get("schema", {}).get("openAPIV3Schema", {})
        return schema_of_crd(dict(schema))
    return schema_for(resource.group, resource.version, resource.kind)


def entries_of(resource: Resource, item: Item) -> list[Object]:
    """The object's managedFields."""
    return item.book.entries(schema_of(resource)) if item.book is not None else []


def entries_text(resource: Resource, item: Item) -> bytes:
    """The same, encoded; empty if there are none."""
    return item.book.text(schema_of(resource)) if item.book is not None else b""


def whole(resource: Resource, item: Item) -> Object:
    """The object with its managedFields."""
    return with_entries(item.obj, entries_of(resource, item))


def created(resource: Resource, wanted: Object, brought: Any, options: Options, now: str) -> Book | None:
    """The book of a new object; None: the server itself made it. `wanted` is what its creator said, `now` RFC 3339."""
    if not options.manager:
        return None
    if brought:
        return Book(_updated(resource, None, with_entries(wanted, brought), options, now, ""))
    return Book.begun(Write(None, wanted, manager=options.manager, now=now, api_version=resource.api_version))


def updated(  # noqa: PLR0917
    resource: Resource, old: Item, body: Object, brought: Any, options: Options, subresource: str, clock: Clock
) -> Book | None:
    """The book after an update; None: as it was. `brought` are the managedFields that came with the body."""
    if brought and brought != entries_of(resource, old):
        after = with_entries(body, brought)
        return Book(_updated(resource, whole(resource, old), after, options, clock.timestamp(), subresource))
    if not options.manager or body == old.obj:
        return None
    write = Write(
        old.obj,
        body,
        manager=options.manager,
        now=clock.timestamp(),
        api_version=resource.api_version,
        subresource=subresource,
    )
    return old.book.noted(write, lambda: schema_of(resource)) if old.book else Book.begun(write)


def _updated(  # noqa: PLR0917
    resource: Resource, before: Object | None, after: Object, options: Options, now: str, subresource: str
) -> list[Object]:
    return update_managed(
        before,
        after,
        manager=options.manager,
        schema=schema_of(resource),
        now=now,
        api_version=resource.api_version,
        subresource=subresource,
    )
