"""Durations, numbers, times, lists of CPUs and label selectors in text that users write."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.scheduler.api.clock import TimeError, from_rfc3339
from seatrial.scheduler.api.durations import go_duration, go_text, required_duration
from seatrial.scheduler.api.integers import finite, integer
from seatrial.scheduler.api.label_selectors import SelectorError, parse_selector
from seatrial.scheduler.api.numa import CpusetError, parse_cpuset
from seatrial.scheduler.api.wire import Requirement
from seatrial.scheduler.api.wrong_values import shown

LONG = "1" * 200_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("300s", 300.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("-1.5h", -5400.0),
        ("1m.5s", 60.5),
        ("1.s", 1.0),
        ("250ms", 0.25),
        ("1µs", 1e-6),
        ("1us", 1e-6),
        ("3ns", 3e-9),
        ("0", 0.0),
        ("+0", 0.0),
        ("", None),
        ("-", None),
        ("5", None),
        ("1d", None),
        ("s", None),
        (".s", None),
        ("15 s", None),
        ("1h1", None),
        ("\u0661s", None),
        ("2562047h47m16.854775807s", 9223372036.854776),
        ("2562047h47m16.854775808s", None),
        pytest.param(LONG, None, id="long"),
        pytest.param(LONG + "s", None, id="long-number"),
        ("1h" * 65, None),
    ],
)
def test_durations_are_read_as_go_reads_them(text: str, seconds: float | None) -> None:
    assert go_duration(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0s"),
        (2e-9, "2ns"),
        (1.5e-6, "1.5µs"),
        (0.25, "250ms"),
        (1.5, "1.5s"),
        (30.0, "30s"),
        (31.25, "31.25s"),
        (60.0, "1m0s"),
        (61.0, "1m1s"),
        (90.5, "1m30.5s"),
        (3600.0, "1h0m0s"),
        (3725.0, "1h2m5s"),
        (-2.0, "-2s"),
    ],
)
def test_durations_are_written_as_go_writes_them(seconds: float, text: str) -> None:
    assert go_text(seconds) == text


@given(st.integers(0, 10**15).map(lambda number: number / 1000))
def test_a_duration_that_was_written_reads_the_same(seconds: float) -> None:
    assert go_duration(go_text(seconds)) == (seconds if seconds < 9223372036 else None)


def test_what_is_no_duration_is_quoted_in_short() -> None:
    with pytest.raises(ValueError, match=r"expected a duration such as 15s or 1m30s, found '1+'… \(200000 characters"):
        required_duration(LONG)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", None),
        ("", None),
        ("-", None),
        ("--7", None),
        ("²", None),
        ("\u0663", None),
        ("1_0", None),
        (" 1", None),
        ("1.0", None),
        pytest.param(LONG, None, id="long"),
    ],
)
def test_integers(text: str, number: int | None) -> None:
    assert integer(text) == number


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("9", 9), ("-1", None), ("10", None)])
def test_integers_have_bounds(text: str, number: int | None) -> None:
    assert integer(text, 0, 9) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", 1.5),
        ("-1e3", -1000.0),
        (".5", 0.5),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("-Infinity", None),
        ("1e999", None),
        ("1_0", None),
        ("\u0663", None),
        ("1.2.3", None),
        pytest.param(LONG, None, id="long"),
    ],
)
def test_decimal_numbers_are_finite(text: str, number: float | None) -> None:
    assert finite(text) == number


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:00.25Z", 0.25),
        ("1970-01-01T00:00:00,25Z", 0.25),
        ("1970-01-01T1:00:00Z", 3600),
        ("0000-01-01T00:00:00Z", -62_167_219_200),
        ("0000-03-01T00:00:00Z", -62_167_219_200 + 60 * 86_400),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
        ("1970-01-02T00:00:00+24:00", 0),
    ],
)
def test_times_are_read_as_go_reads_them(text: str, seconds: float) -> None:
    assert from_rfc3339(text) == seconds


@given(st.datetimes(timezones=st.timezones()).filter(lambda moment: moment.utcoffset() is not None))
def test_times_are_those_of_the_calendar(moment: datetime) -> None:
    text = moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "+01:30"
    assert from_rfc3339(text) == pytest.approx(datetime.fromisoformat(text).timestamp())


@pytest.mark.parametrize(
    "text",
    [
        "9999-99-99T99:99:99Z",
        "2026-13-01T00:00:00Z",
        "2026-00-01T00:00:00Z",
        "2026-02-30T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-01-01T00:60:00Z",
        "2026-01-01T00:00:60Z",
        "2026-01-01T00:00:00+99:99",
        "2026-01-01T00:00:00",
        "2026-01-01",
        "20260101T000000Z",
        "2026-01-01 00:00:00Z",
        "2026-W01-1T00:00:00Z",
        "2026-01-01T00:00:00Z\n",
        "",
        pytest.param(LONG, id="long"),
    ],
)
def test_what_is_no_time_is_refused_in_short(text: str) -> None:
    with pytest.raises(TimeError, match="expected a time such as 2026-01-01T00:00:00Z, found ") as refused:
        from_rfc3339(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text", ["0-9999999999", "16384", "0-16383,0", "0-1,²", pytest.param(LONG, id="long"), "-1", "3-1"]
)
def test_a_list_of_cpus_is_bounded(text: str) -> None:
    with pytest.raises(CpusetError) as refused:
        parse_cpuset(text)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("", ()),
        (" ", ()),
        (
            "pool=fast, disk in (a,b),!spot",
            (
                Requirement("pool", "In", ("fast",)),
                Requirement("disk", "In", ("a", "b")),
                Requirement("spot", "DoesNotExist"),
            ),
        ),
        ("example.com/x", (Requirement("example.com/x", "Exists"),)),
        ("a==b,c!=d", (Requirement("a", "In", ("b",)), Requirement("c", "NotIn", ("d",)))),
        ("a notin (,b)", (Requirement("a", "NotIn", ("", "b")),)),
        ("a=,b", (Requirement("a", "In", ("",)), Requirement("b", "Exists"))),
        ("a>1,b < 2", (Requirement("a", "Gt", ("1",)), Requirement("b", "Lt", ("2",)))),
        ("in in (in)", (Requirement("in", "In", ("in",)),)),
    ],
)
def test_label_selectors_are_read_as_the_api_machinery_reads_them(
    text: str, requirements: tuple[Requirement, ...]
) -> None:
    assert parse_selector(text) == requirements


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,", "found '', expected: !, identifier, or 'end of string'"),
        (",a", "found ',', expected: !, identifier"),
        ("!", "found '', expected: identifier"),
        ("a b", "found 'b', expected: =, ==, in"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=b=c", "found '=', expected: ','"),
        ("a in b", r"found 'b', expected: '\('"),
        ("a in ()", "at least one value"),
        ("a in (b", "found '', expected: ',' or"),
        ("a in (b c)", "found 'c', expected: ',' or"),
        ("a/b/c", "found 'a/b/c', expected: a label key"),
        ("a=" + "b" * 64, r"\(64 characters\), expected: a label value"),
        ("a=(", r"found '\(', expected: a label value"),
        ("a>b", "found 'b', expected: an integer"),
        pytest.param(LONG, "expected: at most 65536 characters", id="long"),
    ],
)
def test_what_is_no_label_selector_is_refused(text: str, words: str) -> None:
    with pytest.raises(SelectorError, match=words):
        parse_selector(text)


def test_values_in_messages_are_short() -> None:
    assert shown("abc") == "'abc'"
    assert shown(LONG) == f"'{'1' * 60}'… (200000 characters)"
    assert len(shown(["x" * 10] * 1000)) < 130
