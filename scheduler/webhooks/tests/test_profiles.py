"""ClusterColocationProfiles: worked examples of Koordinator's cluster_colocation_profile_test.go, and bad profiles."""

import base64
from random import Random
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.colocation import ClusterColocationProfile
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.workloads import Namespace, PriorityClass
from seatrial.scheduler.pods.merging import merged
from seatrial.scheduler.pods.profiles import ProfileError, changes
from seatrial.scheduler.webhooks.profiles import Profiles, translated, with_resource_spec
from seatrial.scheduler.webhooks.reviews import MUTATE, Admission, routes

Pod = dict[str, Any]
GI = "1Gi"


class Loaded(Random):
    """Dice that always show the same."""

    def __init__(self, shown: int) -> None:
        super().__init__(0)
        self.shown = shown

    def randrange(self, *_: int) -> int:  # type: ignore[override]
        return self.shown


def profiles(*specs: dict[str, Any], dice: Random | None = None, **annotations: str) -> Profiles:
    """Profiles named p0, p1 … in a cluster with the namespace `d` (label pool=x) and the class `batch` (5999)."""
    profiles = Profiles(dice or Loaded(0))
    for number, spec in enumerate(specs):
        metadata = {"name": f"p{number}", "annotations": annotations}
        profiles.profiles[f"p{number}"] = msgspec.convert(
            {"metadata": metadata, "spec": spec}, ClusterColocationProfile
        )
    profiles.namespaces["d"] = msgspec.convert({"metadata": {"name": "d", "labels": {"pool": "x"}}}, Namespace)
    profiles.priority_classes["batch"] = PriorityClass(value=5999)
    return profiles


def pod(*, requests: Any = None, limits: Any = None, **labels: str) -> Pod:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value}
    return {
        "metadata": {"name": "p", "labels": labels},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }


def resources(pod: Pod) -> dict[str, Any]:
    got: dict[str, Any] = pod["spec"]["containers"][0]["resources"]
    return got


BE = {"qosClass": "BE", "priorityClassName": "batch"}


def test_a_pod_becomes_a_batch_pod() -> None:
    """E10, row 46: init containers and overhead too."""
    values = pod(requests={"cpu": 1, "memory": "4Gi"}, limits={"cpu": 1, "memory": "4Gi"})
    values["spec"]["initContainers"] = [{"name": "i", "resources": {"requests": {"cpu": "500m", "memory": GI}}}]
    values["spec"]["overhead"] = {"cpu": "1", "memory": "2Gi"}
    spec = {
        **BE,
        "koordinatorPriority": 1111,
        "schedulerName": "koord-scheduler",
        "patch": {"spec": {"dnsPolicy": "Default"}},
    }
    manifest = profiles(spec).applied(values, "d")
    both = {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "4Gi"}
    assert resources(manifest) == {"requests": both, "limits": both}
    assert manifest["spec"]["initContainers"][0]["resources"] == {
        "requests": {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": GI}
    }
    assert manifest["spec"]["overhead"] == {"kubernetes.io/batch-cpu": "1000", "kubernetes.io/batch-memory": "2Gi"}
    assert manifest["metadata"]["labels"] == {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority": "1111"}
    expected = ("koord-scheduler", "batch", 5999, "PreemptLowerPriority", "Default")
    names = ("schedulerName", "priorityClassName", "priority", "preemptionPolicy", "dnsPolicy")
    assert tuple(manifest["spec"][name] for name in names) == expected
    assert "koordinator.sh/qosClass" not in values["metadata"]["labels"], "the argument stays"


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        pytest.param(None, {"cpu": 1}, ("1000", "1000"), id="limit-alone"),
        pytest.param({"cpu": 1}, None, ("1000", None), id="request-alone"),
        pytest.param({"cpu": 1}, {"cpu": "2500m"}, ("1000", "2500"), id="limit-above-request"),
    ],
)
def test_requests_and_limits(requests: Any, limits: Any, expected: tuple[str | None, str | None]) -> None:
    """E10, rows 47 and 48; v0.7: the limit of a batch pod may be above its request."""
    results = resources(profiles(BE).applied(pod(requests=requests, limits=limits), "d"))
    name = "kubernetes.io/batch-cpu"
    assert tuple(results.get(part, {}).get(name) for part in ("requests", "limits")) == expected


