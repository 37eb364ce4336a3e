"""Trains the models of a node, and says what can be taken from its prod pods (PR-1, PR-7 to PR-9)."""

from collections.abc import Collection, Hashable

import msgspec

from seatrial.scheduler.api.clock import Clock, read_time
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.numa import PROD
from seatrial.scheduler.api.quantity import CPU, MEMORY, Quantity, amount
from seatrial.scheduler.api.slo import RAW_ALLOCATABLE
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.koordlet import prediction
from seatrial.scheduler.koordlet.collectors import FRESH, SYSTEM_CPU, SYSTEM_MEMORY
from seatrial.scheduler.koordlet.objects import LocalPod
from seatrial.scheduler.koordlet.prediction import Amounts, Models, PodPeak
from seatrial.scheduler.koordlet.samples import Samples
from seatrial.scheduler.pods.requests import pod_requests


class Predictor:
    """Predicts by the models of pods, of the system, and of all prod pods together."""

    def __init__(self, models: Models, samples: Samples, clock: Clock) -> None:
        self.models, self._samples, self._clock = models, samples, clock

    def train(self, pods: Collection[LocalPod]) -> None:
        """One sample for each model."""
        uids = [pod.uid for pod in pods if pod.priority_class == PROD]
        owners: list[tuple[str, Hashable, Hashable]] = [
            (prediction.SYSTEM, SYSTEM_CPU, SYSTEM_MEMORY),
            (prediction.PROD, ("prod", "cpu"), ("prod", "memory")),
        ]
        owners += [(uid, ("cpu", "pod", uid), ("memory", "pod", uid)) for uid in uids]
        now = self._clock.monotonic()
        for kind in ("cpu", "memory"):
            used = [self._samples.last((kind, "pod", uid), now - FRESH) for uid in uids]
            self._samples.add(("prod", kind), now, sum(value or 0.0 for value in used))
        self.models.train(self._samples, now, self._clock.now(), owners)
        self.models.keep(uids)

    def reclaimable(self, pods: Collection[LocalPod], node: Node) -> Amounts | None:
        """Thousandths of a core and bytes that prod pods have requested and will not use; None: nothing is known yet.

        Raises:
            QuantityError: an amount is not a quantity.
        """
        system, together = self.models.peak(prediction.SYSTEM), self.models.peak(prediction.PROD)
        if system is None or together is None:
            return None
        peaks = [self._peak(pod) for pod in pods if pod.active and pod.priority_class == PROD]
        allocatable = _raw_allocatable(node)
        request = Amounts(sum(each.request.cpu for each in peaks), sum(each.request.memory for each in peaks))
        return prediction.combined(
            prediction.of_pods(peaks, allocatable), prediction.of_classes(request, [system, together], allocatable)
        ).reclaimable

    def _peak(self, pod: LocalPod) -> PodPeak:
        requests = pod_requests(pod.pod.spec)
        started = read_time(pod.pod.status.start_time)
        young = started is None or self._clock.now() - started < prediction.COLD_START
        request = Amounts(requests.get(CPU, 0), requests.get(MEMORY, 0))
        return PodPeak(request, None if young else self.models.peak(pod.uid))


def _raw_allocatable(node: Node) -> Amounts:
    """What the node has for pods, before amplification."""
    written = node.metadata.annotations.get(RAW_ALLOCATABLE, "")
    raw: dict[str, Quantity] = {}
    if written:
        try:
            raw = decode_as(written, dict[str, Quantity])
        except msgspec.MsgspecError:
            raw = {}
    results = {**node.status.allocatable, **raw}
    return Amounts(*(amount(name, results.get(name, 0)) for name in (CPU, MEMORY)))
