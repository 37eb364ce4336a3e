"""The verbs get, list and watch: selection, pages, revisions, and encoding in the requested format."""

import functools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import orjson
import yaml

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.attempts import Attempt
from seatrial.harness.apiserver.discovery.resources import EVENTS_GROUP, Resource
from seatrial.harness.apiserver.patching.managed_fields import with_encoded_entries, with_entries
from seatrial.harness.apiserver.printers.tables import IncludeObject, table
from seatrial.harness.apiserver.protobuf.decoding import CONTENT_TYPE as PROTOBUF
from seatrial.harness.apiserver.protobuf.decoding import message_of
from seatrial.harness.apiserver.protobuf.encoding import encode, encode_list, envelope, frame, message
from seatrial.harness.apiserver.request.negotiation import HEADERS, JSON, Format
from seatrial.harness.apiserver.storage.paging import (
    check_options,
    decode_token,
    encode_token,
    flag,
    number,
    page_expired,
    revision,
    too_large_version,
)
from seatrial.harness.apiserver.storage.selectors import Test, field_test, label_test
from seatrial.harness.apiserver.storage.store import Change, Collection, Item, Object, Store
from seatrial.harness.apiserver.storage.watch import Channel, Encode, Reader, Subscription, View, backlog, plain
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.verbs import multi_version
from seatrial.harness.apiserver.verbs.event_versions import fields_to_core
from seatrial.harness.apiserver.verbs.field_owners import entries_text
from seatrial.harness.apiserver.webhooks.conversions import Conversions
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.transport import Response

YAML_ANSWER_LIMIT = 64 * 1024  # bytes of JSON; encoding takes 1 µs each


def _as_yaml(body: Object, size: int) -> bytes:
    """
    Raises:
        ApiStatusError: 406, it is too large: encoding blocks the event loop.
    """
    if size > YAML_ANSWER_LIMIT:
        raise errors.not_acceptable(f"; as YAML up to {YAML_ANSWER_LIMIT} bytes, found {size}")
    return yaml.dump(body, Dumper=_dumper(), sort_keys=False).encode()


