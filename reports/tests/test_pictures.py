"""Pictures are XML, hold every device or sample they should, and stay inside their frame."""

import xml.etree.ElementTree as ET

import pytest

from seatrial.harness.results import DeviceState, NodeState
from seatrial.reports import svg
from seatrial.reports.fleet import MAX_NODES, fleet, step_of, summary_of
from seatrial.reports.run_figures import Load, Series


def nodes(count: int, devices: int = 8) -> list[NodeState]:
    cards = tuple(DeviceState("gpu", minor, "a10", used_core_percent=12.5 * minor) for minor in range(devices))
    return [NodeState(f"node-<{number}>", {}, cards) for number in range(count)]


@pytest.mark.parametrize("count", [0, 1, 32, 33, 200, 201, MAX_NODES, MAX_NODES + 50])
def test_every_drawn_device_has_its_cell_inside_the_frame(count: int) -> None:
    result = fleet(nodes(count))
    picture = ET.fromstring(result.picture)  # noqa: S314  # our own
    cells = [rect for rect in picture.iter("rect")]  # noqa: C416  # a list is counted and read twice
    assert len(cells) == 8 * min(count, MAX_NODES)
    assert result.left_out == max(0, count - MAX_NODES)
    wide, high = map(float, picture.attrib["viewBox"].split()[2:])
    for cell in cells:
        assert 0 <= float(cell.attrib["x"]) <= wide - float(cell.attrib["width"])
        assert 0 <= float(cell.attrib["y"]) <= high - float(cell.attrib["height"])
        assert float(cell.attrib["width"]) > 0


@pytest.mark.parametrize(
    ("percent", "want"),
    [(0, "o0"), (1, "o1"), (25, "o1"), (26, "o2"), (75, "o3"), (99, "o4"), (100, "o5"), (130, "o5")],
)
def test_steps_of_occupancy(percent: float, want: str) -> None:
    assert step_of(percent) == want


def test_a_fleet_in_words() -> None:
    sick = NodeState("n", {}, (DeviceState("npu", 0, health="gone"), DeviceState("npu", 1, used_memory_percent=100)))
    assert summary_of([sick]) == "1 nodes; 2 npu: 50 % allocated, 1 full, 1 free; 1 unhealthy"


@pytest.mark.parametrize(
    "samples",
    [
        pytest.param((5.0,) * 30, id="all-equal"),
        pytest.param((0.0,) * 10 + (1.0,) * 10, id="zeros-on-a-logarithmic-axis"),
        pytest.param(tuple(10.0**n for n in range(-6, 20)), id="many-decades"),
        pytest.param((0.0,) * 20, id="nothing-but-zeros"),
    ],
)
def test_latency_curves_stay_inside_the_frame(samples: tuple[float, ...]) -> None:
    one = Series("wait", "ms", (), 0, tuple(sorted(samples)))
    picture = ET.fromstring(svg.latency([one], ["<all>"]))  # noqa: S314  # our own
    points = [point.split(",") for line in picture.iter("polyline") for point in line.attrib["points"].split()]
    assert all(svg.LEFT - 0.1 <= float(x) <= svg.WIDTH - svg.RIGHT + 0.1 for x, _ in points)
    assert all(svg.TOP - 0.1 <= float(y) <= svg.HEIGHT - svg.BOTTOM + 0.1 for _, y in points)


def test_bars_are_as_high_as_their_rates() -> None:
    load = Load("t", 0, 1.0, (0.0, 50.0, 100.0), (0.0, 0.0, 0.0), 150, 3.0)
    bars = list(ET.fromstring(svg.throughput(load)).iter("rect"))  # noqa: S314  # our own
    heights = [float(bar.attrib["height"]) for bar in bars]
    assert heights[0] == 0
    assert heights[1] == pytest.approx(heights[2] / 2, abs=0.2)
