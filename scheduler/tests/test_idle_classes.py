"""Results of classes that are not asked for are dropped, and the class axis gets shorter: the keys stay right."""

import itertools
import random

import numpy as np
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.framework import matrix_arrays
from seatrial.scheduler.framework.class_scores import ClassScores
from seatrial.scheduler.framework.runner import IDLE_CHANGES, MIN_CLASSES, Runner
from seatrial.scheduler.framework.score_matrix import ScoreMatrix
from seatrial.scheduler.tests.rig import Rig
from seatrial.scheduler.tests.test_engine import PROFILES, configuration

SHAPES = 12
STEPS = 240


def shaped(name: str, number: int) -> PodBuilder:
    """A pod of one of SHAPES classes: CPUs, in most a card, in some in one zone alone, in some a host
    port of its own, which has no node signatures."""
    built = pod(name).request(cpu=f"{300 * (number + 1)}m")
    if number % 3:
        built = built.gpus(1)
    if number % 6 == 4:
        built.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 1 + int(name[1:])}]
    return built.select({"zone": "a"}) if number % 4 == 3 else built


def check(runner: Runner) -> None:
    """All keys that are kept equal those of classes that are judged from nothing."""
    for kept in (*runner._earlier.values(), *runner._recent.values()):
        assert kept.matrix is not None
        anew = ClassScores(runner, kept.entry.shape, kept.rules, ScoreMatrix(runner.handle.columns))
        found, wanted = kept.exact_key(), anew.exact_key()
        assert (np.maximum(found, -1) == np.maximum(wanted, -1)).all(), kept.entry.shape


@pytest.mark.parametrize("profile", PROFILES)
def test_kept_keys_are_those_of_a_full_evaluation(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of four classes at a time come and go, and the four change. There is room for two classes, and one more at a
    time, so that indices are given again and the arrays are cut in their middle."""
    monkeypatch.setattr(matrix_arrays, "_FIRST_CLASSES", 2)
    monkeypatch.setattr(matrix_arrays, "_MORE_CLASSES", 1)
    rng = random.Random(profile)  # noqa: S311 a story
    rig = Rig(configuration(profile))
    for number in range(7):
        rig.node(f"n{number}", gpus=number % 2 * 10, labels={"zone": "ab"[number % 3 == 0]})
    (runner,) = rig.core.runners.values()
    assert isinstance(runner, Runner)
    rooms, running = [], []
    for step in range(STEPS):
        name = f"p{step}"
        rig.submit(shaped(name, (step // 30 * 5 + rng.randrange(4)) % SHAPES))
        rig.run()
        assert rig.where(name)
        running.append(name)
        if len(running) > 25:
            rig.delete(running.pop(rng.randrange(25)))
        if step % 4 == 0:
            rig.node("n1", cpu=str(64 + step % 3), gpus=10, labels={"zone": "a"})  # all classes judge it again
        if step % 9 == 0:
            runner._review_at = 0
            runner.review()
            rooms.append(runner._matrix._room)
        if step % 7 == 0:
            check(runner)
    assert sum(after < before for before, after in itertools.pairwise(rooms)) > 3, rooms


def test_rows_of_classes_that_are_not_asked_for_are_given_back() -> None:
    """Pods of forty classes come once, then many of another class: the axis has grown to 50, and is cut to 32."""
    rig = Rig()
    rig.node("n")
    rig.submit(*(pod(f"once-{number}").request(cpu=f"{100 + number}m") for number in range(40)))
    rig.submit(pod("first").request(cpu=1))
    rig.run()
    runner = rig.core.runners["default-scheduler"]
    assert isinstance(runner, Runner)
    rooms = [runner._matrix._room]
    for number in range(IDLE_CHANGES * MIN_CLASSES * 2):
        rig.submit(pod(f"p{number}").request(cpu=1))
        rig.run()
        rig.delete(f"p{number}")
    rooms.append(runner._matrix._room)
    assert rooms == [50, 32]