@pytest.mark.parametrize(
    ("probability", "shown", "applied"),
    [("50%", 70, False), ("50%", 30, True), ("50%", 50, True), (0, 0, False), (100, 99, True), ("0%", 0, False)],
)
def test_dice(probability: int | str, shown: int, applied: bool) -> None:
    """E10, row 49; of p percent, p + 1 of 100 throws apply."""
    known = profiles({"labels": {"a": "b"}, "probability": probability}, dice=Loaded(shown))
    assert ("a" in known.applied(pod(), "d")["metadata"]["labels"]) is applied


@pytest.mark.parametrize("probability", ["half", "101%", 101, -1, "%", "\u0665%", "1e9%"])
def test_a_probability_that_is_none(probability: int | str) -> None:
    with pytest.raises(
        ProfileError, match="ClusterColocationProfile p0: probability: expected 0 to 100 or a percentage"
    ):
        profiles({"probability": probability}).applied(pod(), "d")


def test_mappings_and_suffixes() -> None:
    """E10, row 50."""
    spec = {
        "labelKeysMapping": {"a": "b", "missing": "c"},
        "annotationKeysMapping": {"none": "made"},
        "labelSuffixes": {"label-key-1": "suffix", "b": "suffix-0", "absent": "x"},
    }
    metadata = profiles(spec).applied(pod(**{"a": "value", "label-key-1": "label-value-1"}), "d")["metadata"]
    assert metadata["labels"] == {"a": "value", "b": "valuesuffix-0", "c": "", "label-key-1": "label-value-1suffix"}
    assert metadata["annotations"] == {"made": ""}


def test_profiles_apply_in_the_order_of_their_names() -> None:
    manifest = profiles({"labels": {"a": "first", "b": "first"}}, {"labels": {"a": "second"}}).applied(pod(), "d")
    assert manifest["metadata"]["labels"] == {"a": "second", "b": "first"}


@pytest.mark.parametrize(
    ("spec", "applied"),
    [
        ({"namespaceSelector": {"matchLabels": {"pool": "x"}}}, True),
        ({"namespaceSelector": {"matchLabels": {"pool": "y"}}}, False),
        ({"selector": {"matchLabels": {"app": "a"}}}, True),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}, False),
        ({"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}}, False),
        ({}, True),
    ],
)
def test_selectors(spec: dict[str, Any], applied: bool) -> None:
    manifest = profiles({**spec, "labels": {"hit": ""}}).applied(pod(app="a"), "d")
    assert ("hit" in manifest["metadata"]["labels"]) is applied


@pytest.mark.parametrize("lost", [False, True])
def test_a_profile_can_leave_the_amounts(lost: bool) -> None:
    """W-5: even one that lost the dice."""
    spec = {"probability": 0 if lost else 100}
    known = profiles(BE, spec)
    known.profiles["p1"] = msgspec.convert(
        {"metadata": {"name": "p1", "annotations": {"config.koordinator.sh/skip-update-resources": ""}}, "spec": spec},
        ClusterColocationProfile,
    )
    assert resources(known.applied(pod(requests={"cpu": 1}), "d")) == {"requests": {"cpu": 1}}


@pytest.mark.parametrize(
    ("labels", "name"),
    [
        ({"koordinator.sh/priority-class": "koord-mid"}, "kubernetes.io/mid-cpu"),
        ({"koordinator.sh/qosClass": "BE"}, "kubernetes.io/batch-cpu"),
        ({"koordinator.sh/priority-class": "koord-prod"}, "cpu"),
        ({"koordinator.sh/priority-class": "koord-free"}, "cpu"),
        ({}, "cpu"),
    ],
)
def test_the_class_decides_what_amounts_become(labels: dict[str, str], name: str) -> None:
    assert list(resources(translated(pod(requests={"cpu": 1}, **labels)))["requests"]) == [name]


def test_amounts_of_pods_without_a_profile_stay() -> None:
    assert resources(profiles().applied(pod(requests={"cpu": 1}, **{"koordinator.sh/qosClass": "BE"}), "d")) == {
        "requests": {"cpu": 1}
    }


@pytest.mark.parametrize(
    ("spec", "namespace", "why"),
    [
        ({"priorityClassName": "none"}, "d", 'priorityclasses.scheduling.k8s.io "none" not found'),
        ({"namespaceSelector": {}}, "new", 'namespaces "new" not found'),
    ],
)
def test_what_a_profile_names_must_be_there(spec: dict[str, Any], namespace: str, why: str) -> None:
    with pytest.raises(ProfileError) as refused:
        profiles(spec).applied(pod(), namespace)
    assert str(refused.value) == why


