"""Who holds which devices, who waits for which, and the rules by which that changes. Arithmetic only.

All of it is one value, the ledger, which a store replaces as a whole unless another process replaced it meanwhile. A
place of several cards, the line and the counter of tokens so change together or not at all.

Time: `now` is the store's clock in seconds, the same for all users of the store (stores.py). Clocks of clients
are not compared. A holder measures by its own clock from before it asked, so for the holder a lease ends earlier than
for the store; others get the devices `GRACE` seconds after that.

Order: requests are served in the order in which they came. A request takes no device that an earlier waiting one could
use; so a request for eight cards is not overtaken by requests for one, and one for another model does not wait for it.
"""

from collections.abc import Collection, Iterable

import msgspec

from seatrial.harness.lab.errors import LabError, LeaseLost
from seatrial.harness.lab.inventory import Device, Inventory, Machine
from seatrial.harness.lab.windows import active, next_start

GRACE = 2.0  # seconds: the store's clock may have a resolution of 1 s, and servers may differ by 1 s
TICKET_TTL = 15.0  # seconds that a place in line is kept without a sign of life, at most the lab's ttl


class PlaceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Devices of one machine: `want` is a model or tag of cards or of the machine; empty: any."""

    want: str = ""
    cards: int = 1
    nics: int = 0
    tags: tuple[str, ...] = ()  # that the machine or each card has, besides
    machine: str = ""
    whole: bool = False  # all devices of a machine
    window: str = ""

    def __str__(self) -> str:
        what = "a whole machine" if self.whole else f"{self.cards} card{'' if self.cards == 1 else 's'}"
        kind = f" {self.want}" if self.want else ""
        nics = f" and {self.nics} NIC{'' if self.nics == 1 else 's'}" if self.nics and not self.whole else ""
        tags = f" with {', '.join(self.tags)}" if self.tags else ""
        return f"{what}{kind}{nics}{tags}{f' of {self.machine}' if self.machine else ''}"


class DeviceLease(msgspec.Struct, frozen=True, omit_defaults=True):
    """Devices that are held."""

    token: int  # fencing token: greater than that of every earlier lease
    key: str  # known to the holder alone
    holder: str
    machine: str
    devices: tuple[str, ...]
    since: float  # seconds since 1970, for people
    ttl: float
    expires: float  # by the store's clock
    ends: float | None = None  # seconds since 1970: a window of others begins, or it was acquired until then
    whole: bool = False
    why_ends: str = ""

    @property
    def renewable(self) -> bool:
        """Whether it is renewed: its first time does not reach to its end."""
        return self.ends is None or self.since + self.ttl < self.ends


class Ticket(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request that waits in line."""

    number: int
    key: str
    holder: str
    request: PlaceRequest
    since: float
    expires: float


class Ledger(msgspec.Struct, frozen=True, omit_defaults=True):
    """The whole state of a lab."""

    lab: str
    tokens: int = 0  # given so far
    tickets: int = 0
    leases: tuple[DeviceLease, ...] = ()
    line: tuple[Ticket, ...] = ()
    out_of_service: dict[str, str] = {}  # machine → why


class Moment(msgspec.Struct, frozen=True):
    """The store's time: `now` for expiry, `wall` in seconds since 1970 for windows and people."""

    now: float
    wall: float


def without_expired(ledger: Ledger, at: Moment) -> Ledger:
    """The ledger without leases and tickets that ended more than `GRACE` seconds ago."""
    leases = tuple(lease for lease in ledger.leases if lease.expires + GRACE >= at.now)
    line = tuple(ticket for ticket in ledger.line if ticket.expires + GRACE >= at.now)
    if len(leases) == len(ledger.leases) and len(line) == len(ledger.line):
        return ledger
    return msgspec.structs.replace(ledger, leases=leases, line=line)


def possible(inventory: Inventory, request: PlaceRequest) -> None:
    """Check that some machine of the lab could ever satisfy a request.

    Raises:
        LabError: none could; the message lists what there is.
    """
    if request.window and request.window not in {window.name for window in inventory.windows}:
        there = ", ".join(window.name for window in inventory.windows) or "none"
        raise LabError(f"window: expected one of the lab's ({there}), found {request.window!r}")
    if request.machine and request.machine not in inventory.by_name:
        raise LabError(f"machine: expected one of {', '.join(inventory.by_name)}, found {request.machine!r}")
    if request.cards < 0 or request.nics < 0 or not (request.cards or request.nics or request.whole):
        raise LabError(f"expected at least one card or NIC, found {request.cards} cards and {request.nics} NICs")
    if not any(_fits(machine, request, ()) for machine in inventory.machines):
        there = "; ".join(_summary(machine) for machine in inventory.machines)
        raise LabError(f"no machine of lab {inventory.lab!r} has {request}; it has: {there}")


