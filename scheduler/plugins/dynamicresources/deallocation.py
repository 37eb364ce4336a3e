"""Takes devices away from claims whose pod cannot use them where they are (DRA-R65).

Claims that were made for extended resources of a pod that was not bound are deleted (DRA-R109).
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
