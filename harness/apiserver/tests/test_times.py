"""Times are read and printed as Go does: the expected values and messages are those of `time.Parse` in Go 1.26."""

import pytest

from seatrial.harness.apiserver.times import (
    DATE,
    RFC3339,
    RFC3339_MICRO,
    TimeError,
    canonical,
    canonical_micro,
    parse,
    printed,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z", id="canonical"),
        pytest.param("2026-01-01T00:00:00.999999999999Z", "2026-01-01T00:00:00Z", id="fraction"),
        pytest.param("2026-01-01T00:00:00,5Z", "2026-01-01T00:00:00Z", id="comma"),
        pytest.param("2026-01-01T1:00:00Z", "2026-01-01T01:00:00Z", id="hour-of-one-digit"),
        pytest.param("2026-01-01T00:30:00+01:00", "2025-12-31T23:30:00Z", id="offset"),
        pytest.param("2026-01-01T00:00:00-24:60", "2026-01-02T01:00:00Z", id="largest-offset"),
        pytest.param("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", id="leap-day"),
        pytest.param("0000-02-29T00:00:00Z", "0000-02-29T00:00:00Z", id="year-0"),
        pytest.param("0000-01-01T00:00:00+01:00", "-0001-12-31T23:00:00Z", id="before-year-0"),
        pytest.param("9999-12-31T23:59:59-01:00", "10000-01-01T00:59:59Z", id="after-year-9999"),
        pytest.param("1970-01-01T00:00:00.5Z", "1970-01-01T00:00:00Z", id="1970"),
        pytest.param("0001-01-01T00:00:00.5Z", None, id="zero-value"),
    ],
)
def test_a_time_is_stored_in_utc(text: str, expected: str | None) -> None:
    assert canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "layout", "expected"),
    [
        pytest.param("2026-99-01T00:00:00Z", RFC3339, ": month out of range", id="month"),
        pytest.param("2026-00-01T00:00:00Z", RFC3339, ": month out of range", id="month-0"),
        pytest.param("2026-02-30T00:00:00Z", RFC3339, ": day out of range", id="30-february"),
        pytest.param("2026-01-00T00:00:00Z", RFC3339, ": day out of range", id="day-0"),
        pytest.param("2026-01-01T24:00:00Z", RFC3339, ": hour out of range", id="hour-24"),
        pytest.param("2026-01-01T00:60:00Z", RFC3339, ": minute out of range", id="minute-60"),
        pytest.param("2026-01-01T00:00:60Z", RFC3339, ": second out of range", id="leap-second"),
        pytest.param("2026-01-01T00:00:00+25:00", RFC3339, ": time zone offset hour out of range", id="offset-hour"),
        pytest.param(
            "2026-01-01T00:00:00+00:61", RFC3339, ": time zone offset minute out of range", id="offset-minute"
        ),
        pytest.param("2026-01-01T00:00:00Zx", RFC3339, ': extra text: "x"', id="text-after-it"),
        pytest.param("", RFC3339, f' as "{RFC3339}": cannot parse "" as "2006"', id="empty"),
        pytest.param(
            "2026-01-01t00:00:00Z", RFC3339, f' as "{RFC3339}": cannot parse "t00:00:00Z" as "T"', id="lower-case-t"
        ),
        pytest.param("2026-01-01T00:00:00z", RFC3339, f' as "{RFC3339}": cannot parse "z" as "Z07:00"', id="lower-z"),
        pytest.param(
            "2026-01-01T00:00:00.Z", RFC3339, f' as "{RFC3339}": cannot parse ".Z" as "Z07:00"', id="empty-fraction"
        ),
        pytest.param(
            "2026-01-01T00:00:00 01:00", RFC3339, f' as "{RFC3339}": cannot parse " 01:00" as "Z07:00"', id="no-sign"
        ),
        pytest.param("2026-01-01", RFC3339, f' as "{RFC3339}": cannot parse "" as "T"', id="date"),
        pytest.param(
            "2026-01-01T00:00:00Z",
            RFC3339_MICRO,
            f' as "{RFC3339_MICRO}": cannot parse "Z" as ".000000"',
            id="no-microseconds",
        ),
        pytest.param(
            "2026-01-01T00:00:00.1234567Z",
            RFC3339_MICRO,
            f' as "{RFC3339_MICRO}": cannot parse "7Z" as "Z07:00"',
            id="nanoseconds",
        ),
        pytest.param("2026-02-30", DATE, ": day out of range", id="date-30-february"),
    ],
)
def test_what_is_no_time_is_refused_in_gos_words(text: str, layout: str, expected: str) -> None:
    with pytest.raises(TimeError) as refused:
        parse(text, layout)
    assert str(refused.value) == f'parsing time "{text}"{expected}'


def test_microseconds_are_kept() -> None:
    assert canonical_micro("2026-01-01T01:00:00,000001+01:00") == "2026-01-01T00:00:00.000001Z"


def test_a_time_that_no_calendar_of_python_has_is_printed() -> None:
    assert printed(2**40) == "36812-02-20T00:36:16Z"
