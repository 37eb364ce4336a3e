"""Members of gangs: pods of one card each, their names, and which of them are bound."""

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, pod


def workers(group: str, count: int, *, cards: int = 1, first: int = 0) -> list[PodBuilder]:
    """Members of a PodGroup, `GROUP-0`, `GROUP-1`, …"""
    return [pod(f"{group}-{number}").gpus(cards).in_gang(group) for number in range(first, first + count)]


def names(group: str, count: int, first: int = 0) -> list[str]:
    return [f"{group}-{number}" for number in range(first, first + count)]


def bound(cluster: Trial, group: str = "") -> list[str]:
    """Names of bound pods that begin with `group`."""
    return sorted(
        pod.metadata.name for pod in cluster.pods() if pod.spec.node_name and pod.metadata.name.startswith(group)
    )