def test_the_annotation_for_the_agent() -> None:
    """W-8: batch resources of containers alone; one that says the same already stays as it is written."""
    amounts = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/mid-cpu": "1"}
    resource_spec = with_resource_spec(pod(requests=amounts))
    text = resource_spec["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"]
    assert msgspec.json.decode(text) == {"containers": {"c": {"requests": {"kubernetes.io/batch-cpu": "500"}}}}
    spaced = text.replace(":", ": ")
    resource_spec["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"] = spaced
    assert with_resource_spec(resource_spec) == resource_spec
    assert with_resource_spec(pod(requests={"cpu": 1})) == pod(requests={"cpu": 1})
    two = pod(requests=amounts)
    two["spec"]["containers"] += [{**two["spec"]["containers"][0], "name": "second"}, {"name": "none"}]
    annotation = with_resource_spec(two)["metadata"]["annotations"]["node.koordinator.sh/extended-resource-spec"]
    assert list(msgspec.json.decode(annotation)["containers"]) == [two["spec"]["containers"][0]["name"], "second"]


def reviewed(admission: Admission, pod: Pod, **request: Any) -> dict[str, Any]:
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "request": {"uid": "u", "operation": "CREATE", "namespace": "d", "object": pod, **request},
    }
    answer = routes(Faults(), admission).answer("POST", MUTATE, msgspec.json.encode(body))
    response: dict[str, Any] = msgspec.json.decode(answer.body)["response"]
    return response


def test_a_review_answers_with_a_patch() -> None:
    values = pod(requests={"cpu": 1})
    answer = reviewed(Admission(profiles=profiles(BE)), values)
    patch = msgspec.json.decode(base64.b64decode(answer["patch"]))
    assert {step["path"] for step in patch} == {
        "/metadata/annotations",
        "/metadata/labels",
        "/spec/containers",
        "/spec/preemptionPolicy",
        "/spec/priority",
        "/spec/priorityClassName",
    }


def test_an_update_is_not_changed() -> None:
    assert "patch" not in reviewed(Admission(profiles=profiles(BE)), pod(requests={"cpu": 1}), operation="UPDATE")


def test_a_profile_that_cannot_be_applied_refuses_the_pod() -> None:
    answer = reviewed(Admission(profiles=profiles({"priorityClassName": "none"})), pod())
    assert (answer["allowed"], answer["status"]["code"]) == (False, 500)


@pytest.mark.parametrize("bad", [{"cpu": "x"}, {"cpu": []}, {"cpu": None}])
def test_amounts_that_are_none(bad: dict[str, Any]) -> None:
    answer = reviewed(Admission(profiles=profiles(BE)), pod(requests=bad))
    assert (answer["allowed"], answer["status"]["code"]) == (False, 400)


@pytest.mark.parametrize(
    ("value", "patch", "expected"),
    [
        ({"a": 1, "b": 2}, {"a": None, "c": 3}, {"b": 2, "c": 3}),
        (
            {"env": [{"name": "x", "value": "1"}]},
            {"env": [{"name": "x", "value": "2"}, {"name": "y"}]},
            {"env": [{"name": "x", "value": "2"}, {"name": "y"}]},
        ),
        (
            {"env": [{"name": "x"}, {"name": "y"}]},
            {"env": [{"name": "x", "$patch": "delete"}]},
            {"env": [{"name": "y"}]},
        ),
        ({"env": [{"name": "x"}]}, {"env": [{"$patch": "replace"}, {"name": "z"}]}, {"env": [{"name": "z"}]}),
        ({"tolerations": [{"key": "a"}]}, {"tolerations": [{"key": "b"}]}, {"tolerations": [{"key": "b"}]}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "replace", "b": "2"}}, {"labels": {"b": "2"}}),
        ({"labels": {"a": "1"}}, {"labels": {"$patch": "delete"}}, {}),
        (
            {"containers": [{"name": "c", "env": [{"name": "x"}]}]},
            {"containers": [{"name": "c", "env": [{"name": "y"}]}]},
            {"containers": [{"name": "c", "env": [{"name": "x"}, {"name": "y"}]}]},
        ),
        ({}, {"env": "none"}, {"env": "none"}),
        ({"env": "none"}, {"env": [1, {"name": []}]}, {"env": [1, {"name": []}]}),
    ],
)
def test_strategic_merge(value: Pod, patch: Pod, expected: Pod) -> None:
    assert merged(value, patch) == expected


def test_a_patch_names_fields_as_json_pointers_do() -> None:
    assert changes({"metadata": {"a/b": 1, "gone": 1}}, {"metadata": {"a/b": 2}}) == [
        {"op": "add", "path": "/metadata/a~1b", "value": 2},
        {"op": "remove", "path": "/metadata/gone"},
    ]
