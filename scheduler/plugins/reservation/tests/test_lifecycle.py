"""Status changes of reservations (RSV-R1 to RSV-R8, RSV-E1 and RSV-E2)."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SIM_EPOCH, rfc3339
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.wire import ObjectMeta, to_plain
from seatrial.scheduler.plugins.reservation import lifecycle

NOW = SIM_EPOCH
HOUR = 3600.0
GIB = 1 << 30


def at(moment: float) -> str:
    return rfc3339(moment)


def made(spec: dict[str, Any] | None = None, status: dict[str, Any] | None = None, *, age: float = 0.0) -> Reservation:
    metadata = {"name": "r", "uid": "r", "creationTimestamp": at(NOW - age)}
    return msgspec.convert({"metadata": metadata, "spec": spec or {}, "status": status or {}}, Reservation)


def after(before: Reservation, fields: dict[str, Any] | None) -> Reservation:
    """The reservation with these fields written."""
    assert fields is not None
    return msgspec.convert(to_plain(before) | {"status": to_plain(before.status) | fields}, Reservation)


def placed(age: float = 0.0, **spec: Any) -> Reservation:
    one = made(spec, age=age)
    return after(one, lifecycle.placed(one, "n", NOW - age))


def conditions(reservation: Reservation) -> list[tuple[str | None, ...]]:
    return [
        (c.type, c.status, c.reason, c.last_probe_time, c.last_transition_time) for c in reservation.status.conditions
    ]


def test_placing_replaces_all_conditions() -> None:
    small, large = ({"resources": {"requests": {"cpu": cores}}} for cores in "13")
    spec = {"containers": [small], "initContainers": [large], "overhead": {"memory": "1Gi"}}
    one = made({"template": {"spec": spec}})
    one = after(one, lifecycle.refused(one, "no room", NOW - 5))
    assert [c.reason for c in one.status.conditions] == ["Unschedulable"]
    one = after(one, lifecycle.placed(one, "n", NOW))
    stamp = at(NOW)
    assert one.available
    assert one.status.allocatable == {"cpu": "3", "memory": "1Gi"}
    assert conditions(one) == [
        ("Scheduled", "True", "Scheduled", stamp, stamp),
        ("Ready", "True", "Available", stamp, stamp),
    ]


def test_a_scheduling_failure_changes_one_condition() -> None:
    one = made()
    one = after(one, lifecycle.refused(one, "no room", NOW))
    assert (one.status.phase, conditions(one)) == ("", [("Scheduled", "False", "Unschedulable", at(NOW), at(NOW))])
    assert lifecycle.refused(one, "no room", NOW + 9) is None
    one = after(one, lifecycle.refused(one, "still none", NOW + 9))
    assert conditions(one) == [("Scheduled", "False", "Unschedulable", at(NOW + 9), at(NOW))]
    there = placed()
    there = after(there, lifecycle.refused(there, "no room", NOW + 9))
    assert conditions(there)[0] == ("Scheduled", "True", "Scheduled", at(NOW + 9), at(NOW))


@pytest.mark.parametrize(
    ("spec", "age", "expected"),
    [
        pytest.param({}, 23 * HOUR, False, id="a-day-is-not-over"),
        pytest.param({}, 25 * HOUR, True, id="a-day-is-over"),
        pytest.param({"ttl": "1m"}, 61.0, True, id="a-minute-is-over"),
        pytest.param({"ttl": "0s"}, 1000 * HOUR, False, id="never"),
        pytest.param({"ttl": "0", "expires": at(NOW - 1)}, 0.0, False, id="never-even-past-its-end"),
        pytest.param({"ttl": "24h", "expires": at(NOW - 1)}, 0.0, True, id="past-its-end"),
        pytest.param({"ttl": "1h", "expires": at(NOW + HOUR)}, 2 * HOUR, True, id="whichever-comes-first"),
    ],
)
def test_expiry(spec: dict[str, Any], age: float, expected: bool) -> None:
    assert lifecycle.is_over(placed(age, **spec), NOW) is expected


def test_the_status_after_expiry() -> None:
    one = placed(age=10.0)
    one = after(one, lifecycle.run_out(one, NOW))
    assert one.expired
    assert not lifecycle.is_over(one, NOW + 1000 * HOUR)
    assert conditions(one) == [
        ("Scheduled", "True", "Scheduled", at(NOW - 10), at(NOW - 10)),
        ("Ready", "False", "Expired", at(NOW), at(NOW)),
    ]
    again = after(one, lifecycle.run_out(one, NOW + 5))
    assert conditions(again)[1] == ("Ready", "False", "Expired", at(NOW + 5), at(NOW))


def test_the_first_owners_of_an_allocate_once_reservation() -> None:
    """RSV-E1: 10 cpu/10Gi, four pods of 2 cpu/2Gi."""
    one = placed(allocateOnce=True)
    pods = [Pod(ObjectMeta(name=f"p{number}", namespace="d", uid=f"u{number}")) for number in range(4)]
    fields = lifecycle.used(one, pods, {"cpu": 8000, "memory": 8 * GIB}, NOW + 5)
    one = after(one, fields)
    assert (one.status.phase, one.status.allocated) == ("Succeeded", {"cpu": "8", "memory": "8Gi"})
    assert [owner.uid for owner in one.status.current_owners] == ["u0", "u1", "u2", "u3"]
    assert conditions(one)[1] == ("Ready", "False", "Succeeded", at(NOW + 5), at(NOW))


def test_owners_of_a_reservation_for_many() -> None:
    one = placed(allocateOnce=False)
    pod = Pod(ObjectMeta(name="p", namespace="d", uid="u"))
    one = after(one, lifecycle.used(one, [pod], {"cpu": 1000}, NOW))
    assert (one.status.phase, one.status.allocated) == ("Available", {"cpu": "1"})
    assert lifecycle.used(one, [pod], {"cpu": 1000}, NOW) is None
    assert lifecycle.used(one, [], {}, NOW) == {"currentOwners": [], "allocated": {"cpu": None}}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        pytest.param(["1h"], 15.0, id="far"),
        pytest.param(["1h", "7s"], 7.0, id="soon"),
        pytest.param(["1s"], 3.0, id="now"),
        pytest.param(["0s"], 15.0, id="never"),
    ],
)
def test_the_next_check(ends: list[str], expected: float) -> None:
    assert lifecycle.next_look([placed(ttl=end) for end in ends], NOW) == expected


DAY = 24 * HOUR


@pytest.mark.parametrize(
    ("reservation", "node_there", "expected"),
    [
        pytest.param(placed(), False, False, id="alive"),
        pytest.param(after(placed(), lifecycle.run_out(placed(), NOW - DAY - 1)), True, True, id="expired-a-day-ago"),
        pytest.param(after(placed(), lifecycle.run_out(placed(), NOW - HOUR)), True, False, id="expired-an-hour-ago"),
        pytest.param(after(placed(), lifecycle.run_out(placed(), NOW - HOUR)), False, True, id="its-node-is-gone"),
        pytest.param(after(placed(), {"phase": "Failed"}), False, False, id="failed-for-another-reason"),
        pytest.param(
            after(placed(allocateOnce=True), lifecycle.used(placed(), [], {"cpu": 1}, NOW - 2 * DAY)),
            True,
            True,
            id="served",
        ),
    ],
)
def test_garbage_collection(reservation: Reservation, node_there: bool, expected: bool) -> None:
    assert lifecycle.is_waste(reservation, NOW, DAY, node_there=node_there) is expected


def test_one_check_and_one_collection() -> None:
    """RSV-E2, TestGC: of four reservations two are left. The first has now expired and goes a day later."""
    two_days = 2 * DAY
    old = placed(age=two_days, ttl="1m")
    served = placed(age=two_days, allocateOnce=True)
    served = after(served, lifecycle.used(served, [], {"cpu": 1}, NOW - two_days))
    fresh, homeless = placed(ttl="1m"), placed(ttl="1m")
    there = {"old": old, "served": served, "fresh": fresh, "homeless": homeless}

    def check(now: float) -> None:
        for name, one in there.items():
            if not one.ended and (lifecycle.is_over(one, now) or name == "homeless"):
                there[name] = after(one, lifecycle.run_out(one, now))

    def collect(now: float) -> None:
        for name, one in list(there.items()):
            if lifecycle.is_waste(one, now, DAY, node_there=name != "homeless"):
                del there[name]

    check(NOW)
    collect(NOW)

    assert list(there) == ["old", "fresh"]
    assert (there["old"].status.phase, conditions(there["old"])[1][2]) == ("Failed", "Expired")
    assert there["fresh"] is fresh
    collect(NOW + DAY)
    assert "old" in there
    collect(NOW + DAY + 1)
    assert "old" not in there


@pytest.mark.parametrize("text", ["2026-01-01T00:00:00+99:99", "9999-99-99T99:99:99Z", "soon"])
def test_an_end_that_cannot_be_read_counts_as_absent_and_is_told(text: str) -> None:
    reservation = msgspec.convert(
        {
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"template": {}, "owners": [{}], "expires": text},
        },
        Reservation,
    )
    assert lifecycle.end_of(reservation) == SIM_EPOCH + DAY
    assert reservation.problem.startswith("the reservation's expires: expected a time such as")


def test_a_reservation_that_ends_in_the_year_0_is_over() -> None:
    spec = {"template": {}, "owners": [{}], "expires": "0000-01-01T00:00:00Z"}
    reservation = msgspec.convert({"spec": spec}, Reservation)
    assert (reservation.problem, lifecycle.is_over(reservation, SIM_EPOCH)) == ("", True)
