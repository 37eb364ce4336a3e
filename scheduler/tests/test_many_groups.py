"""Many groups of waiting pods: what one decision costs does not grow with them, and each is looked at in the end."""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.tests.rig import Rig
from seatrial.scheduler.waking import COST_OF_JUDGING, IDLE_LOOKS, LOOKS

GROUPS = 2 * IDLE_LOOKS


def by_request(number: int) -> PodBuilder:
    return pod(f"odd-{number}").request(cpu=100 + number)


def by_label(number: int) -> PodBuilder:
    """Pods that may not be on one node with pods of their own label."""
    odd = pod(f"odd-{number}").request(cpu=100).label("app", f"odd-{number}")
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": f"odd-{number}"}}}
    odd.manifest["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return odd


def rig_with(odd: Callable[[int], PodBuilder], count: int = GROUPS) -> Rig:
    """`count` pods that fit nowhere wait, and a small pod is on the only node."""
    rig = Rig()
    rig.node("n1", cpu="64", labels={"kubernetes.io/hostname": "n1"})
    rig.submit(*(odd(number) for number in range(count)))
    rig.submit(pod("first").request(cpu=60))
    rig.run()
    rig.clock.advance(20)
    rig.run()
    return rig


@pytest.mark.parametrize(("odd", "most"), [(by_request, LOOKS), (by_label, LOOKS // COST_OF_JUDGING)])
def test_a_ready_pod_does_not_wait_for_all_groups(
    odd: Callable[[int], PodBuilder], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod leaves, so that all groups may fit, and one arrives: it is placed before all were looked at."""
    rig = rig_with(odd)
    looks: list[object] = []
    refresh = ClassScores.refresh

    def counted(scores: ClassScores) -> None:
        looks.append(scores)
        refresh(scores)

    monkeypatch.setattr(ClassScores, "refresh", counted)
    rig.delete("first")
    rig.submit(pod("second").request(cpu=60))
    assert rig.core.busy
    rig.core.decide()
    assert rig.where("second") == "n1"
    assert len(looks) <= most + 2  # and those of its own cycle


def test_groups_without_kept_results_cost_one_class_in_several_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of few classes are kept: those of the others are made anew for a look, which takes long."""
    monkeypatch.setattr("seatrial.scheduler.framework.runner.MAX_CLASSES", 64)
    rig = rig_with(by_request)
    made: list[object] = []
    init = ClassScores.__init__

    def counted(scores: ClassScores, *arguments: Any) -> None:
        made.append(scores)
        init(scores, *arguments)

    monkeypatch.setattr(ClassScores, "__init__", counted)
    rig.delete("first")
    for number in range(40):
        rig.submit(pod(f"small-{number}").request(cpu=1))
        rig.core.decide()
        assert rig.where(f"small-{number}")
    assert len(made) <= 12  # about every fourth decision


@pytest.mark.parametrize("place", [0, GROUPS // 2, GROUPS - 1])
def test_the_group_that_fits_is_found(place: int) -> None:
    """One of many groups fits when a pod leaves, whichever it is, though pods arrive all the time."""
    rig = rig_with(lambda number: pod(f"odd-{number}").request(cpu=30 if number == place else 100 + number))
    rig.delete("first")
    for number in range(GROUPS):
        rig.submit(pod(f"arrival-{number}").request(cpu="1m", memory="1Mi"))
        rig.core.decide()
    assert rig.where(f"odd-{place}") == "n1"
