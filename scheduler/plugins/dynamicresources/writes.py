"""The writes of claims that come before a binding, and what is taken from their answers."""

from functools import partial
from typing import Any

import msgspec

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.resourceclaims import DELETE_PROTECTION, Consumer, ResourceClaim, claim_path, claims_path
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.client.rest import pod_path
from seatrial.scheduler.framework.preparation import ObjectPatch
from seatrial.scheduler.plugins.dynamicresources.claims import Claims, Pending, decode_claim
from seatrial.scheduler.plugins.dynamicresources.extended import ExtendedClaim

_decode_pod = decoder(Pod)


class ClaimWriter:
    """Makes the patches; their answers go to `claims`."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def creation(
        self, extended: ExtendedClaim, pending: Pending, pod: Pod, patches: list[ObjectPatch]
    ) -> list[ObjectPatch]:
        """The creation of the claim, its `patches`, and what the pod's status says of it (DRA-R107)."""
        extended.is_sent = True
        metadata, what = extended.claim.metadata, f'resourceclaim "{extended.claim.metadata.name}"'
        create = ObjectPatch(
            what,
            claims_path(metadata.namespace),
            extended.body(),
            partial(self._created, pending),
            holds=partial(_is_made_for, pod.metadata.uid),
            creates=metadata.name,
            failure=f"create claim for extended resources {pod.key}",
        )
        status = {"metadata": {"uid": pod.metadata.uid}, "status": {"extendedResourceClaimStatus": extended.status()}}
        tell = ObjectPatch(
            f'pod "{pod.metadata.name}"',
            pod_path(pod, "status"),
            status,
            _ignored,
            holds=partial(_names, metadata.name),
            failure=f"update pod {pod.key} ExtendedResourceClaimStatus",
        )
        return [create, *patches, tell]

    def _created(self, pending: Pending, body: bytes) -> None:
        self._claims.created(pending, decode_claim(body))

    def patches(self, claim: ResourceClaim, pending: Pending | None, pod: Pod, consumer: Consumer) -> list[ObjectPatch]:
        """The finalizer, and then allocation and reservation in one write (DRA-R68)."""
        metadata = claim.metadata
        if pending is None and any(user.uid == consumer.uid for user in claim.status.reserved_for):
            return []
        what, precondition = f'resourceclaim "{metadata.name}"', {"uid": metadata.uid}
        if not metadata.resource_version:
            precondition = {}  # it is created just before, with a uid that is not known yet
        status: dict[str, Any] = {"reservedFor": [consumer]}
        patches: list[ObjectPatch] = []
        if pending is not None:
            status["allocation"] = pending.allocation
            pending.writes += 1
            if DELETE_PROTECTION not in metadata.finalizers:
                path = claim_path(metadata.namespace, metadata.name)
                body = {"metadata": {**precondition, "finalizers": [DELETE_PROTECTION]}}
                patches.append(ObjectPatch(what, path, body, _ignored, kind=STRATEGIC_MERGE_PATCH))
        patches.append(
            ObjectPatch(
                what,
                claim_path(metadata.namespace, metadata.name, "status"),
                {"metadata": precondition, "status": status},
                partial(self._answered, pending, pod.metadata.uid),
                kind=STRATEGIC_MERGE_PATCH,
                refused=partial(self._refused, pending, pod.metadata.uid),
                holds=partial(_holds, consumer.uid),
            )
        )
        return patches

    def _answered(self, pending: Pending | None, pod: str, body: bytes) -> None:
        try:
            claim = decode_claim(body)
        except msgspec.MsgspecError:
            return  # it has its devices; its watch says what is wrong with it
        if pending is None:
            self._claims.take_answer(claim)
        else:
            self._claims.answered(pending, pod, claim)

    def _refused(self, pending: Pending | None, pod: str) -> None:
        if pending is not None:
            self._claims.answered(pending, pod, None)


def _ignored(_answer: bytes) -> None:
    """The answer says nothing that is needed."""


def _holds(uid: str, body: bytes) -> bool:
    """Whether the claim that was read back is reserved for this user: then its allocation was written with it."""
    return any(user.uid == uid for user in decode_claim(body).status.reserved_for)


def _is_made_for(pod: str, body: bytes) -> bool:
    """Whether the claim that was read back is the pod's."""
    return any(owner.uid == pod for owner in decode_claim(body).metadata.owner_references)


def _names(claim: str, body: bytes) -> bool:
    """Whether the status of the pod that was read back names the claim."""
    status = _decode_pod(body).status.extended_resource_claim_status
    return status is not None and status.resource_claim_name == claim
