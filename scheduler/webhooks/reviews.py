"""AdmissionReview v1 requests and responses."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.quantity import QuantityError
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.wire import decoder
from seatrial.scheduler.pods.profiles import ProfileError, changes
from seatrial.scheduler.serving.exposition import CONTENT_TYPE, Family, exposed, sample
from seatrial.scheduler.serving.routes import Answer, RequestContext, Routes, json, text
from seatrial.scheduler.webhooks.bindings import DENIED, Bindings
from seatrial.scheduler.webhooks.devices import patch_of, problems
from seatrial.scheduler.webhooks.label_rules import LabelRules
from seatrial.scheduler.webhooks.nodes import NodeRefusal, patch_of_node
from seatrial.scheduler.webhooks.pod_classes import class_problems
from seatrial.scheduler.webhooks.profiles import Profiles, with_resource_spec
from seatrial.scheduler.webhooks.quota_topology import QuotaExceeded, QuotaRefusal, QuotaTopology
from seatrial.scheduler.webhooks.slo_config import ConfigRefusal, SloConfigRules

MUTATE_QUOTA, VALIDATE_QUOTA = "/mutate-elasticquota", "/validate-elasticquota"
MUTATE, VALIDATE = "/mutate-pod", "/validate-pod"  # paths of Koordinator's manager
MUTATE_NODE = "/mutate-node-status"
VALIDATE_BINDING = "/validate-pod-binding"
VALIDATE_CONFIG, VALIDATE_NODE = "/validate-configmap", "/validate-node"
Review = dict[str, Any]

_decode = decoder(Review)


@dataclass(frozen=True, slots=True)
class Admission:
    """What is done to pods beside the check of their device requests. None: not at all.

    Attributes:
        topology: quotas.
        devices: expand device requests.
        profiles: ClusterColocationProfiles, with the rules about QoS and priority classes.
        labels: rules about labels.
        bindings: who may bind.
        slo_config: rules about the settings of nodes.
    """

    topology: QuotaTopology | None = None
    devices: bool = True
    profiles: Profiles | None = None
    labels: LabelRules | None = None
    bindings: Bindings | None = None
    slo_config: SloConfigRules | None = None


def mutate(review: Review, admission: Admission) -> Review:
    """The response, with a patch if a profile changes the pod, its device requests must be expanded, or it belongs to a
    quota tree (W-1)."""
    request = review["request"]
    entry, created = request.get("object") or {}, request.get("operation") == "CREATE"
    patch = []
    try:
        if admission.profiles is not None and created:
            changed = admission.profiles.applied(entry, _namespace(request))
            changed = with_resource_spec(changed)
            patch, entry = changes(entry, changed), changed
        if admission.topology is not None and created:
            patch += admission.topology.affinity(_pod(request, entry), entry)
        patch += patch_of(entry) if admission.devices else []
    except ProfileError as error:
        return _answer(request, refused=str(error), code=500)
    except (QuantityError, msgspec.ValidationError) as error:
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


def validate(review: Review, admission: Admission) -> Review:
    """The response: denied if the pod's classes or device requests are invalid, its quota must not have pods, or it
    lacks labels (V-1)."""
    request = review["request"]
    entry, before = request.get("object") or {}, request.get("oldObject")
    if admission.profiles is not None:
        try:
            wrong = class_problems(_pod(request, entry), msgspec.convert(before, Pod) if before else None)
        except (QuantityError, msgspec.ValidationError) as error:
            wrong = [str(error)]
        if wrong:
            return _answer(request, refused=_joined(wrong), code=400)
    names = problems(entry)
    if admission.topology is not None and not names:
        try:
            trial = bool(request.get("dryRun"))
            old = msgspec.convert(before, Pod) if before else None
            admission.topology.check_pod(_pod(request, entry), old, trial=trial)
        except QuotaExceeded as refusal:
            return _answer(request, refused=str(refusal), code=403)
        except QuotaRefusal as refusal:
            return _answer(request, refused=str(refusal), code=400)
    if names:
        return _answer(request, refused=_joined(names), code=403)
    if admission.labels is not None:
        labels = (entry.get("metadata") or {}).get("labels") or {}
        wrong = admission.labels.problems(labels, _namespace(request))
        if wrong:
            return _answer(request, refused=_joined(wrong), code=400)
    return _answer(request)


def _joined(names: list[str]) -> str:
    """Several reasons as the API machinery's aggregate of errors."""
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"


