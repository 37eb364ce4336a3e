"""Quota controller: writes the status of quotas, creates the special ones, and takes back what is overused.

Rules QUOTA-R37, QUOTA-R38, QUOTA-R67 to QUOTA-R71, QUOTA-R75 and QUOTA-R76. The special quotas are created ten seconds
after the start, as Koordinator's scheduler does, or with the first ElasticQuota if that comes sooner. The other work
starts with the first ElasticQuota, so that a cluster without this kind sees nothing of it.
"""

import logging
from collections import Counter
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from seatrial.scheduler.api import quota as keys
from seatrial.scheduler.api.clock import Timer
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.quantity import quantities
from seatrial.scheduler.api.quota import DEFAULT_QUOTA, QUOTAS_PATH, ROOT_QUOTA, SYSTEM_QUOTA
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.client.rest import pod_path, refusal
from seatrial.scheduler.framework.controllers import Controller, ControllerContext
from seatrial.scheduler.plugins.defaultpreemption.dry_run import importance
from seatrial.scheduler.plugins.elasticquota.cache import Account, QuotaCache
from seatrial.scheduler.plugins.elasticquota.status import status_of, without_zeros
from seatrial.scheduler.quota.tree import Quota, QuotaTree

log = logging.getLogger(__name__)

PERIOD = 1.0  # seconds between writes of statuses
FULL_PERIOD = 10  # periods after which all quotas are computed: a share may change although its quota did not
MAX_WRITES = 100  # in a period, so that statuses do not crowd out bindings; the others wait for the next period
RETRY_PERIODS = 5  # periods before special quotas that could not be created are created again
FIRST_PAUSE, LONGEST_PAUSE = 10.0, 600.0  # seconds before they are created while there is no quota, as in Koordinator


class QuotaController(Controller):
    """Runs while this scheduler leads."""

    def __init__(self, cache: QuotaCache, context: ControllerContext) -> None:
        self._cache, self._rest, self._clock = cache, context.rest, context.clock
        self._timer: Timer | None = None
        self._rounds = 0
        self._writing: set[str] = set()
        self._due: dict[str, None] = {}  # quotas whose status may have to be written, in the order of their changes
        self._over_since: dict[Quota, float] = {}
        self._revoked = 0.0

    def start(self) -> None:
        if self._cache.active:
            self._run()
        elif self._cache.is_used:
            self._cache.on_active = self._run
            self._await_first(FIRST_PAUSE)

    def stop(self) -> None:
        self._cache.on_active = _nothing
        self._over_since = {}
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_first(self, pause: float) -> None:
        """Create the special quotas after a pause, and again after longer ones where the kind is not served."""

        def due() -> None:
            self._await_first(min(2 * pause, LONGEST_PAUSE))
            self._create_special()

        self._timer = self._clock.call_later(pause, due)

    def _run(self) -> None:
        self._cache.on_active = _nothing
        self._cancel()
        self._timer = self._clock.call_later(PERIOD, self._tick)

    def _tick(self) -> None:
        self._timer = self._clock.call_later(PERIOD, self._tick)
        cache = self._cache
        if self._rounds % RETRY_PERIODS == 0:
            self._create_special()
        part = self._rounds % FULL_PERIOD
        self._rounds += 1
        for tree_id, tree in cache.trees.items():
            for quota in sorted(tree.take_touched() - {tree.root}, key=lambda quota: quota.name):
                self._due.setdefault(quota.name, None)
            for quota in islice(tree, part, None, FULL_PERIOD):
                if not tree_id or quota not in {tree.root, tree.system, tree.default}:
                    self._due.setdefault(quota.name, None)
        self._write_due()
        if cache.args.monitor_all_quotas and cache.args.enable_runtime_quota:
            self._revoke()

    # -- statuses -----------------------------------------------------------------------------------------------------

    def _write_due(self) -> None:
        """Write the statuses that differ, those that are due longest first. The root's is due in each period."""
        due = [ROOT_QUOTA, *self._due]
        written = 0
        for name in due:
            if written == MAX_WRITES:
                break
            self._due.pop(name, None)
            results = self._cache.find(name)
            if results is not None:
                with self._clock.faults.guard("QuotaController._write", name):
                    written += self._write(*results)

    def _write(self, tree: QuotaTree, quota: Quota) -> bool:
        """Write the status of a quota if it differs from the object's, apart from entries of 0. Whether it does."""
        elastic_quota = self._cache.objects.get(quota.name)
        if elastic_quota is None:
            return False
        if quota.name in self._writing:
            tree.touched.add(quota)
            return False
        annotations, used = status_of(tree, quota)
        for hook in self._cache.hooks:
            annotations |= hook.update_quota_status(elastic_quota)
        before = (elastic_quota.status.used if elastic_quota.status else None) or {}
        changed: dict[str, Any] = {
            key: text
            for key, text in annotations.items()
            if not _equal(elastic_quota.metadata.annotations.get(key), text)
        }
        if not changed and without_zeros(before) == without_zeros(used):
            return False
        if keys.RUNTIME in changed:  # what others ask for may raise a share: that of the parent grows
            self._cache.share_changed(quota.name)
        listed = {**dict.fromkeys(before), **used}  # a key that is null goes
        patch = {"metadata": {"annotations": changed}, "status": {"used": listed}}
        self._writing.add(quota.name)

        def written(response: Response) -> None:
            self._writing.discard(quota.name)
            if not response.ok and response.code != 404:
                tree.touched.add(quota)
                log.warning("quota status-unwritten name=%s why=%s", quota.name, refusal(response))

        self._rest.merge(
            _path(elastic_quota.metadata.namespace, quota.name), patch, written, uid=elastic_quota.metadata.uid
        )
        return True

    def _create_special(self) -> None:
        """Create the objects of the root, system and default quota where they are missing (QUOTA-R37)."""
        cache = self._cache
        namespace = cache.args.quota_group_namespace
        tree = cache.trees[""]
        for name, quota in ((ROOT_QUOTA, tree.root), (SYSTEM_QUOTA, tree.system), (DEFAULT_QUOTA, tree.default)):
            if name in cache.objects:
                continue
            metadata: dict[str, Any] = {"name": name, "namespace": namespace}
            spec: dict[str, Any] = {"max": quantities(quota.spec.max)}
            if name == ROOT_QUOTA:
                metadata["labels"] = {keys.IS_PARENT: "true", keys.ALLOW_LENT: "false", keys.PARENT: ""}
                spec = {}
            group = QUOTAS_PATH.removeprefix("/apis/").rpartition("/")[0]
            body = {"apiVersion": group, "kind": "ElasticQuota", "metadata": metadata, "spec": spec}
            self._create(namespace, body)

    def _create(self, namespace: str, body: dict[str, Any], *, in_new_namespace: bool = False) -> None:
        def done(response: Response) -> None:
            why = refusal(response)
            if response.code == 404 and f'namespaces "{namespace}"' in why and not in_new_namespace:
                own = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
                again = partial(self._create, namespace, body, in_new_namespace=True)
                self._rest.post("/api/v1/namespaces", own, lambda _: again())
            elif not response.ok and response.code != 409:
                level = logging.INFO if response.code == 404 else logging.WARNING  # the kind need not be served
                log.log(level, "quota not-created name=%s why=%s", body["metadata"]["name"], why)

        self._rest.post(_path(namespace), body, done)

    # -- overuse ------------------------------------------------------------------------------------------------------

    def _revoke(self) -> None:
        args, now = self._cache.args, self._clock.monotonic()
        if now - self._revoked < (go_duration(args.revoke_pod_interval) or 0.0):
            return
        self._revoked = now
        before, self._over_since = self._over_since, {}  # what is gone is forgotten, also if its name comes back
        for tree in self._cache.trees.values():
            for quota in list(tree):
                if quota not in {tree.root, tree.system} and overuse(tree, quota):
                    self._over_since[quota] = since = before.get(quota, now)
                    if now - since > (go_duration(args.delay_evict_time) or 0.0):
                        self._over_since[quota] = now
                        with self._clock.faults.guard("QuotaController._evict", quota.name):
                            self._evict(tree, quota)

    def _evict(self, tree: QuotaTree, quota: Quota) -> None:
        for account in pods_to_revoke(self._cache, tree, quota):
            pod = account.pod
            log.info("quota revoke pod=%s quota=%s", pod.key, quota.name)
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace},
                "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
            }

            def done(response: Response, key: str = pod.key) -> None:
                if not response.ok:
                    log.warning("quota revoke-refused pod=%s why=%s", key, refusal(response))

            self._rest.post(pod_path(pod, "eviction"), body, done)


