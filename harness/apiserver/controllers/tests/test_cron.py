"""Parsing of cron schedules, and the next start time."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from seatrial.harness.apiserver.controllers.cron import CronError, parse_cron


def stamp(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "want"),
    [
        pytest.param("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01", id="every-minute-is-the-next-one"),
        pytest.param("*/15 * * * *", "2026-01-01T00:15:00", "2026-01-01T00:30", id="a-step"),
        pytest.param("5/20 * * * *", "2026-01-01T00:26:00", "2026-01-01T00:45", id="a-step-from-a-number"),
        pytest.param("0 2 * * *", "2026-01-01T02:00:00", "2026-01-02T02:00", id="daily"),
        pytest.param("30 4 1,15 * *", "2026-01-02T00:00:00", "2026-01-15T04:30", id="a-list-of-days"),
        pytest.param("0 0 * * mon-fri", "2026-01-02T00:00:00", "2026-01-05T00:00", id="weekdays-by-name"),
        pytest.param("0 0 13 * 5", "2026-01-01T00:00:00", "2026-01-02T00:00", id="either-day-is-enough"),
        pytest.param("0 0 13 * ?", "2026-01-01T00:00:00", "2026-01-13T00:00", id="a-question-mark-restricts-nothing"),
        pytest.param("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00", id="leap-day"),
        pytest.param("0 0 1 JUN *", "2026-01-01T00:00:00", "2026-06-01T00:00", id="a-month-by-name"),
        pytest.param("@hourly", "2026-01-01T00:30:00", "2026-01-01T01:00", id="hourly"),
        pytest.param("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00", id="weekly-is-sunday"),
        pytest.param("@every 1h30m", "2026-01-01T00:00:00", "2026-01-01T01:30", id="every-so-often"),
    ],
)
def test_next_start(schedule: str, after: str, want: str) -> None:
    assert parse_cron(schedule).next_after(stamp(after)) == stamp(want)


def test_a_schedule_without_any_start() -> None:
    assert parse_cron("0 0 30 2 *").next_after(stamp("2026-01-01T00:00:00")) is None


@pytest.mark.parametrize(
    ("after", "want"),
    [
        pytest.param("2026-01-01T00:00:00", "2026-01-01T01:30", id="winter-is-an-hour-ahead"),
        pytest.param("2026-07-01T01:00:00", "2026-07-02T00:30", id="summer-is-two-hours-ahead"),
        pytest.param("2026-03-28T12:00:00", "2026-03-30T00:30", id="the-hour-left-out-in-spring-is-left-out"),
    ],
)
def test_time_zones(after: str, want: str) -> None:
    found = parse_cron("30 2 * * *").next_after(stamp(after), ZoneInfo("Europe/Berlin"))
    assert found == stamp(want)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("* * * *", "expected exactly 5 fields, found 4", id="too-few-fields"),
        pytest.param("60 * * * *", "minute: expected a number from 0 to 59, found '60'", id="minute-sixty"),
        pytest.param("* * 9-3 * *", "day of month: expected the range '9-3' to ascend", id="backwards"),
        pytest.param("* * * foo *", "month: expected a number from 1 to 12, found 'foo'", id="no-month"),
        pytest.param("*/0 * * * *", "minute: expected a number from 1 to 59, found '0'", id="no-step"),
        pytest.param("@every soon", "@every: expected a duration", id="no-duration"),
    ],
)
def test_invalid_schedules(text: str, message: str) -> None:
    with pytest.raises(CronError, match="expected") as raised:
        parse_cron(text)
    assert message in str(raised.value)
