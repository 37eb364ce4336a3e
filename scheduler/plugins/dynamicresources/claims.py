"""ResourceClaims as they are, and the allocations that were decided and are still to be written.

Upstream's assume cache and in-flight allocations (`kubernetes: plugins/dynamicresources/dra_manager.go`). A device is
in use from the decision on. What a write left open stays in use until its answer is there, or the claim is read back.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from seatrial.scheduler.api.core import Pod, PodResourceClaim
from seatrial.scheduler.api.integers import integer
from seatrial.scheduler.api.resourceclaims import EXTENDED_CLAIM, Allocation, DeviceClass, ResourceClaim
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.dynamicresources.expressions import ExpressionError, Expressions, too_long
from seatrial.scheduler.plugins.dynamicresources.extended import class_of_resources
from seatrial.scheduler.plugins.dynamicresources.inventory import Inventory
from seatrial.scheduler.plugins.dynamicresources.ledger import Ledger

ClaimKey = tuple[str, str]  # namespace, name

GONE = 4096  # claims that are remembered when they are gone: more than there are writes without an answer

decode_claim = decoder(ResourceClaim)


@dataclass(slots=True, eq=False)
class Pending:
    """An allocation that is still to be written. Pods that share the claim share it."""

    key: ClaimKey
    uid: str
    allocation: Allocation
    pods: set[str] = field(default_factory=set)  # uids of the pods that were placed with it
    writes: int = 0  # that are not answered


class Claims:
    """All claims, classes and devices. Shared by the plugins of all profiles."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.classes: dict[str, DeviceClass] = {}
        self.extended: dict[str, str] = {}  # the class by the extended resource that it serves
        self.expressions = Expressions()
        self.epoch = 0  # grows when a class changes
        self.inventory = Inventory(self._place_changed)
        self.ledger = Ledger(self.inventory.use_changed)
        self.changed: list[Callable[[str], None]] = []  # called with a node's name, "" for all
        self._objects: dict[ClaimKey, ResourceClaim] = {}
        self._pending: dict[str, Pending] = {}  # by the uid of the claim
        self._of_pod: dict[str, tuple[Pending, ...]] = {}
        self._extended: dict[str, ResourceClaim] = {}  # claims for extended resources, by the uid of their pod
        self._gone: dict[str, None] = {}  # uids of claims, the latest last
        handle.on_pod_left(self.release)

    # -- objects ------------------------------------------------------------------------------------------------------

    def find(self, key: ClaimKey) -> ResourceClaim | None:
        return self._objects.get(key)

    def made_for(self, pod: str) -> ResourceClaim | None:
        """The claim that a scheduler has made for extended resources of the pod with this uid."""
        return self._extended.get(pod)

    def pending(self, uid: str) -> Pending | None:
        """The allocation of the claim with this uid that is still to be written."""
        return self._pending.get(uid)

    def allocation(self, claim: ResourceClaim) -> Allocation | None:
        """What the claim has, written or not."""
        if claim.status.allocation is not None:
            return claim.status.allocation
        pending = self._pending.get(claim.metadata.uid)
        return None if pending is None else pending.allocation

    def users(self, claim: ResourceClaim) -> set[str]:
        """Uids of the pods on nodes that use the claim, or were placed with it, and of users of other kinds.

        A pod that is gone is in the claim's status until a controller takes it out.
        """
        placed, pending = self._handle.cache.placed, self._pending.get(claim.metadata.uid)
        reserved = {user.uid for user in claim.status.reserved_for if user.resource != "pods" or placed(user.uid)}
        return reserved | (pending.pods if pending is not None else set())

    def abandoned(self) -> frozenset[str]:
        """Uids of claims whose users are all gone: a controller is about to take their devices away."""
        reserved = (claim for claim in self._objects.values() if claim.status.reserved_for)
        return frozenset(claim.metadata.uid for claim in reserved if not self.users(claim))

    def set_claim(self, claim: ResourceClaim) -> None:
        """A claim is as given."""
        key = (claim.metadata.namespace, claim.metadata.name)
        before = self._objects.get(key)
        if before is not None and before.metadata.uid == claim.metadata.uid and _version(claim) < _version(before):
            return
        if before is not None and before.metadata.uid != claim.metadata.uid:
            self.ledger.book(before.metadata.uid, ())
        self._objects[key] = claim
        if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true":
            self._extended |= {owner.uid: claim for owner in claim.metadata.owner_references if owner.controller}
        self._book(claim.metadata.uid, claim.status.allocation)
        if before is None or before.status != claim.status:
            self.wake_users(key)

    def wake_users(self, key: ClaimKey) -> None:
        """Have pods that wait for the claim tried again."""
        self._handle.open_gate(wake_key(key))

    def waits(self, pod: str) -> bool:
        """Whether the pod with this uid is there and has no place."""
        cache = self._handle.cache
        return pod in cache.pending and cache.placed(pod) is None

    def take_answer(self, claim: ResourceClaim) -> None:
        """A write was answered with the claim, unless the watch has shown its end before the answer came."""
        if claim.metadata.uid not in self._gone:
            self.set_claim(claim)

    def remove_claim(self, claim: ResourceClaim) -> None:
        """A claim is gone."""
        self._gone[claim.metadata.uid] = None
        if len(self._gone) > GONE:
            del self._gone[next(iter(self._gone))]
        key = (claim.metadata.namespace, claim.metadata.name)
        before = self._objects.get(key)
        if before is not None and before.metadata.uid == claim.metadata.uid:
            del self._objects[key]
            for owner in claim.metadata.owner_references:
                made = self._extended.get(owner.uid)
                if made is not None and made.metadata.uid == claim.metadata.uid:
                    del self._extended[owner.uid]
            self._book(claim.metadata.uid, None)
            self._handle.request_wake()

    def set_class(self, device_class: DeviceClass) -> None:
        """A class was added or changed."""
        self.classes[device_class.metadata.name] = device_class
        if not too_long("", device_class.spec.selectors):
            with suppress(ExpressionError):  # the pods that ask for the class are told
                self.expressions.of(device_class.spec.selectors)  # before a pod asks: the first one makes the parser
        self._classes_changed()

    def remove_class(self, device_class: DeviceClass) -> None:
        """A class is gone; what was allocated of it stays."""
        if self.classes.pop(device_class.metadata.name, None) is not None:
            self._classes_changed()

    def _classes_changed(self) -> None:
        self.extended = class_of_resources(self.classes.values())
        self.epoch += 1
        if self._handle.cache.serve_by_claims(self.extended):
            self._handle.invalidate_class_scores()  # pods may have requested what no node has
        self._place_changed("")

    def _book(self, uid: str, written: Allocation | None) -> None:
        pending = self._pending.get(uid)
        allocation = written or (pending.allocation if pending is not None else None)
        self.ledger.book(uid, () if allocation is None else allocation.devices.results)

    def _place_changed(self, node: str) -> None:
        for call in self.changed:
            call(node)
        self._handle.request_wake()

    # -- decisions ----------------------------------------------------------------------------------------------------

    def decide(self, pod: str, allocations: Iterable[tuple[ResourceClaim, Allocation]]) -> None:
        """The pod with this uid was placed with these allocations."""
        results = []
        for claim, allocation in allocations:
            metadata = claim.metadata
            pending = self._pending.get(metadata.uid)
            if pending is None:
                pending = Pending((metadata.namespace, metadata.name), metadata.uid, allocation)
                self._pending[metadata.uid] = pending
                self._book(metadata.uid, None)
            pending.pods.add(pod)
            results.append(pending)
        if results:
            self._of_pod[pod] = tuple(results)

    def of(self, pod: str) -> Iterator[Pending]:
        """The allocations that the pod with this uid was placed with."""
        return iter(self._of_pod.get(pod, ()))

    def release(self, pod: str) -> None:
        """The pod gives its place back, or is gone."""
        for pending in self._of_pod.pop(pod, ()):
            pending.pods.discard(pod)
            self._drop_if_settled(pending)

    def created(self, pending: Pending, claim: ResourceClaim) -> None:
        """A claim that was decided before it existed is there now, with its uid."""
        uid = claim.metadata.uid
        if self._pending.get(pending.uid) is pending and uid != pending.uid:
            del self._pending[pending.uid]
            self.ledger.book(pending.uid, ())
            pending.uid = uid
            self._pending[uid] = pending
        self.take_answer(claim)

    def answered(self, pending: Pending, pod: str, answer: ResourceClaim | None) -> None:
        """A pod's write of the allocation was answered with the claim as it is now, or (None) was refused."""
        pending.writes -= 1
        if answer is not None:
            pending.pods.discard(pod)
            self.take_answer(answer)
        self._drop_if_settled(pending)

    def _drop_if_settled(self, pending: Pending) -> None:
        if pending.pods or pending.writes or self._pending.get(pending.uid) is not pending:
            return
        del self._pending[pending.uid]
        claim = self._objects.get(pending.key)
        of_this = claim is not None and claim.metadata.uid == pending.uid
        self._book(pending.uid, claim.status.allocation if claim is not None and of_this else None)
        self._handle.request_wake()


