"""The verbs that change objects: create, update, patch, apply and delete, for every kind.

This module decides which fields come from the request and which from the stored object. What depends on the kind
(defaults, validation, fields set by the server) is in `admission`. A write is atomic: all checks precede the store.
"""

from dataclasses import replace
from typing import Any

import orjson

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.delegation_checks import GRANTING_GROUPS, check_delegation
from seatrial.harness.apiserver.access.rbac import Access
from seatrial.harness.apiserver.admission.chain import Admission
from seatrial.harness.apiserver.attempts import GeneratedIdentity, Pending
from seatrial.harness.apiserver.defaults.initial_status import set_initial_status
from seatrial.harness.apiserver.discovery.resources import BUILT_IN, Resource
from seatrial.harness.apiserver.errors import ApiStatusError
from seatrial.harness.apiserver.patching.apply import ApplyConflict, apply
from seatrial.harness.apiserver.patching.managed_fields import WriteLedger, touches_managed_fields
from seatrial.harness.apiserver.patching.patch import (
    PatchError,
    check_encodable,
    json_patch,
    merge_patch,
    strategic_merge,
)
from seatrial.harness.apiserver.request.options import CONTROLLER_MANAGER, DeleteOptions, Options, write_of
from seatrial.harness.apiserver.request.request import check_kind
from seatrial.harness.apiserver.schemas.shapes import TypeMismatch, conform, report_unknown_fields, unknown_fields
from seatrial.harness.apiserver.storage.store import Collection, CollectionKey, Item, Key, Object, Store
from seatrial.harness.apiserver.verbs import field_owners, patch_errors
from seatrial.harness.apiserver.verbs.apply_configurations import configuration_of
from seatrial.harness.apiserver.verbs.deletion import (
    PROTECTED_NAMESPACES,
    can_be_removed,
    check_deletion_fields,
    check_preconditions,
    deletion_of,
)
from seatrial.harness.apiserver.verbs.field_owners import schema_of
from seatrial.harness.apiserver.verbs.identifiers import IdentifierSource
from seatrial.harness.apiserver.verbs.update_rules import (
    check_identity,
    check_name,
    check_version_given,
    keep_fixed,
    narrowed,
    settable,
)
from seatrial.harness.apiserver.webhooks.conversions import Conversions
from seatrial.harness.apiserver.webhooks.pending_writes import PendingWrites
from seatrial.scheduler.api.clock import Clock, rfc3339
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.transport import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH

PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_MERGE_PATCH, APPLY_PATCH)
_NO_GENERATION = frozenset(
    {  # built-in kinds whose registries leave metadata.generation out
        "Node",
        "Namespace",
        "Event",
        "Lease",
        "ConfigMap",
        "Secret",
        "ServiceAccount",
        "Endpoints",
        "Service",
        "LimitRange",
        "ResourceQuota",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "ControllerRevision",
        "HorizontalPodAutoscaler",
        "Role",
        "RoleBinding",
        "ClusterRole",
        "ClusterRoleBinding",
        "StorageClass",
        "CSIDriver",
        "CSINode",
        "RuntimeClass",
        "ResourceClaim",
        "ResourceClaimTemplate",
        "IPAddress",
        "ServiceCIDR",
        "VolumeAttributesClass",
        "PodGroup",
        "Workload",
    }
)
_BUILT_IN = {row.key: row for row in reversed(BUILT_IN)}  # collection: its first version, which is stored


