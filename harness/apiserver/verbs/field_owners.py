"""The `managedFields` of stored objects: reads them, and records each write in the ledger of its object.

How a write changes ownership is in `patching.field_ownership`; the ledger is in `patching.managed_fields`.
"""

from collections.abc import Mapping
from typing import Any

from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.patching.field_ownership import update_managed
from seatrial.harness.apiserver.patching.managed_fields import Write, WriteLedger, with_entries
from seatrial.harness.apiserver.request.options import Options
from seatrial.harness.apiserver.schemas.schema_nodes import SchemaNode, schema_for, schema_of_crd
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.scheduler.api.clock import Clock


def schema_of(resource: Resource) -> SchemaNode | None:
    """The schema that decides how fields are owned: the CRD's for custom resources; None if the kind has no schema."""
    if resource.custom is not None:
        schema: Mapping[str, Any] = resource.custom.get("schema", {}).get("openAPIV3Schema", {})
        return schema_of_crd(dict(schema))
    return schema_for(resource.group, resource.version, resource.kind)


def entries_of(resource: Resource, item: Item) -> list[Object]:
    """The object's managedFields."""
    return item.ledger.entries(schema_of(resource)) if item.ledger is not None else []


def entries_text(resource: Resource, item: Item) -> bytes:
    """The object's managedFields as JSON; empty if there are none."""
    return item.ledger.text(schema_of(resource)) if item.ledger is not None else b""


def with_managed_fields(resource: Resource, item: Item) -> Object:
    """The object with its managedFields."""
    return with_entries(item.obj, entries_of(resource, item))


def created(resource: Resource, amounts: Object, brought: Any, options: Options, now: str) -> WriteLedger | None:
    """The ledger of a new object; None if there is no field manager.

    `amounts` is the object as its creator sent it, `brought` its managedFields, `now` is RFC 3339.
    """
    if not options.manager:
        return None
    if brought:
        return WriteLedger(_updated(resource, None, with_entries(amounts, brought), options, now, ""))
    return WriteLedger.begun(Write(None, amounts, manager=options.manager, now=now, api_version=resource.api_version))


def updated(  # noqa: PLR0917
    resource: Resource, old: Item, body: Object, brought: Any, options: Options, subresource: str, clock: Clock
) -> WriteLedger | None:
    """The ledger after an update; None if unchanged. `brought` are the managedFields of the body."""
    if brought and brought != entries_of(resource, old):
        after = with_entries(body, brought)
        return WriteLedger(
            _updated(resource, with_managed_fields(resource, old), after, options, clock.timestamp(), subresource)
        )
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
    return old.ledger.noted(write, lambda: schema_of(resource)) if old.ledger else WriteLedger.begun(write)


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
