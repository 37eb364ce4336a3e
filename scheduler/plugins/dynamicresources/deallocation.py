"""Takes devices away from claims whose pod cannot use them where they are (DRA-R65).

Of a pod that was not bound the claims lose their reservation and keep their devices (DRA-R67); those that were made for
its extended resources are deleted (DRA-R109).
"""

from collections.abc import Callable

from seatrial.scheduler.api.resourceclaims import DELETE_PROTECTION, ResourceClaim, claim_path
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH, Response
from seatrial.scheduler.framework.controllers import Controller, ControllerContext
from seatrial.scheduler.plugins.dynamicresources.claims import Claims, decode_claim


class Deallocations:
    """Claims whose allocation is to be cleared."""

    def __init__(self, claims: Claims) -> None:
        self.claims = claims
        self.waiting: dict[str, ResourceClaim] = {}  # by uid
        self.sent: set[str] = set()
        self.left: list[ResourceClaim] = []  # to be deleted
        self.deleted: set[str] = set()  # paths of those whose deletion is not answered
        self.unused: dict[tuple[str, str], ResourceClaim] = {}  # by uid of the claim and of its user
        self.leaving: set[tuple[str, str]] = set()  # users that are being taken out of the claim
        self.begun: Callable[[], None] = lambda: None  # set by the controller

    def begin(self, claim: ResourceClaim) -> None:
        """Clear the claim's allocation, if it is still as given."""
        if claim.metadata.uid not in self.sent:
            self.waiting[claim.metadata.uid] = claim
            self.begun()

    def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that was made for extended resources."""
        path = claim_path(claim.metadata.namespace, claim.metadata.name)
        if path not in self.deleted:
            self.deleted.add(path)
            self.left.append(claim)
            self.begun()

    def take_back(self, claim: ResourceClaim, pod: str) -> None:
        """Take the pod with this uid, which has not been bound, out of the claim's users."""
        current = self.claims.find((claim.metadata.namespace, claim.metadata.name))
        if current is None or current.metadata.uid != claim.metadata.uid:
            return
        if any(user.uid == pod for user in current.status.reserved_for):
            self.unused[claim.metadata.uid, pod] = current
            self.begun()


class Deallocator(Controller):
    """Writes them. A claim that has changed meanwhile keeps what it has: its pod is tried again."""

    def __init__(self, work: Deallocations, context: ControllerContext) -> None:
        self._work, self._context = work, context
        work.begun = context.work

    def work(self) -> None:
        waiting, self._work.waiting = self._work.waiting, {}
        for uid, claim in waiting.items():
            self._work.sent.add(uid)
            self._clear(uid, claim)
        left, self._work.left = self._work.left, []
        for claim in left:
            self._delete(claim)
        unused, self._work.unused = self._work.unused, {}
        for (_, pod), claim in unused.items():
            if self._work.claims.waits(pod):  # not if it has a place again, or is gone: then a controller does it
                self._take_back(claim, pod)

    def _take_back(self, claim: ResourceClaim, pod: str) -> None:
        """The pod is not tried before the answer: else it could be bound without its reservation."""
        metadata, work = claim.metadata, self._work
        work.leaving.add((metadata.uid, pod))

        def answered(response: Response) -> None:
            work.leaving.discard((metadata.uid, pod))
            if response.ok:
                work.claims.take_answer(decode_claim(response.body))
            work.claims.wake_users((metadata.namespace, metadata.name))

        self._context.rest.merge(
            claim_path(metadata.namespace, metadata.name, "status"),
            {"status": {"reservedFor": [{"$patch": "delete", "uid": pod}]}},
            answered,
            uid=metadata.uid,
            kind=STRATEGIC_MERGE_PATCH,
        )

    def _delete(self, claim: ResourceClaim) -> None:
        """Have the pod's status name the claim no more, take the finalizer away, and delete the claim.

        In this order: as long as the claim is there the pod is not placed, maybe where it needs no claim.
        """
        metadata = claim.metadata
        path = claim_path(metadata.namespace, metadata.name)
        (owner,) = (owner for owner in metadata.owner_references if owner.controller)
        remove = {"metadata": {"$deleteFromPrimitiveList/finalizers": [DELETE_PROTECTION]}}

        def unnamed(response: Response) -> None:
            if response.ok or response.code in {404, 409}:  # the pod is gone, or another one has its name
                self._context.rest.merge(path, remove, unprotected, kind=STRATEGIC_MERGE_PATCH)
            else:
                settled(response)

        def unprotected(response: Response) -> None:
            if response.ok:
                self._context.rest.delete(path, uid=decode_claim(response.body).metadata.uid, done=settled)
            else:
                settled(response)

        def settled(_: Response) -> None:
            self._work.deleted.discard(path)

        self._context.rest.merge(
            f"/api/v1/namespaces/{metadata.namespace}/pods/{owner.name}/status",
            {"status": {"extendedResourceClaimStatus": None}},
            unnamed,
            uid=owner.uid,
        )

    def _clear(self, uid: str, claim: ResourceClaim) -> None:
        metadata = claim.metadata
        patch = {"status": {"allocation": None, "reservedFor": None, "devices": None}}

        def cleared(response: Response) -> None:
            self._work.sent.discard(uid)
            if response.ok:
                self._work.claims.take_answer(decode_claim(response.body))
                remove = {"metadata": {"$deleteFromPrimitiveList/finalizers": [DELETE_PROTECTION]}}
                path = claim_path(metadata.namespace, metadata.name)
                self._context.rest.merge(path, remove, lambda _: None, uid=uid, kind=STRATEGIC_MERGE_PATCH)

        self._context.rest.merge(
            claim_path(metadata.namespace, metadata.name, "status"),
            patch,
            cleared,
            uid=uid,
            version=metadata.resource_version,
        )
