"""Checks of HAMi-core's isolation on one card without a cluster. Each check measures first and judges afterwards.

A check returns a Finding: the measured figures, the breaches, and apart from these the breaches that are known of the
release. Tolerances and their reasons are in docs/isolation-protocol.md.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from seatrial.harness.devices.hami_release import core_release
from seatrial.harness.errors import DeviceError
from seatrial.harness.hami.isolation.probe import Ready, Witness
from seatrial.harness.hami.isolation.samples import Interval, Tick, common, jain, mean_interval, rates, ratio
from seatrial.harness.hami.isolation.tenants import Arrangement, Limits, TenantProcess, clear_lock, tenants
from seatrial.harness.hami.region import RUNNING, RegionError, read_region

MIB = 1 << 20
BLOCK = 64 * MIB
OUT_OF_MEMORY = 2
ROUNDS_OF_FILLING = 3
ORDER_SLACK = 0.05  # relative decrease with more cores that counts as noise
CORE_SLACK = 10.0  # points between limit and mean use, seen from outside
MIN_WITH_LIBRARY = 0.97  # of the throughput without the library
MIN_TOGETHER = 0.7  # of the card, for two tenants whose limits add up to it
MAX_WAIT = 12.0  # seconds; the library checks the lock's owner every ten
MAX_SMS_OF_COARSE_STEP = 100  # with more, releases before the linear step exceed their limits
LINEAR_STEP = (2, 9, 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """One check's outcome."""

    name: str
    measured: Mapping[str, Any]
    breaches: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # breaches that this release is known for


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of phases in seconds."""

    warm_up: float = 20.0
    measured: float = 120.0
    together: float = 240.0
    baseline: float = 30.0
    tick: float = 1.0
    launch: float = 0.001


class Bench:
    """One card, the library under test, and the baselines of this session (measured at first use)."""

    def __init__(
        self,
        under_test: Arrangement,
        bare: Arrangement,
        folder: Path,
        *,
        ready: Ready | None = None,
        witness: Witness | None = None,
        lengths: Lengths = Lengths(),
        limit: int = 2048 * MIB,
    ) -> None:
        """`folder` is for the tenants' regions. Without `ready` and `witness` nothing is measured from outside."""
        self.under_test, self.bare, self.lengths, self.limit = under_test, bare, lengths, limit
        self.ready, self.witness = ready, witness
        self._folder = folder
        self._caches = 0
        self._baseline: Baseline | None = None

    def limits(self, *, memory: int | None = None, cores: int | None = None) -> Limits:
        """Limits with a new region, since a region keeps its first limits."""
        self._caches += 1
        return Limits(self._folder / f"{self._caches}.cache", memory, cores)

    def regions(self) -> list[Path]:
        """The regions that a library has written so far."""
        return sorted(self._folder.glob("*.cache"))

    @property
    def baseline(self) -> "Baseline":
        """Measurements of the card without the library."""
        if self._baseline is None:
            with tenants(self.bare, None) as (tenant,):
                totals = tenant.ask("totals")
                context = self.outside(tenant) or 0
                rounds = int(tenant.ask("calibrate", seconds=self.lengths.launch)["rounds"])
                ticks, _ = self.run(tenant, rounds, self.lengths.baseline)
                self._baseline = Baseline(
                    totals["total"], totals["multiprocessors"], context, rounds, mean_interval(rates(ticks))
                )
        return self._baseline

    def outside(self, tenant: TenantProcess) -> int | None:
        """Bytes that a tenant holds according to the driver; None if unknown."""
        if self.witness is None or self.ready is None:
            return None
        processes = self.witness.processes(self.ready.card.uuid)
        return next((process.memory for process in processes if process.pid == tenant.pid), None)

    def run(self, tenant: TenantProcess, rounds: int, seconds: float) -> tuple[list[Tick], list[float]]:
        """Run a tenant. Returns its ticks, and its core use in percent for each second, as the driver reports it."""
        tenant.send("run", seconds=seconds, tick=self.lengths.tick, rounds=rounds)
        cores: list[float] = []
        if self.witness is not None and self.ready is not None:
            for _ in range(int(seconds)):
                if not tenant.waiting(1.0):
                    break
                seen = [each.core for each in self.witness.processes(self.ready.card.uuid) if each.pid == tenant.pid]
                cores += [core for core in seen if core is not None]
        return tenant.ticks(within=seconds + 60), cores


