"""Each rule of admission refuses with upstream's message, and what the rule allows is accepted."""

import base64
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.builders import PodBuilder, QuotaBuilder, pod, quota
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.quota import (
    ALLOW_FORCE_UPDATE,
    ROOT_QUOTA,
    SHARED_WEIGHT,
    STRICT_KEYS,
    TREE_ID,
    ElasticQuota,
)
from seatrial.scheduler.webhooks.quota_topology import QuotaGates, QuotaRefusal, QuotaTopology
from seatrial.scheduler.webhooks.reviews import MUTATE_QUOTA, VALIDATE, VALIDATE_QUOTA, Admission, routes

KEYS = "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey failed: "


def made(builder: QuotaBuilder) -> ElasticQuota:
    quota = msgspec.convert(builder.namespace("ns1").manifest, ElasticQuota)
    assert quota.name
    return quota


def pod_of(builder: PodBuilder) -> Pod:
    builder.namespace("team")
    builder.manifest["metadata"]["uid"] = builder.name
    return msgspec.convert(builder.manifest, Pod)


@pytest.fixture
def topology() -> QuotaTopology:
    """A parent `p` with min 10 and two children `a` (min 4) and `b` (min 3), and a quota `lone`."""
    topology = QuotaTopology()
    topology.set_quota(made(quota(ROOT_QUOTA).parent()))
    for builder in (
        quota("p").min(cpu=10).max(cpu=20).parent(),
        quota("a").min(cpu=4).max(cpu=20).below("p").namespaces("team-a"),
        quota("b").min(cpu=3).max(cpu=20).below("p"),
        quota("lone").min(cpu=1).max(cpu=2),
    ):
        topology.create(made(builder))
        topology.set_quota(made(builder))
    return topology


def spoiled(builder: QuotaBuilder, field: str, value: Any) -> QuotaBuilder:
    builder.manifest["spec"][field] = value
    return builder


def used(builder: QuotaBuilder, **amounts: str) -> QuotaBuilder:
    builder.manifest["status"] = {"used": amounts}
    return builder.annotation(STRICT_KEYS, '["cpu"]')


@pytest.mark.parametrize(
    ("builder", "message"),
    [
        pytest.param(quota("lone").max(cpu=1), "AddQuota quota already exist:lone", id="M24"),
        pytest.param(
            quota("x").max(cpu=1).namespaces("team-a"),
            "AddQuota quota x's annotation namespace team-a is already bound to quota a",
            id="M23",
        ),
        pytest.param(quota("x").max(cpu=-1), "x quota.Spec.Max's value < 0, in dimensions :[cpu]", id="M14-max"),
        pytest.param(
            quota("x").min(cpu=-1).max(cpu=1), "x quota.Spec.Min's value < 0, in dimensions :[cpu]", id="M14-min"
        ),
        pytest.param(
            quota("x").max(cpu=1).weight(cpu=-1),
            f"x quota.Annotation[{SHARED_WEIGHT}]'s value < 0, in dimension :[cpu]",
            id="M15",
        ),
        pytest.param(quota("x").min(cpu=3).max(cpu=2), "resourceKey cpu of quota x min 3 > max 2", id="M16"),
        pytest.param(
            quota("x").min(cpu=1, memory=1).max(cpu=2),
            "resourceKey memory of quota x is included in min, which is not included in max",
            id="M17",
        ),
        pytest.param(
            used(quota("x").max(memory=1), cpu="1"),
            "resourceKey cpu of quota x is included in used, which is not included in max but should check max >= used",
            id="M19-no-max",
        ),
        pytest.param(
            used(quota("x").max(cpu=1), cpu="2"), "resourceKey cpu of quota x max 1 < used 2", id="M19-below-used"
        ),
        pytest.param(
            quota("x").min(cpu=1).max(cpu=20).below("p").label(TREE_ID, "t"),
            "x tree id is different from parent p, [t] vs []",
            id="M30",
        ),
        pytest.param(
            quota("x").max(cpu=1).below("nobody"),
            "x has parentName nobody but not find parentInfo in quotaInfoMap",
            id="M32",
        ),
        pytest.param(
            quota("x").max(cpu=1).below("x"),
            "x has parentName x but not find parentInfo in quotaInfoMap",
            id="M32-its-own-parent",
        ),
        pytest.param(
            quota("x").max(cpu=1).below("lone"),
            "x has parentName lone but the parentQuotaInfo's IsParent is false",
            id="M34",
        ),
        pytest.param(
            quota("x").max(cpu=1, memory=1).below("p"), f"{KEYS}p's max keys are not the same with x's", id="M35-max"
        ),
        pytest.param(
            quota("x").min(cpu=4).max(cpu=20).below("p"),
            "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: p",
            id="M36",
        ),
    ],
)
def test_a_new_quota_is_refused(topology: QuotaTopology, builder: QuotaBuilder, message: str) -> None:
    with pytest.raises(QuotaRefusal) as refused:
        topology.create(made(builder))
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        pytest.param(
            quota(ROOT_QUOTA).parent(), quota(ROOT_QUOTA).max(cpu=1).parent(), f"invalid quota {ROOT_QUOTA}", id="M26"
        ),
        pytest.param(
            quota("gone").max(cpu=1),
            quota("gone").max(cpu=2),
            "UpdateQuota quota not exist in quotaInfoMap:gone",
            id="M27",
        ),
        pytest.param(
            quota("b").min(cpu=3).max(cpu=20).below("p"),
            quota("b").min(cpu=3).max(cpu=20).below("p").namespaces("team-a"),
            "UpdadteQuota, quota b update namespaces, but namespace team-a is already bound to quota a",
            id="M25",
        ),
        pytest.param(
            quota("p").min(cpu=10).max(cpu=20).parent(),
            quota("p").min(cpu=10).max(cpu=20),
            "quota has children, isParent is forbidden to modify as false, quotaName:p",
            id="M28a",
        ),
        pytest.param(
            quota("lone").min(cpu=1).max(cpu=2),
            quota("lone").min(cpu=1).max(cpu=2).parent(),
            "quota has bound pods, isParent is forbidden to modify as true, quotaName: lone",
            id="M28b",
        ),
        pytest.param(
            quota("lone").min(cpu=1).max(cpu=2),
            quota("lone").min(cpu=1).max(cpu=2).label(TREE_ID, "t"),
            "lone tree id changed [] vs [t]",
            id="M29",
        ),
        pytest.param(
            quota("p").min(cpu=10).max(cpu=20).parent(),
            quota("p").min(cpu=6).max(cpu=20).parent(),
            "checkMinQuotaSum all children's MinQuota > current MinQuota, current: p",
            id="M37",
        ),
        pytest.param(
            quota("p").min(cpu=10).max(cpu=20).parent(),
            quota("p").min(cpu=10).max(cpu=20).parent().below("p"),
            "p has parentName p which is the quota itself or below it",
            id="loop",
        ),
        pytest.param(
            quota("lone").min(cpu=1).max(cpu=2),
            quota("lone").min(cpu=1).max(cpu=2).weight(cpu=-1),
            f"lone quota.Annotation[{SHARED_WEIGHT}]'s value < 0, in dimension :[cpu]",
            id="weight-alone",
        ),
    ],
)
def test_an_update_is_refused(topology: QuotaTopology, before: QuotaBuilder, after: QuotaBuilder, message: str) -> None:
    topology.set_pod(pod_of(pod("one").quota("lone")))
    with pytest.raises(QuotaRefusal) as refused:
        topology.update(made(before), made(after))
    assert str(refused.value) == message


