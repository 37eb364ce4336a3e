"""HAMi 2.10: cards and shares by NVIDIA's names beside kube-scheduler, of which HAMi's scheduler is an extender."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from seatrial.harness.dialects.dialect import Caller, Intent, Object
from seatrial.harness.dialects.kubernetes import Kubernetes
from seatrial.harness.dialects.vgpu import MEMORY, SLOTS, TYPE, card_names, percent_held
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.wire import to_json

COUNT = "nvidia.com/vgpu"  # of its configuration; the plain name is that of whole cards on simulated nodes
_CORES, _MEMORY = "nvidia.com/gpucores", "nvidia.com/gpumem"


class Hami(Kubernetes):
    """HAMi's extender with kube-scheduler. Its webhook is not there: pods have what it would add."""

    name = "hami"
    unsaid: ClassVar = {intent: why for intent, why in Kubernetes.unsaid.items() if intent is not Intent.SHARES}

    def node(self, node: NodeBuilder) -> None:
        """Offer what HAMi's device plugin would, which writes the annotation."""
        cards = [
            {
                "id": card,
                "index": number,
                "count": SLOTS,
                "devmem": MEMORY,
                "devcore": 100,
                "type": TYPE,
                "mode": "hami-core",
                "health": True,
            }
            for number, card in enumerate(card_names(node))
        ]
        if cards:
            node.extended(COUNT, SLOTS * len(cards)).annotation("hami.io/node-nvidia-register", to_json(cards).decode())

    def cards(self, pod: PodBuilder, count: int) -> Iterable[Object]:
        pod.resources({COUNT: count, _CORES: 100})
        return ()

    def share(self, pod: PodBuilder, percent: int) -> Iterable[Object]:
        pod.resources({COUNT: 1, _CORES: percent, _MEMORY: MEMORY * percent // 100})
        return ()

    def held(self, pod: Pod, call: Caller) -> Mapping[str, int]:  # noqa: ARG002
        return percent_held(pod, "hami.io/vgpu-devices-allocated")


DIALECT = Hami
