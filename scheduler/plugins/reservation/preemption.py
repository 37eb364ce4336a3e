"""Make room for a pod in its reservations, or beside them (`enablePreemption`, RSV-R44 and RSV-R45).

The search is that of DefaultPreemption. What makes it reservation-aware is what the pod sees: nodes come with all that
is held for it given back, and a victim's place is its reservation's before it is anybody's (`VictimAware`).
"""

from scheduler.api.core import Pod
from scheduler.api.extension import DISABLE_PREEMPTIBLE
from scheduler.plugins.defaultpreemption.plugin import DefaultPreemption


class ReservationPreemption(DefaultPreemption):
    """For reservations, too; and it takes nobody who is marked as not to be taken."""

    serves_reservations = True

    def spares(self, pod: Pod) -> bool:
        return pod.metadata.labels.get(DISABLE_PREEMPTIBLE) == "true"
