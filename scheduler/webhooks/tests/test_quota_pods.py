"""Admission of pods by quota, node affinity of quota trees, and guarantees up the tree."""

import base64
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, quota
from seatrial.scheduler.api.quota import ADMISSION, GUARANTEED, QUOTA_NAME, TREE_ID, ElasticQuotaProfile
from seatrial.scheduler.webhooks.quota_topology import QuotaExceeded, QuotaGates, QuotaRefusal, QuotaTopology
from seatrial.scheduler.webhooks.reviews import MUTATE, VALIDATE
from seatrial.scheduler.webhooks.tests.test_quota_topology import answer, made, pod_of, review

CARD = "nvidia.com/gpu"


class Watch:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def asking(name: str, **amounts: Any) -> PodBuilder:
    return pod(name).request(**amounts).quota("test1")


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def strict(watch: Watch) -> QuotaTopology:
    """E44: max of 20 cores, 60Gi and 2 GPUs; pending pods ask for 19 cores and 50Gi."""
    topology = QuotaTopology(QuotaGates(quota_admission=True, quota_admission_on_update=True), watch)
    limits: dict[str, str | int | float] = {"cpu": 20, "memory": "60Gi", CARD: 2}
    topology.set_quota(made(quota("test1").limits({}, limits)))
    topology.set_quota(made(quota("other").limits({}, limits)))
    topology.set_pod(pod_of(asking("first", cpu=19, memory="50Gi")))
    return topology


def test_e44_only_exceeded_resources_are_named(strict: QuotaTopology) -> None:
    message = "exceeded quota: ns1/test1, requested: cpu=2, used: cpu=19, limited: cpu=20"
    with pytest.raises(QuotaExceeded) as error:
        strict.check_pod(pod_of(asking("second", cpu=2, memory="4Gi")))
    assert str(error.value) == message

    strict.set_pod(pod_of(pod("cards").resources({CARD: 2}).quota("test1")))
    with pytest.raises(QuotaExceeded) as error:
        strict.check_pod(pod_of(pod("more").resources({CARD: 2}).quota("test1")))
    assert str(error.value) == f"exceeded quota: ns1/test1, requested: {CARD}=2, used: {CARD}=2, limited: {CARD}=2"


def test_pods_that_were_just_admitted_count(strict: QuotaTopology, watch: Watch) -> None:
    """The watch is late: the second pod is refused because of the first one, until that one proves never created."""
    strict.check_pod(pod_of(asking("second", cpu=1)))
    with pytest.raises(QuotaExceeded):
        strict.check_pod(pod_of(asking("third", cpu=1)))
    strict.set_pod(pod_of(asking("second", cpu=1)))  # it is counted once
    with pytest.raises(QuotaExceeded, match="used: cpu=20"):
        strict.check_pod(pod_of(asking("third", cpu=1)))
    strict.remove_pod(pod_of(asking("second", cpu=1)))
    strict.check_pod(pod_of(asking("third", cpu=1)))
    watch.now = 10.0
    strict.check_pod(pod_of(asking("fourth", cpu=1)))


def test_the_annotation_replaces_max_and_other_resources_are_not_limited(strict: QuotaTopology) -> None:
    strict.check_pod(pod_of(pod("other").resources({"example.com/fpga": 100}).quota("test1")))
    raised = quota("test1").limits({}, {"cpu": 20, "memory": "60Gi", CARD: 2}).annotation(ADMISSION, '{"cpu": "40"}')
    strict.set_quota(made(raised))
    strict.check_pod(pod_of(asking("second", cpu=21)))


def test_a_pod_that_changes_its_quota_is_checked_where_the_gate_is_on(strict: QuotaTopology) -> None:
    before, after = pod_of(pod("p").request(cpu=2).quota("other")), pod_of(asking("p", cpu=2))
    with pytest.raises(QuotaExceeded):
        strict.check_pod(after, before)
    strict.gates = QuotaGates(quota_admission=True)
    strict.check_pod(after, before)


def test_an_unknown_quota_is_named(strict: QuotaTopology) -> None:
    with pytest.raises(QuotaRefusal, match="elastic quota gone not found"):
        strict.check_pod(pod_of(pod("p").request(cpu=1).quota("gone")))


