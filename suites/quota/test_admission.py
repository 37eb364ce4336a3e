"""Admission of pods by their quota (gates EnableQuotaAdmission and EnableQuotaAdmissionOnUpdate), and quotas of trees.

The webhook of each case is a process of its own, which follows the cluster's quotas and pods.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import admission_webhook
from seatrial.harness.clusters.fault_injection.proxy_process import TroubledWay
from seatrial.harness.clusters.fault_injection.transport import Link
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import pod, quota
from seatrial.scheduler.api.quota import NAMESPACES, QUOTA_NAME, TREE_ID
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
