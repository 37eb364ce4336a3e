"""ResourceQuotas: the admission check, and the usage in their status.

Usage is computed from the store's changes, so admission sees exact values and a write that fails later needs no
correction. In a namespace without quotas a change costs one dict lookup. Follows
`apiserver/pkg/admission/plugin/resourcequota` and `pkg/controller/resourcequota`.
"""

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.controllers.owners import controller_of
from seatrial.harness.apiserver.controllers.quotausage import (
    PODS,
    RESOURCE_CLAIMS,
    Usage,
    as_quantity,
    extended_usage,
    in_scope,
    missing_resources,
    usage_of,
)
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.quantities import canonical, milli
from seatrial.harness.apiserver.storage.store import Change, CollectionKey, Item, Key, Object
from seatrial.harness.apiserver.verbs.objects import Objects

QUOTAS: CollectionKey = ("", "resourcequotas")
CLASSES: CollectionKey = ("resource.k8s.io", "deviceclasses")
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"


class _Account:
    """A quota and its usage."""

    __slots__ = ("charged", "item", "limits", "used")

    def __init__(self, item: Item) -> None:
        self.item = item
        hard = (item.obj.get("spec") or {}).get("hard") or {}
        self.limits: Usage = {name: milli(value) for name, value in hard.items()}
        self.used: Usage = dict.fromkeys(self.limits, 0)
        self.charged: dict[Key, Usage] = {}  # for ResourceClaims, whose usage depends on other objects

    def cost(self, collection: CollectionKey, obj: Object, usage: Usage) -> Usage:
        """The part of the usage of `obj` that this quota counts."""
        if not in_scope(self.item.obj, collection, obj):
            return {}
        return {name: value for name, value in usage.items() if name in self.limits}


