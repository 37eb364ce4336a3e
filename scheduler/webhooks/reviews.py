"""AdmissionReview v1 requests and responses."""

import base64
from collections.abc import Callable
from typing import Any

import msgspec

from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.framework.routes import Answer, RequestContext, Routes, json, text
from seatrial.scheduler.webhooks.devices import patch_of, problems

MUTATE, VALIDATE = "/mutate-pod", "/validate-pod"  # paths of Koordinator's manager
Review = dict[str, Any]

_decode = decoder(Review)


def mutate(review: Review) -> Review:
    """The response, with a patch if the pod's device requests must be expanded."""
    request = review["request"]
    try:
        patch = patch_of(request.get("object") or {})
    except QuantityError as error:
        return _answer(request, refused=str(error), code=400)
    if not patch:
        return _answer(request)
    encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
    return _answer(request, patchType="JSONPatch", patch=encoded)


def validate(review: Review) -> Review:
    """The response: denied if the pod's device requests are invalid."""
    request = review["request"]
    found = problems(request.get("object") or {})
    if not found:
        return _answer(request)
    return _answer(request, refused=found[0] if len(found) == 1 else f"[{', '.join(found)}]", code=403)


def _answer(request: Review, *, refused: str = "", code: int = 0, **more: Any) -> Review:
    response: Review = {"uid": request["uid"], "allowed": not refused, **more}
    if refused:
        reason = {400: "BadRequest", 403: "Forbidden"}[code]
        response["status"] = {"code": code, "reason": reason, "message": refused}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def routes() -> Routes:
    """Both webhooks, and a health page."""
    found = Routes()
    found.add("POST", MUTATE, _page(mutate))
    found.add("POST", VALIDATE, _page(validate))
    found.add("GET", "/healthz", lambda _: text("ok"))
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
