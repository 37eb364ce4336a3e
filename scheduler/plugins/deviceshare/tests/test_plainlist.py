"""Order by PCIe switch: example DEV-E10."""

import pytest

from seatrial.scheduler.plugins.deviceshare.plainlist import by_turns

SWITCHES = {1: "0", 2: "0", 5: "1", 6: "1"}


@pytest.mark.parametrize(
    ("scores", "want"),
    [
        pytest.param({}, [1, 5, 2, 6, 0, 3, 4, 7], id="all-alike"),
        pytest.param({5: 10, 6: 50}, [6, 1, 5, 2, 0, 3, 4, 7], id="the-best-of-a-switch-first"),
        pytest.param({5: 10, 6: 10}, [5, 1, 6, 2, 0, 3, 4, 7], id="two-equally-good-ones"),
    ],
)
def test_switches_take_turns(scores: dict[int, int], want: list[int]) -> None:
    ranked = sorted((-scores.get(number, 0), number) for number in range(8))
    assert by_turns(ranked, frozenset({"0", "1"}), SWITCHES.get) == want
