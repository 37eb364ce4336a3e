"""Rules about classes of pods, about labels, and about who may bind; the messages are Koordinator's."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.core import ConfigMap, Pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.webhooks.bindings import BindingRules, Bindings
from seatrial.scheduler.webhooks.label_rules import LabelRules
from seatrial.scheduler.webhooks.pod_classes import class_problems
from seatrial.scheduler.webhooks.reviews import VALIDATE, VALIDATE_BINDING, Admission, routes
from seatrial.scheduler.webhooks.tests.test_profiles import profiles

QOS, CLASS, SUB = "koordinator.sh/qosClass", "koordinator.sh/priority-class", "koordinator.sh/priority"
REQUESTS = "pod.spec.containers[*].resources.requests"


def pod(requests: dict[str, Any] | None = None, *, priority: int | None = None, **labels: str) -> dict[str, Any]:
    named = {{"qos": QOS, "cls": CLASS, "sub": SUB}.get(key, key): value for key, value in labels.items()}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests or {}}}]}
    return {
        "metadata": {"name": "p", "namespace": "d", "labels": named},
        "spec": spec if priority is None else {**spec, "priority": priority},
    }


def problems(new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    return class_problems(msgspec.convert(new, Pod), msgspec.convert(old, Pod) if old else None)


BATCH = {"kubernetes.io/batch-cpu": 1000}
MUST_BE = (
    "labels.koordinator.sh/qosClass: Required value: must specify koordinator QoS BE "
    "with koordinator colocation resources"
)


@pytest.mark.parametrize(
    ("values", "why"),
    [
        (pod(BATCH), [MUST_BE]),
        (pod(BATCH, qos="LS", priority=9500), [MUST_BE]),
        (pod(BATCH, qos="BE", priority=5500), []),
        (pod({"kubernetes.io/batch-cpu": 0}), []),
        (pod({"kubernetes.io/mid-cpu": 1000}), []),
        (pod({"cpu": 2}, qos="LSR", priority=9999), []),
        (pod({"cpu": 2}, qos="LSE"), []),
        (
            pod({"cpu": "100m"}, qos="LSE"),
            [f'{REQUESTS}: Invalid value: "100m": the requested CPUs of LSR Pod must be integer'],
        ),
        (pod(qos="LSE"), [f"{REQUESTS}: Required value: LSR Pod must declare the requested CPUs"]),
        (
            pod({"cpu": 1}, qos="LSR", priority=5500),
            ["Pod: Forbidden: koordinator.sh/qosClass=LSR and priorityClass=koord-batch cannot be used in combination"],
        ),
        (
            pod({"cpu": 1}, qos="LSR"),
            ["Pod: Forbidden: koordinator.sh/qosClass=LSR and priorityClass= cannot be used in combination"],
        ),
        (
            pod(qos="BE", priority=9000),
            ["Pod: Forbidden: koordinator.sh/qosClass=BE and priorityClass=koord-prod cannot be used in combination"],
        ),
        (
            pod(qos="BE", priority=10000),
            ["Pod: Forbidden: koordinator.sh/qosClass=BE and priorityClass= cannot be used in combination"],
        ),
        (pod(qos="BE", cls="koord-free"), []),
        (pod(qos="nobody"), []),
    ],
)
def test_classes(values: dict[str, Any], why: list[str]) -> None:
    """V-2, V-4, V-5."""
    assert problems(values) == why


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        (pod(qos="LS"), pod(qos="LSE"), 'labels.koordinator.sh/qosClass: Invalid value: "LSE": field is immutable'),
        (pod(priority=5500), pod(priority=9500), 'spec.priority: Invalid value: "koord-prod": field is immutable'),
        (pod(sub="1"), pod(sub="8888"), 'labels.koordinator.sh/priority: Invalid value: "8888": field is immutable'),
        (pod(priority=9000), pod(priority=9999), ""),
        (pod(qos="LS"), pod(qos="LS", other="x"), ""),
    ],
)
def test_what_stays(before: dict[str, Any], after: dict[str, Any], why: str) -> None:
    """V-3."""
    matches = [each for each in problems(after, before) if "immutable" in each]
    assert matches == ([why] if why else [])


def answered(admission: Admission, path: str, **request: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "d", **request},
    }
    answer = routes(Faults(), admission).answer("POST", path, msgspec.json.encode(body))
    response: dict[str, Any] = msgspec.json.decode(answer.body)["response"]
    return response


def test_all_reasons_are_in_one_answer() -> None:
    answer = answered(Admission(profiles=profiles()), VALIDATE, object=pod(BATCH, qos="LSR"))
    assert answer["status"]["code"] == 400
    assert answer["status"]["message"].startswith(f"[{MUST_BE}, Pod: Forbidden")
    assert answered(Admission(), VALIDATE, object=pod(BATCH, qos="LSR"))["allowed"], "without --colocation"


def rules(enable: str = "true", **rule: Any) -> LabelRules:
    label_rules = LabelRules()
    label_rules.set_config(
        ConfigMap(data={"enable": enable, "rules": msgspec.json.encode([{"name": "r", **rule}]).decode()})
    )
    return label_rules


@pytest.mark.parametrize(
    ("required", "why"),
    [
        (["app"], "validation rule 'r' failed: required label 'app' is missing"),
        (["product", "app"], "validation rule 'r' failed: required labels are missing: [product app]"),
        (["team"], ""),
    ],
)
def test_required_labels(required: list[str], why: str) -> None:
    """V-7."""
    admission = Admission(labels=rules(requiredLabels=required))
    answer = answered(admission, VALIDATE, object=pod(team="a"))
    assert (answer.get("status") or {}).get("message", "") == why


def test_each_rule_is_checked() -> None:
    """V-7: the pod keeps the first one and breaks the second."""
    label_rules = LabelRules()
    both = [{"name": name, "requiredLabels": [label]} for name, label in (("r", "team"), ("s", "app"))]
    label_rules.set_config(ConfigMap(data={"enable": "true", "rules": msgspec.json.encode(both).decode()}))
    answer = answered(Admission(labels=label_rules), VALIDATE, object=pod(team="a"))
    assert answer["status"]["message"] == "validation rule 's' failed: required label 'app' is missing"


def test_who_is_spared() -> None:
    """V-7: namespaces of the list, pods with the label, everybody while the ConfigMap does not enable the rules."""
    strict = rules(requiredLabels=["app"], namespaceWhitelist=["spared"])
    assert strict.problems({}, "spared") == []
    assert strict.problems({"pod.koordinator.sh/skip-enhanced-validation": "true"}, "d") == []
    assert len(strict.problems({}, "d")) == 1
    strict.set_config(ConfigMap(data={"enable": "true", "rules": "{"}))
    assert len(strict.problems({}, "d")) == 1, "rules that cannot be read keep the last"
    strict.remove_config(ConfigMap())
    assert strict.problems({}, "d") == []
    assert rules("yes", requiredLabels=["app"]).problems({}, "d") == []


@pytest.mark.parametrize(
    ("user", "namespace", "name", "rule", "decision"),
    [
        ("system:koord-scheduler", "d", "plain", {}, "allowed_username"),
        ("eve", "kube-system", "plain", {}, "excluded_ns"),
        ("eve", "other", "plain", {}, "out_of_scope"),
        ("eve", "d", "plain", {"namespaces": ()}, "out_of_scope"),
        ("eve", "other", "plain", {"namespaces": ("*",)}, "denied"),
        ("eve", "d", "labelled", {}, "bypass_label"),
        ("eve", "d", "annotated", {"bypass_annotations": ("free",)}, "bypass_annotation"),
        ("eve", "d", "unknown", {}, "bypass_label"),
        ("eve", "d", "plain", {"dry_run": True}, "dry_run"),
        ("eve", "d", "plain", {}, "denied"),
    ],
)
def test_who_may_bind(user: str, namespace: str, name: str, rule: dict[str, Any], decision: str) -> None:
    """V-8."""
    known = {
        "plain": {},
        "labelled": {"labels": {"koordinator.sh/binding-admission-bypass": ""}},
        "annotated": {"annotations": {"free": ""}},
    }

    def find(_: str, key: str) -> Pod | None:
        return msgspec.convert({"metadata": known[key]}, Pod) if key in known else None

    bindings = Bindings(BindingRules(**{"users": ("koord-scheduler",), "namespaces": ("d",), **rule}), find)
    amounts = {"resource": {"resource": "pods"}, "subResource": "binding"}
    user_info = {"username": user}
    answer = answered(
        Admission(bindings=bindings), VALIDATE_BINDING, namespace=namespace, name=name, userInfo=user_info, **amounts
    )
    assert bindings.decisions == {decision: 1}
    assert answer["allowed"] is (decision != "denied")
    if decision == "denied":
        message = "binding denied: username is not in the allowed list"
        assert (answer["status"]["code"], answer["status"]["message"]) == (403, message)
    page = routes(Faults(), Admission(bindings=bindings)).answer("GET", "/metrics", b"").body.decode()
    assert f'koord_manager_webhook_binding_admission_decisions_total{{decision="{decision}"}} 1' in page


@pytest.mark.parametrize(
    "amounts", [{"subResource": "status"}, {"operation": "UPDATE"}, {"resource": {"resource": "nodes"}}]
)
def test_other_requests_are_no_bindings(amounts: dict[str, Any]) -> None:
    bindings = Bindings(BindingRules(("koord",), ("*",)), lambda *_: Pod())
    request = {"resource": {"resource": "pods"}, "subResource": "binding", "name": "p", **amounts}
    assert answered(Admission(bindings=bindings), VALIDATE_BINDING, **request)["allowed"]
    assert not bindings.decisions
