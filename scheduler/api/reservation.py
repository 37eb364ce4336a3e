"""The Reservation object, and annotations of pods about reservations (Koordinator apis/scheduling, apis/extension).

The scheduler places a pod for each reservation, the reserve pod; `is_reserve_pod` recognises it.
"""

from typing import Any

import msgspec
from msgspec import field

from seatrial.scheduler.api.clock import read_time
from seatrial.scheduler.api.core import NodeSelector, Pod, PodSpec, Taint, Toleration
from seatrial.scheduler.api.durations import go_duration
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.quantity import Amounts, QuantityError, amounts
from seatrial.scheduler.api.wire import LabelSelector, ObjectMeta, ResourceList, Wire, decode_as, from_plain, to_json
from seatrial.scheduler.api.wrong_values import shown

RESERVATIONS_PATH = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"

RESERVATION_ALLOCATED = "scheduling.koordinator.sh/reservation-allocated"
RESERVATION_AFFINITY = "scheduling.koordinator.sh/reservation-affinity"
EXACT_MATCH = "scheduling.koordinator.sh/exact-match-reservation"
RESERVATION_IGNORED = "scheduling.koordinator.sh/reservation-ignored"
RESERVATION_ORDER = "scheduling.koordinator.sh/reservation-order"
RESTRICTED_OPTIONS = "scheduling.koordinator.sh/reservation-restricted-options"
INNER_RESERVATION = "node.koordinator.sh/reservation"
RESERVE_POD = "scheduling.koordinator.sh/reserve-pod"
RESERVATION_NAME = "scheduling.koordinator.sh/reservation-name"
RESERVATION_NODE = "scheduling.koordinator.sh/reservation-node"
RESIZE_ALLOCATABLE = "scheduling.koordinator.sh/reservation-resize-allocatable"
PRIORITY_LABEL = "koordinator.sh/priority"
PRE_ALLOCATION_REQUIRED = "scheduling.koordinator.sh/pre-allocation-required"

OPERATING_MODE = "scheduling.koordinator.sh/operating-mode"
RESERVATION_OWNERS = "scheduling.koordinator.sh/reservation-owners"
CURRENT_OWNER = "scheduling.koordinator.sh/reservation-current-owner"

PENDING, AVAILABLE, SUCCEEDED, FAILED = "Pending", "Available", "Succeeded", "Failed"
SCHEDULED, READY = "Scheduled", "Ready"  # condition types
EXPIRED, UNSCHEDULABLE = "Expired", "Unschedulable"  # reasons; the others equal phases and condition types
ALIGNED, RESTRICTED = "Aligned", "Restricted"
CLUSTER_MODE = "Cluster"  # of pre-allocation

DEFAULT_TTL = 24 * 3600.0  # seconds
HIGHEST_PRIORITY = (1 << 31) - 1


class ObjectReference(Wire, frozen=True):
    """A reference to an object; in the owners of a reservation, an empty field matches any value."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class ControllerReference(ObjectReference, frozen=True):
    """A reference to a controller of pods; an empty field matches any value."""

    controller: bool | None = None


class ReservationOwner(Wire, frozen=True):
    """The pods that may use a reservation: those that all given fields match."""

    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class PodTemplate(Wire, frozen=True):
    """The pod for which a reservation holds resources."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class PreAllocationPolicy(Wire, frozen=True):
    """Which running pods a reservation may take over; `enable_multiple`: more than one."""

    mode: str = "Default"
    enable_multiple: bool = False