def test_force_update_skips_the_sums(topology: QuotaTopology) -> None:
    topology.create(made(quota("x").min(cpu=4).max(cpu=20).below("p").label(ALLOW_FORCE_UPDATE, "true")))


@pytest.mark.parametrize(
    ("name", "pods", "message"),
    [
        pytest.param(ROOT_QUOTA, 0, f"can not delete quotaGroup :{ROOT_QUOTA}", id="M39-special"),
        pytest.param("nobody", 0, "not found quota:nobody", id="M39-unknown"),
        pytest.param("p", 0, "delete quota failed, quota p has 2 child quotas", id="M40-children"),
        pytest.param("lone", 2, "delete quota failed, quota lone has 2 child pods: team/p0, team/p1", id="M40-pods"),
        pytest.param(
            "lone", 3, "delete quota failed, quota lone has 3 child pods: team/p0, team/p1, ...", id="M40-more-pods"
        ),
    ],
)
def test_a_deletion_is_refused(topology: QuotaTopology, name: str, pods: int, message: str) -> None:
    for number in range(pods):
        topology.set_pod(pod_of(pod(f"p{number}").quota("lone")))
    with pytest.raises(QuotaRefusal) as refused:
        topology.delete(made(quota(name)))
    assert str(refused.value) == message


def test_an_empty_quota_can_be_deleted(topology: QuotaTopology) -> None:
    topology.delete(made(quota("lone")))


@pytest.mark.parametrize("digits", [65, 512])
def test_quantities_of_many_digits_are_compared(topology: QuotaTopology, digits: int) -> None:
    """The amount counts as the largest one; a min that is longer still is above any max that is smaller."""
    with pytest.raises(QuotaRefusal, match=r"min .* > max 1"):
        topology.create(made(spoiled(quota("x").max(cpu=1), "min", {"cpu": "9" * digits})))


@pytest.mark.parametrize("text", ["many", pytest.param("9" * 10**6, id="long")])
def test_what_is_no_quantity_is_refused(topology: QuotaTopology, text: str) -> None:
    with pytest.raises(QuotaRefusal, match=rf"quota\.Spec\.Max: '{text[:60]}'.* is not a quantity"):
        topology.create(made(spoiled(quota("x"), "max", {"cpu": text})))


