"""Admission of quotas on the embedded cluster: started by the first request, started again after its end."""

import os
import signal
from pathlib import Path

import orjson

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.scheduler.api.builders import QuotaBuilder, pod, quota
from seatrial.scheduler.api.transport import Request

QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"


def webhooks_of(cluster: EmbeddedCluster) -> list[int]:
    """The process ids of webhook processes that read the kubeconfig of this cluster."""
    assert cluster.endpoint is not None
    kubeconfig = os.fsencode(cluster.endpoint.kubeconfig)
    webhooks = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"seatrial.scheduler.webhooks" in words and kubeconfig in words:
            webhooks.append(int(path.parent.name))
    return webhooks


def message(cluster: EmbeddedCluster, builder: QuotaBuilder) -> str:
    response = cluster.call(Request("POST", QUOTAS, orjson.dumps(builder.manifest)))
    return "" if response.ok else str(orjson.loads(response.body)["message"])


def test_the_webhook_starts_when_it_is_needed_and_again_after_its_end() -> None:
    with EmbeddedBackend().start() as cluster:
        path = "/api/v1/namespaces/default/pods"
        assert cluster.call(Request("POST", path, orjson.dumps(pod("a").manifest))).code == 201
        assert not webhooks_of(cluster)  # pods without a quota's label need no webhook

        expected = 'admission webhook "vquota.koordinator.sh" denied the request: resourceKey cpu of quota'
        assert message(cluster, quota("bad").min(cpu=3).max(cpu=2)).startswith(expected)
        assert message(cluster, quota("good").min(cpu=1).max(cpu=2)) == ""
        (process,) = webhooks_of(cluster)

        os.kill(process, signal.SIGKILL)
        assert message(cluster, quota("good").max(cpu=2).namespace("default")).endswith("already exist:good")
        assert [pid for pid in webhooks_of(cluster) if pid != process]
    assert not webhooks_of(cluster)


def test_what_the_scheduler_does_to_its_own_quotas_starts_no_webhook() -> None:
    """It creates the default quota and writes its status. A change of its spec by a user is checked."""
    collection = QUOTAS.replace("/default/", "/koordinator-system/")
    with EmbeddedBackend().start() as cluster:
        own = quota("koordinator-default-quota").max(cpu=2).namespace("koordinator-system").manifest
        assert cluster.call(Request("POST", collection, orjson.dumps(own))).code == 201
        path = f"{collection}/koordinator-default-quota"
        status = {
            "metadata": {"annotations": {"quota.scheduling.koordinator.sh/runtime": "{}"}},
            "status": {"used": {}},
        }
        assert cluster.call(Request("PATCH", path, orjson.dumps(status), "application/merge-patch+json")).ok
        assert not webhooks_of(cluster)
        bad = orjson.dumps({"spec": {"min": {"cpu": 3}}})
        assert cluster.call(Request("PATCH", path, bad, "application/merge-patch+json")).code == 400
        assert b"can not delete quotaGroup" in cluster.call(Request("DELETE", path)).body


def test_a_pod_of_a_parent_quota_is_refused() -> None:
    with EmbeddedBackend().start() as cluster:
        assert message(cluster, quota("p").max(cpu=2).parent()) == ""
        body = orjson.dumps(pod("a").quota("p").manifest)
        response = cluster.call(Request("POST", "/api/v1/namespaces/default/pods", body))
        assert "pod can not be linked to a parentQuotaGroup,quota:p, pod:a" in response.body.decode()


def test_pods_without_a_label_are_checked_once_there_is_a_quota() -> None:
    """A pod without a label belongs to the quota of its namespace (QUOTA-R30), here to a parent."""
    pods = "/api/v1/namespaces/default/pods"
    with EmbeddedBackend().start() as cluster:
        assert cluster.call(Request("POST", pods, orjson.dumps(pod("early").manifest))).code == 201
        assert not webhooks_of(cluster)
        assert message(cluster, quota("default").max(cpu=2).parent()) == ""
        response = cluster.call(Request("POST", pods, orjson.dumps(pod("late").manifest)))
        assert "pod can not be linked to a parentQuotaGroup,quota:default, pod:late" in response.body.decode()
        system = cluster.call(Request("POST", "/api/v1/namespaces/kube-system/pods", orjson.dumps(pod("x").manifest)))
        assert system.code == 201


def test_a_namespace_with_a_tree_of_quotas_and_pods_goes() -> None:
    """The webhook refuses to delete a parent before its child, and a quota before its pods: they are tried again."""
    with EmbeddedBackend().start() as cluster:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}}
        assert cluster.call(Request("POST", "/api/v1/namespaces", orjson.dumps(body))).code == 201
        account = Request("GET", "/api/v1/namespaces/team/serviceaccounts/default")
        assert cluster.wait(lambda: cluster.call(account).ok, within=10)
        path = QUOTAS.replace("default", "team")
        for target in (quota("p").max(cpu=2).parent(), quota("c").max(cpu=2).below("p")):
            assert cluster.call(Request("POST", path, orjson.dumps(target.manifest))).code == 201
        pods = "/api/v1/namespaces/team/pods"
        assert cluster.call(Request("POST", pods, orjson.dumps(pod("a").quota("c").manifest))).code == 201

        assert cluster.call(Request("DELETE", "/api/v1/namespaces/team")).ok

        gone = Request("GET", "/api/v1/namespaces/team")
        assert cluster.wait(lambda: cluster.call(gone).code == 404, within=20)
