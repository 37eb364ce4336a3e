"""What plugins tell each other about reservations in one cycle: those that are there, matched, and used."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.api.core import Pod
from scheduler.api.quantity import Amounts
from scheduler.api.reservation import RESTRICTED, Reservation
from scheduler.framework.nodeinfo import NodeInfo
from scheduler.framework.points import Plugin
from scheduler.framework.state import CycleState, StateKey
from scheduler.framework.status import Status


@dataclass(slots=True, eq=False)
class Reserved:
    """An available reservation, and who is in it. Amounts are in integers, as requests are."""

    reservation: Reservation
    allocatable: Amounts
    withheld: Amounts  # the part that owners do not get
    strict: tuple[str, ...]  # the resources that a Restricted one is strict about
    group: str  # the same for all reservations with the same owners
    annotation: str = ""  # `device-allocated`: all devices that it holds, whoever uses them now
    numa: Mapping[str, str] = field(default_factory=dict)  # annotations about CPUs and NUMA nodes, likewise
    owners: dict[str, Amounts] = field(default_factory=dict)  # what its pods request, by uid

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
        """Whether a pod may still come (RSV-R18)."""
        return not (self.reservation.spec.allocate_once and self.owners)

    @property
    def allocated(self) -> Amounts:
        """What its pods request of what it has (RSV-R7)."""
        return self.allocated_but(())

    def allocated_but(self, gone: Sequence[str]) -> Amounts:
        """The same if the pods `gone` were."""
        total = dict.fromkeys(self.allocatable, 0)
        for uid, requests in self.owners.items():
            if uid not in gone:
                for name in total:
                    total[name] += requests.get(name, 0)
        return {name: value for name, value in total.items() if value}

    def left(self, gone: Sequence[str] = ()) -> Amounts:
        """What it still holds: the rest is held by its pods themselves."""
        allocated = self.allocated_but(gone)
        return {name: max(0, value - allocated.get(name, 0)) for name, value in self.allocatable.items()}


MATCHED: StateKey[Mapping[str, Sequence[Reserved]]] = StateKey("Reservation/matched")  # by node; not empty
IGNORED: StateKey[bool] = StateKey("Reservation/ignored")  # reservations mean nothing to the pod: all are overlooked
REQUIRED: StateKey[bool] = StateKey("Reservation/required")  # the pod goes into a reservation or nowhere
NOMINATED: StateKey[Reserved] = StateKey("Reservation/nominated")  # what the pod goes into, on the node chosen
# The reservation on a node (as the pod sees it) that the pod would go into.
NOMINATE: StateKey[Callable[[CycleState, Pod, NodeInfo], Reserved | None]] = StateKey("Reservation/nominate")


@dataclass(frozen=True, slots=True)
class Way:
    """Where on a node a pod goes: into a reservation, or (None) beside all that are for it."""

    reserved: Reserved | None


INTO: StateKey[Way] = StateKey("Reservation/into")  # plugins are asked about this way alone; not there: about any


def going(state: CycleState, reserved: Reserved | None) -> CycleState:
    """The state in which to ask plugins about one way."""
    inner = state.fork()
    inner[INTO] = Way(reserved)
    return inner


def ways_on(state: CycleState, node_name: str) -> Sequence[Reserved | None]:
    """All ways onto a node that has reservations for the pod; none where one is being asked about."""
    there = matched_on(state, node_name)
    if not there or INTO in state:
        return ()
    return there if REQUIRED in state else (*there, None)


def matched_on(state: CycleState, node_name: str) -> Sequence[Reserved]:
    """The reservations on a node that are for this pod; none for a pod that ignores them."""
    matched = state.get(MATCHED)
    return matched.get(node_name, ()) if matched is not None and IGNORED not in state else ()


class ReservationAware(Plugin):
    """A plugin that holds something of its own for reservations (FilterNominateReservation, ScoreReservation)."""

    @abstractmethod
    def fits_in(self, state: CycleState, pod: Pod, reserved: Reserved | None, node_name: str) -> Status:
        """Whether the pod gets what it asks of this plugin in that reservation; None: beside all that are for it."""

    @abstractmethod
    def worth_in(self, state: CycleState, pod: Pod, reserved: Reserved, node_name: str) -> int:
        """How good that would be, 0 to 100, or any number: they are brought there by the largest."""
