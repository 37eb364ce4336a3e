"""Eviction by device taints: pods whose claims have a device with a NoExecute taint that they do not tolerate.

Follows `pkg/controller/devicetainteviction/device_taint_eviction.go`. A taint comes from a ResourceSlice or from a
DeviceTaintRule, whose condition `EvictionInProgress` says what it does or would do (DRA-R118 to DRA-R122).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from seatrial.harness.apiserver.admission.pod_groups import POD_GROUPS
from seatrial.harness.apiserver.controllers.control import Control
from seatrial.harness.apiserver.controllers.event_recorder import NORMAL
from seatrial.harness.apiserver.controllers.nodes import tolerates
from seatrial.harness.apiserver.controllers.resource_claims import (
    CLAIMS,
    SLICES,
    TAINT_RULES,
    claim_names,
    group_of,
    is_done,
)
from seatrial.harness.apiserver.controllers.work_queue import WorkQueue
from seatrial.harness.apiserver.storage.store import Change, Item, Key, Object
from seatrial.harness.apiserver.times import seconds_of
from seatrial.harness.apiserver.verbs.subresources import disrupted

COMPONENT = "device-taint-eviction"
CONDITION: Final = "EvictionInProgress"
STATUS_PERIOD = 10.0  # seconds between two updates of a rule's condition
_EVICTS = "NoExecute"
_END = (
    " if the effect was NoExecute. This information will not be updated again."
    " Recreate the DeviceTaintRule to trigger an update."
)
_Pool = tuple[str, str]  # driver, pool
_Device = tuple[str, str, str]  # driver, pool, device


class _Eviction(NamedTuple):
    at: float  # seconds since the epoch
    rules: frozenset[str]  # those that cause it, by name


class DeviceTaintEviction:
    """Reconciles claims that have tainted devices, and the conditions of rules, in two queues."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._claims, self._rules = control.resource(CLAIMS), control.resource(TAINT_RULES)
        self._claim_queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync_claim)
        self._rule_queue: WorkQueue[Key] = WorkQueue(control.clock, self._sync_rule)
        self._users: dict[_Device, dict[Key, None]] = {}  # device → claims that have it
        self._slices: dict[_Pool, dict[str, Object]] = {}  # specs by name
        self._tainted: dict[_Pool, dict[str, list[Object]]] = {}  # device → its taints that evict
        self._evicting: dict[str, Object] = {}  # specs of rules that evict, by name
        self._evicted: dict[str, int] = {}  # UID of a rule → pods
        control.objects.collection(self._claims).listen(self._claim_changed)
        control.objects.collection(control.resource(SLICES)).listen(self._slice_changed)
        control.objects.collection(self._rules).listen(self._rule_changed)
        control.objects.collection(control.pods).listen(self._pod_changed)

    # -- events --------------------------------------------------------------------------------------------------------

    def _claim_changed(self, change: Change) -> None:
        before, now = _devices(change.old), _devices(change.new)
        for device in before:
            claims = self._users[device]
            del claims[change.key]
            if not claims:
                del self._users[device]
        for device in now:
            self._users.setdefault(device, {})[change.key] = None
        if now and (self._tainted or self._evicting):
            self._claim_queue.add(change.key)

    def _slice_changed(self, change: Change) -> None:
        for item in (change.old, change.new):
            if item is None:
                continue
            pool = _pool_of(item.obj["spec"])
            slices = self._slices.setdefault(pool, {})
            if item is change.new:
                slices[change.key[1]] = item.obj["spec"]
            else:
                del slices[change.key[1]]
            before, now = self._tainted.pop(pool, {}), _tainted(slices)
            if now:
                self._tainted[pool] = now
            if not slices:
                del self._slices[pool]
            for device in {**before, **now}:
                if before.get(device) != now.get(device):
                    self._check(self._users.get((*pool, device), ()))

    def _rule_changed(self, change: Change) -> None:
        before, now = (item.obj["spec"] if item is not None else {} for item in (change.old, change.new))
        if change.new is None and change.old is not None:
            self._evicted.pop(change.old.obj["metadata"]["uid"], None)
        if before == now:
            return
        self._evicting.pop(change.key[1], None)
        if change.new is not None:
            self._rule_queue.add(change.key)  # says what it will do, before it is done
            if now["taint"]["effect"] == _EVICTS:
                self._evicting[change.key[1]] = now
        for device, claims in self._users.items():
            if _concerns(before, device) or _concerns(now, device):
                self._check(claims)

    def _pod_changed(self, change: Change) -> None:
        old, new = change.old, change.new
        if new is None or not new.obj["spec"].get("nodeName") or not (self._tainted or self._evicting):
            return
        if old is None or not old.obj["spec"].get("nodeName"):
            self._check((change.key[0], name) for name in claim_names(new.obj))

    def _check(self, claims: Iterable[Key]) -> None:
        for claim in claims:
            self._claim_queue.add(claim)

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _sync_claim(self, key: Key) -> None:
        claim = self._control.get(self._claims, key)
        eviction = self._eviction(claim, self._evicting) if claim is not None else None
        if claim is None or eviction is None:
            return
        for name in eviction.rules:
            self._rule_queue.add_after(STATUS_PERIOD, ("", name))
        wait = eviction.at - self._control.clock.now()
        if wait > 0:
            self._claim_queue.add_after(wait, key)
            return
        for pod in self._pods_of(claim):
            self._evict(pod)
            for name in eviction.rules:
                rule = self._control.get(self._rules, ("", name))
                if rule is not None:
                    uid = rule.obj["metadata"]["uid"]
                    self._evicted[uid] = self._evicted.get(uid, 0) + 1

    def _evict(self, pod: Item) -> None:
        pods = self._control.pods
        self._control.recorder.record(
            COMPONENT, pods, pod, NORMAL, "DeviceTaintManagerEviction", "Marking for deletion"
        )
        why = "Device Taint manager: deleting due to NoExecute taint"
        body = disrupted(pod.obj, "DeletionByDeviceTaintManager", why, self._control.clock.timestamp())
        self._control.delete(pods, self._control.objects.store_change(pods.key, pod, body, subresource="status"))

    def _pods_of(self, claim: Item) -> Iterator[Item]:
        """The pods on nodes that use the claim, alone or with their PodGroup, and are not being deleted."""
        for user in claim.obj["status"].get("reservedFor") or ():
            for pod in self._members(claim.key[0], user):
                if "deletionTimestamp" in pod.obj["metadata"] or is_done(pod.obj):
                    continue
                if pod.obj["spec"].get("nodeName") and claim.key[1] in claim_names(pod.obj):
                    yield pod

    def _members(self, namespace: str, user: Object) -> Iterator[Item]:
        """The pod that is the user of a claim, or the pods of the group that is."""
        pods = self._control.objects.collection(self._control.pods)
        if (user.get("apiGroup"), user["resource"]) == POD_GROUPS:
            yield from (pod for pod in pods.each(namespace) if group_of(pod.obj) == user["name"])
        elif not user.get("apiGroup"):
            pod = pods.get((namespace, user["name"]))
            if pod is not None and pod.obj["metadata"]["uid"] == user["uid"]:
                yield pod

    def _eviction(self, claim: Item, rules: dict[str, Object]) -> _Eviction | None:
        """When the earliest taint of its devices, in slices and in `rules`, evicts the users of a claim."""
        eviction: _Eviction | None = None
        for result in _results(claim):
            device = _device(result)
            taints = [(taint, "") for taint in self._tainted.get(device[:2], {}).get(device[2], ())]
            taints += [(rule["taint"], name) for name, rule in rules.items() if _concerns(rule, device)]
            for taint, rule in taints:
                seconds = _tolerated(result.get("tolerations") or (), taint)
                if seconds is None:
                    continue
                at = seconds_of(taint["timeAdded"]) + seconds
                names = frozenset({rule} if rule else ())
                eviction = (
                    _Eviction(at, names)
                    if eviction is None
                    else _Eviction(min(at, eviction.at), names | eviction.rules)
                )
        return eviction

    # -- conditions of rules -------------------------------------------------------------------------------------------

    def _sync_rule(self, key: Key) -> None:
        rule = self._control.get(self._rules, key)
        if rule is None:
            return
        metadata, status = rule.obj["metadata"], rule.obj.get("status") or {}
        others = [row for row in status.get("conditions") or () if row["type"] != CONDITION]
        known: Object = next((row for row in status.get("conditions") or () if row["type"] == CONDITION), {})
        generation = metadata.get("generation", 1)
        if known.get("observedGeneration") == generation:
            wait = seconds_of(known["lastTransitionTime"]) + STATUS_PERIOD - self._control.clock.now()
            if wait > 0:
                self._rule_queue.add_after(wait, key)
                return
        progress, reason, message = self._progress(key[1], rule.obj["spec"], self._evicted.get(metadata["uid"], 0))
        new = {
            "type": CONDITION,
            "status": progress,
            "reason": reason,
            "message": message,
            "observedGeneration": generation,
        }
        if any(known.get(name) != value for name, value in new.items()):
            new["lastTransitionTime"] = self._control.clock.timestamp()  # of any change, also of the message alone
            self._control.put_status(self._rules, rule, {**status, "conditions": [*others, new]})

    def _progress(self, name: str, spec: Object, evicted: int) -> tuple[str, str, str]:
        """Status, reason and message of a rule's condition."""
        effect = spec["taint"]["effect"]
        progress, reason, parts = "False", "OtherEffect", []
        if effect == _EVICTS:
            pods, namespaces = self._pending(name, spec)
            reason = "Completed" if evicted else "NotStarted"
            if pods:
                progress, reason = "True", "PodsPendingEviction"
                parts.append(f"{_count(pods, 'pod needs', 'pods need')} to be evicted in {_namespaces(namespaces)}.")
        elif effect == "None":
            reason = "NoEffect"
            published = sum(
                _concerns(spec, (*pool, device["name"]))
                for pool, slices in self._slices.items()
                for device in _newest(slices)
            )
            allocated = sum(len(claims) for device, claims in self._users.items() if _concerns(spec, device))
            pods, namespaces = self._pending(name, spec)
            for number, kind in ((published, "published"), (allocated, "allocated")):
                parts.append(f"{_count(number, f'{kind} device', f'{kind} devices')} selected.")
            parts.append(f"{_count(pods, 'pod', 'pods')} would be evicted in {_namespaces(namespaces)}{_END}")
        else:
            parts.append("Eviction only happens for the NoExecute effect.")
        if evicted:
            parts.append(f"{_count(evicted, 'pod', 'pods')} evicted since starting the controller.")
        return progress, reason, " ".join(parts)

    def _pending(self, name: str, spec: Object) -> tuple[int, int]:
        """How many pods the rule evicts or would evict, in how many namespaces."""
        rule = {name: {**spec, "taint": {**spec["taint"], "effect": _EVICTS}}}
        claims = {claim: None for device, users in self._users.items() if _concerns(spec, device) for claim in users}
        pods: set[Key] = set()
        for key in claims:
            claim = self._control.get(self._claims, key)
            eviction = self._eviction(claim, rule) if claim is not None else None
            if claim is not None and eviction is not None and name in eviction.rules:
                pods.update(pod.key for pod in self._pods_of(claim))
        return len(pods), len({namespace for namespace, _ in pods})


