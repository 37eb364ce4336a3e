"""Loads the objects of a snapshot into a new server: with UIDs, owners, status and times, without defaults of creation.

The server must not serve clients yet. What identifies a server stays its own: its Service, its certificates, the UID of
the namespace kube-system, and the definitions that it starts with.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.controllers.definitions import DEFINITIONS
from seatrial.harness.apiserver.controllers.namespaces import NAMESPACES
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.names import path_segment
from seatrial.harness.apiserver.patching.managed_fields import WriteLedger
from seatrial.harness.apiserver.request.bodies import DEFINITION_VALUES_LIMIT, decode
from seatrial.harness.apiserver.schemas.shapes import conform
from seatrial.harness.apiserver.server import ApiServer
from seatrial.harness.apiserver.storage.store import Key, Object
from seatrial.harness.apiserver.verbs import multi_version

_OF_THE_SERVER = frozenset(
    {
        (NAMESPACES, ("", "kube-system")),
        (("", "services"), ("default", "kubernetes")),
        (("", "endpoints"), ("default", "kubernetes")),
        (("discovery.k8s.io", "endpointslices"), ("default", "kubernetes")),
        (("", "configmaps"), ("kube-system", "extension-apiserver-authentication")),
    }
)
_ROOT_CA = (("", "configmaps"), "kube-root-ca.crt")  # in each namespace


class LoadError(Exception):
    """An object cannot be loaded; `number` is its place among the lines, from 0."""

    def __init__(self, number: int, why: str) -> None:
        self.number = number
        super().__init__(why)


def load_objects(server: ApiServer, lines: Sequence[bytes], edit: Callable[[Object], bool]) -> Counter[str]:
    """Store objects, each a line of JSON. Returns how many of each kind the server does not serve: they are left out.

    `edit` may change an object, and returns whether it is stored. Admission and webhooks are not asked. Types, names
    and the schemas of custom kinds are checked; the fields of built-in kinds as in an update, because an older object
    may have what a new one may not.

    Raises:
        LoadError: a line is not an object that this server can store. What was stored before stays.
    """
    bodies: list[Object] = []
    for number, line in enumerate(lines):
        try:
            bodies.append(decode(line, "application/json", max_values=DEFINITION_VALUES_LIMIT))
        except ApiStatusError as error:
            raise LoadError(number, error.message) from error
    left_out: Counter[str] = Counter()
    uids: set[str] = set()
    for number in sorted(range(len(bodies)), key=lambda number: _rank(bodies[number])):
        try:
            body = bodies[number]
            resource = server.registry.by_kind(_text(body, "apiVersion"), _text(body, "kind"))
            if resource is None:
                left_out[f"{body['kind']} ({body['apiVersion']})"] += 1
                continue
            body, _ = conform(resource.api_version, resource.kind, body, custom=resource.custom is not None)
            uid = _text(body.get("metadata") or {}, "uid")
            if uid in uids:
                raise errors.bad_request(f"metadata.uid: expected one of its own, found that of another object: {uid}")
            uids.add(uid)
            if edit(body):
                _store(server, resource, body)
        except ApiStatusError as error:
            raise LoadError(number, error.message) from error
        except RecursionError as error:
            raise LoadError(number, "the object is nested too deep") from error
    return left_out


def _rank(body: Object) -> int:
    """Definitions first, because they tell which kinds are served; then namespaces, then all else."""
    kind = body.get("kind")
    return ("CustomResourceDefinition", "Namespace", kind).index(kind)


def _text(part: Object, field: str) -> str:
    value = part.get(field)
    if not isinstance(value, str) or not value:
        raise errors.bad_request(f"{field}: expected a text, found {'none' if value is None else repr(value)[:40]}")
    return value


def _store(server: ApiServer, resource: Resource, body: Object) -> None:
    metadata = body["metadata"]
    key: Key = (metadata.get("namespace") or "", _text(metadata, "name"))
    for problem in path_segment(key[1]):
        raise errors.bad_request(f"metadata.name {key[1]!r}: {problem}")
    if resource.namespaced != bool(key[0]):
        what = "a namespace" if resource.namespaced else "no namespace"
        raise errors.bad_request(f"{resource.kind} {key[1]!r}: expected {what}, found {key[0] or 'none'}")
    if key[0] and server.store.collection(NAMESPACES).get(("", key[0])) is None:
        raise errors.bad_request(f"{resource.kind} {key[1]!r}: expected a namespace of the snapshot, found {key[0]!r}")
    if multi_version.is_second(resource):
        stored = server.registry.storage(resource.key)
        assert stored is not None
        resource, body = stored, multi_version.to_stored(resource, body)
    entries = metadata.pop("managedFields", None)
    server.admission.check_loaded(resource, body)
    collection = server.store.collection(resource.key)
    present = collection.get(key)
    if (resource.key, key) in _OF_THE_SERVER or (resource.key, key[1]) == _ROOT_CA:
        return
    if present is not None:
        if resource.key == DEFINITIONS:
            return
        if present.obj["metadata"]["uid"] != metadata["uid"]:
            collection.remove(key)  # not replaced: the garbage collector knows objects by their UIDs
    collection.put(key, body, WriteLedger(entries) if entries else None)
