"""Gangs of Kubernetes' own API: PodGroups of scheduling.k8s.io, of which pods are members by `spec.schedulingGroup`.

The API and the scheduling of these gangs are beta in 1.37 and off by default: on a cluster that does not serve them the
cases are skipped. A member asks for one card, so the room is a number of cards.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, native_gang, node, pod
from seatrial.suites.gang.members import bound, names

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]

API = "/apis/scheduling.k8s.io/v1beta1"


@pytest.fixture(autouse=True)
def _served(trial: Trial) -> None:
    if not trial.call("GET", f"{API}/podgroups").ok:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")


def path(trial: Trial, name: str = "") -> str:
    return f"{API}/namespaces/{trial.name}/podgroups{name and f'/{name}'}"


def create(trial: Trial, name: str, min_count: int | None, **spec: object) -> None:
    trial.accept(native_gang(name, min_count, **spec), path(trial))


def workers(group: str, count: int, first: int = 0) -> list[PodBuilder]:
    return [pod(name).gpus(1).in_native_gang(group) for name in names(group, count, first)]


def condition(trial: Trial, name: str = "train") -> dict[str, Any]:
    """Status, reason and message of the group's condition; empty as long as none is written."""
    found = orjson.loads(trial.call("GET", path(trial, name)).body).get("status") or {}
    conditions: list[dict[str, Any]] = found.get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodGroupInitiallyScheduled"), {})


def reaches(trial: Trial, state: str, reason: str, name: str = "train") -> bool:
    """Wait until the condition of the group has this status and reason."""

    def there() -> bool:
        found = condition(trial, name)
        return (found.get("status"), found.get("reason")) == (state, reason)

    return trial.wait(there, within=30)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-201", severity="critical")
def test_a_native_gang_is_bound_whole_or_not_at_all(trial: Trial, expect: Expect) -> None:
    """A gang of four has three cards: none is bound for a minute, and the condition is False. A fourth card comes: all
    are bound, and the condition is True."""
    trial.add(node("n1").cards(3))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))
    expect.stable(seconds=60)
    assert bound(trial) == []
    assert reaches(trial, "False", "Unschedulable"), condition(trial)
    assert condition(trial)["message"] == "minCount (4) cannot be satisfied: 3 scheduled, 0 remaining"
    assert condition(trial)["observedGeneration"] == 1

    trial.add(node("n2").cards(1))

    expect.bound(*names("train", 4))
    assert reaches(trial, "True", "Scheduled"), condition(trial)


@pytest.mark.feature("WAS-1.quorum")
@pytest.mark.case("GA-202", severity="critical")
def test_a_native_gang_that_failed_holds_no_room(trial: Trial, expect: Expect) -> None:
    """A gang of four has three cards. A plain pod that asks for three cards is bound, and no member is nominated."""
    trial.add(node("n1").cards(3))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))
    assert reaches(trial, "False", "Unschedulable"), condition(trial)

    trial.submit(pod("plain").gpus(3))

    expect.bound("plain")
    assert [one.status.nominated_node_name for one in trial.pods()] == [""] * 5
