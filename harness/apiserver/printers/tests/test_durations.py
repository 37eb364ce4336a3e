"""Ages in kubectl's format."""

import pytest

from seatrial.harness.apiserver.printers.durations import age, created_at, human_duration

M, H, D = 60, 3600, 86400
Y = 365 * D


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        pytest.param(-2, "<invalid>", id="too-far-in-the-future"),
        pytest.param(-1.9, "0s", id="a-clock-that-is-a-little-behind"),
        pytest.param(0, "0s", id="now"),
        pytest.param(59.9, "59s", id="fractions-are-cut-off"),
        pytest.param(119, "119s", id="the-last-of-the-plain-seconds"),
        pytest.param(2 * M, "2m", id="two-minutes-sharp"),
        pytest.param(2 * M + 3, "2m3s", id="minutes-and-seconds"),
        pytest.param(10 * M - 1, "9m59s", id="the-last-with-seconds"),
        pytest.param(10 * M + 1, "10m", id="ten-minutes-drop-the-seconds"),
        pytest.param(3 * H - 1, "179m", id="the-last-of-the-plain-minutes"),
        pytest.param(3 * H, "3h", id="three-hours-sharp"),
        pytest.param(5 * H + 10 * M, "5h10m", id="hours-and-minutes"),
        pytest.param(8 * H - 1, "7h59m", id="the-last-with-minutes"),
        pytest.param(8 * H + 5 * M, "8h", id="eight-hours-drop-the-minutes"),
        pytest.param(2 * D - 1, "47h", id="the-last-of-the-plain-hours"),
        pytest.param(2 * D, "2d", id="two-days-sharp"),
        pytest.param(2 * D + 4 * H, "2d4h", id="days-and-hours"),
        pytest.param(8 * D - 1, "7d23h", id="the-last-with-hours"),
        pytest.param(8 * D + 5 * H, "8d", id="eight-days-drop-the-hours"),
        pytest.param(2 * Y - 1, "729d", id="the-last-of-the-plain-days"),
        pytest.param(2 * Y, "2y", id="two-years-sharp"),
        pytest.param(2 * Y + 100 * D, "2y100d", id="years-and-days"),
        pytest.param(8 * Y - 1, "7y364d", id="the-last-with-days"),
        pytest.param(8 * Y + 30 * D, "8y", id="eight-years-drop-the-days"),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: float, want: str) -> None:
    assert human_duration(seconds) == want


@pytest.mark.parametrize(
    ("timestamp", "want"),
    [
        pytest.param("1970-01-01T00:00:40Z", "60s", id="a-timestamp"),
        pytest.param("1970-01-01T01:00:40.500000+01:00", "59s", id="microseconds-and-an-offset"),
        pytest.param(None, "<unknown>", id="never-set"),
        pytest.param("yesterday", "<invalid>", id="not-a-timestamp"),
    ],
)
def test_an_age_is_counted_from_now(timestamp: str | None, want: str) -> None:
    assert age(timestamp, 100.0) == want


def test_the_moment_of_creation_is_shown_in_utc() -> None:
    assert created_at("2026-01-01T01:00:00+01:00") == "2026-01-01T00:00:00Z"
    assert created_at(None) == "0001-01-01T00:00:00Z"
