"""Places of a lab: acquired (requests wait in line), renewed by a thread, returned."""

import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from getpass import getuser
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from seatrial.harness.lab import ledger as rules
from seatrial.harness.lab.errors import HookFailed, LabError, LeaseLost, PlaceTaken
from seatrial.harness.lab.hooks import run_hook
from seatrial.harness.lab.inventory import Hook, Inventory, load_inventory
from seatrial.harness.lab.ledger import DeviceLease, Ledger, Moment, PlaceRequest
from seatrial.harness.lab.stores import Snapshot, Store, open_store

VARIABLE = "SEATRIAL_LAB"  # of the environment: the inventory
FIRST_POLL, POLL = 0.1, 1.0  # seconds between two looks of a request that waits: at first, and at most
RENEWALS = 3  # in a ttl
HOLDER, MAX_HOLDER = re.compile(r"[A-Za-z0-9][\w.@:/+=,#-]*( [A-Za-z0-9][\w.@:/+=,#-]*)*", re.ASCII), 200
_CI_VARIABLES = (("gitlab", "CI_PROJECT_PATH", "CI_JOB_ID"), ("github", "GITHUB_REPOSITORY", "GITHUB_RUN_ID"))


class Timing(Protocol):
    """A client's own clock; only differences of its values are used."""

    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...


class RealTiming:
    """The clock since boot: it goes on while the machine sleeps, as the store's does."""

    def monotonic(self) -> float:
        """Seconds since boot, including those in which the machine slept."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Claim:
    """One request's way through the line, and its lease: one step at a time, none of which waits."""

    def __init__(self, inventory: Inventory, store: Store, timing: Timing, holder: str, key: str) -> None:
        self._inventory, self._store, self._timing = inventory, store, timing
        self.holder, self.key = holder, key
        self.lease: DeviceLease | None = None
        self.valid_until = 0.0  # by this client's clock

    @property
    def valid(self) -> bool:
        """Whether the lease holds for certain, by this client's clock."""
        return self.lease is not None and self._timing.monotonic() < self.valid_until

    def ask(self, request: PlaceRequest, *, fixed: float = 0.0) -> bool:
        """Enter the line or keep the place in it, and take the devices if it is this request's turn."""
        monotonic = self._timing.monotonic()

        def change(ledger: Ledger, at: Moment) -> Ledger:
            ledger = rules.without_expired(ledger, at)
            if any(lease.key == self.key for lease in ledger.leases):
                return ledger  # an earlier write succeeded, and its answer did not arrive
            ticket = next((waiter for waiter in ledger.line if waiter.key == self.key), None)
            if ticket is None or ticket.expires - at.now < rules.TICKET_TTL / 2:
                ledger = rules.enter(ledger, self._inventory, request, at, key=self.key, holder=self.holder)
            return rules.grant(ledger, self._inventory, self.key, at, fixed=fixed)[0]

        after = self._store.change(change)
        with suppress(LeaseLost):
            self._take(rules.held(after.ledger, self.key), monotonic, after)
        return self.lease is not None

    def renew(self) -> None:
        """
        Raises:
            LeaseLost: it cannot be renewed; the lease has ended.
            LabError: the store gave no answer; the lease holds until `valid`.
        """
        monotonic = self._timing.monotonic()
        try:
            after = self._store.change(
                lambda ledger, at: rules.renew(rules.without_expired(ledger, at), self.key, at)[0]
            )
        except LeaseLost:
            self.valid_until = monotonic
            raise
        self._take(rules.held(after.ledger, self.key), monotonic, after)

    def confirm(self) -> DeviceLease:
        """Ask the store whether the lease is there.

        Raises:
            LeaseLost: it is not.
        """
        snapshot = self._store.read()
        return rules.held(rules.without_expired(snapshot.ledger, snapshot.at), self.key)

    def withdraw(self) -> None:
        """Leave the line and return the devices; without effect if there is neither."""
        self.valid_until = self._timing.monotonic()
        self._store.change(lambda ledger, _: rules.give_back(rules.leave(ledger, self.key), key=self.key))
        self.lease = None

    def _take(self, lease: DeviceLease, amount: float, after: Snapshot) -> None:
        self.lease = lease
        self.valid_until = amount + lease.expires - after.at.now


