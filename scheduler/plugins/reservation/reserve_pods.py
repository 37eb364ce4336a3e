"""Reserve pods: the pod that the scheduler places for a reservation, and what the reservation requests.

Follows Koordinator pkg/util/reservation `NewReservePod`.
"""

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import DEFAULT_SCHEDULER, Container, Pod, PodSpec, PodStatus, ResourceRequirements
from seatrial.scheduler.api.device import DEVICE_ALLOCATED
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.numa import RESOURCE_STATUS
from seatrial.scheduler.api.quantity import PODS, Amounts, quantities
from seatrial.scheduler.api.reservation import (
    HIGHEST_PRIORITY,
    PRIORITY_LABEL,
    RESERVATION_ALLOCATED,
    RESERVATION_NAME,
    RESERVATION_NODE,
    RESERVE_POD,
    PodTemplate,
    Reservation,
    resized,
)
from seatrial.scheduler.api.wire import ObjectMeta, from_plain
from seatrial.scheduler.pods.requests import pod_requests

FILLER = "__internal_fake_container__"  # carries the requests that the containers of a reserve pod do not name

# A template may be copied from a pod that is bound: what was allocated to that pod is not the reservation's.
_ALLOCATED = frozenset({DEVICE_ALLOCATED, RESOURCE_STATUS, RESERVATION_ALLOCATED})


def reserve_pod(reservation: Reservation, holding: Amounts | None = None) -> Pod:
    """The reserve pod of a reservation (RSV-R12 to RSV-R14); `holding` replaces its requests.

    It is one pod, however many places the reservation has (`pods` among its amounts). A reservation without a template
    gives a pod without requests; the plugin refuses it.

    Raises:
        ValueError: the template is not a pod template.
    """
    template = _template(reservation)
    metadata, own, spec = template.metadata, reservation.metadata, template.spec
    status = reservation.status
    theirs = {name: text for name, text in metadata.annotations.items() if name not in _ALLOCATED}
    annotations = {**theirs, **own.annotations, RESERVE_POD: "true", RESERVATION_NAME: own.name}
    if spec.node_name:
        annotations[RESERVATION_NODE] = spec.node_name
    if holding is None:
        amounts = pod_requests(spec)
        holding = amounts if PODS in amounts else None
    if holding is not None:
        spec = carrying(spec, {name: value for name, value in holding.items() if name != PODS})
    return Pod(
        ObjectMeta(
            name=own.uid,
            namespace=metadata.namespace or "default",
            uid=own.uid,
            resource_version=own.resource_version,
            creation_timestamp=own.creation_timestamp,
            deletion_timestamp=own.deletion_timestamp,
            labels={**metadata.labels, **own.labels},
            annotations=annotations,
        ),
        replace(
            spec,
            node_name=status.node_name,
            scheduler_name=spec.scheduler_name or DEFAULT_SCHEDULER,
            priority=_priority(reservation, metadata.labels),
        ),
        PodStatus(phase=status.phase if reservation.ended else ""),
    )


def template_requests(reservation: Reservation) -> Amounts:
    """The requests of the template, as for a pod, with the amounts of a resize annotation on top.

    Raises:
        ValueError: the template is not a pod template, or an amount is not a quantity.
    """
    return {**pod_requests(_template(reservation).spec), **resized(reservation)}


def _template(reservation: Reservation) -> PodTemplate:
    try:
        return from_plain(reservation.spec.template or {}, PodTemplate)
    except msgspec.ValidationError as error:
        raise ValueError(f"spec.template: {error}") from None


def carrying(spec: PodSpec, holding: Amounts) -> PodSpec:
    """The same pod requesting exactly these amounts, all in one additional container."""
    bare = tuple(replace(container, resources=ResourceRequirements()) for container in spec.containers)
    filler = Container(FILLER, resources=ResourceRequirements(requests=dict(quantities(holding))))
    inits = tuple(replace(container, resources=ResourceRequirements()) for container in spec.init_containers)
    return replace(spec, containers=(*bare, filler), init_containers=inits, overhead={}, resources=None)


def _priority(reservation: Reservation, template_labels: dict[str, str]) -> int:
    """The priority of the reserve pod; without any, the highest (RSV-R13)."""
    priority = ((reservation.spec.template or {}).get("spec") or {}).get("priority")
    if isinstance(priority, int):
        return priority
    label = {**template_labels, **reservation.metadata.labels}.get(PRIORITY_LABEL, "")
    value = integer(label, -HIGHEST_PRIORITY - 1, HIGHEST_PRIORITY)
    return HIGHEST_PRIORITY if value is None else value
