"""A Hypothesis state machine over reservations on one node: whatever comes and goes, the node's sums are right."""

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.reservation import RESERVATION_ALLOCATED
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside
from seatrial.scheduler.tests.rig import Rig

NAMES, PODS = ["r1", "r2"], ["a", "b", "c", "d"]
CORES = st.integers(1, 4)


class Reservations(RuleBasedStateMachine):
    """Reservations come, end and go; pods come outside and inside of them, change place, and end, in any order.

    The model: a reservation holds of each resource what its pods do not use, and never less than nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.rig.node("n", cpu="64", memory="64Gi", pods=100)
        self.book = ReservationCache.of(self.rig.core.handle)
        self.held: dict[str, int] = {}  # cores of available reservations
        self.pods: dict[str, tuple[int, str]] = {}  # cores, and the reservation that its annotation names

    @rule(name=st.sampled_from(NAMES), cores=CORES)
    def reserve(self, name: str, cores: int) -> None:
        if name not in self.held:
            hold(self.rig, name, "n", {"cpu": cores * 1000})
            self.held[name] = cores

    @rule(name=st.sampled_from(NAMES))
    def end(self, name: str) -> None:
        """The reservation expires; its pods keep their annotation."""
        if self.held.pop(name, None) is not None:
            known = self.book.known[name]
            self.rig.core.set_reservation(replace(known, status=replace(known.status, phase="Failed")))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.held.pop(name, None)
        self.rig.core.remove_reservation(name)

    @rule(name=st.sampled_from(PODS), cores=CORES, where=st.sampled_from([*NAMES, ""]))
    def place(self, name: str, cores: int, where: str) -> None:
        if name in self.pods:
            return
        if where:
            inside(self.rig, name, "n", where, cpu=cores)
        else:
            self.rig.running(pod(name).request(cpu=cores), "n")
        self.pods[name] = cores, where

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def leave_the_reservation(self, data: st.DataObject) -> None:
        """The annotation is removed, as for pods of a reservation that was deleted."""
        name = data.draw(st.sampled_from(sorted(self.pods)))
        placed = self.rig.core.cache.placed(f"uid-{name}")
        assert placed is not None
        metadata = placed.pod.metadata
        left = {key: value for key, value in metadata.annotations.items() if key != RESERVATION_ALLOCATED}
        self.rig.core.set_pod(msgspec.structs.replace(placed.pod, metadata=replace(metadata, annotations=left)))
        self.pods[name] = self.pods[name][0], ""

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pods)))
        self.rig.delete(name)
        del self.pods[name]

    @invariant()
    def sums_are_right(self) -> None:
        node = self.rig.core.cache.find("n")
        assert node is not None
        column = self.rig.core.handle.columns.resources.column("cpu")
        inside_of = {name: sum(cores for cores, where in self.pods.values() if where == name) for name in NAMES}
        held = sum(max(0, cores - inside_of[name]) for name, cores in self.held.items())
        assert node.requested[column] == 1000 * (held + sum(cores for cores, _ in self.pods.values()))

    @invariant()
    def only_available_reservations_are_on_the_node(self) -> None:
        assert set(self.book.on("n")) == set(self.held)
        for name, reserved in self.book.on("n").items():
            owners = {f"uid-{found}" for found, (_, where) in self.pods.items() if where == name}
            assert set(reserved.owners) == owners
            assert reserved.open  # `hold` makes reservations that serve many pods


TestReservations = Reservations.TestCase
TestReservations.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
