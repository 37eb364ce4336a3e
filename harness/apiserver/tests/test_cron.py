"""Parsing of cron schedules, and the next start time."""

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from seatrial.harness.apiserver.cron import CronError, Schedule, parse_cron, time_zone
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.transport import MERGE_PATCH


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
        pytest.param("@every 1ms", "2026-01-01T00:00:00", "2026-01-01T00:00:01", id="every-second-at-most"),
        pytest.param("@every 90s500ms", "2026-01-01T00:00:00", "2026-01-01T00:01:30", id="every-whole-seconds"),
        pytest.param("*/90 * * * *", "2026-01-01T00:00:00", "2026-01-01T01:00", id="a-step-beyond-the-range"),
        pytest.param("0 0 */2 * 1", "2026-01-03T00:00:00", "2026-01-05T00:00", id="a-star-with-a-step-restricts"),
        pytest.param("0 0 */1 * 1", "2026-01-01T00:00:00", "2026-01-05T00:00", id="a-star-with-a-step-of-one-does-not"),
        pytest.param(",5,,7 * * * *", "2026-01-01T00:05:00", "2026-01-01T00:07", id="empty-entries"),
        pytest.param("+5 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:05", id="a-sign"),
        pytest.param(
            "0 0 * JAN-Mar/2 mon", "2026-01-30T00:00:00", "2026-03-02T00:00", id="names-in-a-range-with-a-step"
        ),
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
    value = parse_cron("30 2 * * *").next_after(stamp(after), ZoneInfo("Europe/Berlin"))
    assert value == stamp(want)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("* * * *", "expected exactly 5 fields, found 4: [* * * *]", id="too-few-fields"),
        pytest.param("60 * * * *", "end of range (60) above maximum (59): 60", id="minute-sixty"),
        pytest.param("* * 9-3 * *", "beginning of range (9) beyond end of range (3): 9-3", id="backwards"),
        pytest.param("* * 0 * *", "beginning of range (0) below minimum (1): 0", id="day-zero"),
        pytest.param("* * * foo *", "failed to parse int from foo: strconv.Atoi: parsing", id="no-month"),
        pytest.param("\u00b2 * * * *", "failed to parse int from \u00b2: strconv.Atoi: parsing", id="superscript"),
        pytest.param("9" * 4000 + " * * * *", "failed to parse int from 999", id="many-digits"),
        pytest.param("* * * * 7", "end of range (7) above maximum (6): 7", id="day-seven"),
        pytest.param("0 0 L * *", "failed to parse int from L", id="the-last-day"),
        pytest.param("1-2-3 * * * *", "too many hyphens: 1-2-3", id="hyphens"),
        pytest.param("1/2/3 * * * *", "too many slashes: 1/2/3", id="slashes"),
        pytest.param("*/0 * * * *", "step of range should be a positive number: */0", id="no-step"),
        pytest.param("*/-1 * * * *", "negative number (-1) not allowed: -1", id="a-negative-step"),
        pytest.param("@every soon", "failed to parse duration @every soon: time: invalid duration", id="no-duration"),
        pytest.param("@every 9999999999h", "failed to parse duration @every 9999999999h", id="too-long-a-duration"),
        pytest.param("@often", "unrecognized descriptor: @often", id="no-descriptor"),
        pytest.param("1," * 3000 + "1 * * * *", "expected at most 4096 characters, found 6009", id="too-long"),
        pytest.param("", "expected exactly 5 fields, found 0: []", id="empty"),
    ],
)
def test_invalid_schedules(text: str, message: str) -> None:
    with pytest.raises(CronError) as raised:
        parse_cron(text)
    assert message in str(raised.value)
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize(
    "name", ["../../../etc/passwd", "Nope/Zone", "\0", "/UTC", "America", "a/../UTC", "x" * 300, "zone.tab"]
)
def test_unknown_time_zones(name: str) -> None:
    with pytest.raises(CronError, match="unknown time zone"):
        time_zone(name)


CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"


def cron_job(schedule: str, **spec: object) -> dict[str, object]:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox:1"}]}}
    job = {"spec": {"template": template}}
    return {"metadata": {"name": "c"}, "spec": {"schedule": schedule, "jobTemplate": job, **spec}}


@pytest.mark.parametrize(
    ("body", "field", "message"),
    [
        pytest.param(cron_job("5-1 * * * *"), "spec.schedule", "beyond end of range", id="schedule"),
        pytest.param(cron_job("TZ=UTC * * * * *"), "spec.schedule", "cannot use TZ or CRON_TZ in schedule", id="TZ"),
        pytest.param(
            cron_job("* * * * *", timeZone="Nope/Zone"), "spec.timeZone", "unknown time zone Nope/Zone", id="zone"
        ),
        pytest.param(cron_job("* * * * *", timeZone=""), "spec.timeZone", "must be nil or non-empty", id="empty-zone"),
        pytest.param(
            cron_job("* * * * *", timeZone="Local"), "spec.timeZone", "must be an explicit time zone", id="local"
        ),
    ],
)
def test_a_cron_job_that_cannot_be_followed_is_refused(body: object, field: str, message: str) -> None:
    code, status = Api().ask("POST", CRON_JOBS, body)
    assert code == 422
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]
    assert message in status["message"]


@pytest.mark.parametrize(
    ("last", "jobs"), [("1970-01-01T00:00:00Z", 3), ("0001-01-01T00:00:00Z", 2), ("9999-12-31T23:59:59Z", 0)]
)  # the first second of the year 1 counts as not set
def test_missed_start_times_are_not_counted_one_by_one(last: str, jobs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client writes the time of the last start; the controller looks for the next one a few times, whatever it is."""
    api, moments = Api(), []
    api.do("POST", CRON_JOBS, cron_job("* * * * *", suspend=True))
    response = api.do("GET", f"{CRON_JOBS}/c")
    api.do("PUT", f"{CRON_JOBS}/c/status", {**response, "status": {"lastScheduleTime": last}})
    next_after = Schedule.next_after

    def counted(self: Schedule, moment: float, zone: tzinfo = UTC) -> float | None:
        moments.append(moment)
        return next_after(self, moment, zone)

    monkeypatch.setattr(Schedule, "next_after", counted)
    api.do("PATCH", f"{CRON_JOBS}/c", {"spec": {"suspend": False}}, MERGE_PATCH)
    api.clock.advance(120)
    assert len(moments) < 30
    assert len(api.do("GET", "/apis/batch/v1/namespaces/default/jobs")["items"]) == jobs
