"""A Hypothesis state machine over reservations on one node: whatever comes and goes, the node's sums are right."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from seatrial.scheduler.api.builders import PodBuilder, pod, reservation
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import (
    OPERATING_MODE,
    RESERVATION_ALLOCATED,
    RESERVATION_OWNERS,
    Reservation,
    ReservationStatus,
    allocation,
)
from seatrial.scheduler.api.wire import Condition
from seatrial.scheduler.plugins.reservation import lifecycle
from seatrial.scheduler.plugins.reservation.cache import ReservationCache
from seatrial.scheduler.plugins.reservation.tests.reservations import owner
from seatrial.scheduler.tests.rig import Rig

NAMES, PODS, OFFERS = ["r1", "r2"], ["a", "b", "c", "d"], ["o1", "o2"]
CORES = st.integers(1, 4)
TTL = 100.0  # seconds


class Reservations(RuleBasedStateMachine):
    """Reservations come, expire and go; pods come outside and inside of them and in places of running pods, change
    place, and end, in any order. The scheduler loses its watch and reads lists again, and is started again.

    `objects` is what the API server has. The model: a reservation, or a Ready pod in operating mode Reservation, holds
    of each resource what its pods do not use, and never less than nothing.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.objects: dict[str, Pod | Reservation] = {}  # by uid, in the order of their creation
        self.watching = True
        self._start()

    def _start(self) -> None:
        self.rig = Rig()
        self.rig.node("n", cpu="64", memory="64Gi", pods=100)
        self.book = ReservationCache.of(self.rig.core.handle)
        self.seen: dict[str, Pod | Reservation] = {}

    # -- what the scheduler sees --------------------------------------------------------------------------------------

    def _write(self, uid: str, result: Pod | Reservation | None) -> None:
        """Change the API server's objects; a scheduler that watches sees it."""
        if result is None:
            self.objects.pop(uid, None)
        else:
            self.objects[uid] = result
        if self.watching:
            self._see(uid)

    def _see(self, uid: str) -> None:
        before, entry = self.seen.pop(uid, None), self.objects.get(uid)
        if entry is None:
            if isinstance(before, Reservation):
                self.rig.core.intake.remove_reservation(uid)
            elif before is not None:
                self.rig.core.intake.remove_pod(uid)
            return
        self.seen[uid] = entry
        if isinstance(entry, Reservation):
            self.rig.core.intake.set_reservation(entry)
        else:
            self.rig.core.intake.set_pod(entry)

    @rule()
    def lose_the_watch(self) -> None:
        self.watching = False

    @rule(order=st.randoms(use_true_random=False))
    def read_lists_again(self, order: Any) -> None:
        """Only the last state of each object is seen, objects of different kinds in any order."""
        self.watching = True
        uids = sorted({*self.seen, *self.objects})
        order.shuffle(uids)
        for uid in uids:
            if self.seen.get(uid) is not self.objects.get(uid):
                self._see(uid)

    @rule(order=st.randoms(use_true_random=False))
    def restart(self, order: Any) -> None:
        """A new scheduler reads everything from lists."""
        self._start()
        self.read_lists_again(order)

    # -- what happens -------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), cores=CORES)
    def reserve(self, name: str, cores: int) -> None:
        if name in self.objects:
            return
        built = reservation(name).like(pod("x").request(cpu=cores)).for_labels(app="a").many().ttl(f"{TTL:g}s")
        built.manifest["metadata"] |= {"uid": name, "creationTimestamp": rfc3339(self.now)}
        status = ReservationStatus("Available", node_name="n", allocatable={"cpu": str(cores)})
        self._write(name, replace(msgspec.convert(built.manifest, Reservation), status=status))

    @rule(seconds=st.sampled_from([1.0, TTL / 2, TTL + 1]))
    def wait(self, seconds: float) -> None:
        """Time passes; reservations whose ttl is over expire. Their pods keep their annotation."""
        self.now += seconds
        for name in NAMES:
            entry = self.objects.get(name)
            if isinstance(entry, Reservation) and not entry.ended and lifecycle.is_over(entry, self.now):
                self._write(name, replace(entry, status=replace(entry.status, phase="Failed")))

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self._write(name, None)

    @rule(name=st.sampled_from(OFFERS), cores=CORES, ready=st.booleans())
    def offer(self, name: str, cores: int, ready: bool) -> None:
        """A pod in operating mode Reservation, Ready or not yet."""
        if f"uid-{name}" not in self.objects:
            built = pod(name).request(cpu=cores).label(OPERATING_MODE, "Reservation")
            built.annotation(RESERVATION_OWNERS, '[{"labelSelector": {"matchLabels": {"app": "a"}}}]')
            self._run(built)
            self.change_readiness(name, ready)

    @rule(name=st.sampled_from(OFFERS), ready=st.booleans())
    def change_readiness(self, name: str, ready: bool) -> None:
        entry = self.objects.get(f"uid-{name}")
        if isinstance(entry, Pod):
            conditions = (Condition("Ready", "True" if ready else "False"),)
            self._write(f"uid-{name}", replace(entry, status=replace(entry.status, conditions=conditions)))

    @rule(name=st.sampled_from(PODS), cores=CORES, where=st.sampled_from([*NAMES, *OFFERS, ""]))
    def place(self, name: str, cores: int, where: str) -> None:
        if f"uid-{name}" in self.objects:
            return
        built = owner(name, cpu=cores)
        if where:
            built.annotation(RESERVATION_ALLOCATED, allocation(where, uid_of(where)))
        self._run(built)

    def _run(self, built: PodBuilder) -> None:
        made = Rig().pod(built)
        status = replace(made.status, phase="Running")
        self._write(made.metadata.uid, replace(made, spec=replace(made.spec, node_name="n"), status=status))

    def _pods(self) -> list[Pod]:
        return [candidate for candidate in self.objects.values() if isinstance(candidate, Pod)]

    @precondition(lambda self: any(not offers(pod) for pod in self._pods()))
    @rule(data=st.data())
    def leave_the_reservation(self, data: st.DataObject) -> None:
        """The annotation is removed, as for pods of a reservation that was deleted."""
        uids = sorted(pod.metadata.uid for pod in self._pods() if not offers(pod))
        result = self.objects[data.draw(st.sampled_from(uids))]
        left = {key: value for key, value in result.metadata.annotations.items() if key != RESERVATION_ALLOCATED}
        self._write(result.metadata.uid, replace(result, metadata=replace(result.metadata, annotations=left)))

    @precondition(lambda self: self._pods())
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        self._write(data.draw(st.sampled_from(sorted(pod.metadata.uid for pod in self._pods()))), None)

    # -- what must hold -----------------------------------------------------------------------------------------------

    def _inside(self, uid: str) -> dict[str, int]:
        """The cores of the pods that name this reservation or pod as the place where they are."""
        text = f'"{uid}"'
        return {
            pod.metadata.uid: cores_of(pod)
            for pod in self._pods()
            if text in pod.metadata.annotations.get(RESERVATION_ALLOCATED, "")
        }

    def _places(self) -> dict[str, int]:
        """The cores of what is open for owners, by uid."""
        by_uid = {}
        for uid, each in self.objects.items():
            if isinstance(each, Reservation) and each.available:
                by_uid[uid] = int(each.status.allocatable["cpu"])
            elif isinstance(each, Pod) and offers(each) and is_ready(each):
                by_uid[uid] = cores_of(each)
        return by_uid

    @invariant()
    def sums_are_right(self) -> None:
        if not self.watching:
            return
        node = self.rig.core.cache.find("n")
        assert node is not None
        column = self.rig.core.handle.columns.resources.column("cpu")
        places = self._places()
        expected = sum(max(0, cores - sum(self._inside(uid).values())) for uid, cores in places.items())
        expected += sum(cores_of(pod) for pod in self._pods() if pod.metadata.uid not in places)
        assert node.requested[column] == 1000 * expected

    @invariant()
    def only_open_places_are_on_the_node(self) -> None:
        if not self.watching:
            return
        assert set(self.book.on("n")) == set(self._places())
        for uid, reserved in self.book.on("n").items():
            inside = set(self._inside(uid))
            assert set(reserved.owners) == inside
            assert reserved.open == (uid in NAMES or not inside)  # a place of a pod serves one


def uid_of(place: str) -> str:
    return place if place in NAMES else f"uid-{place}"


def offers(pod: Pod) -> bool:
    return OPERATING_MODE in pod.metadata.labels


def is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def cores_of(pod: Pod) -> int:
    return int(pod.spec.containers[0].resources.requests["cpu"])


TestReservations = Reservations.TestCase
TestReservations.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
