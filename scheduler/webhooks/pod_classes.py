"""Rules about QoS classes and priority classes of pods (V-2 to V-5).

Follows Koordinator's pkg/webhook/pod/validating/cluster_colocation_profile.go; the messages are Koordinator's.
"""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import LSE, LSR, PROD, QOS_LABEL
from seatrial.scheduler.api.quantity import CPU, canonical
from seatrial.scheduler.api.reservation import PRIORITY_LABEL
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY
from seatrial.scheduler.pods.cpu_binding import priority_class
from seatrial.scheduler.pods.priority import BATCH, FREE, MID
from seatrial.scheduler.pods.qos import BE, raw_qos
from seatrial.scheduler.pods.requests import pod_requests

_CLASSES = frozenset({PROD, MID, BATCH, FREE})
_FORBIDDEN = {BE: frozenset({"", PROD}), LSR: frozenset({"", MID, BATCH, FREE})}


def class_problems(pod: Pod, old: Pod | None) -> list[str]:
    """Why the pod is refused; empty if it is valid. `old`: the pod before an update.

    Raises:
        QuantityError: an amount is not a quantity.
    """
    qos, priority = raw_qos(pod.metadata.labels), _class(pod)
    messages = []
    requests = pod_requests(pod.spec)
    if qos != BE and (requests.get(BATCH_CPU) or requests.get(BATCH_MEMORY)):
        messages.append(
            f"labels.{QOS_LABEL}: Required value: must specify koordinator QoS BE with koordinator colocation resources"
        )
    if old is not None:
        sub, sub_before = (each.metadata.labels.get(PRIORITY_LABEL, "") for each in (pod, old))
        messages += [
            f'{field}: Invalid value: "{value}": field is immutable'
            for field, value, before in (
                (f"labels.{QOS_LABEL}", qos, raw_qos(old.metadata.labels)),
                ("spec.priority", priority, _class(old)),
                (f"labels.{PRIORITY_LABEL}", sub, sub_before),
            )
            if value != before
        ]
    if priority in _FORBIDDEN.get(qos, ()):
        messages.append(f"Pod: Forbidden: {QOS_LABEL}={qos} and priorityClass={priority} cannot be used in combination")
    if qos in {LSR, LSE}:
        messages += _cpu_problems(requests.get(CPU, 0))
    return messages


def _cpu_problems(requested: int) -> list[str]:
    field = "pod.spec.containers[*].resources.requests"
    if not requested:
        return [f"{field}: Required value: LSR Pod must declare the requested CPUs"]
    if requested % 1000:
        return [
            f'{field}: Invalid value: "{canonical(f"{requested}m")}": the requested CPUs of LSR Pod must be integer'
        ]
    return []


def _class(pod: Pod) -> str:
    """The priority class of label or band alone (Q-1)."""
    label_priority_class = priority_class(pod.metadata.labels, pod.spec)
    return label_priority_class if label_priority_class in _CLASSES else ""
