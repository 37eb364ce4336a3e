import pytest

from seatrial.harness.replay.policies import POLICIES
from seatrial.harness.replay.published import FLOORS, PUBLISHED, TOLERANCE, hold_against


@pytest.mark.parametrize(
    ("policy", "shift", "ok"),
    [
        pytest.param("fgd", 0.0, True, id="the-same"),
        pytest.param("fgd", TOLERANCE, True, id="just-near-enough"),
        pytest.param("random", -TOLERANCE - 0.01, False, id="too-low"),
        pytest.param("bestfit", TOLERANCE + 0.01, False, id="too-high"),
    ],
)
def test_a_published_policy_must_be_near(policy: str, shift: float, ok: bool) -> None:
    means = {percent: value + shift for percent, value in PUBLISHED[policy].items()}
    rows = hold_against({policy: means})
    assert [(row.arrived_percent, row.off) for row in rows] == [(100, round(shift, 2)), (130, round(shift, 2))]
    assert {row.ok for row in rows} == {ok}


@pytest.mark.parametrize(
    ("measured", "ok"),
    [pytest.param(95.51, True, id="above"), pytest.param(95.5, False, id="the-floor-itself")],
)
def test_our_own_policy_must_be_above_its_floor(measured: float, ok: bool) -> None:
    assert [row.ok for row in hold_against({"balanced": {100: 0.0, 130: measured}})] == [ok]


def test_every_policy_is_held_against_something() -> None:
    assert {*PUBLISHED, *FLOORS} == set(POLICIES)
