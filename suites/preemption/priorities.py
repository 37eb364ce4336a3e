"""The priority classes of cases about preemption."""

import pytest

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import priority_class


@pytest.fixture
def classes(trial: Trial) -> Trial:
    """Four priority classes, and one that does not preempt."""
    trial.apply(
        priority_class("trial-low", 1000),
        priority_class("trial-middle", 5000),
        priority_class("trial-high", 9000),
        priority_class("trial-top", 20000),
        priority_class("trial-patient", 20000, preempts=False),
    )
    return trial
