"""AdmissionReview v1 requests and responses."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.serving.routes import Answer, RequestContext, Routes, json, text
from seatrial.scheduler.webhooks.devices import patch_of, problems
from seatrial.scheduler.webhooks.nodes import NodeRefusal, patch_of_node
from seatrial.scheduler.webhooks.quota_topology import QuotaExceeded, QuotaRefusal, QuotaTopology

MUTATE_QUOTA, VALIDATE_QUOTA = "/mutate-elasticquota", "/validate-elasticquota"
MUTATE, VALIDATE = "/mutate-pod", "/validate-pod"  # paths of Koordinator's manager
MUTATE_NODE = "/mutate-node-status"
Review = dict[str, Any]

_decode = decoder(Review)


def mutate(review: Review, topology: QuotaTopology | None = None, *, devices: bool = True) -> Review:
    """The response, with a patch if the pod's device requests must be expanded, or it belongs to a quota tree."""
    request = review["request"]
    found = request.get("object") or {}
    try:
        patch = patch_of(found) if devices else []
        if topology is not None and request.get("operation") == "CREATE":
            patch += topology.affinity(_pod(request), found)
    except QuantityError as error:
        return _answer(request, refused=str(error), code=400)
    if not patch:
        return _answer(request)
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _answer(request, patchType="JSONPatch", patch=encoded)


def mutate_node(review: Review) -> Review:
    """The response, with a patch if the node's allocatable amounts are amplified; only updates are changed."""
    request = review["request"]
    if request.get("operation") != "UPDATE":
        return _answer(request)
    try:
        patch = patch_of_node(request.get("object") or {}, request.get("oldObject") or {})
    except NodeRefusal as error:
        return _answer(request, refused=str(error), code=400)
    if not patch:
        return _answer(request)
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _answer(request, patchType="JSONPatch", patch=encoded)


def validate(review: Review, topology: QuotaTopology | None = None) -> Review:
    """The response: denied if the pod's device requests are invalid, or its quota must not have pods."""
    request = review["request"]
    found = problems(request.get("object") or {})
    if topology is not None and not found:
        old = request.get("oldObject")
        try:
            trial = bool(request.get("dryRun"))
            topology.check_pod(_pod(request), msgspec.convert(old, Pod) if old else None, trial=trial)
        except QuotaExceeded as refusal:
            return _answer(request, refused=str(refusal), code=403)
        except QuotaRefusal as refusal:
            return _answer(request, refused=str(refusal), code=400)
    if not found:
        return _answer(request)
    return _answer(request, refused=found[0] if len(found) == 1 else f"[{', '.join(found)}]", code=403)


def _pod(request: Review) -> Pod:
    pod = msgspec.convert(request.get("object") or {}, Pod)
    if pod.metadata.namespace:
        return pod
    return replace(pod, metadata=replace(pod.metadata, namespace=request.get("namespace", "")))


def mutate_quota(review: Review, topology: QuotaTopology) -> Review:
    """The response, with the defaults of a new quota."""
    request = review["request"]
    try:
        labels, annotations = topology.defaults(msgspec.convert(request.get("object") or {}, ElasticQuota))
    except (QuotaRefusal, msgspec.ValidationError) as refusal:
        return _answer(request, refused=str(refusal), code=400)
    metadata = request["object"]["metadata"]
    patch = [
        {"op": "add", "path": f"/metadata/{part}", "value": {**(metadata.get(part) or {}), **added}}
        for part, added in (("labels", labels), ("annotations", annotations))
        if added
    ]
    if not patch:
        return _answer(request)
    return _answer(request, patchType="JSONPatch", patch=base64.b64encode(msgspec.json.encode(patch)).decode())


def validate_quota(review: Review, topology: QuotaTopology) -> Review:
    """The response: denied if a rule about quotas is broken."""
    request = review["request"]
    try:
        new, old = (
            msgspec.convert(request[part], ElasticQuota) if request.get(part) else None
            for part in ("object", "oldObject")
        )
        operation = request.get("operation")
        if operation == "DELETE":
            if old is not None:
                topology.delete(old)
        elif new is None or (operation == "UPDATE" and old is None):
            raise QuotaRefusal("AddQuota param is nil" if operation == "CREATE" else "UpdateQuota param is nil")
        elif old is not None:
            topology.update(old, new, trial=bool(request.get("dryRun")))
        else:
            topology.create(new, trial=bool(request.get("dryRun")))
    except (QuotaRefusal, msgspec.ValidationError) as refusal:
        return _answer(request, refused=str(refusal), code=400)
    return _answer(request)


def _answer(request: Review, *, refused: str = "", code: int = 0, **more: Any) -> Review:
    response: Review = {"uid": request["uid"], "allowed": not refused, **more}
    if refused:
        reason = {400: "BadRequest", 403: "Forbidden"}[code]
        response["status"] = {"code": code, "reason": reason, "message": refused}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def routes(faults: Faults, topology: QuotaTopology | None = None, *, devices: bool = True) -> Routes:
    """The webhooks for pods and, with `topology`, for quotas; and a health page.

    `devices`: expand device requests of pods.
    """
    found = Routes(faults)
    found.add("POST", MUTATE, _page(lambda review: mutate(review, topology, devices=devices)))
    found.add("POST", MUTATE_NODE, _page(mutate_node))
    found.add("POST", VALIDATE, _page(lambda review: validate(review, topology)))
    if topology is not None:
        found.add("POST", MUTATE_QUOTA, _page(lambda review: mutate_quota(review, topology)))
        found.add("POST", VALIDATE_QUOTA, _page(lambda review: validate_quota(review, topology)))
    found.add_health(lambda: True, text("ok"))
    return found


def _page(answer: Callable[[Review], Review]) -> Callable[[RequestContext], Answer]:
    def page(request: RequestContext) -> Answer:
        try:
            review = _decode(request.body)
            if review.get("apiVersion") != "admission.k8s.io/v1" or not isinstance(review.get("request"), dict):
                return text("expected an AdmissionReview of admission.k8s.io/v1, found another body", 400)
        except msgspec.DecodeError as error:
            return text(f"expected an AdmissionReview, found no JSON object: {error}", 400)
        return json(answer(review))

    return page