@functools.cache
def _dumper() -> Any:
    """libyaml's safe dumper, if it is installed."""
    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Reads:
    """Reads objects of one store and encodes them."""

    def __init__(self, store: Store, clock: Clock, conversions: Conversions) -> None:
        self._store, self._clock, self._conversions = store, clock, conversions
        self._channels: dict[tuple[object, ...], Channel] = {}

    @property
    def watches(self) -> int:
        """The number of watch channels with readers."""
        return len(self._channels)

    # -- single objects -----------------------------------------------------------------------------------------------

    def single(self, resource: Resource, item: Item, shape: Format, *, whole: bool = False) -> bytes:
        """One object, encoded; with its managedFields if `whole`."""
        if not shape.shape:
            if shape.yaml:
                return _as_yaml(_as(resource, _shown(resource, item, named=whole)), len(item.raw))
            if shape.protobuf:
                return envelope(resource.api_version, resource.kind, _message(resource, item, named=whole))
            return _with_managed_fields(resource, item) if whole else _encoded(resource, item)
        if shape.shape == "Table":
            return orjson.dumps(self._table(resource, [item], {"resourceVersion": str(item.version)}))
        return _encoded_as(shape, _partial(_shown(resource, item, named=whole), shape.version))

    def _table(
        self,
        resource: Resource,
        items: Sequence[Item],
        list_meta: Mapping[str, Any],
        *,
        include: IncludeObject = "Metadata",
    ) -> Object:
        columns = resource.custom.get("additionalPrinterColumns") if resource.custom is not None else None
        return table(
            resource.key[0],
            resource.plural,
            [item.obj for item in items],
            now=self._clock.now(),
            list_meta=dict(list_meta),
            printer_columns=None if columns is None else list(columns),
            include_object=include,
        )

    def check_not_newer(self, text: str) -> None:
        """Check the revision that a read of a single object asks for; what is no number has no effect.

        Raises:
            ApiStatusError: 504, it is newer than the newest.
        """
        if (version := integer(text)) is not None and version > self._store.version:
            raise too_large_version(version, self._store.version)

    # -- lists --------------------------------------------------------------------------------------------------------

    def collection(
        self,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        shape: Format,
        *,
        name: str = "",
        named: bool = False,
        attempt: Attempt | None = None,
    ) -> Response | Streaming:
        """The response to a GET of a collection: a list or a watch. It has managedFields if the client is `named`.

        Raises:
            ApiStatusError: a parameter is invalid, or the requested revision is no longer available.
            Pending: a conversion webhook has to be called first.
        """
        if flag(query, "watch"):
            return self._watch(resource, namespace, query, shape, name, attempt, named=named)
        check_options(query, watch=False)
        tests = self._tests(resource, query, name)
        collection = self._store.collection(resource.key)
        limit = number(query, "limit")
        token = query.get("continue", "")
        snapshots, now = self._store.snapshots, self._clock.monotonic()
        selector = f"{namespace}|{query.get('labelSelector', '')}|{query.get('fieldSelector', '')}"
        kept = f"{resource.group}/{resource.plural}"
        if token:
            if query.get("resourceVersion", "") not in {"", "0"}:
                raise errors.bad_request("specifying resource version is not allowed when using continue")
            version, last = decode_token(token)
            pods = snapshots.after(kept, version, selector, last, now)
            if pods is None:
                raise page_expired()
            items = pods
        else:
            version = self._version(query, collection)
            if collection.changed > version:
                items = _at(collection, version, namespace, tests)
            else:
                items = self._selected(collection, namespace, tests, name)
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            if not token:
                snapshots.keep(kept, version, selector, items, now)
            metadata["continue"] = encode_token(version, items[limit - 1].key)
            if not tests:
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        items = self._conversions.all_seen(resource, items, attempt)
        return Response(200, self._list(resource, items, metadata, shape, query, named=named), HEADERS[shape.media])

    def select(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> list[Item]:
        """The objects that the selectors of the query select."""
        tests = self._tests(resource, query, "")
        return self._selected(self._store.collection(resource.key), namespace, tests, "")

    def listing(self, resource: Resource, items: list[Item], shape: Format) -> Response:
        """The items as a list response at the newest revision."""
        data = self._list(resource, items, {"resourceVersion": str(self._store.version)}, shape, {})
        return Response(200, data, HEADERS[shape.media])

    def _list(
        self,
        resource: Resource,
        items: list[Item],
        metadata: Object,
        shape: Format,
        query: Mapping[str, str],
        *,
        named: bool = False,
    ) -> bytes:
        if shape.shape == "Table":
            include = _include(query)
            return orjson.dumps(self._table(resource, items, metadata, include=include))
        if shape.shape == "PartialObjectMetadata":
            body = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{shape.version or 'v1'}",
                "metadata": metadata,
                "items": [_partial(_shown(resource, item, named=named), shape.version) for item in items],
            }
            return _encoded_as(shape, body)
        if shape.protobuf:
            rows = [_message(resource, item, named=named) for item in items]
            return encode_list(resource.api_version, f"{resource.kind}List", metadata, rows)
        if shape.yaml:
            body = {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": [_as(resource, _shown(resource, item, named=named)) for item in items],
            }
            return _as_yaml(body, sum(len(item.raw) for item in items))
        head = orjson.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
        if named:
            text = b",".join([_with_managed_fields(resource, item) for item in items])
        else:
            text = b",".join([_encoded(resource, item) for item in items])
        return head[:-1] + b',"items":[' + text + b"]}"

    def _selected(self, collection: Collection, namespace: str | None, tests: Sequence[Test], name: str) -> list[Item]:
        if name:
            entry = collection.get((namespace or "", name))
            items = [entry] if entry is not None else []
        else:
            items = collection.items(namespace)
        if not tests:
            return items
        return [item for item in items if all(test(item.obj) for test in tests)]

    def _tests(self, resource: Resource, query: Mapping[str, str], name: str) -> list[Test]:
        extra = tuple(
            str(field["jsonPath"]).lstrip(".") for field in (resource.custom or {}).get("selectableFields") or ()
        )
        fields = query.get("fieldSelector", "")
        if fields and resource.group == EVENTS_GROUP:
            fields = fields_to_core(fields)
        tests = [
            label_test(query["labelSelector"]) if query.get("labelSelector") else None,
            field_test(fields, resource.key, extra) if fields else None,
            field_test(f"metadata.name={name}", resource.key) if name else None,
        ]
        return [test for test in tests if test is not None]

    def _version(self, query: Mapping[str, str], collection: Collection) -> int:
        """The revision of a list: the newest, unless the query asks for an exact one."""
        text, newest = query.get("resourceVersion", ""), self._store.version
        if not text or text == "0":
            return newest
        requested = revision(text)
        if requested > newest:
            raise too_large_version(requested, newest)
        if query.get("resourceVersionMatch") != "Exact" and not (
            query.get("limit") and not query.get("resourceVersionMatch")
        ):
            return newest
        if requested < collection.forgotten:
            raise errors.too_old(requested, collection.forgotten)
        return requested

    # -- watches ------------------------------------------------------------------------------------------------------

    def _watch(  # noqa: PLR0917
        self,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        shape: Format,
        name: str,
        attempt: Attempt | None,
        *,
        named: bool,
    ) -> Streaming:
        tests = self._tests(resource, query, name)
        collection = self._store.collection(resource.key)
        include = _include(query)
        mark: tuple[object, ...] = (
            resource.group,
            resource.version,
            resource.plural,
            namespace,
            query.get("labelSelector", ""),
            query.get("fieldSelector", ""),
            name,
            shape,
            include,
            named,
        )
        text = query.get("resourceVersion", "")
        check_options(query, watch=True)
        initial = flag(query, "sendInitialEvents")
        timeout = number(query, "timeoutSeconds")
        channel = self._channels.get(mark)
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        if shape.shape:
            head = {"kind": shape.shape, "apiVersion": "meta.k8s.io/v1"}
        encoder = self._encoder(resource, shape, include, named=named)
        view = channel.view if channel else View(namespace, tests, head, encoder, shape.protobuf)
        if resource.conversion is not None:
            view.convert = partial(self._conversions.follow, resource)
            mark = (*mark, view)  # not shared: lines in conversion may repeat what a new reader has got
        bookmarks = bool(flag(query, "allowWatchBookmarks"))
        whole = initial or (text in {"", "0"} and initial is None)
        if initial and text and revision(text) > self._store.version:
            raise too_large_version(revision(text), self._store.version)

        def before() -> list[bytes]:
            """The lines that precede the first further change."""
            if whole:
                items = self._selected(collection, namespace, tests, name)
                lines = [view.first(item) for item in self._conversions.all_seen(resource, items, attempt)]
                if initial and bookmarks:
                    lines.append(view.bookmark(self._store.version, initial_end=True))
                return lines
            if text in {"", "0"}:
                return []
            seen = backlog(view, collection, revision(text), self._store.version)
            items = self._conversions.all_seen(resource, [item for _, _, item in seen], attempt)
            return [view.encode(kind, item, change) for (change, kind, _), item in zip(seen, items, strict=True)]

        if resource.conversion is not None or not whole:
            before()  # errors and conversions come before the stream begins

        def start(reader: Reader) -> Subscription:
            lines = before()
            joined = self._channels.get(mark)
            if joined is None:
                joined = Channel(view, collection, self._clock, lambda: self._forget(mark))
                self._channels[mark] = joined
            subscription = Subscription(joined, reader, lambda: self._store.version, self._clock, bookmarks=bookmarks)
            subscription.begin(lines, float(timeout) if timeout else None)
            return subscription

        return Streaming(start, f"{PROTOBUF};stream=watch" if shape.protobuf else JSON)

    def _forget(self, mark: tuple[object, ...]) -> None:
        self._channels.pop(mark, None)

    def _encoder(self, resource: Resource, shape: Format, include: IncludeObject, *, named: bool) -> Encode:
        if shape.shape == "Table":
            return lambda kind, item, change: _line(
                kind,
                orjson.dumps(self._table(resource, [item], {"resourceVersion": str(change.version)}, include=include)),
            )
        if shape.shape == "PartialObjectMetadata":
            send = frame if shape.protobuf else _line
            return lambda kind, item, _change: send(
                kind, _encoded_as(shape, _partial(_shown(resource, item, named=named), shape.version))
            )
        if shape.protobuf:
            return lambda kind, item, _change: frame(
                kind, envelope(resource.api_version, resource.kind, _message(resource, item, named=named))
            )
        if named:
            return lambda kind, item, _change: _line(kind, _with_managed_fields(resource, item))
        if resource.custom is not None or multi_version.is_second(resource):
            return _converting(resource)
        return plain


