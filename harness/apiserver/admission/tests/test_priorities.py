"""Priority admission: what a pod gets from its PriorityClass, and refusals in the words of kube-apiserver 1.34.2."""

from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running

PODS = "/api/v1/namespaces/default/pods"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
COMPUTED = "must not be provided in pod spec; priority admission controller computed"


def create(bench: Bench, **spec: Any) -> dict[str, Any]:
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "b"}], **spec}}
    document: dict[str, Any] = orjson.loads(bench.call("POST", PODS, body).body)
    return document


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"priority": 7}, f"the integer value of priority (7) {COMPUTED} 0", id="a-priority"),
        pytest.param(
            {"preemptionPolicy": "Never"},
            f"the string value of PreemptionPolicy (Never) {COMPUTED} PreemptLowerPriority",
            id="a-policy",
        ),
        pytest.param(
            {"preemptionPolicy": "PreemptLowerPriority", "priorityClassName": "patient"},
            f"the string value of PreemptionPolicy (PreemptLowerPriority) {COMPUTED} Never",
            id="the-class-says-otherwise",
        ),
        pytest.param({"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}, "", id="what-is-computed-anyway"),
        pytest.param(
            {"priority": 5, "preemptionPolicy": "Never", "priorityClassName": "patient"}, "", id="what-the-class-has"
        ),
    ],
)
def test_values_that_a_class_determines(spec: dict[str, Any], why: str) -> None:
    with running(nodes=0) as bench:
        bench.call("POST", CLASSES, {"metadata": {"name": "patient"}, "value": 5, "preemptionPolicy": "Never"})
        answer = create(bench, **spec)
    if why:
        assert answer["message"] == f'pods "a" is forbidden: {why} from the given PriorityClass name'
    else:
        assert answer["spec"]["preemptionPolicy"] == spec["preemptionPolicy"]