class Quotas:
    """Follows quotas and all objects in their namespaces; also the admission hook that enforces them."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._accounts: dict[str, dict[str, _Account]] = {}  # namespace → name → account
        self._queue: WorkQueue[Key] = WorkQueue(objects.clock, self._write_status)
        objects.store.listeners.append(self._changed)

    def __call__(self, resource: Resource, body: Object, old: Object | None, subresource: str) -> None:
        """Check `body` against the quotas of its namespace.

        Raises:
            ApiStatusError: 403, a quota would be exceeded, or a quota counts a resource that the pod does not specify.
        """
        accounts = self._accounts.get(body["metadata"].get("namespace", ""))
        if not accounts or subresource not in {"", "resize"}:
            return
        for name in sorted(accounts):
            problem = self._problem(name, accounts[name], resource.key, body, old)
            if problem:
                raise errors.forbidden(resource.plural, resource.group, body["metadata"].get("name", ""), problem)

    # -- usage ---------------------------------------------------------------------------------------------------------

    def _changed(self, collection: CollectionKey, change: Change) -> None:
        namespace = change.key[0]
        if collection == QUOTAS:
            self._quota_changed(change)
        accounts = self._accounts.get(namespace)
        if not accounts:
            return
        old, new = change.old, change.new
        for name, account in accounts.items():
            if collection == QUOTAS and name == change.key[1] and change.new is not None:
                continue  # already counted by the full recount
            before, after = self._cost(account, collection, old), self._cost(account, collection, new)
            if collection == RESOURCE_CLAIMS:
                before = account.charged.pop(change.key, {})
                if new is not None:
                    account.charged[change.key] = after
            if before == after:
                continue
            for resource, value in before.items():
                account.used[resource] -= value
            for resource, value in after.items():
                account.used[resource] += value
            self._queue.add((namespace, name))

    def _quota_changed(self, change: Change) -> None:
        namespace, name = change.key
        old, new = change.old, change.new
        if new is None:
            accounts = self._accounts.get(namespace, {})
            accounts.pop(name, None)
            if not accounts:
                self._accounts.pop(namespace, None)
            return
        if old is not None and old.obj.get("spec") == new.obj.get("spec"):
            self._accounts[namespace][name].item = new
            return
        account = _Account(new)
        self._accounts.setdefault(namespace, {})[name] = account
        for collection, items in self._objects.store:
            for item in items.each(namespace):
                cost = self._cost(account, collection, item)
                if collection == RESOURCE_CLAIMS:
                    account.charged[item.key] = cost
                for resource, value in cost.items():
                    account.used[resource] += value
        self._queue.add(change.key)

    def _cost(self, account: _Account, collection: CollectionKey, item: Item | None) -> Usage:
        """The usage of a stored object. One that cannot be counted must not stop the count of the others."""
        if item is None:
            return {}
        try:
            return account.cost(collection, item.obj, self._usage(collection, item.obj))
        except Exception as error:  # noqa: BLE001
            self._objects.clock.faults.not_repeated(error, "Quotas._cost", (*collection, *item.key))
            return {}

    def _usage(self, collection: CollectionKey, obj: Object) -> Usage:
        """The usage of an object; a claim counts under the extended resources of its classes, too (DRA-R22)."""
        usage = usage_of(collection, obj)
        if collection != RESOURCE_CLAIMS:
            return usage
        classes = self._objects.store.collection(CLASSES).each("")
        resources = {item.key[1]: (item.obj.get("spec") or {}).get("extendedResourceName") or "" for item in classes}
        return usage | extended_usage(usage, resources, self._usage_of_pod(obj))

    def _usage_of_pod(self, claim: Object) -> Usage:
        """What the pod counts whose extended resources the claim serves; nothing for other claims.

        Of several claims for one pod the one that its status names counts with it, or else the first.
        """
        metadata = claim["metadata"]
        owner, namespace = controller_of(claim), metadata.get("namespace", "")
        if (metadata.get("annotations") or {}).get(EXTENDED_CLAIM) != "true" or owner is None:
            return {}
        pod = self._objects.store.collection(PODS).get((namespace, owner["name"])) if owner["kind"] == "Pod" else None
        if pod is None or pod.obj["metadata"]["uid"] != owner["uid"]:
            return {}
        status = (pod.obj.get("status") or {}).get("extendedResourceClaimStatus") or {}
        if status.get("resourceClaimName", metadata.get("name")) != metadata.get("name"):
            return {}
        if not status and any(
            (controller_of(other.obj) or {}).get("uid") == owner["uid"]
            and (other.obj["metadata"].get("annotations") or {}).get(EXTENDED_CLAIM) == "true"
            and _age(other.obj["metadata"]) < _age(metadata)
            for other in self._objects.store.collection(RESOURCE_CLAIMS).each(namespace)
        ):
            return {}
        return usage_of(PODS, pod.obj)

    # -- status --------------------------------------------------------------------------------------------------------

    def _write_status(self, key: Key) -> None:
        account = self._accounts.get(key[0], {}).get(key[1])
        quotas = self._objects.store.collection(QUOTAS)
        item = quotas.get(key)
        if account is None or item is None:
            return
        hard = (item.obj.get("spec") or {}).get("hard") or {}
        status: Object = {
            "hard": {name: canonical(value) for name, value in hard.items()},
            "used": {name: as_quantity(name, value) for name, value in account.used.items()},
        }
        if status != item.obj.get("status"):
            body = {**item.obj, "metadata": dict(item.obj["metadata"]), "status": status}
            self._objects.store_change(QUOTAS, item, body, subresource="status")

    def _problem(
        self, name: str, account: _Account, collection: CollectionKey, body: Object, old: Object | None
    ) -> str:
        """Why the quota does not admit `body`; "" if it does."""
        if not in_scope(account.item.obj, collection, body):
            return ""
        if collection == PODS and old is None:
            missing = missing_resources(body["spec"], account.limits)
            if missing:
                return f"failed quota: {name}: {missing}"
        before = account.cost(collection, old, self._usage(collection, old)) if old is not None else {}
        after = account.cost(collection, body, self._usage(collection, body))
        more = {resource: value - before.get(resource, 0) for resource, value in after.items()}
        over = sorted(
            resource
            for resource, value in more.items()
            if value > 0 and account.used[resource] + value > account.limits[resource]
        )
        if not over:
            return ""

        def text(usage: Usage) -> str:
            return ",".join(f"{resource}={as_quantity(resource, usage[resource])}" for resource in over)

        requested, limited = text(more), text(account.limits)
        return f"exceeded quota: {name}, requested: {requested}, used: {text(account.used)}, limited: {limited}"


def _age(metadata: Object) -> tuple[str, str]:
    """Sorts objects by age; one that is being created is the youngest."""
    return metadata.get("creationTimestamp") or "~", metadata.get("name") or ""
