"""Webhook configurations that register these webhooks with an API server."""

import base64
from typing import Any

from seatrial.scheduler.api.slo import CONFIG_NAMESPACE
from seatrial.scheduler.webhooks.reviews import (
    MUTATE,
    MUTATE_NODE,
    MUTATE_QUOTA,
    VALIDATE,
    VALIDATE_BINDING,
    VALIDATE_CONFIG,
    VALIDATE_NODE,
    VALIDATE_QUOTA,
)

Manifest = dict[str, Any]
NAME = "seatrial-pod-webhook"
_GROUP = "admissionregistration.k8s.io/v1"
_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
    "operations": ["CREATE", "UPDATE"],
    "scope": "Namespaced",
}
_QUOTA_RULE = {
    "apiGroups": ["scheduling.sigs.k8s.io"],
    "apiVersions": ["v1alpha1"],
    "resources": ["elasticquotas"],
    "scope": "Namespaced",
}
_NODE_RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["nodes", "nodes/status"],
    "operations": ["UPDATE"],
    "scope": "Cluster",
}
_NOT_THE_SYSTEM = {
    "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}]
}


def configurations(
    url: str,
    authorities: bytes,
    *,
    namespace: str = "",
    name: str = NAME,
    mutating: bool = True,
    quotas: bool = False,
    bindings: bool = False,
    nodes: bool = False,
    node_labels: dict[str, str] | None = None,
    slo_config: bool = False,
) -> list[Manifest]:
    """A MutatingWebhookConfiguration (if `mutating`) and a ValidatingWebhookConfiguration.

    Args:
        url: where the webhooks are, without a path.
        authorities: PEM that their certificate comes from.
        namespace: pods of this namespace alone; empty: of all but the system's.
        name: of both configurations.
        nodes: register the webhook that amplifies allocatable amounts of nodes (Koordinator's gate
            NodeMutatingWebhook).
        node_labels: with `nodes`, only for nodes with these labels.
        quotas: register the webhooks for ElasticQuotas too; not limited to `namespace`, because names are global.
        slo_config: register the webhooks for the ConfigMap with the settings of nodes, and for labels of nodes.
        bindings: register the webhook that decides who may bind pods.
    """
    selector: Manifest = {"matchLabels": {"kubernetes.io/metadata.name": namespace}} if namespace else _NOT_THE_SYSTEM
    bundle = base64.b64encode(authorities).decode()

    def configuration(kind: str, webhook: str, path: str, **more: Any) -> Manifest:
        return {
            "apiVersion": _GROUP,
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": webhook,
                    "clientConfig": {"url": f"{url}{path}", "caBundle": bundle},
                    "rules": [_RULE],
                    "namespaceSelector": selector,
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                    **more,
                }
            ],
        }

    statuses = [configuration("ValidatingWebhookConfiguration", "vpod.koordinator.sh", VALIDATE)]
    if mutating:
        statuses.insert(
            0,
            configuration("MutatingWebhookConfiguration", "mpod.koordinator.sh", MUTATE, reinvocationPolicy="IfNeeded"),
        )
    if quotas:
        changes = [{**_QUOTA_RULE, "operations": ["CREATE", "UPDATE", "DELETE"]}]
        statuses[-1]["webhooks"].append(
            {
                **statuses[-1]["webhooks"][0],
                "name": "vquota.koordinator.sh",
                "rules": changes,
                "namespaceSelector": {},
                "clientConfig": {"url": f"{url}{VALIDATE_QUOTA}", "caBundle": bundle},
            }
        )
        added = configuration("MutatingWebhookConfiguration", "mquota.koordinator.sh", MUTATE_QUOTA)
        added["webhooks"][0] |= {"rules": [{**_QUOTA_RULE, "operations": ["CREATE"]}], "namespaceSelector": {}}
        if mutating:
            statuses[0]["webhooks"] += added["webhooks"]
        else:
            statuses.insert(0, added)
    if bindings:
        statuses[-1]["webhooks"].append(
            {
                **statuses[-1]["webhooks"][0],
                "name": "vbinding.koordinator.sh",
                "rules": [{**_RULE, "resources": ["pods/binding"], "operations": ["CREATE"]}],
                "failurePolicy": "Ignore",
                "clientConfig": {"url": f"{url}{VALIDATE_BINDING}", "caBundle": bundle},
            }
        )
    if slo_config:
        own: Manifest = {"matchLabels": {"kubernetes.io/metadata.name": CONFIG_NAMESPACE}}
        every = {**_NODE_RULE, "resources": ["nodes"], "operations": ["CREATE", "UPDATE"]}
        for webhook, path, rule, policy, namespaces in (
            ("vconfigmap.koordinator.sh", VALIDATE_CONFIG, {**_RULE, "resources": ["configmaps"]}, "Fail", own),
            ("vnode.koordinator.sh", VALIDATE_NODE, every, "Ignore", {}),
        ):
            more: Manifest = {"rules": [rule], "failurePolicy": policy, "namespaceSelector": namespaces}
            statuses[-1]["webhooks"] += configuration("", webhook, path, **more)["webhooks"]
    if nodes:
        added = configuration("MutatingWebhookConfiguration", "mnode.koordinator.sh", MUTATE_NODE)
        added["webhooks"][0] |= {"rules": [_NODE_RULE], "namespaceSelector": {}, "failurePolicy": "Ignore"}
        if node_labels:
            added["webhooks"][0]["objectSelector"] = {"matchLabels": node_labels}
        if statuses[0]["kind"] == "MutatingWebhookConfiguration":
            statuses[0]["webhooks"] += added["webhooks"]
        else:
            statuses.insert(0, added)
    return statuses