class Place:
    """Devices of one machine that this process holds. A thread renews the lease until the place is returned."""

    def __init__(self, lab: "Lab", claim: Claim, lease: DeviceLease, on_lost: Callable[[LabError], None]) -> None:
        self._lab, self._claim, self._on_lost = lab, claim, on_lost
        self.lease = lease
        self._lost: LabError | None = None
        self._returned = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True, name=f"lease-{lease.token}")

    @property
    def machine(self) -> str:
        return self.lease.machine

    @property
    def devices(self) -> tuple[str, ...]:
        """Full names, as in `dgx-1/0`."""
        return self.lease.devices

    @property
    def cards(self) -> tuple[str, ...]:
        """Names of the cards on their machine."""
        names = {card.name for card in self._lab.inventory.by_name[self.machine].cards}
        own = [device.removeprefix(f"{self.machine}/") for device in self.devices]
        return tuple(name for name in own if name in names)

    @property
    def nics(self) -> tuple[str, ...]:
        """Names of the NICs on their machine."""
        own = [device.removeprefix(f"{self.machine}/") for device in self.devices]
        return tuple(name for name in own if name not in self.cards)

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier lease of the lab."""
        return self.lease.token

    def environment(self) -> dict[str, str]:
        """Variables for programs that use the place."""
        return {
            "SEATRIAL_LAB_MACHINE": self.machine,
            "SEATRIAL_LAB_CARDS": ",".join(self.cards),
            "SEATRIAL_LAB_NICS": ",".join(self.nics),
            "SEATRIAL_LAB_TOKEN": str(self.token),
        }

    def check(self) -> None:
        """Ask the store whether the place is still held.

        Raises:
            LeaseLost: it is not; what was done with the devices since may have met another holder's work.
        """
        if self._lost is not None:
            raise self._lost
        if not self._claim.valid:
            raise LeaseLost(f"lease {self.token} of {', '.join(self.devices)} was not renewed in time")
        self._claim.confirm()

    def run_hook(self, name: str) -> str:
        """Run a hook of the machine, as for a power cycle, and return its output. The whole machine must be held.

        Raises:
            LabError: the machine has no such hook, or the place is not all of it.
            HookFailed: the command failed or took too long.
        """
        machine = self._lab.inventory.by_name[self.machine]
        hook: Hook | None = machine.hooks.get(name)
        if hook is None:
            there = ", ".join(machine.hooks) or "none"
            raise LabError(f"machine {self.machine!r}: expected one of its hooks ({there}), found {name!r}")
        if not self.lease.whole:
            raise LabError(
                f"hook {name!r} of {self.machine!r} concerns all its devices; ask for the whole machine, found "
                f"{', '.join(self.devices)}"
            )
        values = {"machine": self.machine, "token": str(self.token), "holder": self.lease.holder}
        return run_hook(name, hook, values, self.environment(), before=self.check)

    def give_back(self) -> None:
        """Stop renewing and return the devices.

        Raises:
            LabError: the store gave no answer; the lease ends by itself.
        """
        self._returned.set()
        if self._keeper.is_alive() and threading.current_thread() is not self._keeper:
            self._keeper.join()
        self._claim.withdraw()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()

    def start(self) -> None:
        """Start to renew the lease."""
        self._keeper.start()

    def _keep(self) -> None:
        pause = self.lease.ttl / RENEWALS
        while not self._returned.wait(pause):
            try:
                self._claim.renew()
                pause = self.lease.ttl / RENEWALS
            except LeaseLost as error:
                self._lose(LeaseLost(f"lease {self.token} of {', '.join(self.devices)}: {error}"))
                return
            except LabError as error:  # the store does not answer: try more often as long as the lease holds
                pause = self.lease.ttl / RENEWALS / 4
                if not self._claim.valid:
                    self._lose(LeaseLost(f"lease {self.token} of {', '.join(self.devices)} ended: {error}"))
                    return

    def _lose(self, error: LabError) -> None:
        self._lost = error
        self._on_lost(error)


class Lab:
    """A lab, as one process uses it."""

    def __init__(self, inventory: Inventory, store: Store, timing: Timing | None = None, *, holder: str = "") -> None:
        """
        Raises:
            LabError: the holder's name has other characters than `HOLDER`; hooks may put it into a shell's command.
        """
        self.inventory, self.store = inventory, store
        self._timing = timing or RealTiming()
        self.holder = holder or default_holder(os.environ)
        if len(self.holder) > MAX_HOLDER or not HOLDER.fullmatch(self.holder):
            raise LabError(
                f"holder: expected at most {MAX_HOLDER} characters: words of letters, digits and ._@:/+=,#- that begin "
                f"with a letter or digit, found {self.holder[:MAX_HOLDER]!r}; give another name with --holder"
            )
        self.wait, self.window = 600.0, ""  # defaults of `place`
        self.on_wait: Callable[[str], None] = lambda _: None  # called once by a request that must wait: for what

    @contextmanager
    def place(
        self,
        want: str = "",
        cards: int = 1,
        *,
        nics: int = 0,
        tags: tuple[str, ...] = (),
        machine: str = "",
        whole: bool = False,
        window: str | None = None,
        wait: float | None = None,
    ) -> Iterator[Place]:
        """Devices of one machine, held while the context is open. `want`: a model or tag; `whole`: all of a machine.

        Raises:
            LabError: no machine could ever satisfy the request; PlaceTaken: none became free within `wait` seconds;
                LeaseLost: on exit, the lease was lost meanwhile.
        """
        window = self.window if window is None else window
        request = PlaceRequest(want, cards, nics, tags, machine, whole, window)
        place = self.acquire(request, wait=self.wait if wait is None else wait)
        try:
            yield place
            place.check()
        finally:
            place.give_back()

    def acquire(
        self, request: PlaceRequest, *, wait: float, on_lost: Callable[[LabError], None] = lambda _: None
    ) -> Place:
        """Wait in line for devices, at most `wait` seconds, and prepare a whole machine by its hooks.

        Raises:
            LabError: as for `place`; HookFailed: the machine was taken out of service.
        """
        claim = self._claimed(request, wait=wait)
        assert claim.lease is not None
        place = Place(self, claim, claim.lease, on_lost)
        place.start()
        try:
            self._prepare(place)
        except BaseException:
            place.give_back()
            raise
        return place

    def acquire_for(self, request: PlaceRequest, seconds: float, *, wait: float) -> DeviceLease:
        """A lease that is not renewed and that ends `seconds` after it was given, or by `release`.

        The hooks of a whole machine run first, within that time.

        Raises:
            LabError: as for `acquire`.
        """
        claim = self._claimed(request, wait=wait, fixed=seconds)
        assert claim.lease is not None
        place = Place(self, claim, claim.lease, lambda _: None)
        try:
            self._prepare(place)
            place.check()
        except BaseException:
            place.give_back()
            raise
        return claim.lease

    def release(self, token: int, *, force: bool = False) -> DeviceLease:
        """End a lease, one's own unless `force` is set.

        Raises:
            LabError: there is none with this token, or another holder has it.
        """
        leases: list[DeviceLease] = []

        def change(ledger: Ledger, at: Moment) -> Ledger:
            ledger = rules.without_expired(ledger, at)
            leases[:] = [lease for lease in ledger.leases if lease.token == token]
            if not leases:
                there = ", ".join(str(lease.token) for lease in ledger.leases) or "none"
                raise LabError(f"token {token}: expected that of a lease ({there}), found no such lease")
            if leases[0].holder != self.holder and not force:
                raise LabError(
                    f"token {token}: the lease is held by {leases[0].holder!r}, you are {self.holder!r};"
                    " add --force to take it back all the same"
                )
            return rules.give_back(ledger, token=token)

        self.store.change(change)
        return leases[0]

    def snapshot(self) -> Snapshot:
        """The ledger without what has ended."""
        snapshot = self.store.read()
        return Snapshot(rules.without_expired(snapshot.ledger, snapshot.at), snapshot.at, snapshot.version)

    def set_service(self, machine: str, why: str) -> None:
        """Take a machine out of service for a reason; an empty one puts it back.

        Raises:
            LabError: no such machine.
        """
        if machine not in self.inventory.by_name:
            raise LabError(f"machine: expected one of {', '.join(self.inventory.by_name)}, found {machine!r}")
        self.store.change(lambda ledger, _: rules.with_service(ledger, machine, why))

    def close(self) -> None:
        self.store.close()

    def _claimed(self, request: PlaceRequest, *, wait: float, fixed: float = 0.0) -> Claim:
        rules.possible(self.inventory, request)
        claim = Claim(self.inventory, self.store, self._timing, self.holder, secrets.token_hex(8))
        deadline, pause = self._timing.monotonic() + wait, FIRST_POLL
        try:
            granted = claim.ask(request, fixed=fixed)  # a store that cannot be used at all is reported at once
            if not granted and wait > 0:
                ledger = rules.leave(self.snapshot().ledger, claim.key)
                self.on_wait(f"no place for {request} is free; {rules.holders(ledger.leases, ledger.line)}")
            while not granted:
                if self._timing.monotonic() >= deadline:
                    ledger = rules.leave(self.snapshot().ledger, claim.key)
                    raise PlaceTaken(str(request), waited=wait, holders=rules.holders(ledger.leases, ledger.line))
                self._timing.sleep(pause)
                pause = min(POLL, 2 * pause)
                with suppress(LabError):  # the place in line is kept for a while without a sign of life
                    granted = claim.ask(request, fixed=fixed)
        except BaseException:
            with suppress(LabError):
                claim.withdraw()
            raise
        return claim

    def _prepare(self, place: Place) -> None:
        if not place.lease.whole:
            return
        for name in self.inventory.by_name[place.machine].prepare:
            try:
                place.run_hook(name)
            except HookFailed as error:
                self.set_service(place.machine, str(error))
                raise HookFailed(
                    f"{error}; machine {place.machine!r} is out of service until `seatrial lab restore {place.machine}`"
                ) from error


def open_lab(inventory: Path, *, holder: str = "") -> Lab:
    """
    Raises:
        UsageError: the inventory or its kubeconfig cannot be used.
    """
    current_inventory = load_inventory(inventory)
    return Lab(current_inventory, open_store(current_inventory), holder=holder)


def default_holder(environment: Mapping[str, str]) -> str:
    """Who asks, for people: a CI system's job if there is one, else user and host."""
    for system, names in (
        ("gitlab", ("CI_PROJECT_PATH", "CI_JOB_ID")),
        ("github", ("GITHUB_REPOSITORY", "GITHUB_RUN_ID")),
    ):
        if all(environment.get(name) for name in names):
            return f"{system}:{environment[names[0]]}#{environment[names[1]]}"
    try:
        user = getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return re.sub(r"[^A-Za-z0-9.@-]", "-", f"{user}@{socket.gethostname()}").lstrip("-.@")