def test_a_refusal_is_forbidden(strict: QuotaTopology) -> None:
    response = answer(strict, VALIDATE, review("CREATE", asking("second", cpu=2).manifest))
    assert (response["status"]["code"], response["status"]["reason"]) == (403, "Forbidden")


def profile(name: str, tree: str, selector: dict[str, Any] | None) -> ElasticQuotaProfile:
    spec = {"quotaName": f"{name}-root", "nodeSelector": selector}
    metadata = {"name": name, "namespace": "ns1", "labels": {TREE_ID: tree}}
    return msgspec.convert({"metadata": metadata, "spec": spec}, ElasticQuotaProfile)


def in_values(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


GONE, EXISTS = {"key": "gone", "operator": "DoesNotExist"}, {"key": "here", "operator": "Exists"}
BIG = {"matchLabels": {"pool": "big"}, "matchExpressions": [GONE, EXISTS]}
ADDED = [in_values("pool", "big"), GONE, EXISTS]


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param(None, [{"matchExpressions": ADDED}], id="no-term"),
        pytest.param(
            [{"matchExpressions": [in_values("a", "1")]}, {"matchFields": [in_values("metadata.name", "n1")]}],
            [
                {"matchExpressions": [in_values("a", "1"), *ADDED]},
                {"matchFields": [in_values("metadata.name", "n1")], "matchExpressions": ADDED},
            ],
            id="each-term",
        ),
    ],
)
def test_a_pod_of_a_tree_stays_on_its_nodes(terms: list[Any] | None, expected: list[Any]) -> None:
    topology = QuotaTopology(QuotaGates(multi_quota_tree=True))
    topology.set_quota(made(quota("team").max(cpu=1).label(TREE_ID, "t")))
    topology.set_profile(profile("b-later", "t", {"matchLabels": {"pool": "other"}}))
    topology.set_profile(profile("a-first", "t", BIG))
    manifest = pod("one").quota("team").manifest
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    if terms is not None:
        manifest["spec"]["affinity"] = {"nodeAffinity": {required: {"nodeSelectorTerms": terms}}, "podAffinity": {}}
    (operation,) = msgspec.json.decode(base64.b64decode(answer(topology, MUTATE, review("CREATE", manifest))["patch"]))
    assert operation["path"] == "/spec/affinity"
    assert operation["value"]["nodeAffinity"][required]["nodeSelectorTerms"] == expected
    assert ("podAffinity" in operation["value"]) == (terms is not None)


@pytest.mark.parametrize(
    ("gate", "label", "selector"),
    [
        pytest.param(False, "team", BIG, id="gate-off"),
        pytest.param(True, "plain", BIG, id="no-tree"),
        pytest.param(True, "team", None, id="no-selector"),
        pytest.param(True, "team", {}, id="empty-selector"),
    ],
)
def test_other_pods_are_left_alone(gate: bool, label: str, selector: dict[str, Any] | None) -> None:
    topology = QuotaTopology(QuotaGates(multi_quota_tree=gate))
    topology.set_quota(made(quota("team").max(cpu=1).label(TREE_ID, "t")))
    topology.set_quota(made(quota("plain").max(cpu=1)))
    topology.set_profile(profile("a", "t", selector))
    manifest = pod("one").label(QUOTA_NAME, label).manifest
    assert "patch" not in answer(topology, MUTATE, review("CREATE", manifest))


@pytest.mark.parametrize(("least", "refused"), [(8, True), (7, False)])
def test_e42_a_min_is_covered_by_the_guarantee_above(least: int, refused: bool) -> None:
    topology = QuotaTopology(QuotaGates(guarantee_usage=True))
    root = quota("r").min(cpu=20).max(cpu=50).parent().label(TREE_ID, "t").annotation(GUARANTEED, '{"cpu": 10}')
    topology.set_quota(made(root.label("quota.scheduling.koordinator.sh/is-root", "true")))
    sibling = quota("s").max(cpu=50).below("r").label(TREE_ID, "t").annotation(GUARANTEED, '{"cpu": 3}')
    topology.set_quota(made(sibling))
    root.manifest["spec"]["min"] = {"cpu": "10"}
    topology.set_quota(made(root))
    own = made(quota("q").min(cpu=least).max(cpu=50).below("r").label(TREE_ID, "t"))
    if not refused:
        topology.create(own)
        return
    with pytest.raises(QuotaRefusal, match="tree root quota r can't guarantee for min q"):
        topology.create(own)