def enter(ledger: Ledger, inventory: Inventory, request: PlaceRequest, at: Moment, *, key: str, holder: str) -> Ledger:
    """The ledger with a ticket for this key at the end of the line, or with the one it has renewed."""
    expires = at.now + min(TICKET_TTL, inventory.ttl)
    number = ledger.tickets + 1
    line = []
    for ticket in ledger.line:
        if ticket.key == key:
            line.append(msgspec.structs.replace(ticket, expires=expires))
            number = ledger.tickets
        else:
            line.append(ticket)
    if number > ledger.tickets:
        line.append(Ticket(number, key, holder, request, at.wall, expires))
    return msgspec.structs.replace(ledger, tickets=number, line=tuple(line))


def leave(ledger: Ledger, key: str) -> Ledger:
    """The ledger without the ticket of this key."""
    return msgspec.structs.replace(ledger, line=tuple(ticket for ticket in ledger.line if ticket.key != key))


def grant(
    ledger: Ledger, inventory: Inventory, key: str, at: Moment, *, fixed: float = 0.0
) -> tuple[Ledger, DeviceLease | None]:
    """Turn the ticket of this key into a lease, if devices are free that no earlier ticket could use.

    `fixed`: seconds that the lease holds; it is not renewed.
    """
    ticket = next((waiter for waiter in ledger.line if waiter.key == key), None)
    if ticket is None:
        return ledger, None
    taken = {device for lease in ledger.leases for device in lease.devices}
    for earlier in ledger.line:
        if earlier.number < ticket.number:
            taken |= usable(inventory, earlier.request, ledger.out_of_service, at.wall)
    choice = choose(inventory, ticket.request, taken, ledger.out_of_service, at.wall)
    if choice is None:
        return ledger, None
    machine, devices = choice
    ttl = fixed or inventory.ttl
    window = next_window(inventory, machine.name, at.wall, ticket.request)
    ends, why_ends = window or (None, "")
    if fixed and (ends is None or at.wall + fixed < ends):
        ends, why_ends = at.wall + fixed, "it was acquired for that time"
    lease = DeviceLease(
        token=ledger.tokens + 1,
        key=key,
        holder=ticket.holder,
        machine=machine.name,
        devices=devices,
        since=at.wall,
        ttl=ttl,
        expires=_expiry(ttl, ends, at),
        ends=ends,
        whole=ticket.request.whole,
        why_ends=why_ends,
    )
    left = leave(ledger, key)
    return msgspec.structs.replace(left, tokens=lease.token, leases=(*left.leases, lease)), lease


def renew(ledger: Ledger, key: str, at: Moment) -> tuple[Ledger, DeviceLease]:
    """The ledger with the lease of this key renewed, and that lease.

    Raises:
        LeaseLost: there is none any more, or a window of others has begun.
    """
    lease = held(ledger, key)
    expires = _expiry(lease.ttl, lease.ends, at)
    if expires <= at.now:
        raise LeaseLost(f"{lease.machine}: {lease.why_ends}")
    new = msgspec.structs.replace(lease, expires=expires)
    leases = tuple(new if lease.key == key else lease for lease in ledger.leases)
    return msgspec.structs.replace(ledger, leases=leases), new


def held(ledger: Ledger, key: str) -> DeviceLease:
    """
    Raises:
        LeaseLost: no lease has this key.
    """
    for lease in ledger.leases:
        if lease.key == key:
            return lease
    raise LeaseLost("the lease is not in the lab's ledger any more: it was not renewed in time, or was taken back")


def give_back(ledger: Ledger, *, key: str = "", token: int = 0) -> Ledger:
    """The ledger without the lease of a key or token; without effect if there is none."""
    leases = tuple(lease for lease in ledger.leases if lease.key != key and lease.token != token)
    return msgspec.structs.replace(ledger, leases=leases)


def with_service(ledger: Ledger, machine: str, why: str) -> Ledger:
    """The ledger with a machine out of service for this reason; in service again if the reason is empty."""
    outages = {name: reason for name, reason in ledger.out_of_service.items() if name != machine}
    return msgspec.structs.replace(ledger, out_of_service=outages | ({machine: why} if why else {}))


