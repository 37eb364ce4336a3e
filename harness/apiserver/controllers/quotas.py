"""ResourceQuotas: the admission check, and the usage in their status.

Usage is computed from the store's changes, so admission sees exact values and a write that fails later needs no
correction. In a namespace without quotas a change costs one dict lookup. Follows
`apiserver/pkg/admission/plugin/resourcequota` and `pkg/controller/resourcequota`.
"""

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.controllers.quotausage import (
    PODS,
    Usage,
    as_quantity,
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


class _Account:
    """A quota and its usage."""

    __slots__ = ("item", "limits", "used")

    def __init__(self, item: Item) -> None:
        self.item = item
        hard = (item.obj.get("spec") or {}).get("hard") or {}
        self.limits: Usage = {name: milli(value) for name, value in hard.items()}
        self.used: Usage = dict.fromkeys(self.limits, 0)

    def cost(self, collection: CollectionKey, obj: Object | None) -> Usage:
        """The usage of `obj` that this quota counts."""
        if obj is None or not in_scope(self.item.obj, collection, obj):
            return {}
        usage = usage_of(collection, obj)
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
            problem = _problem(name, accounts[name], resource.key, body, old)
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
                for resource, value in self._cost(account, collection, item).items():
                    account.used[resource] += value
        self._queue.add(change.key)

    def _cost(self, account: _Account, collection: CollectionKey, item: Item | None) -> Usage:
        """The usage of a stored object. One that cannot be counted must not stop the count of the others."""
        if item is None:
            return {}
        try:
            return account.cost(collection, item.obj)
        except Exception as error:  # noqa: BLE001
            self._objects.clock.faults.not_repeated(error, "Quotas._cost", (*collection, *item.key))
            return {}

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


def _problem(name: str, account: _Account, collection: CollectionKey, body: Object, old: Object | None) -> str:
    if not in_scope(account.item.obj, collection, body):
        return ""
    if collection == PODS and old is None:
        missing = missing_resources(body["spec"], account.limits)
        if missing:
            return f"failed quota: {name}: {missing}"
    before = account.cost(collection, old)
    more = {resource: value - before.get(resource, 0) for resource, value in account.cost(collection, body).items()}
    over = sorted(
        resource
        for resource, value in more.items()
        if value > 0 and account.used[resource] + value > account.limits[resource]
    )
    if not over:
        return ""

    def text(usage: Usage) -> str:
        return ",".join(f"{resource}={as_quantity(resource, usage[resource])}" for resource in over)

    return (
        f"exceeded quota: {name}, requested: {text(more)}, used: {text(account.used)}, limited: {text(account.limits)}"
    )
