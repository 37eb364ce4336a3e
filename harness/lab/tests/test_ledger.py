"""Order, choice of devices and windows, without store or clock."""

from typing import Any

import pytest

from seatrial.harness.lab import ledger as rules
from seatrial.harness.lab.errors import LabError, LeaseLost
from seatrial.harness.lab.ledger import DeviceLease, Ledger, Moment, PlaceRequest
from seatrial.harness.lab.tests.inventories import inventory
from seatrial.harness.lab.tests.test_inventory import FRIDAY_NOON, HOUR, NIGHTLY

AT = Moment(1000.0, FRIDAY_NOON)


def later(seconds: float) -> Moment:
    return Moment(AT.now + seconds, AT.wall + seconds)


class Line:
    """A ledger with requests that come in the order of calls; the key is the holder."""

    def __init__(self, **changes: Any) -> None:
        self.inventory = inventory(**changes)
        self.ledger = Ledger("shelf")

    def ask(self, key: str, request: PlaceRequest, at: Moment = AT) -> tuple[str, ...]:
        self.ledger = rules.enter(self.ledger, self.inventory, request, at, key=key, holder=key)
        return self.look(key, at)

    def look(self, key: str, at: Moment = AT) -> tuple[str, ...]:
        self.ledger, lease = rules.grant(self.ledger, self.inventory, key, at)
        return lease.devices if lease else ()

    def end(self, key: str) -> None:
        self.ledger = rules.give_back(self.ledger, key=key)

    def lease(self, key: str) -> DeviceLease:
        return rules.held(self.ledger, key)


def test_a_large_request_is_not_overtaken_by_small_ones() -> None:
    line = Line()
    assert line.ask("a", PlaceRequest("h100", 3)) == ("big/0", "big/1", "big/2")
    assert line.ask("large", PlaceRequest("h100", 4)) == ()
    assert line.ask("small", PlaceRequest("h100", 1)) == ()  # big/3 is free, and `large` came first
    assert line.ask("other model", PlaceRequest("a10", 1)) == ("small/0",)
    assert line.ask("any", PlaceRequest("", 1)) == ("small/1",)
    line.end("a")
    assert line.look("small") == ()
    assert line.look("large") == ("big/0", "big/1", "big/2", "big/3")
    assert [ticket.key for ticket in line.ledger.line] == ["small"]


def test_a_request_that_gives_no_sign_of_life_leaves_the_line() -> None:
    line = Line()
    line.ask("a", PlaceRequest("h100", 1))
    line.ask("silent", PlaceRequest("h100", 4))
    line.ask("b", PlaceRequest("h100", 1))
    line.ledger = rules.without_expired(line.ledger, later(rules.TICKET_TTL + rules.GRACE))
    assert line.look("b", later(17)) == ()
    line.ledger = rules.enter(
        line.ledger, line.inventory, PlaceRequest("h100", 1), later(17), key="b", holder="b"
    )  # keeps its place
    line.ledger = rules.without_expired(line.ledger, later(17.5))
    assert line.look("b", later(17.5)) == ("big/1",)


@pytest.mark.parametrize(
    ("request_", "devices"),
    [
        pytest.param(PlaceRequest("", 1), ("small/0",), id="the-machine-with-fewest-free-cards"),
        pytest.param(PlaceRequest("nvlink", 2), ("big/0", "big/1"), id="a-tag-of-the-machine"),
        pytest.param(PlaceRequest("h100", 1, tags=("a10",)), (), id="tags-that-no-card-has"),
        pytest.param(PlaceRequest("h100", 1, nics=1), ("big/0", "big/mlx5_0"), id="a-nic-beside-the-card"),
        pytest.param(PlaceRequest("", 0, nics=2), ("big/mlx5_0", "big/mlx5_1"), id="nics-alone"),
        pytest.param(PlaceRequest("", 1, machine="big"), ("big/0",), id="a-named-machine"),
        pytest.param(PlaceRequest("a10", whole=True), ("small/0", "small/1"), id="a-whole-machine"),
        pytest.param(PlaceRequest("", 5), (), id="more-than-a-machine-has"),
    ],
)
def test_devices_that_are_chosen(request_: PlaceRequest, devices: tuple[str, ...]) -> None:
    line = Line()
    if devices:
        rules.possible(line.inventory, request_)
    else:
        with pytest.raises(LabError, match=r"no machine of lab 'shelf' has .* it has: big: 4 h100, 2 NICs"):
            rules.possible(line.inventory, request_)
    assert line.ask("a", request_) == devices