def _results(claim: Item | None) -> list[Object]:
    allocation = ((claim.obj.get("status") or {}) if claim is not None else {}).get("allocation") or {}
    return list((allocation.get("devices") or {}).get("results") or ())


def _device(result: Object) -> _Device:
    return result["driver"], result["pool"], result["device"]


def _devices(claim: Item | None) -> dict[_Device, None]:
    return {_device(result): None for result in _results(claim)}


def _pool_of(spec: Object) -> _Pool:
    return spec["driver"], spec["pool"]["name"]


def _newest(slices: dict[str, Object]) -> Iterator[Object]:
    """The devices of a pool; slices of older generations do not count."""
    newest = max((spec["pool"].get("generation", 0) for spec in slices.values()), default=0)
    for spec in slices.values():
        if spec["pool"].get("generation", 0) == newest:
            yield from spec.get("devices") or ()


def _tainted(slices: dict[str, Object]) -> dict[str, list[Object]]:
    by_name: dict[str, list[Object]] = {}
    for device in _newest(slices):
        taints = [taint for taint in device.get("taints") or () if taint["effect"] == _EVICTS]
        if taints:
            by_name[device["name"]] = taints
    return by_name


def _concerns(rule: Object, device: _Device) -> bool:
    """Whether a rule selects the device; one without a selector selects nothing."""
    selector = rule.get("deviceSelector")
    fields = zip(("driver", "pool", "device"), device, strict=True)
    return selector is not None and all(selector.get(field) in {None, value} for field, value in fields)


def _tolerated(tolerations: Iterable[Object], taint: Object) -> int | None:
    """Seconds for which the taint is tolerated; None: for ever.

    Only the literal effect NoExecute counts here, other than for allocation (DRA-R119).
    """
    matching = [row for row in tolerations if row.get("effect") == _EVICTS and tolerates(row, taint)]
    limits = [int(row["tolerationSeconds"]) for row in matching if row.get("tolerationSeconds") is not None]
    return None if len(limits) < len(matching) else max(0, min(limits, default=0))


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _namespaces(number: int) -> str:
    return _count(number, "namespace", "different namespaces")