@dataclass(frozen=True, slots=True)
class Baseline:
    """Bytes, multiprocessors, bytes of a context, rounds of a launch, kernels a second."""

    total: int
    multiprocessors: int
    context: int
    rounds: int
    throughput: Interval


def totals(bench: Bench) -> Finding:
    """HAMI-GT-1: a tenant sees its limit as the card's memory, in both calls."""
    with tenants(bench.under_test, bench.limits(memory=bench.limit)) as (tenant,):
        seen = tenant.ask("totals")
    breaches = [
        f"{call}: expected {bench.limit}, found {seen[field]}"
        for call, field in (("cuMemGetInfo", "total"), ("cuDeviceTotalMem", "device_total"))
        if seen[field] != bench.limit
    ]
    return Finding("totals", {"limit": bench.limit, **seen}, tuple(breaches))


def filling(bench: Bench) -> Finding:
    """HAMI-GT-2, HAMI-GT-3, HAMI-GT-5, HAMI-GT-12: memory up to the limit, repeatedly; region and driver agree."""
    limits = bench.limits(memory=bench.limit)
    context = bench.baseline.context
    breaches: list[str] = []
    fills: list[dict[str, Any]] = []
    with tenants(bench.under_test, limits) as (tenant,):
        before = tenant.ask("totals")["free"]
        if before < bench.limit - context - BLOCK:
            breaches.append(f"free at the start: expected {bench.limit - context - BLOCK} and more, found {before}")
        for number in range(ROUNDS_OF_FILLING):
            answer = tenant.ask("fill", block=BLOCK, within=60)
            fills.append(answer)
            amount = before // BLOCK
            if (answer["blocks"], answer["code"]) != (amount, OUT_OF_MEMORY):
                breaches.append(
                    f"fill {number + 1}: expected {amount} blocks and code {OUT_OF_MEMORY},"
                    f" found {answer['blocks']} and code {answer['code']}"
                )
            outside = bench.outside(tenant)
            if outside is not None and outside > bench.limit + context:
                breaches.append(f"driver: expected at most {bench.limit + context} bytes, found {outside}")
            breaches += _check_region_sum(limits.cache, bench.limit - answer["free"])
            after = tenant.ask("release")["free"]
            if after != before:
                breaches.append(f"release {number + 1}: expected {before} free again, found {after}")
    return Finding("filling", {"limit": bench.limit, "context": context, "fills": fills}, tuple(breaches))


def other_kinds(bench: Bench) -> Finding:
    """HAMI-GT-4: managed memory counts; pinned host memory does not, and a change of that should be noticed."""
    with tenants(bench.under_test, bench.limits(memory=bench.limit)) as (tenant,):
        codes = {
            kind: tenant.ask("allocate", bytes=bench.limit + BLOCK, kind=kind)["code"] for kind in ("managed", "host")
        }
    amounts = {"managed": OUT_OF_MEMORY, "host": 0}
    breaches = [
        f"{kind}: expected code {amounts[kind]}, found {code}" for kind, code in codes.items() if code != amounts[kind]
    ]
    return Finding("other-kinds", codes, tuple(breaches))


