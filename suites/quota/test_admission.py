"""Admission of pods by their quota (gates EnableQuotaAdmission and EnableQuotaAdmissionOnUpdate), and quotas of trees.

The webhook of each case is a process of its own, which follows the cluster's quotas and pods.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import CONFIGURATIONS, admission_webhook
from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import node, pod, quota
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import GUARANTEED, NAMESPACES, QUOTA_NAME, STRICT_KEYS, TREE_ID
from seatrial.scheduler.api.transport import Response
from seatrial.suites.quota.webhook import path_of, quota_webhook

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

ADMISSION = ("--enable-quota-admission", "--disable-device-resource-spec")


def refused(trial: Trial, name: str, own: str, cpu: int) -> str:
    with pytest.raises(ApiRefused) as error:
        trial.submit(pod(name).request(cpu=cpu).quota(own))
    return str(error.value)


@contextmanager
def troubled_webhook(trial: Trial, *options: str) -> Iterator[Link]:
    """A webhook process whose connection to the API server can be made to fail."""
    endpoint = trial.cluster.endpoint
    if endpoint is None:
        pytest.skip(f"needs a cluster that a process can reach; {trial.cluster.name} lives in this process")
    with (
        TroubledWay(endpoint.kubeconfig) as way,
        admission_webhook(trial, "--kubeconfig", str(way.offered), *options, name="of-the-case"),
    ):
        yield way


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-142", severity="normal")
def test_a_pod_that_is_gone_counts_no_more(trial: Trial) -> None:
    """A quota of four: a pending pod of three is deleted, then one of two is accepted, and one of three is not."""
    own = f"{trial.name}-a"
    with quota_webhook(trial, *ADMISSION, name="of-the-case"):
        trial.apply(quota(own).max(cpu=4).manifest)
        trial.submit(pod("one").request(cpu=3).quota(own))
        assert "exceeded quota" in refused(trial, "two", own, 2)
        trial.delete("one")

        def accepted() -> bool:
            try:
                trial.submit(pod("two").request(cpu=2).quota(own))
            except ApiRefused:
                return False
            return True

        assert trial.wait(accepted, within=30), "expected room for two cores"
        assert "requested: cpu=3, used: cpu=2, limited: cpu=4" in refused(trial, "three", own, 3)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-143", severity="normal")
def test_pods_without_a_quota_that_is_there(trial: Trial) -> None:
    """A pod that names a quota that does not exist is refused; one that names none is accepted."""
    with quota_webhook(trial, *ADMISSION, name="of-the-case"):
        own = f"{trial.name}-absent"
        assert f"elastic quota {own} not found" in refused(trial, "one", own, 1)
        trial.submit(pod("two").request(cpu=1))


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-144", severity="normal")
@pytest.mark.parametrize("gate", [True, False], ids=["with-the-gate", "without"])
def test_a_pod_that_moves_into_a_full_quota(trial: Trial, *, gate: bool) -> None:
    """The label of a pod of two cores is changed to a quota that has one core left: with the gate
    EnableQuotaAdmissionOnUpdate that is refused, without it accepted."""
    options = (*ADMISSION, *(["--enable-quota-admission-on-update"] if gate else []))
    full, other = f"{trial.name}-full", f"{trial.name}-other"
    with quota_webhook(trial, *options, name="of-the-case"):
        trial.apply(*(quota(name).max(cpu=4).manifest for name in (full, other)))
        trial.submit(pod("one").request(cpu=3).quota(full), pod("two").request(cpu=2).quota(other))
        trial.settle()

        path = f"/api/v1/namespaces/{trial.name}/pods/two"
        answer = trial.call("PATCH", path, {"metadata": {"labels": {QUOTA_NAME: full}}})

        message = f"exceeded quota: {trial.name}/{full}, requested: cpu=2, used: cpu=3, limited: cpu=4"
        assert (message in answer.body.decode()) == gate, answer.body
        assert answer.ok != gate


@pytest.mark.feature("QUOTA-2.defaults", "QUOTA-7.trees")
@pytest.mark.case("QU-145", severity="normal")
def test_a_new_quota_belongs_to_the_tree_of_its_parent(trial: Trial) -> None:
    """A quota below one of a tree is stored with the tree; one below a quota of no tree is stored without."""
    with quota_webhook(trial, "--multi-quota-tree", name="of-the-case"):
        for name in ("tree", "plain"):
            parent = quota(f"{trial.name}-{name}").min(cpu=4).max(cpu=4).parent()
            trial.apply((parent.label(TREE_ID, trial.name) if name == "tree" else parent).manifest)
            child = quota(f"{trial.name}-{name}-child").min(cpu=1).max(cpu=4).below(f"{trial.name}-{name}")
            try:
                trial.apply(child.manifest)
            except ApiRefused as error:
                pytest.fail(f"expected a quota below {name!r} to be accepted: {error}")

        def tree_of(name: str) -> str | None:
            body = yaml.safe_load(trial.call("GET", path_of(trial, f"{trial.name}-{name}-child")).body)
            labels: dict[str, str] = body["metadata"]["labels"]
            return labels.get(TREE_ID)

        assert (tree_of("tree"), tree_of("plain")) == (trial.name, None)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-146", severity="critical")
def test_pods_that_come_close_together_see_each_other(trial: Trial) -> None:
    """The webhook's watch shows no pod for a while. Of a quota of four, pods of three and of one core are accepted in
    that time, and others are refused; a pod that is deleted and made again counts once, as when the watch goes on."""
    own = f"{trial.name}-a"
    with troubled_webhook(trial, *ADMISSION) as link:
        trial.apply(quota(own).max(cpu=4).manifest)
        trial.settle()
        link.hold_streams()
        trial.submit(pod("one").request(cpu=3).quota(own))
        assert "requested: cpu=2, used: cpu=3, limited: cpu=4" in refused(trial, "two", own, 2)
        trial.delete("one")
        trial.submit(pod("one").request(cpu=3).quota(own))
        trial.submit(pod("two").request(cpu=1).quota(own))
        assert "requested: cpu=1, used: cpu=4, limited: cpu=4" in refused(trial, "three", own, 1)

        link.heal()
        trial.settle()
        assert "requested: cpu=1, used: cpu=4, limited: cpu=4" in refused(trial, "three", own, 1)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-147", severity="normal")
def test_pods_that_move_close_together_see_each_other(trial: Trial) -> None:
    """Two pods of three cores are moved to a quota of four while the webhook's watch shows nothing: the second one is
    refused."""
    full, other = f"{trial.name}-full", f"{trial.name}-other"
    with troubled_webhook(trial, *ADMISSION, "--enable-quota-admission-on-update") as link:
        trial.apply(quota(full).max(cpu=4).manifest, quota(other).max(cpu=6).manifest)
        trial.submit(*(pod(name).request(cpu=3).quota(other) for name in ("one", "two")))
        trial.settle()
        link.hold_streams()

        answers = [
            trial.call(
                "PATCH", f"/api/v1/namespaces/{trial.name}/pods/{name}", {"metadata": {"labels": {QUOTA_NAME: full}}}
            )
            for name in ("one", "two")
        ]

        assert [answer.ok for answer in answers] == [True, False]
        assert "requested: cpu=3, used: cpu=3, limited: cpu=4" in answers[1].body.decode()


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-148", severity="normal")
def test_a_quota_counts_the_pods_that_were_there_before_it(trial: Trial) -> None:
    """A quota is made for a namespace with a pod of three cores: of four cores one is left, not four. When the quota
    is for another namespace, all four are."""
    own = f"{trial.name}-a"
    with quota_webhook(trial, *ADMISSION, name="of-the-case"):
        trial.submit(pod("one").request(cpu=3))
        trial.settle()
        trial.apply(quota(own).max(cpu=4).namespaces(trial.name).manifest)
        trial.settle()

        with pytest.raises(ApiRefused, match="requested: cpu=2, used: cpu=3, limited: cpu=4"):
            trial.submit(pod("two").request(cpu=2))
        trial.submit(pod("two").request(cpu=1))
        other = {"metadata": {"annotations": {NAMESPACES: '["elsewhere"]'}}}
        assert trial.call("PATCH", path_of(trial, own), other).ok
        trial.settle()
        trial.submit(pod("three").request(cpu=4).quota(own))


@pytest.mark.feature("QUOTA-1.max-bound", "QUOTA-2.refusals")
@pytest.mark.case("QU-149", severity="normal")
def test_a_dry_run_leaves_no_trace(trial: Trial) -> None:
    """After dry runs (`kubectl apply --dry-run=server`) of a quota for a namespace, and of a pod that takes all of one,
    another quota for the namespace and another pod can be created: nothing was stored."""
    own = f"{trial.name}-a"
    with quota_webhook(trial, *ADMISSION, name="of-the-case"):
        other = quota(f"{trial.name}-b").max(cpu=4).namespaces(trial.name).manifest
        assert trial.call("POST", f"{path_of(trial, '').rstrip('/')}?dryRun=All", other).ok
        trial.apply(quota(own).max(cpu=4).namespaces(trial.name).manifest)
        manifest = pod("one").request(cpu=4).quota(own).manifest
        assert trial.call("POST", f"/api/v1/namespaces/{trial.name}/pods?dryRun=All", manifest).ok
        trial.submit(pod("two").request(cpu=4).quota(own))


def message_of(response: Response) -> str:
    """Why the API server refused the write; "" if it did not."""
    return "" if response.ok else str(yaml.safe_load(response.body)["message"])


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.profile(KOORD_SCHEDULER)
@pytest.mark.case("QU-340", severity="normal", source="spec elastic-quota V7; Koordinator quota_topology_check.go")
def test_a_max_that_is_checked_against_what_is_used(trial: Trial, expect: Expect) -> None:
    """Pods use two cores of a quota. With the annotation its max of cpu is not lowered below two, and lowered to two;
    the max of memory, which the annotation does not name, is lowered."""
    own = f"{trial.name}-a"
    trial.add(node("n1"))
    with quota_webhook(trial, "--disable-device-resource-spec", name="of-the-case"):
        built = quota(own).max(cpu=4, memory="4Gi").annotation(STRICT_KEYS, '["cpu"]')
        trial.apply(built.manifest)
        trial.submit(pod("one").request(cpu=2, memory="2Gi").quota(own).scheduler(KOORD_SCHEDULER))
        expect.bound("one")

        def used() -> dict[str, str]:
            status = yaml.safe_load(trial.call("GET", path_of(trial, own)).body).get("status") or {}
            amounts: dict[str, str] = status.get("used") or {}
            return amounts

        assert trial.reaches(lambda: used().get("cpu") == "2", within=15), f"expected 2 cores used, found {used()}"

        def lowered(**amounts: str) -> str:
            return message_of(trial.call("PATCH", path_of(trial, own), {"spec": {"max": amounts}}))

        assert f"resourceKey cpu of quota {own} max 1 < used 2" in lowered(cpu="1")
        assert "which is not included in max but should check max >= used" in message_of(
            trial.call("PATCH", path_of(trial, own), {"spec": {"max": {"cpu": None}}})
        )
        assert lowered(memory="1Gi") == ""
        assert lowered(cpu="2") == ""


@pytest.mark.feature("QUOTA-2.min-of-children")
@pytest.mark.case("QU-341", severity="normal", source="spec elastic-quota V17; Koordinator quota_topology_check.go")
def test_a_min_is_covered_by_what_quotas_above_are_guaranteed(trial: Trial) -> None:
    """Of ten cores that a quota is guaranteed, a child is guaranteed four, more than its min of one. With the gate
    ElasticQuotaGuaranteeUsage a second child gets a min of six at most, and without a tree as much as mins leave."""
    own = trial.name
    with quota_webhook(trial, "--multi-quota-tree", "--guarantee-usage", name="of-the-case"):
        for tree in ("", own):
            parent, child, other = (f"{own}-{name}{'-t' * bool(tree)}" for name in "pab")
            built = [
                quota(parent).min(cpu=10).max(cpu=20).parent().annotation(GUARANTEED, '{"cpu": 10}'),
                quota(child).min(cpu=1).max(cpu=20).below(parent).annotation(GUARANTEED, '{"cpu": 4}'),
                quota(other).min(cpu=1).max(cpu=20).below(parent),
            ]
            for each in built:
                trial.apply((each.label(TREE_ID, tree) if tree else each).manifest)
            answers = {
                least: message_of(trial.call("PATCH", path_of(trial, other), {"spec": {"min": {"cpu": least}}}))
                for least in ("7", "6")
            }
            why = f"tree root quota {parent} can't guarantee for min {other}" if tree else ""
            assert why in answers["7"]
            assert bool(why) == bool(answers["7"]), answers
            assert answers["6"] == ""


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-342", severity="normal", source="ours")
def test_a_write_that_was_not_stored_counts_no_more(trial: Trial) -> None:
    """The webhook of quotas accepts a new quota and a larger min of another one, and a second webhook refuses both.
    Soon the room in the parent is there for others."""
    own = trial.name
    hook = {
        "name": "refuses.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [
            {
                "apiGroups": ["scheduling.sigs.k8s.io"],
                "apiVersions": ["v1alpha1"],
                "resources": ["elasticquotas"],
                "operations": ["CREATE", "UPDATE"],
            }
        ],
        "objectSelector": {"matchLabels": {"refused": own}},
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
    }
    with quota_webhook(trial, "--disable-device-resource-spec", name="of-the-case"):
        trial.apply(quota(f"{own}-p").min(cpu=10).max(cpu=20).parent().manifest)
        trial.apply(quota(f"{own}-a").min(cpu=4).max(cpu=20).below(f"{own}-p").manifest)
        second = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": f"{own}-second"},
            "webhooks": [hook],
        }
        trial.settle(3.0)  # until a scheduler has written the quotas' statuses: the webhook would read both anew
        configurations = f"{CONFIGURATIONS}/validatingwebhookconfigurations"
        trial.accept(second, configurations)
        try:
            change = {"metadata": {"labels": {"refused": own}}, "spec": {"min": {"cpu": "6"}}}
            assert "refuses.example.com" in message_of(trial.call("PATCH", path_of(trial, f"{own}-a"), change))
            new = quota(f"{own}-b").min(cpu=4).max(cpu=20).below(f"{own}-p").label("refused", own)
            path = path_of(trial, "").rstrip("/")
            assert "refuses.example.com" in message_of(trial.call("POST", path, new.manifest))
        finally:
            trial.call("DELETE", f"{configurations}/{own}-second")

        def refusal() -> str:
            other = quota(f"{own}-c").min(cpu=6).max(cpu=20).below(f"{own}-p")
            return message_of(trial.call("POST", path, other.manifest))

        assert trial.wait(lambda: not refusal(), within=20), f"expected room for a min of 6, found {refusal()}"
