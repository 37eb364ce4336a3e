"""Members of gangs, and which pods of a case have a node."""

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import PodBuilder, pod


def members(group: str, count: int, first: int = 0) -> list[PodBuilder]:
    """Pods of a gang that ask for one CPU each: `GROUP-0`, `GROUP-1` and so on."""
    return [pod(f"{group}-{number}").request(cpu=1) for number in range(first, first + count)]


def bound(trial: Trial, prefix: str = "") -> list[str]:
    """The names of the bound pods that begin so, in order."""
    return sorted(
        each.metadata.name for each in trial.pods() if each.spec.node_name and each.metadata.name.startswith(prefix)
    )
