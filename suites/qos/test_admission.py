"""Who may bind pods, and which labels pods must have: Koordinator's binding admission and enhanced pod validator."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import admission_webhook
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

BYPASS = "koordinator.sh/binding-admission-bypass"
SKIP_LABEL = "pod.koordinator.sh/skip-enhanced-validation"
CONFIG_MAPS = "/api/v1/namespaces/koordinator-system/configmaps"
CONFIG = "pod-enhanced-validator-config"


@contextmanager
def webhook(trial: Trial, *options: str) -> Iterator[None]:
    """The webhooks as a process that follows the cluster."""
    endpoint = trial.cluster.endpoint
    if endpoint is None:
        pytest.skip(f"needs a cluster that a process can reach; {trial.cluster.name} lives in this process")
    with admission_webhook(trial, "--kubeconfig", str(endpoint.kubeconfig), *options, name="of-the-case"):
        yield


def bind(trial: Trial, name: str) -> tuple[int, str]:
    """The code and the message of the API server's answer to a binding of the pod to n1."""
    target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    answer = trial.call("POST", f"{trial.path('Pod', name)}/binding", binding)
    return answer.code, str(json.loads(answer.body).get("message", ""))


@pytest.mark.feature("QOS-3.refusals")
@pytest.mark.case("CO-107", severity="critical", source="ours: spec QOS-V-8, which no release of koord-manager has yet")
@pytest.mark.parametrize(
    ("users", "options", "denied"),
    [
        pytest.param("nobody", {"namespaces": "{own}"}, {"plain", "annotated"}, id="a-namespace"),
        pytest.param("nobody", {"namespaces": "elsewhere"}, set(), id="another-namespace"),
        pytest.param(
            "nobody", {"namespaces": "*", "exclude-namespaces": "elsewhere,{own}"}, set(), id="excluded-namespace"
        ),
        pytest.param("nobody,{user}", {"namespaces": "{own}"}, set(), id="part-of-the-name-of-a-user"),
        pytest.param(
            "nobody",
            {"namespaces": "*", "bypass-labels": "other", "bypass-annotations": "first,note"},
            {"plain", "labelled"},
            id="other-keys",
        ),
    ],
)
def test_who_may_bind_pods(trial: Trial, users: str, options: dict[str, str], denied: set[str]) -> None:
    """Only users with a part of a name of the list may bind pods in the namespaces in question, but for pods with a
    label or an annotation of other lists. A pod that is gone is not found, whoever binds it."""
    answer = trial.call(
        "POST",
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = json.loads(answer.body)["status"]["userInfo"]["username"]
    names = {"own": trial.name, "user": user[1:]}
    words = [("user-name", users), *options.items()]
    trial.add(node("n1"))
    pods = {
        "plain": pod("plain"),
        "labelled": pod("labelled").label(BYPASS, "false"),
        "annotated": pod("annotated").annotation("note", ""),
        "gone": pod("gone"),
    }
    with webhook(trial, *(f"--binding-admission-{key}={value.format(**names)}" for key, value in words)):
        trial.submit(*(each.scheduler("nobody-s") for each in pods.values()))
        trial.delete("gone")
        trial.settle(2.0)  # the webhook receives pods from a watch

        answers = {name: bind(trial, name) for name in pods}

    assert answers.pop("gone")[0] == 404
    why = "binding denied: username is not in the allowed list"
    assert {name for name, (code, message) in answers.items() if code == 403 and why in message} == denied
    assert {name for name, (code, _) in answers.items() if code == 201} == answers.keys() - denied


@pytest.mark.feature("QOS-3.refusals")
@pytest.mark.case("CO-108", severity="normal", source="koordinator 1.8: pod_enhanced_validator.go; spec QOS-V-7, D2-6")
def test_labels_that_pods_must_have(trial: Trial) -> None:
    """All rules of the ConfigMap hold, for new pods and for changes of stored ones: not for pods that skip them, not in
    the namespaces of their lists, not if they are not enabled, and not once the ConfigMap is gone."""

    def refusal(builder: PodBuilder) -> str:
        """Why the API server would not store the pod; "" if it would."""
        answer = trial.call("POST", f"/api/v1/namespaces/{trial.name}/pods?dryRun=All", builder.manifest)
        return "" if answer.ok else str(json.loads(answer.body)["message"])

    def follows(*rules: tuple[str, list[str], list[str]], enable: str = "true", why: str = "") -> None:
        """Store the rules, each with labels and namespaces, and wait until a pod without labels is refused so."""
        keys = ("name", "requiredLabels", "namespaceWhitelist")
        data = {"enable": enable, "rules": json.dumps([dict(zip(keys, rule, strict=True)) for rule in rules])}
        assert trial.call("PATCH", f"{CONFIG_MAPS}/{CONFIG}", {"data": data}).ok
        reached(why)

    def reached(why: str) -> None:
        def is_refused_so() -> bool:
            message = refusal(pod("a"))
            return why in message and bool(why) == bool(message)

        assert trial.reaches(is_refused_so, within=10), f"expected {why!r}, found {refusal(pod('a'))!r}"

    one = "validation rule 'one' failed: required label 'app' is missing"
    both = "validation rule 'two' failed: required labels are missing: [app team]"
    trial.call("POST", "/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
    metadata = {"name": CONFIG, "namespace": "koordinator-system"}
    with webhook(trial, "--enable-pod-enhanced-validator"):
        assert refusal(pod("a")) == ""
        assert trial.call("POST", CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).ok
        try:
            follows(("one", ["app"], []), ("two", ["app", "team"], ["elsewhere"]), why=f"[{one}, {both}]")
            trial.submit(pod("stored").label("app", "").label("team", "x"))
            assert "'two' failed: required label 'team' is missing" in refusal(pod("a").label("app", "x"))
            assert one in refusal(pod("a").label(SKIP_LABEL, "false"))
            assert refusal(pod("a").label(SKIP_LABEL, "true")) == ""
            change = trial.call("PATCH", trial.path("Pod", "stored"), {"metadata": {"labels": {"team": None}}})
            assert "required label 'team' is missing" in change.body.decode()

            follows(("one", ["app"], [trial.name]), ("three", ["team"], []), why="'three' failed")
            assert one not in refusal(pod("a"))
            follows(("one", ["app"], []), why=one)
            follows(("one", ["app"], []), enable="false")
            follows(("one", ["app"], []), why=one)
        finally:
            trial.call("DELETE", f"{CONFIG_MAPS}/{CONFIG}")
        reached("")
