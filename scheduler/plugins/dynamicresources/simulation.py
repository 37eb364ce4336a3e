"""Dry runs of preemption: pods that are assumed to be gone, with their devices, or to have come (DRA-R128, DRA-D8).

Upstream never preempts for devices. A claim gives its devices back when no pod uses it any more.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.resourceclaims import ResourceClaim
from seatrial.scheduler.framework.state import StateKey
from seatrial.scheduler.plugins.dynamicresources.claims import Claims, keys_of


@dataclass(frozen=True, slots=True)
class Simulation:
    """Pods by uid: those that have left a node in a dry run, and nominated ones that are on it."""

    gone: Mapping[str, Pod] = field(default_factory=dict)
    nominated: Mapping[str, Pod] = field(default_factory=dict)

    def left_by(self, pod: Pod) -> "Simulation":
        """The pod leaves the node."""
        uid = pod.metadata.uid
        if uid in self.nominated:
            return Simulation(self.gone, {key: one for key, one in self.nominated.items() if key != uid})
        return Simulation({**self.gone, uid: pod}, self.nominated)

    def entered_by(self, pod: Pod) -> "Simulation":
        """The pod is on the node, again or as a nominated one."""
        uid = pod.metadata.uid
        if uid in self.gone:
            return Simulation({key: one for key, one in self.gone.items() if key != uid}, self.nominated)
        return Simulation(self.gone, {**self.nominated, uid: pod})

    def freed(self, claims: Claims) -> set[str]:
        """Uids of the claims that all of their users have left."""
        resource_claims = {claim.metadata.uid: claim for pod in self.gone.values() for claim in _claims_of(pod, claims)}
        return {uid for uid, claim in resource_claims.items() if claims.users(claim) <= self.gone.keys()}


SIMULATION: StateKey[Simulation] = StateKey("DynamicResources/simulation")


def _claims_of(pod: Pod, claims: Claims) -> Iterable[ResourceClaim]:
    """The pod's claims that are there, with the one for its extended resources."""
    resource_claims = [claims.find(key) for _, key in keys_of(pod) if key is not None]
    return filter(None, [*resource_claims, claims.made_for(pod.metadata.uid)])