def neighbours_memory(bench: Bench) -> Finding:
    """HAMI-GT-9: a tenant that runs into its limit takes nothing from its neighbour, who sees its own use alone."""
    breaches: list[str] = []
    half = bench.limit // 2
    with tenants(bench.under_test, bench.limits(memory=half), bench.limits(memory=half)) as (greedy, modest):
        free = modest.ask("totals")["free"]
        filled = greedy.ask("fill", block=BLOCK, within=60)
        steps = [modest.ask("totals")["free"]]
        for _ in range(max(1, free // BLOCK // 2)):
            code = modest.ask("allocate", bytes=BLOCK)["code"]
            if code:
                breaches.append(f"the neighbour was refused {BLOCK} bytes within its limit, code {code}")
            steps.append(modest.ask("totals")["free"])
    if filled["blocks"] * BLOCK > half:
        breaches.append(f"the greedy tenant: expected at most {half} bytes, found {filled['blocks'] * BLOCK}")
    if filled["code"] != OUT_OF_MEMORY:
        breaches.append(f"the greedy tenant: expected code {OUT_OF_MEMORY} in the end, found {filled['code']}")
    targets = [free - BLOCK * number for number in range(len(steps))]
    if steps != targets:
        breaches.append(f"free memory of the neighbour: expected {targets}, found {steps}")
    return Finding("neighbours-memory", {"half": half, "greedy": filled, "steps": steps}, tuple(breaches))


def crash(bench: Bench) -> Finding:
    """HAMI-GT-10: one of two tenants in a container is killed; a new tenant can allocate its memory."""
    limits = bench.limits(memory=bench.limit)
    breaches: list[str] = []
    with tenants(bench.under_test, limits) as (survivor,):
        alone = survivor.ask("totals")["free"]
        with tenants(bench.under_test, limits) as (victim,):
            held = victim.ask("fill", block=BLOCK, within=60)["blocks"]
            victim.kill()
        lock_left = clear_lock() if bench.under_test.library is not None else False
        with tenants(bench.under_test, limits) as (newcomer,):
            seen = newcomer.ask("totals")["free"]
            after = newcomer.ask("fill", block=BLOCK, within=60)["blocks"]
            newcomer.ask("release")
    if after < held:
        breaches.append(f"newcomer: expected the {held} blocks that the ended one had, found {after}")
    if after * BLOCK > bench.limit:
        breaches.append(f"newcomer: expected at most {bench.limit} bytes, found {after * BLOCK}")
    measured = {"free_alone": alone, "held": held, "free_of_newcomer": seen, "blocks": after, "lock_left": lock_left}
    return Finding("crash", measured, tuple(breaches))


def old_limit(bench: Bench) -> Finding:
    """HAMI-GT-13: a region keeps the limits with which it was created; a new region has the new limits."""
    first = bench.limits(memory=bench.limit)
    half = bench.limit // 2
    seen = {}
    for name, limits in (
        ("first", first),
        ("same-region", Limits(first.cache, half)),
        ("new-region", bench.limits(memory=half)),
    ):
        with tenants(bench.under_test, limits) as (tenant,):
            seen[name] = tenant.ask("totals")["total"]
    amounts = {"first": bench.limit, "same-region": bench.limit, "new-region": half}
    breaches = [
        f"{name}: expected {amounts[name]}, found {total}" for name, total in seen.items() if total != amounts[name]
    ]
    return Finding("old-limit", seen, tuple(breaches))


def churn(bench: Bench, times: int = 50) -> Finding:
    """HAMI-GT-11: tenants start and end in one container, every third by SIGKILL; no slot stays used, no file grows."""
    limits = bench.limits(memory=bench.limit)
    breaches: list[str] = []
    sizes: set[int] = set()
    locks = 0
    with tenants(bench.under_test, limits) as (first,):
        free = first.ask("totals")["free"]
    for number in range(times):
        with tenants(bench.under_test, limits) as (tenant,):
            code = tenant.ask("allocate", bytes=BLOCK)["code"]
            if code:
                breaches.append(f"tenant {number + 1}: {BLOCK} bytes were refused with code {code}")
            if number % 3 == 2:
                tenant.kill()
                locks += clear_lock() if bench.under_test.library is not None else 0
        if limits.cache.exists():
            sizes.add(limits.cache.stat().st_size)
    with tenants(bench.under_test, limits) as (last,):
        blocks = last.ask("fill", block=BLOCK, within=60)["blocks"]
        live = _live(limits.cache) - {last.pid}
    if blocks != free // BLOCK:
        breaches.append(f"in the end: expected {free // BLOCK} blocks for a newcomer, found {blocks}")
    if live:
        breaches.append(f"in the end: expected no process of before in the region, found {sorted(live)}")
    if len(sizes) > 1:
        breaches.append(f"region: expected one size, found {sorted(sizes)} bytes")
    return Finding("churn", {"times": times, "blocks": blocks, "locks_left": locks}, tuple(breaches))


def dead_holder(bench: Bench) -> Finding:
    """HAMI-GT-14: a process that is killed with the region's lock delays the next tenant for a limited time."""
    limits = bench.limits(memory=bench.limit)
    with tenants(bench.under_test, limits) as (first,):
        free = first.ask("totals")["free"]
    if not limits.cache.exists():
        return Finding("dead-holder", {"region": None})
    held = hold(limits.cache)
    clear_lock()
    started = time.monotonic()
    with tenants(bench.under_test, limits) as (tenant,):
        waited = time.monotonic() - started
        after = tenant.ask("totals")["free"]
    breaches = []
    if waited > MAX_WAIT:
        breaches.append(f"expected a start within {MAX_WAIT:g} s of the holder's death, found {waited:.1f} s")
    if after != free:
        breaches.append(f"expected {free} bytes free afterwards, found {after}")
    return Finding("dead-holder", {"holder": held, "seconds": waited}, tuple(breaches))


def hold(region: Path) -> int:
    """Start a process that takes the region's lock and is killed. Returns its pid.

    Raises:
        DeviceError: it could not take it.
    """
    command = [sys.executable, "-m", "seatrial.harness.hami.isolation.holder", str(region), "die"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    output, errors = process.communicate(timeout=30)
    if output.strip() != b"held":
        raise DeviceError(f"region {region}: its lock could not be taken: {errors.decode(errors='replace').strip()}")
    return process.pid


def core_shares(bench: Bench, shares: Sequence[int] = (30, 50, 70)) -> Finding:
    """HAMI-GT-6: a lone tenant's throughput follows its limit; its mean use, seen from outside, is near it."""
    base = bench.baseline
    measured: dict[str, Any] = {"alone": asdict(base.throughput)}
    breaches: list[str] = []
    known: list[str] = []
    before, lengths = 0.0, bench.lengths
    for share in shares:
        with tenants(bench.under_test, bench.limits(cores=share)) as (tenant,):
            ticks, cores = bench.run(tenant, base.rounds, lengths.warm_up + lengths.measured)
        (kept,) = common([ticks], warm_up=lengths.warm_up)
        interval = mean_interval(rates(kept))
        part = ratio(interval, base.throughput)
        outside = mean_interval(cores[int(lengths.warm_up) :]) if len(cores) > lengths.warm_up + 2 else None
        measured[str(share)] = {"part": asdict(part), "outside": asdict(outside) if outside else None}
        if interval.mean < before * (1 - ORDER_SLACK):
            breaches.append(
                f"{share} %: expected no less than with the lower limit ({before:.1f}/s), found {interval.mean:.1f}/s"
            )
        if interval.mean > base.throughput.mean * (1 + ORDER_SLACK):
            breaches.append(f"{share} %: expected at most {base.throughput.mean:.1f}/s, found {interval.mean:.1f}/s")
        use = outside or part.scaled(100)
        if not use.within(share - CORE_SLACK, share + CORE_SLACK):
            where = "seen from outside" if outside else "of the throughput alone"
            text = f"{share} %: expected {share} ± {CORE_SLACK:g} % {where}, found {use.mean:.1f} %"
            (known if _step_is_coarse(bench) else breaches).append(text)
        before = interval.mean
    return Finding("core-shares", measured, tuple(breaches), tuple(known))


def overhead(bench: Bench) -> Finding:
    """HAMI-GT-7: without limits the library costs at most 3 % on kernels of one millisecond."""
    base = bench.baseline
    with tenants(bench.under_test, bench.limits()) as (tenant,):
        ticks, _ = bench.run(tenant, base.rounds, bench.lengths.baseline)
        launch = tenant.ask("launches", count=1000, within=60)["seconds"] / 1000
    part = ratio(mean_interval(rates(ticks)), base.throughput)
    breaches = []
    if part.mean < MIN_WITH_LIBRARY:
        breaches.append(f"expected {MIN_WITH_LIBRARY:.0%} of the throughput without, found {part.mean:.1%}")
    return Finding("overhead", {"part": asdict(part), "seconds_per_launch": launch}, tuple(breaches))


def fairness(bench: Bench, shares: tuple[int, int] = (30, 70)) -> Finding:
    """HAMI-GT-8: of two tenants the one with the higher limit gets more, and together they use the card."""
    alone = bench.baseline.throughput
    got = _together(bench, [bench.limits(cores=share) for share in shares])
    means = [interval.mean for interval in got]
    breaches = []
    if means[1] <= means[0]:
        breaches.append(
            f"expected the tenant with {shares[1]} % to get more, found {means[1]:.1f}/s and {means[0]:.1f}/s"
        )
    if sum(means) < MIN_TOGETHER * alone.mean:
        breaches.append(f"together: expected {MIN_TOGETHER:.0%} of {alone.mean:.1f}/s, found {sum(means):.1f}/s")
    measured = {
        "tenants": [asdict(interval) for interval in got],
        "ratio": asdict(ratio(got[1], got[0])) if means[0] else None,
        "promised_ratio": shares[1] / shares[0],
        "jain": jain(means, shares) if any(means) else None,
    }
    coarse = _step_is_coarse(bench)
    return Finding("fairness", measured, () if coarse else tuple(breaches), tuple(breaches) if coarse else ())


def slowdown(bench: Bench, share: int = 50) -> Finding:
    """The cost of a neighbour: a tenant's throughput beside a second tenant, relative to its throughput alone.

    The figure is recorded; a breach is only a tenant without progress.
    """
    base, lengths = bench.baseline, bench.lengths
    with tenants(bench.under_test, bench.limits(cores=share)) as (tenant,):
        ticks, _ = bench.run(tenant, base.rounds, lengths.warm_up + lengths.measured)
    alone = mean_interval(rates(common([ticks], warm_up=lengths.warm_up)[0]))
    beside = _together(bench, [bench.limits(cores=share), bench.limits(cores=100 - share)])
    breaches = [
        f"tenant {at + 1}: expected some progress, found none" for at, each in enumerate(beside) if each.mean == 0
    ]
    kept = ratio(beside[0], alone) if alone.mean else None
    if kept is None:
        breaches.append("the lone tenant: expected some progress, found none")
    measured = {
        "alone": asdict(alone),
        "beside": [asdict(interval) for interval in beside],
        "kept": asdict(kept) if kept else None,
    }
    return Finding("slowdown", measured, tuple(breaches))


CHECKS: Mapping[str, Callable[[Bench], Finding]] = {
    "totals": totals,
    "filling": filling,
    "other-kinds": other_kinds,
    "neighbours-memory": neighbours_memory,
    "crash": crash,
    "old-limit": old_limit,
    "churn": churn,
    "dead-holder": dead_holder,
    "overhead": overhead,
    "core-shares": core_shares,
    "fairness": fairness,
    "slowdown": slowdown,
}
LONG = ("core-shares", "fairness", "slowdown")


def _together(bench: Bench, limits: Sequence[Limits]) -> list[Interval]:
    """Throughput of tenants for the time in which all of them run."""
    lengths, rounds = bench.lengths, bench.baseline.rounds
    seconds = lengths.warm_up + lengths.together
    with tenants(bench.under_test, *limits) as all_:
        for member in all_:
            member.send("run", seconds=seconds, tick=lengths.tick, rounds=rounds)
        ticks = [tenant.ticks(within=seconds + 60) for tenant in all_]
    return [mean_interval(rates(series)) for series in common(ticks, warm_up=lengths.warm_up)]


def _check_region_sum(cache: Path, amount: int) -> list[str]:
    """Breaches of the region's sum against `amount` bytes; none without a region."""
    if not cache.exists():
        return []
    try:
        region = read_region(cache)
    except RegionError as error:
        return [str(error)]
    if not region.cards:
        return [f"region {cache.name}: expected a card, found none: the library did not get to NVML"]
    used = region.used(0)
    return [f"region: expected {amount} bytes in use, found {used}"] if used != amount else []


def _live(cache: Path) -> set[int]:
    """Processes that the region counts as running; none without a region."""
    if not cache.exists():
        return set()
    return {tenant.pid for tenant in read_region(cache).tenants if tenant.status == RUNNING and tenant.pid}


def _step_is_coarse(bench: Bench) -> bool:
    """Whether the release's limiter moves by the square of the multiprocessors, which is too far on large cards."""
    if bench.ready is None:
        return False
    release = core_release(bench.ready.release)
    return bench.baseline.multiprocessors > MAX_SMS_OF_COARSE_STEP and (release is None or release < LINEAR_STEP)
