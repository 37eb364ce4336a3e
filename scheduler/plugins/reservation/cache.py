"""Reservations, the pods in them, and the reserve pods that hold the rest on nodes.

A reservation is on its node as a reserve pod that holds what its owners do not hold yet: it shrinks when an owner
comes and grows when one goes. So sums, columns and devices always show what other pods may use, and code that does not
know reservations schedules around them. Upstream restores reserved amounts for matching pods in each cycle; the
numbers are the same (RSV-R24) until an owner takes more than was reserved.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.numa import RESOURCE_SPEC, RESOURCE_STATUS
from seatrial.scheduler.api.quantity import Amounts, QuantityError, amounts
from seatrial.scheduler.api.reservation import (
    HIGHEST_PRIORITY,
    Reservation,
    allocated_to,
    current_owner_of,
    is_reserve_pod,
    restricted_to,
    withheld,
)
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import renamed
from seatrial.scheduler.cache.listener import Listener
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.reservation_info import ReservationInfo
from seatrial.scheduler.plugins.deviceshare.cache import DeviceCache
from seatrial.scheduler.plugins.deviceshare.reservation_rest import still_held
from seatrial.scheduler.plugins.nodenuma.cache import NumaCache
from seatrial.scheduler.plugins.nodenuma.reservation_rest import still_held as numa_still_held
from seatrial.scheduler.plugins.reservation.args import SelectorIndexArgs
from seatrial.scheduler.plugins.reservation.operating_pods import as_reservation, offers_place
from seatrial.scheduler.plugins.reservation.owners import OwnerIndex
from seatrial.scheduler.plugins.reservation.reserve_pods import carrying, reserve_pod, template_requests
from seatrial.scheduler.plugins.reservation.selector_index import SelectorIndex


class ReservationCache(Listener):
    """All reservations. All profiles share one cache."""

    only_annotations = True

    def __init__(self, cache: Cache, devices: DeviceCache, numa: NumaCache) -> None:
        self._cache = cache
        self._devices = devices
        self._numa = numa
        self.owners = OwnerIndex()
        self.known: dict[str, Reservation] = {}  # by uid, in any phase
        self._available: dict[str, ReservationInfo] = {}  # by uid
        self._by_group: dict[str, dict[str, ReservationInfo]] = {}
        self._by_node: dict[str, dict[str, ReservationInfo]] = {}
        self._in: dict[str, dict[str, Amounts]] = {}  # reservation uid → pod uid → the pod's requests
        self._of: dict[str, str] = {}  # pod uid → the uid of its reservation
        self.taken_over: dict[str, tuple[PodInfo, ...]] = {}  # by reservation; written to the pods once it is bound
        self.moved: set[str] = set()  # uids of reservations that gained or lost a pod; the status writer empties it
        # uids of pods whose reservation ended and was deleted; emptied by the same writer
        self.strays: set[str] = set()
        self.indexes: dict[SelectorIndexArgs, SelectorIndex] = {}

    @staticmethod
    def of(handle: Handle) -> "ReservationCache":
        """The cache of this scheduler; the first caller creates it and registers it as a listener."""

        def make() -> ReservationCache:
            # The other caches listen first: when a pod comes, its part must be known before the rest is computed.
            reservation_cache = ReservationCache(handle.cache, DeviceCache.of(handle), NumaCache.of(handle))
            handle.cache.listen(reservation_cache)
            return reservation_cache

        return handle.shared(ReservationCache, make)

    def index(self, args: SelectorIndexArgs) -> SelectorIndex:
        """The index of these arguments; profiles with equal arguments share it. Call before the first event."""
        return self.indexes.setdefault(args, SelectorIndex(args))

    # -- questions ----------------------------------------------------------------------------------------------------

    def find(self, uid: str) -> ReservationInfo | None:
        """The available reservation of that uid."""
        return self._available.get(uid)

    def holding(self, pod_uid: str) -> ReservationInfo | None:
        """The available reservation that contains a pod."""
        return self._available.get(self._of.get(pod_uid, ""))

    def contains(self, pod_uid: str) -> bool:
        """Whether the pod is in a reservation, which may have ended, and may not be written to the pod yet."""
        return pod_uid in self._of

    def on(self, node: str) -> Mapping[str, ReservationInfo]:
        """The available reservations on a node, by uid."""
        return self._by_node.get(node, {})

    def nodes(self) -> list[str]:
        """The nodes with available reservations."""
        return list(self._by_node)

    def of_groups(self, groups: Sequence[str]) -> Iterator[ReservationInfo]:
        """Available reservations with these owner groups, whether they admit pods or not."""
        for group in groups:
            yield from self._by_group[group].values()

    def __iter__(self) -> Iterator[ReservationInfo]:
        """The available reservations."""
        return iter(self._available.values())

    def pods_in(self, uid: str) -> list[PodInfo]:
        """The pods that the API server shows in a reservation, by uid (RSV-R7)."""
        pods = (self._cache.placed(item) for item in sorted(self._in.get(uid, ())) if not self._cache.is_assumed(item))
        return [info for info in pods if info is not None and allocated_to(info.pod) == uid]

    # -- reservations -------------------------------------------------------------------------------------------------

    def set(self, reservation: Reservation) -> Pod:
        """Take in a reservation that was added or changed. Returns its reserve pod.

        Raises:
            ValueError: it cannot be understood; it counts for nothing then.
        """
        uid = reservation.metadata.uid
        self._withdraw(uid)
        self.known[uid] = reservation
        if not reservation.available:
            return reserve_pod(reservation)
        reserved = self._parsed(reservation)
        self._admit(reserved)
        self.moved.add(uid)
        return self._pod(reserved)

    def set_operating(self, pod: Pod) -> Pod:
        """A pod on a node, in operating mode Reservation, was added or changed. Returns it without its owners' part.

        Raises:
            ValueError: its annotations cannot be understood; it offers nothing then.
        """
        uid = pod.metadata.uid
        self._withdraw(uid)
        if not offers_place(pod):
            return pod
        reservation, current = as_reservation(pod), current_owner_of(pod)
        requests = self._cache.classes.of(pod).requests
        marks = pod.metadata.annotations
        inside = self._in.setdefault(uid, {})
        for owner in [owner for owner in inside if self._of.get(owner) != uid]:
            del inside[owner]  # named as the current owner before
        if current:
            inside.setdefault(current, {})
        reserved = ReservationInfo(
            reservation,
            {**requests},
            renamed(withheld(reservation)),
            restricted_to(reservation),
            "",
            marks.get(DEVICE_ALLOCATED, ""),
            {name: marks[name] for name in (RESOURCE_STATUS, RESOURCE_SPEC) if name in marks},
            inside,
            pod,
        )
        self._admit(reserved)
        return self._pod(reserved)

    def remove_operating(self, uid: str) -> None:
        """A pod is gone. If it offered its place, the place is gone too; the pod in it stays."""
        entry = self._available.get(uid)
        if entry is not None and entry.pod is not None:
            self._withdraw(uid)
            if not self._in[uid]:
                del self._in[uid]

    def _admit(self, reserved: ReservationInfo) -> None:
        uid, reservation = reserved.uid, reserved.reservation
        reserved.group = self.owners.add(reservation.spec.owners)
        self._available[uid] = reserved
        self._by_group.setdefault(reserved.group, {})[uid] = reserved
        self._by_node.setdefault(reserved.node, {})[uid] = reserved
        for index in self.indexes.values():
            index.add(uid, reserved.node, reservation.metadata.labels)
        self._cache.placement_changes += 1

    def remove(self, uid: str) -> None:
        """Remove a reservation; its pods stay where they are."""
        self._withdraw(uid)
        gone = self.known.pop(uid, None)
        if gone is not None and gone.ended:
            self.strays.update(self._in.get(uid, ()))
        if not self._in.get(uid, True):
            del self._in[uid]
        self.moved.discard(uid)

    def _withdraw(self, uid: str) -> None:
        reserved = self._available.pop(uid, None)
        if reserved is None:
            return
        self._cache.placement_changes += 1
        self.owners.remove(reserved.group)
        for index in self.indexes.values():
            index.remove(uid)
        for table, key in ((self._by_group, reserved.group), (self._by_node, reserved.node)):
            del table[key][uid]
            if not table[key]:
                del table[key]

    def _parsed(self, reservation: Reservation) -> ReservationInfo:
        status = reservation.status
        allocatable_amounts = amounts(status.allocatable) if status.allocatable else template_requests(reservation)
        uid = reservation.metadata.uid
        marks = reserve_pod(reservation).metadata.annotations
        return ReservationInfo(
            reservation,
            renamed(allocatable_amounts),
            renamed(withheld(reservation)),
            restricted_to(reservation),
            "",
            marks.get(DEVICE_ALLOCATED, ""),
            {name: marks[name] for name in (RESOURCE_STATUS, RESOURCE_SPEC) if name in marks},
            self._in.setdefault(uid, {}),
        )

    # -- pods ---------------------------------------------------------------------------------------------------------

    def assign(self, uid: str, pod: Pod, node: str) -> None:
        """Put `pod` into the reservation `uid`, with the devices that it holds by now."""
        pod_uid = pod.metadata.uid
        if self._of.get(pod_uid) == uid:
            return
        self.withdraw(pod_uid)
        self._of[pod_uid] = uid
        self._in.setdefault(uid, {})[pod_uid] = {**self._cache.classes.of(pod).requests}
        self._changed(uid)

    def withdraw(self, pod_uid: str) -> None:
        """Take the pod out of its reservation."""
        uid = self._of.pop(pod_uid, None)
        if uid is not None:
            del self._in[uid][pod_uid]
            self._changed(uid)

    def take_over(self, uid: str, pods: Sequence[PodInfo], node: str) -> None:
        """Put running pods into a reservation that is being bound; the controller writes it to the pods afterwards."""
        if pods:
            self.taken_over[uid] = tuple(pods)
            for info in pods:
                self.assign(uid, info.pod, node)

    def give_back(self, uid: str) -> None:
        """Undo `take_over`."""
        for info in self.taken_over.pop(uid, ()):
            self.withdraw(info.uid)

    def _changed(self, uid: str) -> None:
        """Let the reserve pod hold what the owners do not."""
        if not self._in[uid] and uid not in self._available:
            del self._in[uid]
        if uid in self.known:
            self.moved.add(uid)
        reserved = self._available.get(uid)
        if reserved is not None:
            self._cache.placement_changes += 1
            if self._cache.placed(uid) is not None:
                self._cache.set_pod(self._pod(reserved))

    def _pod(self, reserved: ReservationInfo) -> Pod:
        """The reserve pod that holds what is left of a reservation."""
        return self.pod_without(reserved, ())

    def pod_without(self, reserved: ReservationInfo, gone: Sequence[str]) -> Pod:
        """The reserve pod as it would be without the pods `gone` in the reservation."""
        if reserved.pod is None:
            pod = reserve_pod(reserved.reservation, reserved.left(gone))
            pod = replace(pod, spec=replace(pod.spec, priority=HIGHEST_PRIORITY))  # never a victim (RSV-R44)
        else:
            pod, left_over = reserved.pod, reserved.left(gone)
            if left_over != reserved.allocatable:
                pod = replace(pod, spec=carrying(pod.spec, left_over))
        others = [uid for uid in reserved.owners if uid not in gone]
        left: dict[str, str] = {}  # annotations with the rest only
        devices = self._devices.find(reserved.node) if reserved.annotation else None
        if devices is not None:
            shares = [devices.held[uid] for uid in others if uid in devices.held]
            if shares:
                left[DEVICE_ALLOCATED] = still_held(reserved.annotation, shares)
        numa = self._numa.find(reserved.node) if RESOURCE_STATUS in reserved.numa else None
        if numa is not None:
            bookings = [numa.held[uid] for uid in others if uid in numa.held]
            if bookings:
                left[RESOURCE_STATUS] = numa_still_held(reserved.numa, bookings)
        if not left:
            return pod
        annotations = {
            name: text for name, text in {**pod.metadata.annotations, **left}.items() if text or name not in left
        }
        return replace(pod, metadata=replace(pod.metadata, annotations=annotations))

    # -- events of the cache ------------------------------------------------------------------------------------------

    def pod_placed(self, info: PodInfo) -> None:
        if info.pod.metadata.annotations:
            uid = allocated_to(info.pod)
            if uid and not is_reserve_pod(info.pod):
                self.assign(uid, info.pod, info.node_name)

    def pod_changed(self, info: PodInfo, before: Pod) -> None:
        uid = allocated_to(info.pod)
        if uid != self._of.get(info.uid, ""):
            self.withdraw(info.uid)
        self.pod_placed(info)
        if uid:
            self.moved.add(uid)  # the allocation that this scheduler wrote has arrived: the status may name the pod now

    def pod_gone(self, info: PodInfo) -> None:
        self.strays.discard(info.uid)
        if info.uid in self._of:
            self.withdraw(info.uid)


UNREADABLE = (ValueError, QuantityError, msgspec.DecodeError)  # errors of `ReservationCache.set` for invalid objects
