"""Reservations in one cycle, shared between plugins: available, matched and nominated ones."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quantity import Amounts
from seatrial.scheduler.api.reservation import RESTRICTED, Reservation
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.extension_points import Plugin
from seatrial.scheduler.framework.state import CycleState, StateKey
from seatrial.scheduler.framework.status import Status


@dataclass(slots=True, eq=False)
class ReservationInfo:
    """An available reservation and the pods that allocated from it. Amounts are integers, as for requests."""

    reservation: Reservation
    allocatable: Amounts
    withheld: Amounts  # the part that owners cannot allocate
    strict: tuple[str, ...]  # resources that policy Restricted applies to
    group: str  # the same for all reservations with the same owners
    annotation: str = ""  # `device-allocated`: all its devices, those of owners included
    numa: Mapping[str, str] = field(
        default_factory=dict
    )  # annotations about CPUs and NUMA nodes, those of owners included
    owners: dict[str, Amounts] = field(default_factory=dict)  # requests of its pods, by uid
    pod: Pod | None = None  # the running pod whose place it is, in operating mode Reservation

    @property
    def uid(self) -> str:
        return self.reservation.metadata.uid

    @property
    def name(self) -> str:
        return self.reservation.name

    @property
    def node(self) -> str:
        return self.reservation.status.node_name

    @property
    def restricted(self) -> bool:
        return self.reservation.spec.allocate_policy == RESTRICTED

    @property
    def open(self) -> bool:
        """Whether another pod may allocate from it (RSV-R18)."""
        return not (self.reservation.spec.allocate_once and self.owners)

    @property
    def allocated(self) -> Amounts:
        """The part of its resources that its pods request (RSV-R7)."""
        return self.allocated_but(())

    def allocated_but(self, gone: Sequence[str]) -> Amounts:
        """`allocated` without the pods `gone` (uids)."""
        total = dict.fromkeys(self.allocatable, 0)
        for uid, requests in self.owners.items():
            if uid not in gone:
                for name in total:
                    total[name] += requests.get(name, 0)
        return {name: value for name, value in total.items() if value}

    def left(self, gone: Sequence[str] = ()) -> Amounts:
        """What its reserve pod still holds, without the pods `gone`; its pods hold the rest."""
        allocated = self.allocated_but(gone)
        return {name: max(0, value - allocated.get(name, 0)) for name, value in self.allocatable.items()}


MATCHED: StateKey[Mapping[str, Sequence[ReservationInfo]]] = StateKey("Reservation/matched")  # by node; not empty
IGNORED: StateKey[bool] = StateKey("Reservation/ignored")  # the pod ignores reservations
REQUIRED: StateKey[bool] = StateKey("Reservation/required")  # the pod must allocate from a reservation
NOMINATED: StateKey[ReservationInfo] = StateKey(
    "Reservation/nominated"
)  # the reservation to allocate from, on the selected node
# The reservation on a node that the pod would allocate from. Called with the node copy of `restored`.
NOMINATE: StateKey[Callable[[CycleState, Pod, NodeInfo], ReservationInfo | None]] = StateKey("Reservation/nominate")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a pod is placed on a node: in a reservation, or (None) outside of those that match it."""

    reserved: ReservationInfo | None


TARGET: StateKey[Target] = StateKey("Reservation/into")  # plugins run for this target; absent: for any target


def for_target(state: CycleState, reserved: ReservationInfo | None) -> CycleState:
    """A fork of the state in which plugins run for one target."""
    inner = state.fork()
    inner[TARGET] = Target(reserved)
    return inner


def targets_on(state: CycleState, node_name: str) -> Sequence[ReservationInfo | None]:
    """All targets on a node with matching reservations; empty if the state names a target already."""
    there = matched_on(state, node_name)
    if not there or TARGET in state:
        return ()
    return there if REQUIRED in state else (*there, None)


def matched_on(state: CycleState, node_name: str) -> Sequence[ReservationInfo]:
    """The reservations on a node that match this pod; empty for a pod that ignores them."""
    matched = state.get(MATCHED)
    return matched.get(node_name, ()) if matched is not None and IGNORED not in state else ()


class ReservationAware(Plugin):
    """A plugin with own state about reservations (Koordinator's FilterNominateReservation, ScoreReservation)."""

    @abstractmethod
    def fits_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo | None, node_name: str) -> Status:
        """Whether the plugin can serve the pod from that reservation; None: outside of those that match it."""

    @abstractmethod
    def worth_in(self, state: CycleState, pod: Pod, reserved: ReservationInfo, node_name: str) -> int:
        """The score of that; any numbers, which are scaled by the largest to 0..100."""
