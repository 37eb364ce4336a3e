"""A cluster as the page shows it: nodes with their devices, pending pods, gangs, quotas, decisions, warnings.

Objects come from watches, decisions from our scheduler. Texts of objects are cut to what is readable. Only `start` to
`stop` costs the cluster something; `refresh` makes the rows of what has changed.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

import msgspec

from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.nodes.follow import Follower, Head, HeadMeta, OnGone, OnSet
from seatrial.harness.nodes.occupancy import holders, node_state, shares
from seatrial.harness.results import DeviceState, Share
from seatrial.reports.live.tables import Row, Tables
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.device import GPU_MODEL_LABEL, GROUP_VERSION, Device
from seatrial.scheduler.api.podgroup import (
    GANG_MIN,
    GANG_NAME,
    NATIVE,
    NATIVE_PODGROUPS_PATH,
    POD_GROUP_LABEL,
    PODGROUPS_PATH,
    NativePodGroup,
    PodGroup,
)
from seatrial.scheduler.api.quota import QUOTA_NAME, QUOTAS_PATH, SPECIAL, ElasticQuota
from seatrial.scheduler.api.resourceclaims import CLAIMS_PATH, SLICES_PATH, ResourceClaim, ResourceSlice, SliceSpec
from seatrial.scheduler.api.resourceclaims import Device as SliceDevice
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import Condition, ObjectMeta, Wire, decoder

NODES, PENDING, GANGS, QUOTAS = "nodes", "pending", "gangs", "quotas"
DECISIONS, EVENTS, ABOUT = "decisions", "events", "about"
NODES_PATH, PODS_PATH, EVENTS_PATH = "/api/v1/nodes", "/api/v1/pods", "/api/v1/events"
DEVICES_PATH = f"/apis/{GROUP_VERSION}/devices"
MAX_TEXT = 600  # characters of a message
MAX_EVENTS = 300  # the newest ones
MAX_DECISIONS = 100  # likewise

Shares = dict[str, list[Share]]
Offer = tuple[str, str, str]  # driver, pool (the node) and name of a device in a slice
_KINDS = {vendor.claim_driver.name: vendor.kind for vendor in VENDORS.values()}
_NUMBER = re.compile(r"[-.]?\d+$")


class _Reference(Wire, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""


class _Event(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: _Reference = _Reference()
    reason: str = ""
    message: str = ""
    count: int = 1
    last_timestamp: str | None = None
    event_time: str | None = None


_decode_node, _decode_device, _decode_pod = decoder(Node), decoder(Device), decoder(Pod)
_decode_group, _decode_native = decoder(PodGroup), decoder(NativePodGroup)
_decode_claim, _decode_slice = decoder(ResourceClaim), decoder(ResourceSlice)
_decode_quota, _decode_event = decoder(ElasticQuota), decoder(_Event)


class ClusterView:
    """The rows of a cluster's page."""

    def __init__(self, decisions: Callable[[], Iterable[Row]] = tuple) -> None:
        """`decisions` gives the newest decisions of the scheduler, the newest first, in the words of /debug/decisions.

        It is called by each `refresh`.
        """
        self.tables = Tables()
        self._decisions, self._numbers = decisions, count()
        self._nodes: dict[str, Node] = {}
        self._devices: dict[str, Device] = {}
        self._on_node: dict[str, dict[str, Shares]] = defaultdict(dict)
        self._slices: dict[str, dict[str, SliceSpec]] = defaultdict(dict)  # of each node: by name of the slice
        self._pools: dict[str, str] = {}  # slice → its node
        self._claim_devices: dict[str, list[Offer]] = defaultdict(list)  # claim → its devices
        self._users: dict[Offer, dict[str, list[str]]] = defaultdict(dict)  # by claim
        self._members: dict[str, dict[str, bool]] = defaultdict(dict)  # of each gang: whether a pod has a node
        self._minimum: dict[str, int] = {}  # of each PodGroup
        self._annotation_minimum: dict[str, int] = {}  # the minimum in annotations of members
        self._places: dict[str, tuple[str, str]] = {}  # pod → its node and its gang
        self._stale_nodes: set[str] = set()
        self._stale_gangs: set[str] = set()
        self._kinds: dict[str, tuple[OnSet, OnGone]] = {
            NODES_PATH: (self._node, self._node_gone),
            DEVICES_PATH: (self._device, self._device_gone),
            SLICES_PATH: (self._slice, self._slice_gone),
            CLAIMS_PATH: (self._claim, self._claim_gone),
            PODS_PATH: (self._pod, lambda head: self._pod_gone(_key(head))),
            PODGROUPS_PATH: (self._group, lambda head: self._group_gone(_key(head))),
            NATIVE_PODGROUPS_PATH: (self._native, lambda head: self._group_gone(f"{_key(head)}{NATIVE}")),
            QUOTAS_PATH: (self._quota, lambda head: self.tables.drop(QUOTAS, _key(head))),
            EVENTS_PATH: (self._event, lambda head: self.tables.drop(EVENTS, _key(head))),
        }
        self._followers: list[Follower] = []

    def put(self, path: str, body: bytes) -> None:
        """Show an object of the list at this path, as JSON."""
        self._kinds[path][0](msgspec.json.decode(body, type=Head).metadata, msgspec.Raw(body))

    def start(self, transport: Transport, clock: Clock) -> None:
        """Follow the objects of a cluster."""
        self._followers = [
            Follower(transport, clock, path, selector, on_set=on_set, on_gone=on_gone)
            for path, (on_set, on_gone) in self._kinds.items()
            for selector in [{"fieldSelector": "type=Warning"} if path == EVENTS_PATH else {}]
        ]
        for follower in self._followers:
            follower.start()

    def stop(self) -> None:
        for follower in self._followers:
            follower.stop()

    def refresh(self) -> None:
        """Make the rows of what has changed."""
        for name in self._stale_nodes:
            self._draw_node(name)
        for gang in self._stale_gangs:
            self._draw_gang(gang)
        self._stale_nodes, self._stale_gangs = set(), set()
        pods = len(self._places)
        self.tables.set(ABOUT, "pods", {"pods": pods, "pending": len(self.tables.rows(PENDING))})
        self._draw_decisions()
        self._drop_old_events()

    # -- nodes and devices --------------------------------------------------------------------------------------------

    def _node(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        self._nodes[head.name] = _decode_node(raw)
        self._stale_nodes.add(head.name)

    def _node_gone(self, head: HeadMeta) -> None:
        del self._nodes[head.name]
        self.tables.drop(NODES, head.name)

    def _device(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        device = self._devices[head.name] = _decode_device(raw)
        self._stale_nodes.add(head.name)
        for entry in device.spec.devices:
            if not entry.health:
                fault = next((each for each in entry.conditions if each.status == "False"), Condition())
                at = fault.last_transition_time or ""
                subject = f"{head.name} {entry.type} {entry.minor}"
                row = _event_row(at, f"Device {subject}", fault.reason or "Unhealthy", fault.message)
                self.tables.set(EVENTS, f"{subject} {at}", row)

    def _device_gone(self, head: HeadMeta) -> None:
        del self._devices[head.name]
        self._stale_nodes.add(head.name)

    def _slice(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        self._slice_gone(head)
        spec = _decode_slice(raw).spec
        self._pools[head.name] = spec.pool.name
        self._slices[spec.pool.name][head.name] = spec
        self._stale_nodes.add(spec.pool.name)

    def _slice_gone(self, head: HeadMeta) -> None:
        pool = self._pools.pop(head.name, "")
        if pool:
            del self._slices[pool][head.name]
            self._stale_nodes.add(pool)

    def _claim(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        self._claim_gone(head)
        key, status = _key(head), _decode_claim(raw).status
        users = [f"{head.namespace}/{user.name}" for user in status.reserved_for] or [f"claim {key}"]
        for result in status.allocation.devices.results if status.allocation else ():
            if not result.admin_access:
                offer = (result.driver, result.pool, result.device)
                self._users[offer][key] = users
                self._claim_devices[key].append(offer)
                self._stale_nodes.add(result.pool)

    def _claim_gone(self, head: HeadMeta) -> None:
        for offer in self._claim_devices.pop(_key(head), ()):
            del self._users[offer][_key(head)]
            self._stale_nodes.add(offer[1])

    def _slice_cards(self, pool: str) -> list[Row]:
        """The devices in the slices of a node, in the order of their numbers."""
        cards = [
            _slice_card(spec.driver, device, self._users[spec.driver, pool, device.name].values())
            for spec in self._slices[pool].values()
            for device in spec.devices
        ]
        return sorted(cards, key=lambda card: (card["type"], len(card["minor"]), card["minor"]))

    def _draw_node(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        on_cards = holders(self._on_node[name].items())
        device = self._devices.get(name)
        cards = [
            _card(state, on_cards.get((state.type, state.minor), ()))
            for state in node_state(node, device, on_cards).devices
        ]
        ready = any(condition.type == "Ready" and condition.status == "True" for condition in node.status.conditions)
        self.tables.set(
            NODES,
            name,
            {
                "group": _NUMBER.sub("", name),
                "model": node.metadata.labels.get(GPU_MODEL_LABEL, ""),
                "state": "not ready" if not ready else "cordoned" if node.spec.unschedulable else "",
                "pods": len(self._on_node[name]),
                "cards": self._slice_cards(name) if device is None else cards,
            },
        )

    # -- pods, gangs and quotas ---------------------------------------------------------------------------------------

    def _pod(self, head: HeadMeta, raw: msgspec.Raw) -> None:  # noqa: ARG002
        pod = _decode_pod(raw)
        self._pod_gone(pod.key, keep_row=True)
        if pod.terminated:
            self.tables.drop(PENDING, pod.key)
            return
        node, gang = pod.spec.node_name, _gang(pod)
        self._places[pod.key] = node, gang
        if gang:
            self._members[gang][pod.key] = bool(node)
            self._stale_gangs.add(gang)
            minimum = pod.metadata.annotations.get(GANG_MIN, "")
            if minimum.isdecimal():  # a gang by annotations has no PodGroup
                self._annotation_minimum[gang] = int(minimum[:9])
        if node:
            self._on_node[node][pod.key] = _shares(pod)
            self._stale_nodes.add(node)
            self.tables.drop(PENDING, pod.key)
        else:
            self.tables.set(PENDING, pod.key, _pending(pod, gang))

    def _pod_gone(self, key: str, *, keep_row: bool = False) -> None:
        node, gang = self._places.pop(key, ("", ""))
        if node:
            del self._on_node[node][key]
            self._stale_nodes.add(node)
        if gang:
            del self._members[gang][key]
            self._stale_gangs.add(gang)
        if not keep_row:
            self.tables.drop(PENDING, key)

    def _group(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        self._set_minimum(_key(head), _decode_group(raw).spec.min_member)

    def _native(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        group = _decode_native(raw)
        self._set_minimum(f"{_key(head)}{NATIVE}", group.minimum)

    def _set_minimum(self, gang: str, minimum: int) -> None:
        self._minimum[gang] = minimum
        self._stale_gangs.add(gang)

    def _group_gone(self, gang: str) -> None:
        self._minimum.pop(gang, None)
        self._stale_gangs.add(gang)

    def _draw_gang(self, gang: str) -> None:
        members = self._members[gang]
        if not members:
            del self._members[gang]
            self._annotation_minimum.pop(gang, None)
            if gang not in self._minimum:
                self.tables.drop(GANGS, gang)
                return
        minimum = self._minimum.get(gang, self._annotation_minimum.get(gang, 0))
        row = {"placed": sum(members.values()), "members": len(members), "minimum": minimum}
        self.tables.set(GANGS, gang, row)

    def _quota(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        quota = _decode_quota(raw)
        if head.name in SPECIAL:
            return
        limits, used = quota.spec, quota.status
        row = {
            "used": dict(used.used or {}) if used else {},
            "min": dict(limits.min or {}) if limits else {},
            "max": dict(limits.max or {}) if limits else {},
        }
        self.tables.set(QUOTAS, _key(head), row)

    # -- decisions and events -----------------------------------------------------------------------------------------

    def _draw_decisions(self) -> None:
        before, now = self.tables.rows(DECISIONS), {}
        for decision in reversed([*self._decisions()]):
            key = f"{decision['pod']['uid']} {decision['time']} {decision['node']}"
            number = before[key]["number"] if key in before else next(self._numbers)
            now[key] = {**decision, "message": decision["message"][:MAX_TEXT], "number": number}
        for key in [*before]:
            if key not in now:
                self.tables.drop(DECISIONS, key)
        for key, row in now.items():
            self.tables.set(DECISIONS, key, row)

    def _event(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        event = _decode_event(raw)
        about = event.involved_object
        at = event.last_timestamp or event.event_time or event.metadata.creation_timestamp or ""
        subject = " ".join(filter(None, [about.kind, "/".join(filter(None, [about.namespace, about.name]))]))
        self.tables.set(EVENTS, _key(head), _event_row(at, subject, event.reason, event.message, event.count))

    def _drop_old_events(self) -> None:
        events = self.tables.rows(EVENTS)
        if len(events) > MAX_EVENTS:
            for key in sorted(events, key=lambda key: str(events[key]["at"]))[:-MAX_EVENTS]:
                self.tables.drop(EVENTS, key)


def _key(head: HeadMeta) -> str:
    return f"{head.namespace}/{head.name}"


def _gang(pod: Pod) -> str:
    """The gang of a pod, as namespace/name; "" if it is in none."""
    native = pod.spec.scheduling_group
    name = pod.metadata.labels.get(POD_GROUP_LABEL) or pod.metadata.annotations.get(GANG_NAME, "")
    if native is not None and native.pod_group_name:
        name = f"{native.pod_group_name}{NATIVE}"
    return f"{pod.metadata.namespace}/{name}" if name else ""


def _shares(pod: Pod) -> Shares:
    try:
        return shares(pod)
    except ValueError:  # of msgspec, or of a quantity: what others write may be anything, and the auditor reports it
        return {}


def _card(state: DeviceState, pods: Iterable[tuple[str, Share]]) -> Row:
    return {
        "type": state.type,
        "minor": state.minor,
        "numa": state.numa,
        "health": state.health,
        "core": state.used_core_percent,
        "memory": state.used_memory_percent,
        "pods": [[key, share.core, share.memory_ratio] for key, share in pods],
    }


def _slice_card(driver: str, device: SliceDevice, users: Iterable[list[str]]) -> Row:
    """A claim says which device its pods use, and not which share of it."""
    return {
        "type": _KINDS.get(driver, driver),
        "minor": device.name,
        "numa": None,
        "health": "tainted" if device.taints else "ok",
        "core": 0.0,
        "memory": 0.0,
        "pods": [[key, 0.0, 0.0] for pods in users for key in pods],
    }


def _pending(pod: Pod, gang: str) -> Row:
    condition = next((each for each in pod.status.conditions if each.type == "PodScheduled"), Condition())
    gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
    return {
        "since": pod.metadata.creation_timestamp,
        "gang": gang,
        "quota": pod.metadata.labels.get(QUOTA_NAME, ""),
        "scheduler": pod.spec.scheduler_name,
        "reason": condition.reason,
        "message": f"scheduling gates: {gates}" if gates else condition.message[:MAX_TEXT],
    }


def _event_row(at: str, subject: str, reason: str, message: str, times: int = 1) -> dict[str, Any]:
    return {"at": at, "subject": subject, "reason": reason, "message": message[:MAX_TEXT], "count": times}
