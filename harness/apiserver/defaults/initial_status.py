"""The status of new objects: fields that upstream's types always have, before a controller writes them."""

from typing import Any

_NODE_INFO_FIELDS = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_STATUS: dict[tuple[str, str], dict[str, Any]] = {
    ("", "replicationcontrollers"): {"replicas": 0},
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"replicas": 0, "availableReplicas": 0},
    ("apps", "daemonsets"): {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    ("batch", "cronjobs"): {},
    ("autoscaling", "horizontalpodautoscalers"): {"desiredReplicas": 0},
    ("policy", "poddisruptionbudgets"): {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    ("networking.k8s.io", "ingresses"): {"loadBalancer": {}},
    ("resource.k8s.io", "resourceclaims"): {},
    ("storage.k8s.io", "volumeattachments"): {"attached": False},
}


def set_initial_status(key: tuple[str, str], body: dict[str, Any]) -> None:
    """Set the status of a new object of the collection `key`, in place; a Node keeps what its agent sent."""
    if key in _STATUS:
        body["status"] = {**_STATUS[key]}
    elif key == ("", "nodes"):
        status = body.setdefault("status", {})
        if not status.get("nodeInfo"):
            status["nodeInfo"] = dict.fromkeys(_NODE_INFO_FIELDS, "")