class ReservationSpec(Wire, frozen=True):
    """`template` is plain data: the API server accepts any content, valid or not."""

    template: dict[str, Any] | None = None
    owners: tuple[ReservationOwner, ...] = ()
    ttl: str | None = None
    expires: str | None = None
    pre_allocation: bool = False
    pre_allocation_policy: PreAllocationPolicy = PreAllocationPolicy()
    allocate_once: bool = True
    allocate_policy: str = ""
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ReservationCondition(Wire, frozen=True):
    """A condition of a reservation, such as Scheduled or Ready."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_probe_time: str | None = None
    last_transition_time: str | None = None


class ReservationStatus(Wire, frozen=True):
    """Phase, node and owners of a reservation; amounts that it holds and that owners have taken."""

    phase: str = ""
    conditions: tuple[ReservationCondition, ...] = ()
    current_owners: tuple[ObjectReference, ...] = ()
    node_name: str = ""
    allocatable: ResourceList = {}
    allocated: ResourceList = {}

    def condition(self, type_: str) -> ReservationCondition | None:
        return next((condition for condition in self.conditions if condition.type == type_), None)


class Reservation(Wire, frozen=True):
    """A cluster-scoped reservation of resources."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ReservationSpec = ReservationSpec()
    status: ReservationStatus = ReservationStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def available(self) -> bool:
        """Whether it holds its resources on a node (RSV-R1)."""
        return self.status.phase == AVAILABLE and bool(self.status.node_name)

    @property
    def expired(self) -> bool:
        ready = self.status.condition(READY)
        return self.status.phase == FAILED and ready is not None and ready.reason == EXPIRED

    @property
    def ended(self) -> bool:
        return self.status.phase in {FAILED, SUCCEEDED}

    @property
    def order(self) -> int:
        """Smaller is first; 0: none is given, or it is not a 64-bit number."""
        reservation_order = self.metadata.labels.get(RESERVATION_ORDER, "")
        return integer(reservation_order) or 0

    @property
    def problem(self) -> str:
        """Why it cannot be scheduled on any node (RSV-R10); "" if it is valid."""
        if self.spec.template is None:
            return "the reservation misses the template spec"
        if not self.spec.owners:
            return "the reservation misses the owner spec"
        if self.spec.ttl is None and self.spec.expires is None:
            return "the reservation misses the expiration spec"
        if self.spec.ttl is not None and go_duration(self.spec.ttl) is None:
            return f"the reservation's ttl: expected a duration such as 24h, found {shown(self.spec.ttl)}"
        if self.spec.expires is not None and read_time(self.spec.expires) is None:
            return (
                "the reservation's expires: expected a time such as 2026-01-01T00:00:00Z, found"
                f" {shown(self.spec.expires)}"
            )
        return ""


class ReservationAffinity(Wire, frozen=True):
    """The reservations that a pod requires."""

    name: str = ""
    required: "AffinityTerms | None" = field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    reservation_selector: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class AffinityTerms(Wire, frozen=True):
    """The required part of a reservation affinity: terms of which one must match."""

    reservation_selector_terms: tuple[Any, ...] = ()

    @property
    def terms(self) -> NodeSelector:
        return from_plain({"nodeSelectorTerms": list(self.reservation_selector_terms)}, NodeSelector)


class _ResourceNames(Wire, frozen=True):
    resource_names: tuple[str, ...] = ()


class _Options(Wire, frozen=True):
    resources: tuple[str, ...] = ()


class _Resources(Wire, frozen=True):
    resources: ResourceList = {}


class _Allocated(Wire, frozen=True):
    name: str = ""
    uid: str = ""


class AnnotationError(ValueError):
    """An annotation is invalid; the text names it, and what was expected and found."""


def is_reserve_pod(pod: Pod) -> bool:
    """Whether the pod is the reserve pod of a reservation."""
    return bool(pod.metadata.annotations) and pod.metadata.annotations.get(RESERVE_POD) == "true"


def is_operating_reservation(pod: Pod) -> bool:
    """Whether the pod offers its place to other pods: operating mode `Reservation` (RSV-R23)."""
    return bool(pod.metadata.labels) and pod.metadata.labels.get(OPERATING_MODE) == "Reservation"


