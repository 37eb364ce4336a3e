"""Admission of quotas: the API server refuses what breaks the rules, in the words of Koordinator's webhook."""

import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused, ClusterError
from seatrial.harness.private_files import private_folder
from seatrial.harness.processes import die_with_parent, stop
from seatrial.scheduler.api.builders import QuotaBuilder, pod, quota
from seatrial.scheduler.api.quota import PARENT, QUOTAS_PATH, SHARED_WEIGHT

pytestmark = [pytest.mark.needs(Capability.NODES)]

STARTS_WITHIN = 60.0  # seconds
GROUP = "/apis/admissionregistration.k8s.io/v1"
BY_DEFAULT = "seatrial-quota-webhook"
DENIED = 'admission webhook "vquota.koordinator.sh" denied the request: '


@pytest.fixture
def certificates() -> Iterator[Path]:
    """A folder for the webhook's private key. It is removed even if the test fails; `tmp_path` would be kept."""
    with private_folder() as folder:
        yield folder


@pytest.fixture(autouse=True)
def webhook(cluster: Trial, certificates: Path) -> Iterator[None]:
    """The webhook as a process that follows the cluster's quotas and pods. The embedded cluster has it."""
    if cluster.call("GET", f"{GROUP}/validatingwebhookconfigurations/{BY_DEFAULT}").ok:
        yield
        return
    endpoint = cluster.cluster.endpoint
    if endpoint is None:
        pytest.skip(f"needs a cluster that a process can reach; {cluster.cluster.name} lives in this process")
    command = [
        sys.executable, "-m", "seatrial.scheduler.webhooks", "--port", "0", "--cert-dir", str(certificates),
        "--namespace", cluster.name, "--kubeconfig", str(endpoint.kubeconfig),
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, preexec_fn=die_with_parent)  # noqa: S603, PLW1509
    registered: list[str] = []
    try:
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], STARTS_WITHIN)[0]:
            raise ClusterError(f"the webhook did not listen within {STARTS_WITHIN:.0f} s")
        for manifest in yaml.safe_load_all(process.stdout.read()):
            manifest["metadata"]["name"] = cluster.name
            path = f"{GROUP}/{manifest['kind'].lower()}s"
            cluster.accept(manifest, path)
            registered.append(f"{path}/{cluster.name}")
        yield
    finally:
        for path in registered:
            cluster.call("DELETE", path)
        stop(process)


def refused(cluster: Trial, wanted: QuotaBuilder) -> str:
    with pytest.raises(ApiRefused) as error:
        cluster.apply(wanted.manifest)
    return str(error.value)


def path_of(cluster: Trial, name: str) -> str:
    return QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{cluster.name}/elasticquotas/{name}")


def family(cluster: Trial) -> str:
    """A parent with a min of 10 and a child with a min of 4; the common part of their names."""
    own = cluster.name
    cluster.apply(quota(f"{own}-p").min(cpu=10).max(cpu=20).parent().manifest)
    cluster.apply(quota(f"{own}-a").min(cpu=4).max(cpu=20).below(f"{own}-p").manifest)
    return own


@pytest.mark.feature("QUOTA-2.min-of-children")
@pytest.mark.case("QU-050", severity="critical")
def test_children_have_no_more_min_than_their_parent(cluster: Trial) -> None:
    """A second child whose min does not fit is refused, and a smaller one is accepted."""
    own = family(cluster)

    message = refused(cluster, quota(f"{own}-b").min(cpu=7).max(cpu=20).below(f"{own}-p"))

    assert f"{DENIED}checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: {own}-p" in message
    cluster.apply(quota(f"{own}-b").min(cpu=6).max(cpu=20).below(f"{own}-p").manifest)


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-051", severity="normal")
def test_min_is_at_most_max(cluster: Trial) -> None:
    """A quota whose min is above its max is refused with both values."""
    message = refused(cluster, quota(f"{cluster.name}-x").min(cpu=3).max(cpu=2))
    assert f"{DENIED}resourceKey cpu of quota {cluster.name}-x min 3 > max 2" in message


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-052", severity="critical")
def test_a_parent_stays_while_it_has_children(cluster: Trial) -> None:
    """Deleting a parent with a child is refused, and then the child and the parent can be deleted."""
    own = family(cluster)

    response = cluster.call("DELETE", path_of(cluster, f"{own}-p"))

    assert response.code == 400
    assert f"{DENIED}delete quota failed, quota {own}-p has 1 child quotas" == yaml.safe_load(response.body)["message"]
    assert cluster.call("DELETE", path_of(cluster, f"{own}-a")).ok
    assert cluster.cluster.wait(lambda: cluster.call("DELETE", path_of(cluster, f"{own}-p")).ok, within=10)


@pytest.mark.feature("QUOTA-2.refusals")
@pytest.mark.case("QU-053", severity="normal")
def test_a_parent_has_no_pods(cluster: Trial) -> None:
    """A pod that names a parent quota is refused, and one of its child is accepted."""
    own = family(cluster)

    with pytest.raises(ApiRefused) as error:
        cluster.submit(pod("one").quota(f"{own}-p"))

    assert f"pod can not be linked to a parentQuotaGroup,quota:{own}-p, pod:one" in str(error.value)
    cluster.submit(pod("one").quota(f"{own}-a"))


@pytest.mark.feature("QUOTA-2.defaults")
@pytest.mark.case("QU-054", severity="normal")
def test_a_new_quota_gets_its_defaults(cluster: Trial) -> None:
    """Parent and shared weight are stored where the author gave none."""
    cluster.apply(quota(f"{cluster.name}-x").max(cpu=2).manifest)
    found = yaml.safe_load(cluster.call("GET", path_of(cluster, f"{cluster.name}-x")).body)["metadata"]
    assert found["labels"][PARENT] == "koordinator-root-quota"
    assert yaml.safe_load(found["annotations"][SHARED_WEIGHT]) == {"cpu": "2"}
