"""10,000 steps of clients with wrong clocks that take, renew, return, lose and crash: a device has one holder."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from seatrial.harness.lab import ledger as rules
from seatrial.harness.lab.errors import LabError, LeaseLost
from seatrial.harness.lab.lab import Claim
from seatrial.harness.lab.ledger import Ledger, Moment, PlaceRequest
from seatrial.harness.lab.stores import Snapshot, Store
from seatrial.harness.lab.tests.inventories import inventory

STEPS = 10_000
TTL = 30.0
REQUESTS = (
    PlaceRequest("h100", 1),
    PlaceRequest("h100", 2, nics=1),
    PlaceRequest("h100", 4),
    PlaceRequest("a10", 1),
    PlaceRequest("", 1, whole=True),
)


class World:
    """True time, and a store whose servers tell it in whole seconds and differ by up to a second."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311 a story, no secret
        self.time = 1_000_000.0
        self.ledger, self.version = Ledger("shelf"), 0
        self.compares = True


class SimulatedStore(Store):
    """Answers get lost, and other clients act between a read and a write."""

    def __init__(self, world: World, between: Callable[[], None]) -> None:
        self._world, self._between = world, between

    def read(self) -> Snapshot:
        world = self._world
        self._between()
        if world.random.random() < 0.03:
            raise LabError("no answer")
        now = float(int(world.time + world.random.uniform(0, 1)))
        return Snapshot(world.ledger, Moment(now, now), str(world.version))

    def write(self, ledger: Ledger, before: Snapshot) -> bool:
        world = self._world
        self._between()
        if world.compares and str(world.version) != before.version:
            return False
        world.ledger, world.version = ledger, world.version + 1
        if world.random.random() < 0.03:
            raise LabError("no answer")  # but it was written
        return True

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class ClientClock:
    """Differs from true time by years, and gains or loses up to half a second in 1,000 s."""

    world: World
    offset: float
    rate: float

    def monotonic(self) -> float:
        return self.offset + self.world.time * self.rate

    def sleep(self, seconds: float) -> None:
        raise AssertionError(seconds)  # steps do not wait


@dataclass
class Client:
    clock: ClientClock
    number: int
    claim: Claim | None = None
    request: PlaceRequest = REQUESTS[0]
    lives: int = 0
    busy: bool = False  # one of its requests is on its way


@dataclass
class Story:
    """Clients on one store; `problems` has what must never be."""

    world: World
    clients: list[Client] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    tokens: dict[str, int] = field(default_factory=dict)  # device → greatest token that was granted
    taken_back: set[int] = field(default_factory=set)
    grants: int = 0
    steals: int = 0

    def __post_init__(self) -> None:
        uniform = self.world.random.uniform
        for number in range(6):
            clock = ClientClock(self.world, uniform(-1e8, 1e8), 1 + uniform(-5e-4, 5e-4))
            self.clients.append(Client(clock, number))

    def between(self) -> None:
        """Another client may act while a request is on its way, and time passes."""
        self.world.time += self.world.random.uniform(0, 0.3)
        idle = [client for client in self.clients if not client.busy]
        if len(idle) > len(self.clients) - 3 and self.world.random.random() < 0.25:
            self.act(self.world.random.choice(idle))

    def act(self, client: Client) -> None:
        client.busy = True
        try:
            self._act(client)
        except LabError:
            pass
        finally:
            client.busy = False
        self.look()

    def _act(self, client: Client) -> None:
        choose = self.world.random.random()
        claim = client.claim
        if claim is None:
            client.lives += 1
            store = SimulatedStore(self.world, self.between)
            key = f"{client.number}.{client.lives}"
            client.claim = Claim(inventory(ttl=TTL), store, client.clock, f"c{client.number}", key)
            client.request = self.world.random.choice(REQUESTS)
        elif choose < 0.03:  # kill -9: its lease stays until it ends by itself
            client.claim = None
        elif choose < 0.04 and claim.lease is not None:  # an administrator takes it back
            self.taken_back.add(claim.lease.token)
            self.world.ledger = rules.give_back(self.world.ledger, token=claim.lease.token)
            self.world.version += 1
        elif claim.lease is None:
            if claim.ask(client.request):
                self.granted(claim)
        elif choose < 0.2:
            claim.withdraw()
            client.claim = None
        else:
            try:
                claim.renew()
            except LeaseLost:
                client.claim = None

    def granted(self, claim: Claim) -> None:
        assert claim.lease is not None
        self.grants += 1
        for device in claim.lease.devices:
            if claim.lease.token <= self.tokens.get(device, 0):
                self.problems.append(f"{device}: token {claim.lease.token} after {self.tokens[device]}")
            self.tokens[device] = claim.lease.token

    def look(self) -> None:
        """By its own clock and by the ledger, a device has at most one holder."""
        holders: dict[str, list[str]] = {}
        listed: dict[str, list[int]] = {}
        for client in self.clients:
            claim = client.claim
            if claim is not None and claim.valid and claim.lease is not None:
                if claim.lease.token in self.taken_back:
                    continue
                for device in claim.lease.devices:
                    holders.setdefault(device, []).append(claim.key)
        for lease in self.world.ledger.leases:
            for device in lease.devices:
                listed.setdefault(device, []).append(lease.token)
        self.problems += [f"{device} has holders {names}" for device, names in holders.items() if len(names) > 1]
        self.problems += [f"{device} has leases {tokens}" for device, tokens in listed.items() if len(tokens) > 1]


