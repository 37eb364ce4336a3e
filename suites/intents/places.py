"""Which pods of a case have a node."""

from seatrial.fixtures.trial import Trial


def bound(trial: Trial, prefix: str = "") -> list[str]:
    """The names of the bound pods that begin so, in order."""
    return sorted(
        each.metadata.name for each in trial.pods() if each.spec.node_name and each.metadata.name.startswith(prefix)
    )