def review(operation: str, manifest: Any = None, old: Any = None, *, dry_run: bool = False) -> bytes:
    request = {
        "uid": "u",
        "operation": operation,
        "object": manifest,
        "oldObject": old,
        "namespace": "team",
        "dryRun": dry_run,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def answer(topology: QuotaTopology, path: str, body: bytes) -> dict[str, Any]:
    response: dict[str, Any] = msgspec.json.decode(
        routes(Faults(), Admission(topology)).answer("POST", path, body).body
    )["response"]
    return response


def test_a_new_quota_gets_parent_tree_and_weight(topology: QuotaTopology) -> None:
    topology.create(made(quota("tree-root").max(cpu=1).parent().label(TREE_ID, "t")))
    below = quota("x").max(cpu=4, memory=2).below("tree-root").weight(cpu=1, gpu=3)
    response = answer(topology, MUTATE_QUOTA, review("CREATE", below.manifest))
    patch = msgspec.json.decode(base64.b64decode(response["patch"]))
    values = {operation["path"]: operation["value"] for operation in patch}
    assert values["/metadata/labels"][TREE_ID] == "t"
    assert msgspec.json.decode(values["/metadata/annotations"][SHARED_WEIGHT]) == {"cpu": 1, "memory": "2"}
    plain = answer(topology, MUTATE_QUOTA, review("CREATE", quota("y").max(cpu=4).manifest))
    assert b"koordinator-root-quota" in base64.b64decode(plain["patch"])


def test_reviews_carry_the_message(topology: QuotaTopology) -> None:
    response = answer(topology, VALIDATE_QUOTA, review("CREATE", quota("lone").max(cpu=1).manifest))
    assert response["status"] == {"code": 400, "reason": "BadRequest", "message": "AddQuota quota already exist:lone"}
    assert answer(topology, VALIDATE_QUOTA, review("CREATE", quota("new").max(cpu=1).manifest))["allowed"]
    assert "new" in topology.quotas


def test_pods_of_a_parent_quota_are_refused(topology: QuotaTopology) -> None:
    response = answer(topology, VALIDATE, review("CREATE", pod("one").quota("p").manifest))
    assert response["status"]["message"] == "pod can not be linked to a parentQuotaGroup,quota:p, pod:one"
    assert answer(topology, VALIDATE, review("CREATE", pod("one").quota("a").manifest))["allowed"]


def test_the_label_preemptible_stays(topology: QuotaTopology) -> None:
    strict, plain = (pod("one").quota("a", preemptible=flag).manifest for flag in (False, True))
    response = answer(topology, VALIDATE, review("UPDATE", strict, plain))
    assert response["status"]["message"] == "Preemptible label is forbidden modify now."


def gated(**gates: bool) -> QuotaTopology:
    """A parent `p` with the keys cpu and memory."""
    topology = QuotaTopology(QuotaGates(**gates))
    topology.set_quota(made(quota(ROOT_QUOTA).parent()))
    topology.create(made(quota("p").min(cpu=10).max(cpu=20, memory=40).parent()))
    return topology


def test_keys_of_a_child_may_be_fewer_with_the_gate() -> None:
    """ElasticQuotaEnableUpdateResourceKey (QUOTA-V15): included is enough, but a key more is refused."""
    child = made(quota("c").min(cpu=1).max(cpu=2).below("p"))
    with pytest.raises(QuotaRefusal, match="p's max keys are not the same with c's"):
        gated().create(child)
    topology = gated(update_resource_key=True)
    topology.create(child)
    more = made(quota("d").max(cpu=2, gpu=1).below("p"))
    with pytest.raises(QuotaRefusal, match="d's max keys are not all included in p's"):
        topology.create(more)
    without = made(quota("p").min(cpu=10).max(memory=40).parent())
    with pytest.raises(QuotaRefusal):
        topology.update(topology.quotas["p"], without)


def test_a_parent_has_pods_with_the_gate() -> None:
    """SupportParentQuotaSubmitPod (QUOTA-V21)."""
    with pytest.raises(QuotaRefusal, match="pod can not be linked to a parentQuotaGroup,quota:p, pod:one"):
        gated().check_pod(pod_of(pod("one").quota("p")))
    gated(parent_quota_pods=True).check_pod(pod_of(pod("one").quota("p")))


def test_without_a_default_quota_only_labels_count() -> None:
    """DisableDefaultQuota (QUOTA-R30): neither the namespace nor a missing quota gives a pod a quota."""
    for gates, expected in (({}, "team"), ({"disable_default_quota": True}, "")):
        topology = gated(**gates)
        topology.create(made(quota("team").max(cpu=2).namespaces("other", "team")))
        assert topology.quota_of(pod_of(pod("one"))) == expected
        assert topology.quota_of(pod_of(pod("one").quota("p"))) == "p"
    assert topology.quota_of(pod_of(pod("one").quota("absent"))) == ""
