"""Takes devices away from claims whose pod cannot use them where they are (DRA-R65)."""

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
        self.begun: Callable[[], None] = lambda: None  # set by the controller

    def begin(self, claim: ResourceClaim) -> None:
        """Clear the claim's allocation, if it is still as given."""
        if claim.metadata.uid not in self.sent:
            self.waiting[claim.metadata.uid] = claim
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

    def _clear(self, uid: str, claim: ResourceClaim) -> None:
        metadata = claim.metadata
        patch = {"status": {"allocation": None, "reservedFor": None, "devices": None}}

        def cleared(response: Response) -> None:
            self._work.sent.discard(uid)
            if response.ok:
                self._work.claims.set_claim(decode_claim(response.body))
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
