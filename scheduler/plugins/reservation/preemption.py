"""Preemption for pods with reservations (`enablePreemption`, RSV-R44 and RSV-R45).

The search is that of DefaultPreemption. The difference is in the node's view: nodes come with everything held for the
pod returned, and a victim's part returns to its reservation first (`VictimAware`).
"""

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.extension import DISABLE_PREEMPTIBLE
from seatrial.scheduler.plugins.defaultpreemption.plugin import DefaultPreemption


class ReservationPreemption(DefaultPreemption):
    """DefaultPreemption that also serves reserve pods, and spares pods labelled as not preemptible."""

    serves_reservations = True

    def spares(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(DISABLE_PREEMPTIBLE) == "true"
