"""The scheduler of a pod: a label wins over `spec.schedulerName` (FWK-R9; koordinator multi_scheduler.go)."""

from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.extension import SCHEDULER_NAME_LABEL


def with_labelled_scheduler(pod: Pod) -> Pod:
    """A pod that has the label, with the scheduler that it names in its spec."""
    return replace(pod, spec=replace(pod.spec, scheduler_name=pod.metadata.labels[SCHEDULER_NAME_LABEL]))