def random_story(seed: int, *, compares: bool = True, steps: int = STEPS) -> Story:
    world = World(seed)
    world.compares = compares
    story = Story(world)
    for _ in range(steps):
        world.time += world.random.choice((0.0, 0.5, 1.0, 3.0, 3.0, 40.0 if world.random.random() < 0.1 else 1.0))
        before = {lease.token for lease in world.ledger.leases}
        story.act(world.random.choice(story.clients))
        story.steals += bool(before - {lease.token for lease in world.ledger.leases})
        if story.problems:
            break
    return story


@pytest.mark.parametrize("seed", range(3))
def test_a_device_never_has_two_holders(seed: int) -> None:
    story = random_story(seed)
    assert story.problems == []
    assert story.grants > STEPS / 50  # the story is about something
    assert story.steals > STEPS / 50


def test_a_store_that_does_not_compare_is_found_out() -> None:
    """The story can fail: writes that overwrite newer ones give a device two holders."""
    assert any(random_story(seed, compares=False).problems for seed in range(3))


def test_taking_devices_before_the_lease_has_ended_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The story can fail: others take the devices two seconds early."""
    monkeypatch.setattr(rules, "GRACE", -2.0)
    assert any(random_story(seed).problems for seed in range(3))


@pytest.mark.parametrize("seed", range(20))
def test_after_a_crash_the_devices_are_free_within_ttl_and_five_seconds(seed: int) -> None:
    """The holder of all cards dies right after a renewal; another waits in line and looks once a second."""
    world = World(seed)
    store = SimulatedStore(world, lambda: None)
    lab = inventory(ttl=TTL)
    dead, waiting = (Claim(lab, store, ClientClock(world, 5.0, 1.0), name, name) for name in ("dead", "waiting"))
    request = PlaceRequest("h100", 4)
    _until(world, lambda: dead.ask(request))
    world.time += 7.3
    _until(world, lambda: _renewed(dead))
    crash = world.time
    _until(world, lambda: waiting.ask(request))
    assert TTL <= world.time - crash <= TTL + 5


def _renewed(claim: Claim) -> bool:
    claim.renew()
    return True


def _until(world: World, done: Callable[[], bool]) -> None:
    """One try a second; an answer may be lost."""
    while True:
        try:
            if done():
                return
        except LabError:
            pass
        world.time += 1.0