def test_the_nic_is_on_the_numa_node_of_the_card() -> None:
    line = Line()
    line.ask("a", PlaceRequest("h100", 2))
    assert line.ask("b", PlaceRequest("h100", 1, nics=1)) == ("big/2", "big/mlx5_1")


def test_a_whole_machine_is_given_when_all_of_it_is_free() -> None:
    line = Line()
    line.ask("a", PlaceRequest("", 0, nics=1))
    assert line.ask("b", PlaceRequest("h100", whole=True)) == ()
    line.end("a")
    assert len(line.look("b")) == 6
    assert line.lease("b").whole


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (PlaceRequest("h100", window="weekly"), r"window: expected one of the lab's \(nightly\), found 'weekly'"),
        (PlaceRequest("h100", machine="huge"), "machine: expected one of big, small, found 'huge'"),
        (PlaceRequest("h100", 0), "expected at least one card or NIC, found 0 cards"),
    ],
)
def test_requests_that_nothing_can_satisfy_are_refused(request_: PlaceRequest, words: str) -> None:
    with pytest.raises(LabError, match=words):
        rules.possible(inventory(windows=[NIGHTLY]), request_)


def test_in_a_window_its_machines_are_for_requests_that_name_it() -> None:
    line, night = Line(windows=[NIGHTLY]), later(10 * HOUR)
    assert line.ask("day", PlaceRequest("h100", 1), night) == ()
    assert line.ask("other", PlaceRequest("", 1), night) == ("small/0",)
    assert line.ask("nightly", PlaceRequest("h100", 4, window="nightly"), night) == ("big/0", "big/1", "big/2", "big/3")


@pytest.mark.parametrize(
    ("hours", "ends"), [pytest.param(1, 1, id="before-a-window"), pytest.param(20, 10, id="a-window-comes-first")]
)
def test_a_lease_for_a_fixed_time_tells_its_end(hours: int, ends: int) -> None:
    line = Line(windows=[NIGHTLY])
    request = PlaceRequest("h100", 1)
    waiting = rules.enter(line.ledger, line.inventory, request, AT, key="a", holder="a")
    _, lease = rules.grant(waiting, line.inventory, "a", AT, fixed=hours * HOUR)
    assert lease is not None
    assert (lease.ends, lease.renewable) == (AT.wall + ends * HOUR, False)
    line.ask("b", request)
    assert line.lease("b").renewable


def test_a_lease_ends_when_a_window_of_others_begins() -> None:
    """It begins at 22:00; the lease of 11 minutes before is renewed to that moment, and then no more."""
    line = Line(windows=[NIGHTLY], ttl=600)
    soon = later(10 * HOUR - 660)
    line.ask("day", PlaceRequest("h100", 1), soon)
    assert line.lease("day").expires == soon.now + 600
    line.ledger, lease = rules.renew(line.ledger, "day", later(10 * HOUR - 60))
    assert lease.expires == later(10 * HOUR).now
    with pytest.raises(LeaseLost, match="big: reserved for window 'nightly'"):
        rules.renew(line.ledger, "day", later(10 * HOUR))
    after = rules.without_expired(line.ledger, later(10 * HOUR + rules.GRACE + 1))
    assert after.leases == ()


def test_a_machine_out_of_service_is_not_given() -> None:
    line = Line()
    line.ledger = rules.with_service(line.ledger, "big", "no power")
    assert line.ask("a", PlaceRequest("h100", 1)) == ()
    line.ledger = rules.with_service(line.ledger, "big", "")
    assert line.look("a") == ("big/0",)


def test_tokens_grow_and_are_not_used_again() -> None:
    line = Line()
    line.ask("a", PlaceRequest("a10", 1))
    line.end("a")
    line.ask("b", PlaceRequest("a10", 1))
    assert line.lease("b").token == 2
    with pytest.raises(LeaseLost, match="not in the lab's ledger"):
        line.lease("a")
