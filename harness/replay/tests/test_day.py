"""`seatrial replay day`: rows from simulated nodes, and the picture that is drawn from them."""

import json
from pathlib import Path

import pytest

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.day import CONFIGURATION, load_at, rows_of_a_day
from seatrial.harness.replay.day_plot import draw_day
from seatrial.scheduler.descheduler.config import parse


def test_an_hour_of_a_small_fleet(tmp_path: Path) -> None:
    """By night each of the twelve pods of an old node uses a quarter of its core; nodes that joined have none."""
    rows = rows_of_a_day(4, 1, descheduled=False)
    assert [row["hour"] for row in rows] == [0.0, 0.17, 0.33, 0.5, 0.67, 0.83]
    assert rows[-1]["used"] == {"old-0": 18.8, "old-1": 18.8, "new-0": 0.0, "new-1": 0.0}
    assert rows[-1]["jobs"] == 0
    file = tmp_path / "day.json"
    file.write_text(json.dumps({"high": 65, "without": rows, "with": rows}))
    draw_day(file, tmp_path / "day.png")
    assert (tmp_path / "day.png").read_bytes().startswith(b"\x89PNG")


def test_other_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "day.json"
    file.write_text("{}")
    with pytest.raises(UsageError, match="expected the figures of seatrial replay day"):
        draw_day(file, tmp_path / "day.png")


def test_loads_have_their_peaks_at_different_times() -> None:
    peaks = [max(range(24), key=lambda hour: load_at(app, hour)) for app in range(5)]
    assert peaks == [14, 15, 16, 17, 18]
    assert load_at(0, 2) == 0.25


def test_its_configuration_is_valid() -> None:
    assert len(parse(CONFIGURATION).profiles) == 1
