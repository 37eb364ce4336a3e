"""The auditor: takes in watch events and reports each breach of an invariant once, with evidence and a timeline."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import msgspec

from seatrial.harness.apiserver.quantities import Amounts, QuantityError, amounts
from seatrial.harness.audit import claim_rules, device_rules, numa_rules, placement_rules
from seatrial.harness.audit.invariants import (
    Binding,
    BindingInvariant,
    Breach,
    Change,
    ChangeInvariant,
    Invariant,
    StateInvariant,
)
from seatrial.harness.audit.state import GRACE, AllocatedClaim, ClusterState, PodGroup, PodRecord, Quota
from seatrial.scheduler.api.core import Node, Pod
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.numa import NodeResourceTopology
from seatrial.scheduler.api.podgroup import GANG_MATCH_POLICY, POD_GROUP_MATCH_POLICY
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.resourceclaims import Consumer

BINDINGS: tuple[BindingInvariant, ...] = (
    *placement_rules.BINDINGS,
    *device_rules.BINDINGS,
    *numa_rules.BINDINGS,
    *claim_rules.BINDINGS,
)
CHANGES: tuple[ChangeInvariant, ...] = (
    *placement_rules.CHANGES,
    *device_rules.CHANGES,
    *numa_rules.CHANGES,
    *claim_rules.CHANGES,
)
STATES: tuple[StateInvariant, ...] = claim_rules.STATES
INVARIANTS: tuple[Invariant, ...] = (*BINDINGS, *CHANGES, *STATES)

MAX_EVIDENCE = 30  # lines of a violation's timeline


class Violation(msgspec.Struct, frozen=True):
    """One breach of an invariant."""

    invariant: str
    title: str
    pod: str  # namespace/name; "" if it is about no single pod
    text: str
    at: float  # of the cluster's clock
    timeline: tuple[str, ...] = ()

    def __str__(self) -> str:
        subject = f"pod {self.pod} " if self.pod else ""
        return f"{self.invariant} {self.title}: {subject}{self.text}"


class Auditor:
    """Feed it with `observe`, in the order of each watch; read `violations`."""

    def __init__(self) -> None:
        self.state = ClusterState()
        self.violations: list[Violation] = []
        self._reported: set[tuple[str, str, str]] = set()
        self._quotas: dict[str, dict[str, Amounts]] = {}  # name → namespace → max
        self._excused: set[tuple[str, str]] = set()
        self._doubted: list[tuple[PodRecord, BindingInvariant, float]] = []  # breaches that other bindings may excuse
        self._takers: dict[str, Any] = {
            "Pod": self._pod,
            "Node": self._node,
            "Device": self._device,
            "NodeResourceTopology": self._topology,
            "Reservation": self._reservation,
            "Namespace": self._namespace,
            "PodGroup": self._group,
            "ElasticQuota": self._quota,
            "ResourceClaim": self._resource_claim,
        }

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of object that `observe` takes."""
        return frozenset(self._takers)

    def excuse(self, invariant: str, uid: str) -> None:
        """Do not report an invariant for a pod any more: a test breaks it there in the place of another component."""
        self._excused.add((invariant, uid))

    def observe(self, kind: str, event: str, body: Mapping[str, Any] | msgspec.Raw, at: float) -> None:
        """Take in one event: ADDED, MODIFIED or DELETED. Others, and objects of unexpected form, are ignored."""
        if event not in {"ADDED", "MODIFIED", "DELETED"}:
            return
        if self._doubted:
            self._judge_doubted(at)
        self._takers[kind](body, event == "DELETED", at)
        if self._doubted:
            self._judge_doubted(at)

    # -- objects ------------------------------------------------------------------------------------------------------

    def _pod(self, body: Any, gone: bool, at: float) -> None:
        pod = _read(body, Pod)
        if pod is None:
            return
        uid = pod.metadata.uid
        record = self.state.pods.get(uid)
        if gone:
            dropped = self.state.drop(uid, at)
            if dropped is not None:
                dropped.note(at, "gone")
                self.state.ended = [*self.state.ended[-200:], *dropped.timeline[-3:]]
            return
        if record is None:
            record = self.state.pods[uid] = PodRecord(pod, at)
            record.note(
                at,
                f"created, priority {pod.spec.priority}" + (f", on {pod.spec.node_name}" if pod.spec.node_name else ""),
            )
            if pod.spec.node_name:
                record.bound_at = at
            self._mark(record, at)
            self.state.place(record, at)
            return
        before = record.pod
        record.update(pod)
        self._mark(record, at)
        bound = not before.spec.node_name and bool(pod.spec.node_name)
        if bound:
            record.bound_by_scheduler, record.bound_at = True, at
            record.note(at, f"bound to {pod.spec.node_name}" + _devices(record))
        if before.status.phase != pod.status.phase and pod.status.phase:
            record.note(at, pod.status.phase)
        if before.status.nominated_node_name != pod.status.nominated_node_name:
            record.nominated_at = at
            record.note(at, f"nominated to {pod.status.nominated_node_name or 'no node'}")
        self.state.place(record, at)
        change = Change(self.state, record, before, pod, at)
        for invariant in CHANGES:
            breach = invariant.check(change)
            if breach is not None:
                self._report(invariant, record, breach, at)
        if bound:
            self._judge(record, at, BINDINGS)
            self.state.decided(pod.spec.scheduler_name, at)

    def _mark(self, record: PodRecord, at: float) -> None:
        pod = record.pod
        if pod.deleting and record.deleting_since is None:
            record.deleting_since = at
            record.note(at, "deletion asked for")
        if not record.attempted:
            for condition in pod.status.conditions:
                if (
                    condition.type == "PodScheduled"
                    and condition.status == "False"
                    and condition.reason != "SchedulingGated"
                ):
                    record.attempted = True
                    self.state.decided(pod.spec.scheduler_name, at)
                    record.note(at, f"refused: {condition.message[:160]}")

    def _node(self, body: Any, gone: bool, at: float) -> None:
        node = _read(body, Node)
        if node is None:
            return
        before = self.state.nodes.get(node.name)
        if (
            gone
            or before is None
            or (before.spec, before.metadata.labels, before.status.allocatable, before.metadata.annotations)
            != (node.spec, node.metadata.labels, node.status.allocatable, node.metadata.annotations)
        ):
            self.state.nodes.set(node.name, None if gone else node, at)

    def _device(self, body: Any, gone: bool, at: float) -> None:
        device = _read(body, Device)
        if device is not None:
            self.state.devices.set(device.metadata.name, None if gone else device, at)

    def _topology(self, body: Any, gone: bool, at: float) -> None:
        result = _read(body, NodeResourceTopology)
        if result is not None:
            self.state.topologies.set(result.metadata.name, None if gone else result, at)

    def _reservation(self, body: Any, gone: bool, at: float) -> None:
        result = _read(body, Reservation)
        if result is not None:
            self.state.reservations.set(result.metadata.uid, None if gone else result, at)

    def _namespace(self, body: Any, gone: bool, at: float) -> None:  # noqa: ARG002
        meta = _plain(body)["metadata"]
        if gone:
            self.state.namespaces.pop(meta["name"], None)
        else:
            self.state.namespaces[meta["name"]] = meta.get("labels") or {}

    def _group(self, body: Any, gone: bool, at: float) -> None:
        results = _plain(body)
        key = f"{results['metadata']['namespace']}/{results['metadata']['name']}"
        if gone:
            self.state.groups.pop(key, None)
            self.state.whole_gangs.pop(key, None)
        else:
            least = int((results.get("spec") or {}).get("minMember") or 0)
            notes = results["metadata"].get("annotations") or {}
            policy = notes.get(GANG_MATCH_POLICY) or notes.get(POD_GROUP_MATCH_POLICY) or ""
            self.state.groups[key] = PodGroup(key, least, policy not in {"only-waiting", "waiting-and-running"})
            self.state.count_gang(key, at)

    def _quota(self, body: Any, gone: bool, at: float) -> None:
        results = _plain(body)
        name, namespace = results["metadata"]["name"], results["metadata"].get("namespace", "")
        homes = self._quotas.setdefault(name, {})
        homes.pop(namespace, None)
        if not gone:
            try:
                most = amounts((results.get("spec") or {}).get("max") or {})
            except QuantityError:
                most = {}
            homes[namespace] = most
        bound = {} if len(homes) > 1 else next(iter(homes.values()), None)  # of two with one name either may count
        self.state.quotas.set(name, None if bound is None else Quota(name, bound), at)

    def _resource_claim(self, body: Any, gone: bool, at: float) -> None:  # noqa: ARG002
        content = _plain(body)
        key = f"{content['metadata']['namespace']}/{content['metadata']['name']}"
        status = content.get("status") or {}
        if gone or not status.get("allocation"):
            self.state.resource_claims.pop(key, None)
        else:
            results = (status["allocation"].get("devices") or {}).get("results") or ()
            self.state.resource_claims[key] = AllocatedClaim(
                msgspec.convert(status.get("reservedFor") or (), tuple[Consumer, ...]),
                frozenset(
                    (result["driver"], result["pool"], result["device"])
                    for result in results
                    if not (result.get("adminAccess") or result.get("shareID"))
                ),
            )

    # -- judging ------------------------------------------------------------------------------------------------------

    def _judge(self, record: PodRecord, at: float, invariants: tuple[BindingInvariant, ...]) -> None:
        views: list[Binding] | None = None
        for invariant in invariants:
            if views is None:
                views = list(self._views(record, at))
            breach = _check(invariant, views)
            if breach is not None and invariant.needs_others:
                self._doubted.append((record, invariant, at))
            elif breach is not None:
                self._report(invariant, record, breach, at)

    def _judge_doubted(self, at: float) -> None:
        """Forget breaches that a later binding excuses, and report those that none has excused in the grace period, or
        before the pod is gone.
        """
        left = []
        for record, invariant, since in self._doubted:
            breach = _check(invariant, list(self._views(record, since)))
            if breach is not None and (at - since > GRACE or record.uid not in self.state.pods):
                self._report(invariant, record, breach, since)
            elif breach is not None:
                left.append((record, invariant, since))
        self._doubted = left

    def _views(self, record: PodRecord, at: float) -> Iterator[Binding]:
        """The pod with each recent version of its node's objects, the present one first."""
        name, state = record.node, self.state
        versions = product(
            state.nodes.recent(name, at), state.devices.recent(name, at), state.topologies.recent(name, at)
        )
        for node, device, topology in versions:
            yield Binding(state, record, node, device, topology, at)

    def check_state(self, at: float) -> None:
        """Check the invariants of the state at `at`, seconds of the clock; bindings in doubt are judged first."""
        self._judge_doubted(at)
        for invariant in STATES:
            for record, breach in invariant.check(self.state, at):
                self._report(invariant, record, breach, at)

    def check_bound(self, at: float) -> None:
        """Judge pods that are bound already by the invariants that are properties of the state."""
        lasting = tuple(invariant for invariant in BINDINGS if invariant.lasting)
        for record in list(self.state.pods.values()):
            if record.node and not record.pod.terminated:
                self._judge(record, at, lasting)

    def _report(self, invariant: Invariant, record: PodRecord | None, breach: Breach, at: float) -> None:
        key = (invariant.id, record.uid if record is not None else "", breach.text)
        if key in self._reported or key[:2] in self._excused:
            return
        self._reported.add(key)
        lines = [line for pod in (record, *breach.pods) if pod is not None for line in pod.timeline]
        lines.sort(key=lambda line: float(line.partition(" ")[0]))
        where = record.key if record is not None else ""
        self.violations.append(
            Violation(invariant.id, invariant.title, where, breach.text, at, tuple(lines[-MAX_EVIDENCE:]))
        )


def _check(invariant: BindingInvariant, views: list[Binding]) -> Breach | None:
    """The breach, unless one of the recent versions excuses the binding."""
    first: Breach | None = None
    for view in views:
        try:
            result = invariant.check(view)
        except QuantityError:
            return None  # the API server or the node agent refuses such an amount
        if result is None:
            return None
        first = first or result
    return first


def _devices(record: PodRecord) -> str:
    parts = [f"{kind} {share.minor}" for kind, share in device_rules.shares_of(record)]
    return f" with {', '.join(parts)}" if parts else ""


def _read(body: Any, kind: type[Any]) -> Any:
    try:
        if isinstance(body, msgspec.Raw | bytes):
            return msgspec.json.decode(body, type=kind)
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def _plain(body: Any) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(body) if isinstance(body, msgspec.Raw | bytes) else dict(body)
    return document