def _with_managed_fields(resource: Resource, item: Item) -> bytes:
    raw, text = _encoded(resource, item), entries_text(resource, item)
    if not text:
        return raw
    return with_encoded_entries(raw, item.obj["metadata"]["uid"], text) or orjson.dumps(
        _as(resource, _shown(resource, item, named=True))
    )


def _message(resource: Resource, item: Item, *, named: bool) -> bytes:
    """The object as a message of protocol buffers; without managedFields and in its stored version encoded once."""
    name = message_of(resource.api_version, resource.kind)
    if multi_version.is_second(resource) or (named and entries_text(resource, item)):
        return message(_as(resource, _shown(resource, item, named=named)), name)
    return item.message(name)


def _encoded_as(shape: Format, obj: Object) -> bytes:
    return encode(obj) if shape.protobuf else orjson.dumps(obj)


def _shown(resource: Resource, item: Item, *, named: bool) -> Object:
    text = entries_text(resource, item) if named else b""
    return with_entries(item.obj, orjson.loads(text)) if text else item.obj


def _at(collection: Collection, version: int, namespace: str | None, tests: Sequence[Test]) -> list[Item]:
    """The selected objects at an earlier revision."""
    return [
        item
        for item in collection.as_of(version)
        if (namespace is None or item.key[0] == namespace) and all(test(item.obj) for test in tests)
    ]


