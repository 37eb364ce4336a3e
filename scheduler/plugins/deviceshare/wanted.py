"""What a pod asks, as pre-filter has worked it out for the points that follow."""

from dataclasses import dataclass

from scheduler.framework.state import StateKey
from scheduler.plugins.deviceshare.gpus import Policy
from scheduler.plugins.deviceshare.request import DeviceRequest


@dataclass(frozen=True, slots=True)
class Wanted:
    """One pod's request."""

    request: DeviceRequest
    isolation: str  # the provider that shared cards must be behind; "" if the pod does not mind
    picky: bool  # some models will not do
    gpu_shares: tuple[int, ...] | None  # by `SHARES`, where cards alone decide; None: only the plain way can tell


WANTED: StateKey[Wanted] = StateKey("DeviceShare/wanted")
SETTLING: StateKey[Policy] = StateKey("DeviceShare/policy")  # by which the profile chooses cards
