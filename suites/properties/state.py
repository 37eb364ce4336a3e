"""The objects of a story as the API server has them, and the plain arithmetic that all oracles share."""

import json
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Self

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import Amounts, amounts
from seatrial.harness.audit.requests import requests_of
from seatrial.harness.clusters.answers import accepted
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.networktopology import TOPOLOGIES_PATH
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.scheduler.api.slo import NODE_METRICS_PATH
from seatrial.scheduler.api.wire import from_plain

Json = dict[str, Any]
_PLACED = "scheduling.koordinator.sh"  # in the keys of annotations that say what a pod got
_LISTS = {
    "pods": "/api/v1/namespaces/{ns}/pods",
    "nodes": "/api/v1/nodes",
    "quotas": QUOTAS_PATH,
    "reservations": RESERVATIONS_PATH,
    "metrics": NODE_METRICS_PATH,
    "topologies": TOPOLOGIES_PATH,
    "groups": "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{ns}/podgroups",
    "claims": "/api/v1/namespaces/{ns}/persistentvolumeclaims",
    "volumes": "/api/v1/persistentvolumes",
    "classes": "/apis/storage.k8s.io/v1/storageclasses",
}


class Change(Enum):
    """What a step did. What is bound after ONE fits the state of that moment."""

    ONE = auto()
    SEVERAL = auto()  # objects, one after the other
    UNSEEN = auto()  # something kept the scheduler from seeing it at once


@dataclass
class State:
    """All objects by name, at one time of the cluster's clock."""

    now: float
    pods: dict[str, Json] = field(default_factory=dict)
    nodes: dict[str, Json] = field(default_factory=dict)
    quotas: dict[str, Json] = field(default_factory=dict)
    reservations: dict[str, Json] = field(default_factory=dict)
    metrics: dict[str, Json] = field(default_factory=dict)
    topologies: dict[str, Json] = field(default_factory=dict)
    groups: dict[str, Json] = field(default_factory=dict)
    claims: dict[str, Json] = field(default_factory=dict)
    volumes: dict[str, Json] = field(default_factory=dict)
    classes: dict[str, Json] = field(default_factory=dict)

    @classmethod
    def read(cls, trial: Trial) -> Self:
        """The objects of now."""
        results = {
            name: orjson.loads(accepted(trial.call("GET", path.format(ns=trial.name)), f"list {name}").body)["items"]
            for name, path in _LISTS.items()
        }
        for items in results.values():  # of several of one name, in several namespaces, the oldest
            items.sort(key=lambda one: (one["metadata"]["creationTimestamp"], one["metadata"].get("namespace", "")))
        by_name = {name: {one["metadata"]["name"]: one for one in items[::-1]} for name, items in results.items()}
        return cls(trial.cluster.clock.now(), **by_name)

    def places(self) -> list[tuple[str, str, dict[str, str]]]:
        """Node of each pod, and what annotations say that it got there."""
        return [
            (name, node_of(pod), {key: value for key, value in annotations(pod).items() if _PLACED in key})
            for name, pod in sorted(self.pods.items())
        ]

    def on(self, node: str) -> list[Json]:
        """The pods that occupy the node."""
        return [pod for pod in self.pods.values() if node_of(pod) == node and not is_over(pod)]

    def waiting(self) -> list[Json]:
        """The pods that have to be placed."""
        return [
            pod
            for pod in self.pods.values()
            if not node_of(pod) and not is_over(pod) and "deletionTimestamp" not in pod["metadata"]
        ]

    def bound_since(self, before: "State") -> list[Json]:
        """The pods that have a node now, and had none before."""
        return [
            pod
            for name, pod in self.pods.items()
            if node_of(pod) and not is_over(pod) and not node_of(before.pods.get(name, {"spec": {}}))
        ]


def name_of(one: Json) -> str:
    return str(one["metadata"]["name"])


def node_of(pod: Json) -> str:
    return str(pod["spec"].get("nodeName", ""))


def is_over(pod: Json) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def labels(one: Json) -> dict[str, str]:
    return one["metadata"].get("labels") or {}


def annotations(one: Json) -> dict[str, str]:
    return one["metadata"].get("annotations") or {}


def noted(one: Json, key: str) -> Any:
    """An annotation that is JSON; None if it is not there."""
    content = annotations(one).get(key)
    return json.loads(content) if content else None


def requests(pod: Json) -> Amounts:
    """What the pod occupies."""
    return requests_of(from_plain(pod, Pod))


def total(pods: list[Json]) -> Amounts:
    return added(*map(requests, pods))


def added(*parts: Amounts) -> Amounts:
    return {key: sum(part.get(key, 0) for part in parts) for key in {key for part in parts for key in part}}


def allocatable(node: Json) -> Amounts:
    return amounts(node["status"].get("allocatable") or {})
