"""Pods that are where most rules begin to bite: on a node, running."""

from typing import Any

from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod
from seatrial.scheduler.api.transport import MERGE_PATCH


def bound(api: Api, name: str, **spec: Any) -> Object:
    """A pod on a node, running; the node is only a name."""
    labels = spec.pop("labels", {"app": "a"})
    api.do("POST", PODS, pod(name, labels=labels, **spec))
    api.do("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": {"name": "node-1"}})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    response: Object = api.do("PATCH", f"{PODS}/{name}/status", {"status": status}, MERGE_PATCH)
    return response