def _converting(resource: Resource) -> Encode:
    def encode(kind: str, item: Item, change: Change) -> bytes:
        if item.obj.get("apiVersion") == resource.api_version:
            return plain(kind, item, change)
        return _line(kind, _encoded(resource, item))

    return encode


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


def _encoded(resource: Resource, item: Item) -> bytes:
    if resource.custom is None and not multi_version.is_second(resource):
        return item.raw
    if item.obj.get("apiVersion") == resource.api_version:
        return item.raw
    return orjson.dumps(_as(resource, item.obj))


def _as(resource: Resource, obj: Object) -> Object:
    """The object in the version of the resource."""
    if obj.get("apiVersion") == resource.api_version:
        return obj
    if multi_version.is_second(resource):
        return multi_version.to_second(resource, obj)
    return {**obj, "apiVersion": resource.api_version}


def _partial(obj: Object, version: str) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version or 'v1'}",
        "metadata": obj["metadata"],
    }


def _include(query: Mapping[str, str]) -> IncludeObject:
    match query.get("includeObject") or "Metadata":
        case "None":
            return "None"
        case "Metadata":
            return "Metadata"
        case "Object":
            return "Object"
        case other:
            raise errors.bad_request(f'includeObject: expected None, Metadata or Object, found "{other}"')