class Objects:
    """Reads and writes the objects of one store."""

    def __init__(self, store: Store, admission: Admission, clock: Clock, *, seed: int) -> None:
        self.store, self.clock = store, clock
        self._admission = admission
        self._access = Access(store)
        self._parking = PendingWrites(admission.webhooks)
        self.conversions = Conversions(admission.webhooks)
        self._second, self._now = -1, ""
        self._identifiers = IdentifierSource(seed)

    def collection(self, resource: Resource) -> Collection:
        return self.store.collection(resource.key)

    def find(self, resource: Resource, key: Key) -> Item:
        """The stored object.

        Raises:
            ApiStatusError: 404.
        """
        item = self.collection(resource).get(key)
        if item is None:
            raise errors.not_found(resource.plural, resource.group, key[1])
        return item

    def _timestamp(self) -> str:
        """The current time as RFC 3339, cached for one second."""
        second = int(self.clock.now())
        if self._second != second:
            self._second, self._now = second, rfc3339(second)
        return self._now

    # -- create -------------------------------------------------------------------------------------------------------

    def create(
        self, resource: Resource, namespace: str, body: Object, options: Options, *, entries: list[Object] | None = None
    ) -> Item:
        """Create an object. `entries` are its managedFields where the caller has computed them.

        Raises:
            ApiStatusError: the object is invalid, forbidden, or exists.
            Pending: webhooks have to be called first.
        """
        webhooks = self._admission.webhooks
        call_webhooks = webhooks.applies_to_objects("CREATE", resource, namespace, (body,))
        if not call_webhooks or options.attempt is not None or webhooks.caller is None:
            return self._create(resource, namespace, body, options, entries, call_webhooks=call_webhooks)
        sent = orjson.dumps(body)
        mark = f"create {resource.plural} {resource.group} {namespace} ".encode() + sent
        return self._parking.carry_out(
            mark,
            lambda attempt: self._create(
                resource, namespace, orjson.loads(sent), replace(options, attempt=attempt), entries, call_webhooks=True
            ),
        )

    def _create(
        self,
        resource: Resource,
        namespace: str,
        body: Object,
        options: Options,
        entries: list[Object] | None,
        *,
        call_webhooks: bool,
    ) -> Item:
        metadata = body.get("metadata")
        if not isinstance(metadata, dict):
            if metadata is not None:
                raise errors.bad_request(f"metadata: expected an object, found {type(metadata).__name__}")
            metadata = body["metadata"] = {}
        check_kind(resource, body)
        self._set_namespace(resource, namespace, metadata)
        name = metadata.get("name") or ""
        drawn = options.attempt.identity if options.attempt is not None else None
        generated = not name and bool(metadata.get("generateName"))
        if generated:
            name = metadata["name"] = self._generated(resource, namespace, metadata["generateName"], drawn)
        body["apiVersion"], body["kind"] = resource.api_version, resource.kind
        collection = self.collection(resource)
        key = (namespace if resource.namespaced else "", name)
        metadata["uid"] = drawn.uid if drawn is not None else self._identifiers.uid()
        now = metadata["creationTimestamp"] = drawn.created if drawn is not None else self._timestamp()
        brought = metadata.pop("managedFields", None)
        stated = integer(metadata.pop("resourceVersion", None) or "", low=0)
        for server_field in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"):
            metadata.pop(server_field, None)
        if resource.kind not in _NO_GENERATION or resource.custom is not None:
            metadata["generation"] = 1
        if resource.has_status and resource.kind not in {"Pod", "Node", "Namespace"}:
            body.pop("status", None)
        if resource.kind != "Pod":
            set_initial_status(resource.key, body)
        if resource.group in GRANTING_GROUPS:
            check_delegation(self._access, options.by, resource, body, None)
        write = write_of("CREATE", resource, key, options, generated=generated) if call_webhooks else None
        try:
            admitted = self._admission.create(
                resource,
                namespace,
                body,
                options.warnings,
                strictness=options.field_validation,
                write=write,
                attempt=options.attempt,
            )
            kept = self.conversions.kept(resource, body, options.attempt)
        except Pending as pending:
            pending.attempt.identity = GeneratedIdentity(name, metadata["uid"], now)
            raise
        if stated and not options.dry_run:
            raise ApiStatusError(500, "", "resourceVersion should not be set on objects to be created")
        if collection.get(key) is not None:
            raise errors.already_exists(resource.plural, resource.group, name)
        if entries is not None:
            ledger: WriteLedger | None = WriteLedger(entries)
        else:
            ledger = field_owners.created(resource, admitted, brought, options, now)
        if options.dry_run:
            return Item(key, body, self.store.version, ledger)
        return self._put(resource, key, body, kept, ledger)

    def _put(self, resource: Resource, key: Key, body: Object, kept: Object, ledger: WriteLedger | None) -> Item:
        """Store `kept`, the stored version of `body`. Returns the item in the version of the request."""
        item = self.collection(resource).put(key, kept, ledger)
        if kept is body:
            return item
        metadata = {**body["metadata"], "resourceVersion": kept["metadata"]["resourceVersion"]}
        return Item(key, {**body, "metadata": metadata}, item.version, item.ledger)

    def store_change(self, key: CollectionKey, item: Item, body: Object, *, subresource: str = "") -> Item:
        """Store a change by a built-in controller, without admission. It owns the changed fields of built-in kinds."""
        resource = _BUILT_IN.get(key)
        if resource is None:
            return self.store.collection(key).put(item.key, body)
        options = Options(manager=CONTROLLER_MANAGER)
        ledger = field_owners.updated(resource, item, body, None, options, subresource, self.clock)
        return self.store.collection(key).put(item.key, body, ledger)

    def _generated(self, resource: Resource, namespace: str, stem: str, drawn: GeneratedIdentity | None) -> str:
        collection, space = self.collection(resource), namespace if resource.namespaced else ""
        if drawn is not None and collection.get((space, drawn.name)) is None:
            return drawn.name
        return self._identifiers.name(stem, lambda name: collection.get((space, name)) is not None)

    def _set_namespace(self, resource: Resource, namespace: str, metadata: dict[str, Any]) -> None:
        own_namespace = metadata.get("namespace") or ""
        if resource.namespaced:
            if own_namespace and own_namespace != namespace:
                raise errors.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
            metadata["namespace"] = namespace
        elif own_namespace:
            metadata.pop("namespace")

    # -- update and patch ---------------------------------------------------------------------------------------------

    def update(self, resource: Resource, key: Key, body: Object, options: Options, *, subresource: str = "") -> Item:
        """Replace an object. The caller creates those of `CREATED_BY_UPDATE` that do not exist.

        Raises:
            ApiStatusError: not found, modified since it was read, invalid or forbidden.
            Pending: webhooks have to be called first.
        """
        check_kind(resource, body)
        metadata = check_name(key, body)
        self._set_namespace(resource, key[0], metadata)
        old = self.conversions.seen(resource, self.find(resource, key), options.attempt)
        check_version_given(resource, key, metadata)
        webhooks = self._admission.webhooks
        if (
            options.attempt is None
            and not options.webhooks_done
            and webhooks.caller is not None
            and webhooks.applies_to_objects("UPDATE", resource, key[0], (body, old.obj), subresource)
        ):
            sent = orjson.dumps(body)
            mark = f"update {resource.plural} {resource.group} {key} {subresource} ".encode() + sent
            return self._parking.carry_out(
                mark,
                lambda attempt: self.update(
                    resource, key, orjson.loads(sent), replace(options, attempt=attempt), subresource=subresource
                ),
            )
        return self._replace(resource, old, body, options, subresource)

    def patch(  # noqa: PLR0917
        self, resource: Resource, key: Key, kind: str, patch: Any, options: Options, subresource: str = ""
    ) -> tuple[Item, bool]:
        """Patch an object. The second value is whether it was created, by server-side apply.

        Raises:
            ApiStatusError: not found, modified since it was read, invalid, forbidden, or the patch does not apply.
            Pending: webhooks have to be called first.
        """
        if kind == APPLY_PATCH:
            return self._apply(resource, key, patch, options, subresource)
        old = self.conversions.seen(resource, self.find(resource, key), options.attempt)
        before = field_owners.with_managed_fields(resource, old) if touches_managed_fields(patch) else old.obj
        try:
            if kind == JSON_PATCH:
                body = json_patch(before, patch)
                check_encodable(body)
            elif kind == MERGE_PATCH:
                body = merge_patch(before, patch)
            elif (schema := schema_of(resource)) is not None:
                body = strategic_merge(before, patch, schema)
            else:
                body = merge_patch(before, patch)
        except PatchError as error:
            raise errors.of_patch(error.reason, str(error)) from error
        if not isinstance(body, dict) or body.get("metadata") is None:
            raise errors.bad_request("the patched object: expected an object with metadata, found none")
        strategic = patch if kind == STRATEGIC_MERGE_PATCH and resource.custom is None else None
        if strategic is not None:  # upstream decodes the fields only
            body = {**body, "apiVersion": resource.api_version, "kind": resource.kind}
        check_kind(resource, body)
        if isinstance(body["metadata"], dict):
            check_version_given(resource, key, body["metadata"])
        body = self._conform_patched(resource, body, strategic, options, old.obj)
        return self._replace(resource, old, body, options, subresource, patched=True), False

    def _conform_patched(
        self, resource: Resource, body: Object, strategic: Any, options: Options, old: Object
    ) -> Object:
        """The patched object in the shape of its kind. `strategic` is the patch if it is a strategic merge patch.

        Raises:
            ApiStatusError: 422, a field is unknown and not ignored, or has a value of a wrong type.
        """
        custom = resource.custom is not None
        try:
            shaped, unknown = conform(resource.api_version, resource.kind, body, custom=custom, trusted=old)
        except ApiStatusError as error:
            if isinstance(error.__cause__, TypeMismatch):
                raise patch_errors.of_mismatch(error.__cause__, body, strategic) from error
            raise
        if unknown and options.field_validation == "Strict":
            raise patch_errors.of_problems(unknown_fields(unknown), body, strategic)
        if unknown:
            report_unknown_fields(resource.kind, resource.version, unknown, options.field_validation, options.warnings)
        return shaped

    def _apply(
        self, resource: Resource, key: Key, config: Any, options: Options, subresource: str
    ) -> tuple[Item, bool]:
        config = configuration_of(resource, key, config, options)
        metadata = config["metadata"]
        item = self.collection(resource).get(key)
        if item is None and subresource:
            raise errors.not_found(resource.plural, resource.group, key[1])
        if item is None and not metadata.get("name"):
            raise errors.bad_request(
                f"the name of the object ({key[1]} based on URL) was undeterminable: name must be provided"
            )
        metadata["name"] = key[1]
        self._set_namespace(resource, key[0], metadata)
        if item is None and metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise errors.conflict(resource.plural, resource.group, key[1], why)
        config = settable(resource, config, subresource)
        item = self.conversions.seen(resource, item, options.attempt) if item is not None else None
        live = field_owners.with_managed_fields(resource, item) if item else None
        try:
            body = apply(
                live,
                config,
                manager=options.manager,
                force=options.force,
                schema=schema_of(resource),
                now=self.clock.timestamp(),
                api_version=resource.api_version,
                subresource=subresource,
            )
        except ApplyConflict as error:
            raise errors.ApiStatusError(409, "Conflict", str(error), details={"causes": error.causes}) from error
        except PatchError as error:
            raise errors.bad_request(str(error)) from error
        if body is live:
            assert item is not None
            return item, False
        metadata = dict(body["metadata"])
        entries = metadata.pop("managedFields", [])
        body = {**body, "metadata": metadata}
        if item is None:
            metadata.pop("resourceVersion", None)
            return self.create(resource, key[0], body, options, entries=entries), True
        return self._replace(resource, item, body, options, subresource, entries=entries), False

    def _replace(
        self,
        resource: Resource,
        old: Item,
        body: Object,
        options: Options,
        subresource: str,
        *,
        entries: list[Object] | None = None,
        patched: bool = False,
    ) -> Item:
        before, metadata = old.obj["metadata"], dict(body["metadata"])
        brought = metadata.pop("managedFields", None)
        check_identity(resource, old, metadata, by_patch=entries is not None or patched)
        check_deletion_fields(resource, old, metadata)
        keep_fixed(before, metadata)
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            if name in metadata and not metadata[name]:
                del metadata[name]
        requested = body = narrowed(resource, old.obj, body, metadata, subresource)
        call_webhooks = not options.webhooks_done and self._admission.webhooks.applies_to_objects(
            "UPDATE", resource, old.key[0], (body, old.obj), subresource
        )
        if call_webhooks or body != old.obj:
            if resource.group in GRANTING_GROUPS:
                check_delegation(self._access, options.by, resource, body, old.obj)
            write = write_of("UPDATE", resource, old.key, options, subresource=subresource) if call_webhooks else None
            if write is not None:
                requested = orjson.loads(orjson.dumps(body))  # fields that webhooks add have no owner
            self._admission.update(
                resource,
                body,
                old.obj,
                subresource,
                options.warnings,
                strictness=options.field_validation,
                write=write,
                attempt=options.attempt,
            )
        ledger = (
            WriteLedger(entries)
            if entries is not None
            else field_owners.updated(resource, old, requested, brought, options, subresource, self.clock)
        )
        if body == old.obj and (ledger is None or ledger.entries(None) == field_owners.entries_of(resource, old)):
            return old
        if "generation" in before and body.get("spec") != old.obj.get("spec"):
            body["metadata"]["generation"] = before["generation"] + 1
        kept = self.conversions.kept(resource, body, options.attempt)
        if options.dry_run:
            return Item(old.key, body, old.version, ledger or old.ledger)
        item = self._put(resource, old.key, body, kept, ledger)
        if "deletionTimestamp" in before and can_be_removed(resource, body):
            last = self.collection(resource).remove(old.key)
            return last if last is not None and kept is body else item
        return item

    def write(self, resource: Resource, old: Item, body: Object) -> Item:
        """Store a change that the server itself makes, without any checks."""
        return self.collection(resource).put(old.key, body)

    # -- delete -------------------------------------------------------------------------------------------------------

    def delete(self, resource: Resource, key: Key, options: DeleteOptions) -> tuple[Item, bool]:
        """Delete an object, or mark it for deletion. The second value is whether it is gone.

        Raises:
            ApiStatusError: not found, a precondition fails, or a webhook denies it.
            Pending: webhooks have to be called first.
        """
        old = self.find(resource, key)
        metadata = old.obj["metadata"]
        check_preconditions(resource, old, options)
        if key[1] in PROTECTED_NAMESPACES and resource.key == ("", "namespaces"):
            raise errors.forbidden("namespaces", "", key[1], "this namespace may not be deleted")
        webhooks = self._admission.webhooks
        if webhooks.active and webhooks.applies_to("DELETE", resource):
            if options.attempt is None and webhooks.caller is not None:
                mark = f"delete {resource.plural} {resource.group} {metadata['uid']} {options}".encode()
                return self._parking.carry_out(
                    mark, lambda attempt: self.delete(resource, key, replace(options, attempt=attempt))
                )
            self.admit_delete(resource, old, options)
        change = deletion_of(resource, old, options, self.clock.now())
        collection = self.collection(resource)
        if change is None:
            return old, False
        if change.gone and resource.kind != "Pod":
            return (old if options.dry_run else collection.remove(key) or old), True
        if change.gone and not options.dry_run:  # a pod's removal shows it as being deleted
            return collection.remove(key, change.metadata) or old, True
        body = change.applied_to(resource, old)
        if options.dry_run:
            return Item(key, body, old.version, old.ledger), change.gone
        return collection.put(key, body), False

    def admit_delete(self, resource: Resource, item: Item, options: DeleteOptions) -> None:
        """Call the webhooks for a delete.

        Raises:
            ApiStatusError: a webhook denies it.
            Pending: webhooks have to be called first.
        """
        self._admission.other(write_of("DELETE", resource, item.key, options), None, item.obj)
