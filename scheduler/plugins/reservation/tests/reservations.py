"""Reservations in a small cluster: available ones, with pods in them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.quantity import Amounts, quantities
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED, Reservation, ReservationStatus, allocation
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.restoring import restore
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.plugins.reservation.plugin import Reservation as Plugin
from seatrial.scheduler.tests.rig import Rig


def reserved(allocatable: Amounts, owners: dict[str, Amounts] | None = None, **more: Any) -> ReservationInfo:
    """A reservation without a cluster."""
    policy, withheld = more.get("policy", ""), more.get("withheld", {})
    manifest = {"metadata": {"name": "r", "uid": "r"}, "spec": {"allocatePolicy": policy}}
    made = msgspec.convert(manifest, Reservation)
    return ReservationInfo(made, allocatable, withheld, more.get("strict", ()), "", "", {}, owners or {})


def hold(rig: Rig, name: str, node: str, amounts: Amounts, *, policy: str = "", app: str = "a", **more: Any) -> None:
    """An available reservation for pods labelled `app`; `more`: `annotations`, and fields of its spec."""
    built = reservation(name).like(pod("x").resources(dict(quantities(amounts)))).for_labels(app=app).many()
    if policy:
        built.policy(policy)
    for key, value in more.pop("annotations", {}).items():
        built.annotation(key, value)
    for key, value in more.pop("labels", {}).items():
        built.label(key, value)
    built.manifest["spec"] |= more
    built.manifest["metadata"]["uid"] = name
    status = ReservationStatus("Available", node_name=node, allocatable=dict(quantities(amounts)))
    made = msgspec.convert(built.manifest, Reservation)
    rig.core.intake.set_reservation(msgspec.structs.replace(made, status=status))


def inside(rig: Rig, name: str, node: str, where: str, **resources: Any) -> None:
    """A running pod in the reservation `where`."""
    one = owner(name).resources(resources).annotation(RESERVATION_ALLOCATED, allocation(where, where))
    rig.running(one, node)


def owner(name: str, **resources: Any) -> PodBuilder:
    return pod(name).label("app", "a").request(**resources)


def refusal(rig: Rig, pod: PodBuilder, node: str, *, gone: Sequence[str] = ()) -> tuple[str, ...]:
    """The plugin's reasons against a node for a pod, with some pods removed; empty if it passes."""
    info = PodInfo(made := rig.pod(pod), rig.core.cache.classes.of(made))
    runner, state = rig.core.runners.of(info), CycleState()
    plugin = next(entry for entry in runner.profile.filter if isinstance(entry, Plugin))
    verdict = plugin.pre_filter(state, info.pod)
    if not verdict.ok:
        return verdict.reasons
    restore(runner, state, info)
    there = rig.core.cache.find(node)
    assert there is not None
    inner, seen = as_seen(state, there.copy())
    for name in gone:
        victim = there.pods[f"uid-{name}"]
        seen.remove(victim)
        runner.removed(inner, victim, seen)
    return plugin.filter(inner, info.pod, seen).reasons
