"""Admission of pods by their quota (gates EnableQuotaAdmission and EnableQuotaAdmissionOnUpdate), and quotas of trees.

The webhook of each case is a process of its own, which follows the cluster's quotas and pods.
"""

import pytest
import yaml

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.scheduler.api.builders import pod, quota
from seatrial.scheduler.api.quota import QUOTA_NAME, TREE_ID
from seatrial.suites.quota.test_webhook import path_of, quota_webhook

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

ADMISSION = ("--enable-quota-admission", "--disable-device-resource-spec")


def refused(cluster: Trial, name: str, own: str, cpu: int) -> str:
    with pytest.raises(ApiRefused) as error:
        cluster.submit(pod(name).request(cpu=cpu).quota(own))
    return str(error.value)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-142", severity="normal")
def test_a_pod_that_is_gone_counts_no_more(cluster: Trial) -> None:
    """A quota of four: a pending pod of three is deleted, then one of two is accepted, and one of three is not."""
    own = f"{cluster.name}-a"
    with quota_webhook(cluster, *ADMISSION, name="of-the-case"):
        cluster.apply(quota(own).max(cpu=4).manifest)
        cluster.submit(pod("one").request(cpu=3).quota(own))
        assert "exceeded quota" in refused(cluster, "two", own, 2)
        cluster.delete("one")

        def accepted() -> bool:
            try:
                cluster.submit(pod("two").request(cpu=2).quota(own))
            except ApiRefused:
                return False
            return True

        assert cluster.cluster.wait(accepted, within=30), "expected room for two cores"
        assert "requested: cpu=3, used: cpu=2, limited: cpu=4" in refused(cluster, "three", own, 3)


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-143", severity="normal")
def test_pods_without_a_quota_that_is_there(cluster: Trial) -> None:
    """A pod that names a quota that does not exist is refused; one that names none is accepted."""
    with quota_webhook(cluster, *ADMISSION, name="of-the-case"):
        own = f"{cluster.name}-absent"
        assert f"elastic quota {own} not found" in refused(cluster, "one", own, 1)
        cluster.submit(pod("two").request(cpu=1))


@pytest.mark.feature("QUOTA-1.max-bound")
@pytest.mark.case("QU-144", severity="normal")
@pytest.mark.parametrize("gate", [True, False], ids=["with-the-gate", "without"])
def test_a_pod_that_moves_into_a_full_quota(cluster: Trial, *, gate: bool) -> None:
    """The label of a pod of two cores is changed to a quota that has one core left: with the gate
    EnableQuotaAdmissionOnUpdate that is refused, without it accepted."""
    options = (*ADMISSION, *(["--enable-quota-admission-on-update"] if gate else []))
    full, other = f"{cluster.name}-full", f"{cluster.name}-other"
    with quota_webhook(cluster, *options, name="of-the-case"):
        cluster.apply(*(quota(name).max(cpu=4).manifest for name in (full, other)))
        cluster.submit(pod("one").request(cpu=3).quota(full), pod("two").request(cpu=2).quota(other))
        cluster.settle()

        path = f"/api/v1/namespaces/{cluster.name}/pods/two"
        answer = cluster.call("PATCH", path, {"metadata": {"labels": {QUOTA_NAME: full}}})

        message = f"exceeded quota: {cluster.name}/{full}, requested: cpu=2, used: cpu=3, limited: cpu=4"
        assert (message in answer.body.decode()) == gate, answer.body
        assert answer.ok != gate


@pytest.mark.feature("QUOTA-2.defaults", "QUOTA-7.trees")
@pytest.mark.case("QU-145", severity="normal")
def test_a_new_quota_belongs_to_the_tree_of_its_parent(cluster: Trial) -> None:
    """A quota below one of a tree is stored with the tree; one below a quota of no tree is stored without."""
    with quota_webhook(cluster, "--multi-quota-tree", name="of-the-case"):
        for name in ("tree", "plain"):
            parent = quota(f"{cluster.name}-{name}").min(cpu=4).max(cpu=4).parent()
            cluster.apply((parent.label(TREE_ID, cluster.name) if name == "tree" else parent).manifest)
            child = quota(f"{cluster.name}-{name}-child").min(cpu=1).max(cpu=4).below(f"{cluster.name}-{name}")
            try:
                cluster.apply(child.manifest)
            except ApiRefused as error:
                pytest.fail(f"expected a quota below {name!r} to be accepted: {error}")

        def tree_of(name: str) -> str | None:
            found = yaml.safe_load(cluster.call("GET", path_of(cluster, f"{cluster.name}-{name}-child")).body)
            labels: dict[str, str] = found["metadata"]["labels"]
            return labels.get(TREE_ID)

        assert (tree_of("tree"), tree_of("plain")) == (cluster.name, None)