def choose(
    inventory: Inventory, request: PlaceRequest, taken: Collection[str], outages: Collection[str], wall: float
) -> tuple[Machine, tuple[str, ...]] | None:
    """Free devices for a request, from the machine with the fewest free cards, so that large places remain.

    Args:
        inventory: The machines.
        request: What is asked for.
        taken: Full names of the devices that are not free.
        outages: Names of the machines that are out of service.
        wall: The store's time in seconds since 1970, for windows.
    """
    best: tuple[int, int, Machine, tuple[str, ...]] | None = None
    for position, machine in enumerate(inventory.machines):
        if not _open(inventory, machine, request, outages, wall):
            continue
        devices = _fits(machine, request, taken)
        if devices is None:
            continue
        free = sum(machine.full_name(card) not in taken for card in machine.cards)
        if best is None or (free, position) < best[:2]:
            best = (free, position, machine, devices)
    return None if best is None else (best[2], best[3])


def usable(inventory: Inventory, request: PlaceRequest, outages: Collection[str], wall: float) -> set[str]:
    """All devices, free or not, that a request may be waiting for; `wall`: as of `choose`."""
    results = set()
    for machine in inventory.machines:
        if _open(inventory, machine, request, outages, wall) and _fits(machine, request, ()) is not None:
            cards, nics = _suitable(machine, request)
            results |= {machine.full_name(device) for device in (*cards, *nics)}
    return results


def next_window(inventory: Inventory, machine: str, wall: float, request: PlaceRequest) -> tuple[float, str] | None:
    """When a window of others begins on a machine (seconds since 1970, as `wall`), and a text that names it."""
    start = next_start(inventory.windows, machine, wall, besides=request.window)
    if start is None:
        return None
    window = active(inventory.windows, machine, start)
    return start, f"reserved for window {window.name if window else ''!r}"


def _expiry(ttl: float, ends: float | None, at: Moment) -> float:
    return at.now + (ttl if ends is None else min(ttl, ends - at.wall))


def _open(inventory: Inventory, machine: Machine, request: PlaceRequest, outages: Collection[str], wall: float) -> bool:
    window = active(inventory.windows, machine.name, wall)
    return machine.name not in outages and (window is None or window.name == request.window)


def _fits(machine: Machine, request: PlaceRequest, taken: Collection[str]) -> tuple[str, ...] | None:
    """Devices of the machine that satisfy the request; NICs near the first card come first."""
    cards, nics = _suitable(machine, request)
    free = [card for card in cards if machine.full_name(card) not in taken]
    free_nics = [nic for nic in nics if machine.full_name(nic) not in taken]
    if request.whole:
        complete = len(free) == len(machine.cards) and len(free_nics) == len(machine.nics) and bool(free or free_nics)
        return tuple(machine.full_name(device) for device in (*free, *free_nics)) if complete else None
    if len(free) < request.cards or len(free_nics) < request.nics:
        return None
    chosen = free[: request.cards]
    if chosen:
        free_nics.sort(key=lambda nic: nic.numa != chosen[0].numa)
    return tuple(machine.full_name(device) for device in (*chosen, *free_nics[: request.nics]))


def _suitable(machine: Machine, request: PlaceRequest) -> tuple[list[Device], list[Device]]:
    """The cards and NICs of a machine that a request could use."""
    if request.machine not in {"", machine.name}:
        return [], []

    def suits(card: Device) -> bool:
        names = {card.model, *card.tags, *machine.tags}
        return request.want in {"", *names} and names.issuperset(request.tags)

    cards = [card for card in machine.cards if suits(card)] if request.cards or request.whole else []
    machine_suits = bool(cards) or not (request.cards or request.want or request.tags)
    nics = list(machine.nics) if (request.nics or request.whole) and machine_suits else []
    return cards, nics


def _summary(machine: Machine) -> str:
    models = [card.model for card in machine.cards]
    kinds = ", ".join(f"{models.count(model)} {model}" for model in sorted(set(models))) or "no cards"
    tags = sorted({*machine.tags, *(tag for card in machine.cards for tag in card.tags)})
    nics = f", {len(machine.nics)} NICs" if machine.nics else ""
    return f"{machine.name}: {kinds}{nics}{f' (tags: {chr(44).join(tags)})' if tags else ''}"


def holders(leases: Iterable[DeviceLease], line: Iterable[Ticket]) -> str:
    """Who holds and waits, in one line."""
    messages = [f"{lease.holder} holds {', '.join(lease.devices)}" for lease in leases]
    waiting = len(list(line))
    return "; ".join([*messages, f"{waiting} in line"]) if messages else f"no lease is held; {waiting} in line"
