"""The priority classes of cases about preemption, and a second namespace."""

from collections.abc import Iterator

import orjson
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


@pytest.fixture
def second_namespace(classes: Trial) -> Iterator[str]:
    """A namespace beside that of the trial; deleted afterwards with its pods."""
    name = f"{classes.name}-other"
    classes.accept({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, "/api/v1/namespaces")
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    assert classes.reaches(lambda: classes.call("GET", account).ok, within=30)
    yield name
    classes.call("DELETE", f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
    pods = f"/api/v1/namespaces/{name}/pods"
    assert classes.reaches(lambda: not orjson.loads(classes.call("GET", pods).body)["items"], within=60)
    classes.call("DELETE", f"/api/v1/namespaces/{name}")
