"""Node selection for DaemonSets: which nodes fit a template, and how a pod is pinned to a node.

Follows `pkg/controller/daemon/util/daemonset_util.go`. Pods are pinned by node affinity: the scheduler binds them.
"""

from typing import Any

import msgspec

from seatrial.harness.apiserver.label_selectors import term_matches, tolerates
from seatrial.harness.apiserver.storage.store import Item, Object
from seatrial.scheduler.api.core import NodeSelector, Taint, Toleration

_ALWAYS = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_ON_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NAME_FIELD = "metadata.name"


def tolerations(pod_spec: Object) -> list[Object]:
    """The template's tolerations and those that every DaemonSet pod gets."""
    entry: list[Object] = list(pod_spec.get("tolerations") or ())
    for key, effect in (*_ALWAYS, *((_ON_HOST_NETWORK,) if pod_spec.get("hostNetwork") else ())):
        own = {"key": key, "operator": "Exists", "effect": effect}
        if own not in entry:
            entry.append(own)
    return entry


def pin(pod_spec: Object, node: str) -> None:
    """Set a required node affinity for `node`. The template's required terms are replaced; its preferences are kept."""
    affinity: dict[str, Any] = dict(pod_spec.get("affinity") or {})
    term = {"matchFields": [{"key": _NAME_FIELD, "operator": "In", "values": [node]}]}
    own: dict[str, Any] = affinity.get("nodeAffinity") or {}
    pod_spec["affinity"] = {**affinity, "nodeAffinity": {**own, _REQUIRED: {"nodeSelectorTerms": [term]}}}


def node_of(pod: Object) -> str:
    """The node that a daemon pod is bound or pinned to; "" if neither."""
    spec = pod["spec"]
    if spec.get("nodeName"):
        return str(spec["nodeName"])
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED) or {}
    for term in required.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if (
                field.get("key") == _NAME_FIELD
                and field.get("operator") == "In"
                and len(field.get("values") or ()) == 1
            ):
                return str(field["values"][0])
    return ""


class Fit:
    """Decides which nodes a DaemonSet's template fits."""

    def __init__(self, template: Object) -> None:
        spec = template.get("spec") or {}
        self._name: str = spec.get("nodeName") or ""
        self._labels: dict[str, str] = spec.get("nodeSelector") or {}
        required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        self._terms = msgspec.convert(required, NodeSelector).node_selector_terms if required else None
        self._tolerations = msgspec.convert(tolerations(spec), list[Toleration])

    def judge(self, node: Item) -> tuple[bool, bool]:
        """Whether a pod should be created on the node, and whether an existing pod may stay there."""
        metadata = node.obj["metadata"]
        name, labels = node.key[1], metadata.get("labels") or {}
        if self._name and self._name != name:
            return False, False
        if any(labels.get(key) != value for key, value in self._labels.items()):
            return False, False
        if self._terms is not None and not any(term_matches(term, name, labels) for term in self._terms):
            return False, False
        tainted = (node.obj.get("spec") or {}).get("taints")
        if not tainted:
            return True, True
        taints = msgspec.convert(tainted, list[Taint])
        untolerated = {
            taint.effect
            for taint in taints
            if not any(tolerates(toleration, taint) for toleration in self._tolerations)
        }
        return not untolerated & {"NoSchedule", "NoExecute"}, "NoExecute" not in untolerated
