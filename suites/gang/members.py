"""Members of gangs: pods of one card each, their names, which of them are bound, and the status of their PodGroup."""

from typing import Any

import orjson

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, pod

RACK = "example.com/rack"  # label of nodes


def workers(group: str, count: int, *, cards: int = 1, first: int = 0) -> list[PodBuilder]:
    """Members of a PodGroup, `GROUP-0`, `GROUP-1` and so on."""
    return [pod(f"{group}-{number}").gpus(cards).in_gang(group) for number in range(first, first + count)]


def names(group: str, count: int, first: int = 0) -> list[str]:
    return [f"{group}-{number}" for number in range(first, first + count)]


def bound(trial: Trial, group: str = "") -> list[str]:
    """Names of bound pods that begin with `group`."""
    return sorted(
        pod.metadata.name for pod in trial.pods() if pod.spec.node_name and pod.metadata.name.startswith(group)
    )


def status(trial: Trial, group: str = "train") -> dict[str, Any]:
    """The status of a PodGroup; empty as long as none is written."""
    status: dict[str, Any] = orjson.loads(trial.call("GET", trial.path("PodGroup", group)).body).get("status") or {}
    return status
