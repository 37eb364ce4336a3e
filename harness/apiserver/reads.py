"""Reading: single objects, lists in pages, watches; each in the shape that the client asked for."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import yaml

from harness.apiserver import errors, faces
from harness.apiserver.negotiation import Format
from harness.apiserver.resources import Resource
from harness.apiserver.selectors import Test, field_test, label_test
from harness.apiserver.store import Change, Collection, Item, Object, Store
from harness.apiserver.streaming import Streaming
from harness.apiserver.tables import IncludeObject, table
from harness.apiserver.watch import Channel, Encode, Reader, Subscription, View, backlog, plain
from scheduler.api.clock import Clock
from scheduler.api.transport import Response

_JSON = {"content-type": "application/json"}
_TRUE = frozenset({"1", "true", "True"})


class Reads:
    """All reading of one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._channels: dict[tuple[object, ...], Channel] = {}

    @property
    def watches(self) -> int:
        """Channels that somebody reads."""
        return len(self._channels)

    # -- single objects -----------------------------------------------------------------------------------------------

    def single(self, resource: Resource, item: Item, shape: Format) -> bytes:
        """One object, encoded."""
        if not shape.shape:
            if shape.yaml:
                return yaml.safe_dump(_as(resource, item.obj), sort_keys=False).encode()
            return _encoded(resource, item)
        if shape.shape == "Table":
            return orjson.dumps(self._table(resource, [item], {"resourceVersion": str(item.version)}))
        return orjson.dumps(_partial(item.obj, shape.version))

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

    # -- lists --------------------------------------------------------------------------------------------------------

    def collection(
        self,
        resource: Resource,
        namespace: str | None,
        query: Mapping[str, str],
        shape: Format,
        *,
        name: str = "",
    ) -> Response | Streaming:
        """The answer to a GET of a collection: a list, or a watch.

        Raises:
            Refused: a parameter is wrong, or the asked revision is gone.
        """
        if query.get("watch") in _TRUE:
            return self._watch(resource, namespace, query, shape, name)
        tests = self._tests(resource, query, name)
        collection = self._store.collection(resource.key)
        limit = _number(query, "limit")
        token = query.get("continue", "")
        version = self._store.version
        selector = f"{namespace}|{query.get('labelSelector', '')}|{query.get('fieldSelector', '')}"
        kept = f"{resource.group}/{resource.plural}"
        if token:
            version, last = _decode_token(token)
            found = self._store.snapshots.after(kept, version, selector, last)
            if found is None:
                raise errors.expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a"
                    " new list without the continue parameter, or use the continue token in this response to retrieve"
                    " the remainder of the results. Continuing with the provided token results in an inconsistent list"
                    " - objects that were created, modified, or deleted between the time the first chunk was returned"
                    " and now may show up in the list."
                )
            items = found
        else:
            self._check_version(query, collection)
            items = self._selected(collection, namespace, tests, name)
        metadata: Object = {"resourceVersion": str(version)}
        if limit and len(items) > limit:
            if not token:
                self._store.snapshots.keep(kept, version, selector, items)
            metadata["continue"] = _encode_token(version, items[limit - 1].key)
            if not tests:
                metadata["remainingItemCount"] = len(items) - limit
            items = items[:limit]
        elif token:
            self._store.snapshots.drop(kept, version, selector)
        return Response(200, self._list(resource, items, metadata, shape, query), _headers(shape))

    def select(self, resource: Resource, namespace: str | None, query: Mapping[str, str]) -> list[Item]:
        """The objects that a query's selectors mean."""
        tests = self._tests(resource, query, "")
        return self._selected(self._store.collection(resource.key), namespace, tests, "")

    def listing(self, resource: Resource, items: list[Item], shape: Format) -> Response:
        """Items as the answer to a request."""
        data = self._list(resource, items, {"resourceVersion": str(self._store.version)}, shape, {})
        return Response(200, data, _headers(shape))

    def _list(
        self, resource: Resource, items: list[Item], metadata: Object, shape: Format, query: Mapping[str, str]
    ) -> bytes:
        if shape.shape == "Table":
            include = _include(query)
            return orjson.dumps(self._table(resource, items, metadata, include=include))
        if shape.shape == "PartialObjectMetadata":
            body = {
                "kind": "PartialObjectMetadataList",
                "apiVersion": f"meta.k8s.io/{shape.version or 'v1'}",
                "metadata": metadata,
                "items": [_partial(item.obj, shape.version) for item in items],
            }
            return orjson.dumps(body)
        if shape.yaml:
            body = {
                "kind": f"{resource.kind}List",
                "apiVersion": resource.api_version,
                "metadata": metadata,
                "items": [_as(resource, item.obj) for item in items],
            }
            return yaml.safe_dump(body, sort_keys=False).encode()
        head = orjson.dumps({"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata})
        rows = b",".join([_encoded(resource, item) for item in items])
        return head[:-1] + b',"items":[' + rows + b"]}"

    def _selected(self, collection: Collection, namespace: str | None, tests: Sequence[Test], name: str) -> list[Item]:
        if name:
            found = collection.get((namespace or "", name))
            items = [found] if found is not None else []
        else:
            items = collection.items(namespace)
        if not tests:
            return items
        return [item for item in items if all(test(item.obj) for test in tests)]

    def _tests(self, resource: Resource, query: Mapping[str, str], name: str) -> list[Test]:
        extra = tuple(str(one["jsonPath"]).lstrip(".") for one in (resource.custom or {}).get("selectableFields") or ())
        fields = query.get("fieldSelector", "")
        tests = [
            label_test(query["labelSelector"]) if query.get("labelSelector") else None,
            field_test(fields, resource.key, extra) if fields else None,
            field_test(f"metadata.name={name}", resource.key) if name else None,
        ]
        return [test for test in tests if test is not None]

    def _check_version(self, query: Mapping[str, str], collection: Collection) -> None:
        text, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
        if match not in {"", "NotOlderThan", "Exact"}:
            raise errors.bad_request(
                f'resourceVersionMatch: Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
            )
        if match and not text:
            raise errors.bad_request("resourceVersionMatch is forbidden unless resourceVersion is provided")
        if not text or text == "0":
            return
        version = _version(text)
        if version > self._store.version:
            raise errors.Refused(
                504,
                "Timeout",
                f"Too large resource version: {version}, current: {self._store.version}",
                details={"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                         "retryAfterSeconds": 1},
            )  # fmt: skip
        if match == "Exact" and version < self._store.version and collection.history:
            newest = collection.history[-1].version
            if version < newest:
                raise errors.expired(f"The resourceVersion for the provided list is too old: {version} ({newest})")

    # -- watches ------------------------------------------------------------------------------------------------------

    def _watch(
        self, resource: Resource, namespace: str | None, query: Mapping[str, str], shape: Format, name: str
    ) -> Streaming:
        tests = self._tests(resource, query, name)
        collection = self._store.collection(resource.key)
        include = _include(query)
        mark = (
            resource.group, resource.version, resource.plural, namespace, query.get("labelSelector", ""),
            query.get("fieldSelector", ""), name, shape, include,
        )  # fmt: skip
        text = query.get("resourceVersion", "")
        initial = query.get("sendInitialEvents", "") in _TRUE
        if initial and query.get("resourceVersionMatch") != "NotOlderThan":
            raise errors.bad_request("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        timeout = _number(query, "timeoutSeconds")
        channel = self._channels.get(mark)
        head = {"kind": resource.kind, "apiVersion": resource.api_version}
        if shape.shape:
            head = {"kind": shape.shape, "apiVersion": "meta.k8s.io/v1"}
        view = channel.view if channel else View(namespace, tests, head, self._encoder(resource, shape, include))
        bookmarks = query.get("allowWatchBookmarks", "") in _TRUE
        whole = initial or (text in {"", "0"} and query.get("sendInitialEvents", "") != "false")
        if not whole and text not in {"", "0"}:
            backlog(view, collection, _version(text), self._store.version)  # refuse before the stream begins

        def start(reader: Reader) -> Subscription:
            if whole:
                items = self._selected(collection, namespace, tests, name)
                lines = [view.first(item) for item in items]
                if initial and bookmarks:
                    lines.append(view.bookmark(self._store.version, initial_end=True))
            elif text in {"", "0"}:
                lines = []
            else:
                lines = backlog(view, collection, _version(text), self._store.version)
            joined = self._channels.get(mark)
            if joined is None:
                joined = Channel(view, collection, self._clock, lambda: self._forget(mark))
                self._channels[mark] = joined
            subscription = Subscription(joined, reader, lambda: self._store.version, self._clock, bookmarks=bookmarks)
            subscription.begin(lines, float(timeout) if timeout else None)
            return subscription

        return Streaming(start)

    def _forget(self, mark: tuple[object, ...]) -> None:
        self._channels.pop(mark, None)

    def _encoder(self, resource: Resource, shape: Format, include: IncludeObject) -> Encode:
        if shape.shape == "Table":
            return lambda kind, item, change: _line(
                kind,
                orjson.dumps(self._table(resource, [item], {"resourceVersion": str(change.version)}, include=include)),
            )
        if shape.shape == "PartialObjectMetadata":
            return lambda kind, item, _change: _line(kind, orjson.dumps(_partial(item.obj, shape.version)))
        if resource.custom is not None or faces.second(resource):
            return _converting(resource)
        return plain


def _converting(resource: Resource) -> Encode:
    def encode(kind: str, item: Item, change: Change) -> bytes:
        if item.obj.get("apiVersion") == resource.api_version:
            return plain(kind, item, change)
        return _line(kind, _encoded(resource, item))

    return encode


def _line(kind: str, obj: bytes) -> bytes:
    return b'{"type":"' + kind.encode() + b'","object":' + obj + b"}\n"


def _encoded(resource: Resource, item: Item) -> bytes:
    if resource.custom is None and not faces.second(resource):
        return item.raw
    if item.obj.get("apiVersion") == resource.api_version:
        return item.raw
    return orjson.dumps(_as(resource, item.obj))


def _as(resource: Resource, obj: Object) -> Object:
    """The object in the version that was asked for."""
    if obj.get("apiVersion") == resource.api_version:
        return obj
    if faces.second(resource):
        return faces.to_second(resource, obj)
    return {**obj, "apiVersion": resource.api_version}


def _partial(obj: Object, version: str) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": f"meta.k8s.io/{version or 'v1'}",
        "metadata": obj["metadata"],
    }


def _headers(shape: Format) -> dict[str, str]:
    return {"content-type": shape.content_type} if shape.yaml else _JSON


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


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isdigit():
        raise errors.bad_request(f"{name}: expected a whole number of 0 and more, found {text!r}")
    return int(text)


def _version(text: str) -> int:
    if not text.isdigit():
        raise errors.bad_request(f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: invalid syntax')
    return int(text)


def _encode_token(version: int, key: tuple[str, str]) -> str:
    data = orjson.dumps({"v": "meta.k8s.io/v1", "rv": version, "start": list(key)})
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decode_token(token: str) -> tuple[int, tuple[str, str]]:
    try:
        found = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        namespace, name = found["start"]
        return int(found["rv"]), (str(namespace), str(name))
    except (ValueError, KeyError, TypeError) as error:
        raise errors.bad_request("continue key is not valid: the token was not made by this server") from error