def validate_binding(review: Review, bindings: Bindings) -> Review:
    """The response: denied if this user must not bind that pod."""
    request = review["request"]
    resource = (request.get("resource") or {}).get("resource")
    requests = (resource, request.get("subResource"), request.get("operation"))
    if requests != ("pods", "binding", "CREATE"):
        return _answer(request)
    user = (request.get("userInfo") or {}).get("username", "")
    if bindings.may_bind(user, _namespace(request), request.get("name", "")):
        return _answer(request)
    return _answer(request, refused=DENIED, code=403)


def validate_config(review: Review, rules: SloConfigRules) -> Review:
    """The response: denied if a changed key of the ConfigMap with the settings of nodes is not valid."""
    request = review["request"]
    new, old = request.get("object") or {}, request.get("oldObject") or {}
    try:
        rules.check(_namespace(request), request.get("name", ""), new.get("data") or {}, old.get("data") or {})
    except ConfigRefusal as refusal:
        return _answer(request, refused=str(refusal), code=400)
    return _answer(request)


def validate_node(review: Review, rules: SloConfigRules) -> Review:
    """The response: denied if by its new labels a node would have two settings of one key."""
    request = review["request"]
    new, old = ((request.get(part) or {}).get("metadata") or {} for part in ("object", "oldObject"))
    before = None if request.get("operation") == "CREATE" else old.get("labels") or {}
    try:
        rules.check_node(request.get("name", ""), new.get("labels") or {}, before)
    except ConfigRefusal as refusal:
        return _answer(request, refused=str(refusal), code=400)
    return _answer(request)


def _namespace(request: Review) -> str:
    """The namespace of the object, which the object itself need not name yet."""
    named: str = ((request.get("object") or {}).get("metadata") or {}).get("namespace") or request.get("namespace", "")
    return named


def _pod(request: Review, name: dict[str, Any]) -> Pod:
    pod = msgspec.convert(name, Pod)
    return replace(pod, metadata=replace(pod.metadata, namespace=_namespace(request)))


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
        reason = {400: "BadRequest", 403: "Forbidden", 500: "InternalError"}[code]
        response["status"] = {"code": code, "reason": reason, "message": refused}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def routes(faults: Faults, admission: Admission | None = None) -> Routes:
    """The webhooks for pods and nodes, for bindings and quotas where the admission has rules for them; health and
    metrics."""
    admission = admission or Admission()
    topology, bindings = admission.topology, admission.bindings
    pages = Routes(faults)
    pages.add("POST", MUTATE, _page(lambda review: mutate(review, admission)))
    pages.add("POST", MUTATE_NODE, _page(mutate_node))
    pages.add("POST", VALIDATE, _page(lambda review: validate(review, admission)))
    if bindings is not None:
        pages.add("POST", VALIDATE_BINDING, _page(lambda review: validate_binding(review, bindings)))
        pages.add("GET", "/metrics", lambda _: Answer(200, exposed(_families(bindings)), CONTENT_TYPE))
    rules = admission.slo_config
    if rules is not None:
        pages.add("POST", VALIDATE_CONFIG, _page(lambda review: validate_config(review, rules)))
        pages.add("POST", VALIDATE_NODE, _page(lambda review: validate_node(review, rules)))
    if topology is not None:
        pages.add("POST", MUTATE_QUOTA, _page(lambda review: mutate_quota(review, topology)))
        pages.add("POST", VALIDATE_QUOTA, _page(lambda review: validate_quota(review, topology)))
    pages.add_health(lambda: True, text("ok"))
    return pages


def _families(bindings: Bindings) -> Iterable[Family]:
    name = "koord_manager_webhook_binding_admission_decisions_total"
    samples = [sample(name, {"decision": decision}, count) for decision, count in sorted(bindings.decisions.items())]
    return [(name, "counter", "Decisions of binding admission.", samples)]


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
