"""Who has which device: the allocations of all claims, written or still to be written (DRA-R60)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction

from seatrial.scheduler.api.resourceclaims import Result
from seatrial.scheduler.plugins.dynamicresources.inventory import Counters, DeviceId, PoolId, full_name, values_of

Results = tuple[Result, ...]


class Ledger:
    """Devices in use. Allocations for administrators are not counted; shares are counted by what they consume."""

    def __init__(self, changed: Callable[[PoolId], None]) -> None:
        self._changed = changed
        self._held: dict[str, Results] = {}  # by uid of the claim
        self._users: dict[DeviceId, int] = {}  # claims, and shares, of a device
        self._consumed: dict[DeviceId, Counters] = {}
        self.of_pool: dict[PoolId, dict[DeviceId, None]] = {}  # devices in use

    def has(self, device: DeviceId) -> bool:
        """Whether some claim has the device, or a share of it."""
        return device in self._users

    def consumed(self, device: DeviceId, capacity: str) -> Fraction | int:
        """What shares consume of a capacity."""
        return self._consumed.get(device, {}).get(capacity, 0)

    def held(self, claim: str) -> Results:
        """What is booked for the claim with this uid."""
        return self._held.get(claim, ())

    def book(self, claim: str, results: Iterable[Result]) -> None:
        """The claim has these devices from now on, and no others."""
        new = tuple(results)
        old = self._held.pop(claim, ())
        if new:
            self._held[claim] = new
        if new == old:
            return
        touched: set[PoolId] = set()
        for outcome, sign in ((old, -1), (new, 1)):
            for result in outcome:
                if result.admin_access:
                    continue
                self._count(result, sign)
                touched.add((result.driver, result.pool))
        for pool in touched:
            self._changed(pool)

    @contextmanager
    def without(self, claims: Iterable[str]) -> Iterator[None]:
        """The claims with these uids have no devices within the context; nobody is told."""
        changed, self._changed = self._changed, lambda _: None
        held = {claim: self.held(claim) for claim in claims}
        try:
            for claim in held:
                self.book(claim, ())
            yield
        finally:
            for claim, results in held.items():
                self.book(claim, results)
            self._changed = changed

    def _count(self, result: Result, sign: int) -> None:
        device: DeviceId = (result.driver, result.pool, result.device)
        users = self._users.get(device, 0) + sign
        in_pool = self.of_pool.setdefault(device[:2], {})
        if users:
            self._users[device] = users
            in_pool[device] = None
        else:
            self._users.pop(device, None)
            in_pool.pop(device, None)
            if not in_pool:
                del self.of_pool[device[:2]]
        if result.share_id:
            consumed = self._consumed.setdefault(device, {})
            for text, amount in values_of(result.consumed_capacity).items():
                name = full_name(result.driver, text)
                consumed[name] = consumed.get(name, Fraction(0)) + sign * amount
            if not users:
                self._consumed.pop(device, None)
