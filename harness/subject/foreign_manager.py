"""Koordinator's own manager beside a scheduler under test: controllers, and webhooks for quotas, pods and nodes.

The manager puts its address and its certificate into webhook configurations that it finds under fixed names. The names
of the webhooks are those that our own have, since an API server quotes them in refusals.
"""

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.processes import START_WITHIN, die_with_parent, stop
from seatrial.harness.subject.foreign import binary_words
from seatrial.harness.subject.services import LOOPBACK, free_port
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.transport import Request

GROUP = "admissionregistration.k8s.io/v1"
PATH = f"/apis/{GROUP}"
OURS_BY_DEFAULT = "seatrial-quota-webhook"  # the embedded cluster's own registration, which gives way
QUOTA_PATH = "scheduling-sigs-k8s-io-v1alpha1-elasticquota"
_DEFAULTS = {
    "metrics-addr": f"{LOOPBACK}:0",
    "health-probe-addr": f"{LOOPBACK}:0",
    "pprof-addr": f"{LOOPBACK}:0",
    "enable-leader-election": "false",  # no other manager runs, and a killed one would hold the lease
}


def command_of(text: str, kubeconfig: Path = Path("kubeconfig"), controllers: str = "") -> list[str]:
    """The command line of the manager; flags that the user has not given are added.

    Raises:
        UsageError: its first word is no executable file, or a quote is left open.
    """
    words = binary_words(text, "manager", "the path of koord-manager, with its flags")
    parts = {word.lstrip("-").partition("=")[0] for word in words[1:]}
    flags = {"kubeconfig": str(kubeconfig), **_DEFAULTS, **({"controllers": controllers} if controllers else {})}
    return [*words, *(f"--{flag}={value}" for flag, value in flags.items() if flag not in parts)]


@contextmanager
def running_foreign_manager(cluster: Cluster, text: str, *, controllers: str = "") -> Iterator[None]:
    """The manager of this command line, with its webhooks registered; these replace our own for quotas.

    `controllers`: those that it runs unless the command line names others; "": all. NodeMetrics, for example, make a
    scheduler wait for reports.

    Raises:
        UsageError: the cluster has no address for processes.
        SubjectError: it did not start, or did not register its address.
    """
    if cluster.endpoint is None:
        raise UsageError(f"--manager is a process, and cluster {cluster.name!r} has no address for processes")
    with ExitStack() as cleanup:
        folder = cleanup.enter_context(private_folder())
        log = folder / "manager.log"
        _delete(cluster, OURS_BY_DEFAULT)
        _delete(cluster, *(item["metadata"]["name"] for item in configurations()))  # of a run that was killed
        port = free_port()
        sink = cleanup.enter_context(log.open("wb"))
        for configuration in configurations():
            # What starts meanwhile, as a scheduler that creates its quotas, is not refused for want of the manager.
            early = {
                **configuration,
                "webhooks": [{**webhook, "failurePolicy": "Ignore"} for webhook in configuration["webhooks"]],
            }
            answer = cluster.call(Request("POST", f"{PATH}/{configuration['kind'].lower()}s", orjson.dumps(early)))
            accepted(answer, f"register {configuration['metadata']['name']}")
        process = subprocess.Popen(
            command_of(text, cluster.endpoint.kubeconfig, controllers),
            env={
                **os.environ,
                "WEBHOOK_HOST": LOOPBACK,
                "WEBHOOK_PORT": str(port),
                "WEBHOOK_CERT_DIR": str(folder / "certs"),
            },
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            preexec_fn=die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
        )
        cleanup.callback(stop, process)
        # First the registrations: without them no request waits for a manager that is gone.
        cleanup.callback(_delete, cluster, *(item["metadata"]["name"] for item in configurations()))
        cluster.wait(lambda: process.poll() is not None or _serves(cluster, port), within=START_WITHIN)
        if process.poll() is not None or not _serves(cluster, port):
            raise SubjectError(
                f"manager {text!r}: expected its address in {configurations()[0]['metadata']['name']} within"
                f" {START_WITHIN:.0f} s\n" + log.read_text()[-4000:]
            )
        _require(cluster)
        yield


def configurations() -> list[dict[str, Any]]:
    """The webhook configurations that the manager completes, with services that do not exist. It removes those of
    webhooks that its feature gates switch off."""
    quotas = {"apiGroups": ["scheduling.sigs.k8s.io"], "apiVersions": ["v1alpha1"], "resources": ["elasticquotas"]}
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    statuses, nodes, settings = (
        {"apiGroups": [""], "apiVersions": ["v1"], "resources": [name]}
        for name in ("nodes/status", "nodes", "configmaps")
    )
    outside = {
        "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
    }
    mutating = [
        _webhook("mquota", f"mutate-{QUOTA_PATH}", quotas, "CREATE"),
        _webhook("mpod", "mutate-pod", pods, "CREATE") | {"namespaceSelector": outside},
        _webhook("mnode-status", "mutate-node-status", statuses, "UPDATE") | {"failurePolicy": "Ignore"},
    ]
    validating = [
        _webhook("vquota", f"validate-{QUOTA_PATH}", quotas, "CREATE", "UPDATE", "DELETE"),
        _webhook("vpod", "validate-pod", pods, "CREATE", "UPDATE") | {"namespaceSelector": outside},
        _webhook("vnode", "validate-node", nodes, "CREATE", "UPDATE"),
        _webhook("vconfigmap", "validate-configmap", settings, "CREATE", "UPDATE", "DELETE"),
    ]
    return [
        {
            "apiVersion": GROUP,
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": f"koordinator-{kind.lower()}-webhook-configuration"},
            "webhooks": webhooks,
        }
        for kind, webhooks in (("Mutating", mutating), ("Validating", validating))
    ]


def _webhook(name: str, path: str, rule: dict[str, Any], *operations: str) -> dict[str, Any]:
    return {
        "name": f"{name}.koordinator.sh",
        "clientConfig": {"service": {"name": "webhook-service", "namespace": "koordinator-system", "path": f"/{path}"}},
        "rules": [{**rule, "operations": list(operations)}],
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def _require(cluster: Cluster) -> None:
    """Have requests wait for the manager's answer, and fail without one, as Koordinator's chart does."""
    for configuration in configurations():
        name, policies = (
            configuration["metadata"]["name"],
            {each["name"]: each["failurePolicy"] for each in configuration["webhooks"]},
        )
        path = f"{PATH}/{configuration['kind'].lower()}s/{name}"
        current = orjson.loads(accepted(cluster.call(Request("GET", path)), f"read {name}").body)
        for webhook in current["webhooks"]:
            webhook["failurePolicy"] = policies[webhook["name"]]
        accepted(cluster.call(Request("PUT", path, orjson.dumps(current))), f"register {name}")


def _serves(cluster: Cluster, port: int) -> bool:
    """Whether each webhook has the manager's address, and the manager listens there."""
    for configuration in configurations():
        path = f"{PATH}/{configuration['kind'].lower()}s/{configuration['metadata']['name']}"
        stored = orjson.loads(cluster.call(Request("GET", path)).body)
        for webhook in stored.get("webhooks") or [{}]:
            if not webhook.get("clientConfig", {}).get("url", "").startswith(f"https://{LOOPBACK}:{port}/"):
                return False
    try:
        socket.create_connection((LOOPBACK, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _delete(cluster: Cluster, *names: str) -> None:
    for name in names:
        for kind in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
            cluster.call(Request("DELETE", f"{PATH}/{kind}/{name}"))
