"""Webhooks for tests, and their responses."""

import base64
from typing import Any

import orjson

from seatrial.harness.apiserver.tests.asking import Api, Object
from seatrial.harness.apiserver.webhooks.dispatch import Handler

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1"
PODS_CREATED = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def reviewed(review: Object, *patch: Object, allowed: bool = True, **response: Any) -> Object:
    """The response to a review."""
    results: Object = {"uid": review["request"]["uid"], "allowed": allowed, **response}
    if patch:
        results |= {"patchType": "JSONPatch", "patch": base64.b64encode(orjson.dumps(patch)).decode()}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": results}


def labelled(name: str, value: str) -> Handler:
    """A patch that adds a label, with or without existing labels."""

    def handle(review: Object) -> Object:
        labels = review["request"]["object"]["metadata"].get("labels") or {}
        return reviewed(review, {"op": "add", "path": "/metadata/labels", "value": {**labels, name: value}})

    return handle


def webhook(name: str, **more: Any) -> Object:
    """One entry of `webhooks`, for pods that are created."""
    return {
        "name": f"{name}.seatrial.dev",
        "clientConfig": {"url": f"https://{name}.test/"},
        "rules": [PODS_CREATED],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


def register(api: Api, name: str, handler: Handler | None, *, validating: bool = False, **more: Any) -> None:
    """A configuration `name` with one webhook, handled in this process by `handler`."""
    kind = "Validating" if validating else "Mutating"
    body = {"metadata": {"name": name}, "webhooks": [webhook(name, **more)]}
    api.do("POST", f"{CONFIGURATIONS}/{kind.lower()}webhookconfigurations", body)
    if handler is not None:
        api.server.admission.webhooks.local[f"https://{name}.test/"] = handler


class Witness:
    """Allows everything and records the requests."""

    def __init__(self) -> None:
        self.requests: list[Object] = []

    def __call__(self, review: Object) -> Object:
        self.requests.append(review["request"])
        return reviewed(review)
