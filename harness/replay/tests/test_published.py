import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.policies import POLICIES
from seatrial.harness.replay.published import FLOORS, hold_against, published


@pytest.mark.parametrize(
    ("workload", "policy", "shift", "ok"),
    [
        pytest.param("default", "fgd", 0.0, True, id="the-same"),
        pytest.param("default", "fgd", 0.15, True, id="just-near-enough"),
        pytest.param("default", "fgd", 0.16, False, id="too-high"),
        pytest.param("default", "fgd", -0.16, False, id="too-low"),
        # its standard deviations are 0.33 and 0.32 points: 3 x 0.32 x √(2/10) = 0.43
        pytest.param("default", "random", 0.42, True, id="policies-that-scatter-may-differ-more"),
        pytest.param("default", "random", -0.45, False, id="but-not-by-everything"),
        pytest.param("multigpu50", "bestfit", 0.0, True, id="another-workload"),
    ],
)
def test_a_published_policy_must_be_near(workload: str, policy: str, shift: float, ok: bool) -> None:
    means = {percent: mean + shift for percent, (mean, _) in published()[workload][policy].items()}
    rows = hold_against(workload, {policy: means})
    assert [(row.arrived_percent, row.off) for row in rows] == [(100, round(shift, 2)), (130, round(shift, 2))]
    assert {row.ok for row in rows} == {ok}


@pytest.mark.parametrize(
    ("measured", "ok"), [pytest.param(95.51, True, id="above"), pytest.param(95.5, False, id="the-floor-itself")]
)
def test_balanced_must_be_above_its_floor(measured: float, ok: bool) -> None:
    assert [row.ok for row in hold_against("default", {"balanced": {100: 0.0, 130: measured}})] == [ok]


@pytest.mark.parametrize(
    ("below", "ok"), [pytest.param(0.1, True, id="just-enough"), pytest.param(0.11, False, id="too-low")]
)
def test_opportunity_must_not_be_below_published_fgd(below: float, ok: bool) -> None:
    means = {percent: mean - below for percent, (mean, _) in published()["gpuspec33"]["fgd"].items()}
    assert [row.ok for row in hold_against("gpuspec33", {"opportunity": means})] == [ok, ok]


def test_seventeen_workloads_of_six_policies_are_published() -> None:
    assert len(published()) == 17
    assert {len(policies) for policies in published().values()} == {6}
    assert published()["default"]["fgd"] == {100: (95.23, 0.11), 130: (95.39, 0.08)}


def test_a_workload_without_published_results_is_refused() -> None:
    with pytest.raises(UsageError, match=r"no results are published for workload 'cpu300'; known, .* default, cpu050"):
        hold_against("cpu300", {})


def test_every_policy_is_held_against_something() -> None:
    assert {*published()["default"], *FLOORS["default"], "opportunity"} == set(POLICIES)