def keys_of(pod: Pod) -> Iterator[tuple[str, ClaimKey | None]]:
    """The entries of the pod's claims, with the claim or None: there is none yet. What needs none is left out."""
    made = {status.name: status.resource_claim_name for status in pod.status.resource_claim_statuses}
    namespace = pod.metadata.namespace
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_name:
            yield entry.name, (namespace, entry.resource_claim_name)
        elif entry.name not in made:
            yield entry.name, None
        elif made[entry.name]:
            yield entry.name, (namespace, made[entry.name] or "")


def entries_of(pod: Pod, claim: ResourceClaim) -> Iterator[PodResourceClaim]:
    """The pod's entries that mean the claim."""
    names = {entry for entry, key in keys_of(pod) if key == (claim.metadata.namespace, claim.metadata.name)}
    return (entry for entry in pod.spec.resource_claims if entry.name in names)


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Whether the pod or its PodGroup owns the claim. A pod knows its group by name alone."""
    group = pod.spec.scheduling_group
    return any(
        owner.controller
        and (
            owner.uid == pod.metadata.uid
            or (group is not None and (owner.kind, owner.name) == ("PodGroup", group.pod_group_name))
        )
        for owner in claim.metadata.owner_references
    )


def names_key(pod: Pod) -> str:
    """The gate of a pod that waits for the names of its claims."""
    return f"resourceclaims of {pod.metadata.uid}"


def wake_key(claim: ClaimKey) -> str:
    """The gate of pods that wait for a claim."""
    return f"resourceclaim/{'/'.join(claim)}"


def _version(claim: ResourceClaim) -> int:
    return integer(claim.metadata.resource_version) or 0