def owners_of(pod: Pod) -> tuple[ReservationOwner, ...]:
    """Who may use the place of a pod in operating mode `Reservation`.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    reservation_owners = pod.metadata.annotations.get(RESERVATION_OWNERS)
    expected = "a list of reservation owners"
    owners: tuple[ReservationOwner, ...] = (
        _read(RESERVATION_OWNERS, reservation_owners, tuple[ReservationOwner, ...], expected)
        if reservation_owners
        else ()
    )
    return owners


def current_owner_of(pod: Pod) -> str:
    """The uid of the pod that uses the place of a pod in operating mode `Reservation`; "" if none.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    current_owner = pod.metadata.annotations.get(CURRENT_OWNER)
    return str(_read(CURRENT_OWNER, current_owner, ObjectReference, "an object reference").uid) if current_owner else ""


def affinity_of(pod: Pod) -> ReservationAffinity | None:
    """The reservation affinity of a pod; an empty annotation requires any reservation.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    reservation_affinity = pod.metadata.annotations.get(RESERVATION_AFFINITY)
    if reservation_affinity is None:
        return None
    affinity = _read(RESERVATION_AFFINITY, reservation_affinity or "{}", ReservationAffinity, "a reservation affinity")
    if affinity.required is not None:
        try:
            _ = affinity.required.terms
        except msgspec.ValidationError as error:
            raise AnnotationError(f"annotation {RESERVATION_AFFINITY}: expected node selector terms: {error}") from None
    return affinity


def exact_names(pod: Pod) -> tuple[str, ...]:
    """The resources whose amounts must be equal in pod and reservation.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    exact_match = pod.metadata.annotations.get(EXACT_MATCH)
    return (
        _read(EXACT_MATCH, exact_match, _ResourceNames, '{"resourceNames": […]}').resource_names if exact_match else ()
    )


def ignores_reservations(pod: Pod) -> bool:
    """Whether reserved amounts count as free for the pod, by label (upstream) or annotation (release post)."""
    metadata = pod.metadata
    return "true" in {metadata.labels.get(RESERVATION_IGNORED), metadata.annotations.get(RESERVATION_IGNORED)}


def restricted_to(reservation: Reservation) -> tuple[str, ...]:
    """The resources that a Restricted reservation limits; empty: all.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    restricted_options = reservation.metadata.annotations.get(RESTRICTED_OPTIONS)
    return (
        _read(RESTRICTED_OPTIONS, restricted_options, _Options, '{"resources": […]}').resources
        if restricted_options
        else ()
    )


def withheld(reservation: Reservation) -> Amounts:
    """The amounts that a reservation withholds from its owners.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    return _amounts(INNER_RESERVATION, reservation)


def resized(reservation: Reservation) -> Amounts:
    """Amounts that replace those of the template.

    Raises:
        AnnotationError: the annotation is invalid.
    """
    return _amounts(RESIZE_ALLOCATABLE, reservation)


def _amounts(key: str, reservation: Reservation) -> Amounts:
    annotation = reservation.metadata.annotations.get(key)
    if not annotation:
        return {}
    try:
        return amounts(_read(key, annotation, _Resources, '{"resources": {…}}').resources)
    except QuantityError as error:
        raise AnnotationError(f"annotation {key}: {error}") from None


def allocated_to(pod: Pod) -> str:
    """The uid of the reservation that a pod was placed in; "" if none."""
    annotation = pod.metadata.annotations.get(RESERVATION_ALLOCATED) if pod.metadata.annotations else None
    if not annotation:
        return ""
    try:
        return decode_as(annotation, _Allocated).uid
    except msgspec.DecodeError:
        return ""


def allocation(name: str, uid: str) -> str:
    """The value of `reservation-allocated` on a pod that is placed in a reservation."""
    return to_json({"name": name, "uid": uid}).decode()


def _read(key: str, text: str, kind: "type[Any]", expected: str) -> Any:
    try:
        return decode_as(text, kind)
    except msgspec.DecodeError as error:
        raise AnnotationError(f"annotation {key}: expected {expected}, found {shown(text)} ({error})") from None