def _nothing() -> None:
    """No work waits for the first quota."""


def overuse(tree: QuotaTree, quota: Quota) -> list[str]:
    """The resources of which a quota uses more than its runtime share."""
    return [key for key, share in tree.runtime(quota).items() if quota.used.get(key, 0) > share]


def pods_to_revoke(cache: QuotaCache, tree: QuotaTree, quota: Quota) -> list[Account]:
    """The pods to evict so that the use is within the share (QUOTA-R69), least important first."""
    runtime = tree.runtime(quota)
    used = Counter(quota.used)
    for account in cache.members.get(quota.name, {}).values():
        if account.assigned and account.pod.deleting:
            used.subtract(account.amounts)  # it is leaving already

    def over() -> bool:
        return any(used[key] > share for key, share in runtime.items())

    members = [
        account
        for account in cache.members.get(quota.name, {}).values()
        if account.assigned and account.info is not None and not account.pod.deleting
    ]
    members.sort(key=lambda account: importance(account.info) if account.info else (0.0, 0.0), reverse=True)
    collected = []
    for account in members:
        if not over():
            break
        if account.non_preemptible:
            continue
        used.subtract(account.amounts)
        collected.append(account)
    if over():
        return collected
    kept = set()
    for account in reversed(collected):
        used.update(account.amounts)
        if over():
            used.subtract(account.amounts)
        else:
            kept.add(account.pod.metadata.uid)
    return [account for account in collected if account.pod.metadata.uid not in kept]


def _equal(before: str | None, after: str) -> bool:
    """Whether two resource lists in JSON agree, apart from entries of 0."""
    if before is None:
        return False
    if before == after:
        return True
    try:
        return without_zeros(decode_as(before, dict[str, Any])) == without_zeros(decode_as(after, dict[str, Any]))
    except msgspec.MsgspecError:
        return False


def _path(namespace: str, name: str = "") -> str:
    group, _, plural = QUOTAS_PATH.rpartition("/")
    path = f"{group}/namespaces/{namespace}/{plural}"
    return f"{path}/{name}" if name else path
