"""Koordinator's manager, unchanged: controllers and webhooks built with controller-runtime."""

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import orjson
import yaml

from seatrial.harness.apiserver.tests.foreign import binary, create, read, wait_until
from seatrial.harness.apiserver.tests.kubectl import MANIFESTS
from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.processes import die_with_parent, stop
from seatrial.scheduler.api.transport import Request

REGISTRATIONS = "/apis/admissionregistration.k8s.io/v1"
MUTATING = f"{REGISTRATIONS}/mutatingwebhookconfigurations"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/koordinator-system/leases/koordinator-manager"
QUOTAS = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/default/elasticquotas"
PODS = "/api/v1/namespaces/default/pods"
PROFILE = {
    "metadata": {"name": "colocation"},
    "spec": {"selector": {"matchLabels": {"app": "batch"}}, "qosClass": "BE", "labels": {"added": "by-the-profile"}},
}


def free_port() -> int:
    with socket.socket() as plug:
        plug.bind(("127.0.0.1", 0))
        port: int = plug.getsockname()[1]
        return port


def pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}}


def test_koord_manager(tmp_path: Path) -> None:
    """It takes its lease, gives its address to the webhooks, changes our pods and refuses our quotas."""
    program, log, port = binary("koord-manager"), tmp_path / "log", free_port()
    with EmbeddedBackend(seed=1).start(fleet="default") as cluster:
        assert cluster.endpoint is not None
        for manifest in yaml.safe_load_all((MANIFESTS / "koordinator_webhooks.yaml").read_text()):
            create(cluster, f"{REGISTRATIONS}/{manifest['kind'].lower()}s", manifest)
        nowhere = [f"--{name}-addr=127.0.0.1:0" for name in ("metrics", "health-probe", "pprof")]
        certificates = {"WEBHOOK_CERT_DIR": str(tmp_path / "certs")}
        with log.open("wb") as sink:
            manager = subprocess.Popen(
                [program, "--kubeconfig", str(cluster.endpoint.kubeconfig), *nowhere],
                env={**os.environ, "WEBHOOK_HOST": "127.0.0.1", "WEBHOOK_PORT": str(port), **certificates},
                stdout=sink,
                stderr=sink,
                preexec_fn=die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
            )

        def address() -> str:
            (webhook,) = read(cluster, f"{MUTATING}/koordinator-mutating-webhook-configuration")["webhooks"]
            return str(webhook["clientConfig"].get("url", ""))

        try:
            wait_until(lambda: address() == f"https://127.0.0.1:{port}/mutate-pod", "its own address", log.read_text)
            wait_until(lambda: bool(read(cluster, LEASE)), "its lease", log.read_text)
            create(cluster, "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles", PROFILE)

            def changed() -> bool:
                """The manager hears of the profile when it hears of it; until then pods stay as they are."""
                cluster.call(Request("DELETE", f"{PODS}/a?gracePeriodSeconds=0"))
                answer = cluster.call(Request("POST", PODS, orjson.dumps(pod("a", app="batch"))))
                labels = orjson.loads(answer.body)["metadata"].get("labels", {}) if answer.code == 201 else {}
                return {"added": "by-the-profile", "koordinator.sh/qosClass": "BE"}.items() <= labels.items()

            wait_until(changed, "a pod as the profile wants it", log.read_text)
            quota = {"metadata": {"name": "q"}, "spec": {"min": {"cpu": "2"}, "max": {"cpu": "1"}}}
            refused = cluster.call(Request("POST", QUOTAS, orjson.dumps(quota)))
            assert refused.code in {400, 403}, refused.body.decode()
            assert 'admission webhook "vquota.koordinator.sh" denied' in orjson.loads(refused.body)["message"]
        finally:
            stop(manager)
    assert "unknown field" not in log.read_text()
