"""Volumes chosen for claims, and nodes chosen for claims to be provisioned, until the controller has bound these.

Upstream's assume cache. A claim has one choice, which all pods that use the claim share.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from seatrial.scheduler.cache.volumes import ClaimKey


@dataclass(slots=True, eq=False)
class Choice:
    """What was chosen for one claim."""

    claim: ClaimKey
    node: str
    volume: str  # "": it is to be provisioned for the node
    is_written: bool  # on the API server, as far as is known here
    pods: set[str] = field(default_factory=set)
    writer: str = ""  # uid of the pod whose preparation writes it
    version: int = 0  # the resource version that the write gave the object


class Choices:
    """All choices that are not carried out yet."""

    def __init__(self) -> None:
        self._of_claim: dict[ClaimKey, Choice] = {}
        self._claim_of_volume: dict[str, ClaimKey] = {}
        self._of_pod: dict[str, tuple[Choice, ...]] = {}

    def __len__(self) -> int:
        return len(self._of_claim)

    def find(self, claim: ClaimKey) -> Choice | None:
        return self._of_claim.get(claim)

    def has(self, volume: str, *, other_than: ClaimKey) -> bool:
        """Whether the volume is chosen for another claim."""
        return self._claim_of_volume.get(volume, other_than) != other_than

    def of(self, pod: str) -> Sequence[Choice]:
        """The choices that the pod with this uid depends on."""
        return self._of_pod.get(pod, ())

    def add(self, pod: str, choices: Iterator[Choice]) -> None:
        """Have a pod depend on these choices, or on those that there are already for the same claims."""
        kept = tuple(self._of_claim.setdefault(choice.claim, choice) for choice in choices)
        for choice in kept:
            choice.pods.add(pod)
            if choice.volume:
                self._claim_of_volume[choice.volume] = choice.claim
        self._of_pod[pod] = kept

    def release(self, pod: str) -> None:
        """The pod needs them no longer: it is to be bound, gives its place back, or is gone."""
        for choice in self._of_pod.pop(pod, ()):
            choice.pods.discard(pod)
            if choice.writer == pod:
                choice.writer = ""
            if not choice.pods:
                del self._of_claim[choice.claim]
                self._claim_of_volume.pop(choice.volume, None)
