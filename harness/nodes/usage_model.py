"""The CPU and memory use of simulated pods and nodes: a function of time, seed and annotations.

The annotation `seatrial.dev/usage` of a pod gives its use, as in `{"cpu": "2", "memory": "4Gi", "noise": 20}`: with
`noise`, each sample differs from the given amounts by up to that many percent. The same annotation of a node gives the
use of its system processes, and under `hostApplications` that of programs outside of pods. A changed annotation counts
from the moment when the agent sees it; earlier samples stay as they were.

Samples are not taken by timers: they are computed when a report is due.
"""

import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import orjson

from seatrial.harness.apiserver.quantities import CPU, MEMORY, QuantityError, amounts
from seatrial.harness.errors import UsageError
from seatrial.harness.nodes.usage_samples import Floats, Samples, total
from seatrial.scheduler.api.clock import Clock

log = logging.getLogger(__name__)

USAGE = "seatrial.dev/usage"
PERIOD = 15.0  # seconds between two samples
KEPT = 3600.0  # seconds that the use of the past is kept
PAGE_CACHE = "pageCache"
_FIELDS = frozenset({CPU, MEMORY, PAGE_CACHE, "noise"})
_EXPECTED = 'expected {"cpu": quantity, "memory": quantity, "pageCache": quantity, "noise": percent}'


@dataclass(frozen=True, slots=True)
class Script:
    """Amounts in milli-CPU and bytes; None: this resource is not measured. `noise`: percent."""

    cpu: int | None = None
    memory: int | None = None
    noise: float = 0.0
    page_cache: int = 0


NOTHING = Script()


@dataclass(frozen=True, slots=True)
class HostScript:
    """A program outside of pods."""

    script: Script
    priority: str
    qos: str


@dataclass(frozen=True, slots=True)
class NodeScript:
    """A node's use besides its pods."""

    system: Script | None = None
    host_applications: Mapping[str, HostScript] = field(default_factory=dict)


def read_script(where: str, text: str | Mapping[str, Any]) -> Script:
    """The use that an annotation gives; `where`: for messages.

    Raises:
        UsageError: the text is not of the expected form.
    """
    results = _object(where, text) if isinstance(text, str) else dict(text)
    if results.keys() - _FIELDS:
        raise UsageError(f"{where}: {_EXPECTED}, found {str(text)[:60]!r}")
    noise = results.pop("noise", 0)
    try:
        used = amounts(results)
    except (QuantityError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error
    if any(value < 0 for value in used.values()):
        raise UsageError(f"{where}: expected amounts of 0 and more, found {str(text)[:60]!r}")
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not 0 <= noise <= 100:
        raise UsageError(f"{where}: expected noise of 0 to 100 percent, found {noise!r}")
    return Script(used.get(CPU), used.get(MEMORY), float(noise), used.get(PAGE_CACHE, 0))


def read_node_script(where: str, text: str) -> NodeScript:
    """The use that a node's annotation gives; "": none.

    Raises:
        UsageError: the text is not of the expected form.
    """
    if not text:
        return NodeScript()
    results = _object(where, text)
    applications = results.pop("hostApplications", {})
    if not isinstance(applications, dict) or not all(
        isinstance(application, dict) for application in applications.values()
    ):
        raise UsageError(f"{where}: hostApplications: expected an object for each name, found {applications!r:.60}")
    listed = {}
    for name, value in applications.items():
        own = dict(value)
        priority, qos = str(own.pop("priority", "")), str(own.pop("qos", ""))
        listed[name] = HostScript(read_script(f"{where}: hostApplications[{name}]", own), priority, qos)
    return NodeScript(read_script(where, results), listed)


def _object(where: str, text: str) -> dict[str, Any]:
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"{where}: {error}") from error
    if not isinstance(document, dict):
        raise UsageError(f"{where}: {_EXPECTED}, found {text[:60]!r}")
    return document


class Use:
    """The use of one pod or program over time."""

    __slots__ = ("_key", "_steps", "ended")

    def __init__(self, seed: int, name: str, now: float, script: Script) -> None:
        """`name` makes the noise differ from that of others."""
        self._key = zlib.crc32(name.encode()) << 32 | seed & 0xFFFFFFFF
        self._steps: list[tuple[float, Script]] = [(now, script)]
        self.ended: float | None = None

    @property
    def began(self) -> float:
        return self._steps[0][0]

    @property
    def script(self) -> Script:
        return self._steps[-1][1]

    def change(self, now: float, script: Script) -> None:
        """Follow `script` from now on."""
        if script != self.script:
            self._steps.append((now, script))
            while len(self._steps) > 1 and self._steps[1][0] < now - KEPT:
                del self._steps[0]

    def samples(self, times: Floats) -> Samples:
        """The samples at those of `times` at which it ran."""
        own = times[times >= self._steps[0][0]]
        if self.ended is not None:
            own = own[own < self.ended]
        cpu, memory, cache = np.zeros(len(own)), np.zeros(len(own)), np.zeros(len(own))
        for since, script in self._steps:
            after = own >= since
            factor: Floats | float = 1.0
            if script.noise:
                factor = 1 + script.noise / 100 * (2 * _random(self._key, own[after]) - 1)
            cpu[after] = (script.cpu or 0) * factor
            memory[after] = (script.memory or 0) * factor
            cache[after] = script.page_cache
        return Samples(own, cpu, memory, cache)


def sample_times(now: float, seconds: float) -> Floats:
    """The moments of the samples of the last `seconds`, the last one now: multiples of the period, so that reports of
    overlapping times have the same samples."""
    first = int(np.ceil((now - seconds) / PERIOD))
    times: Floats = np.arange(first, int(now // PERIOD) + 1, dtype=np.float64) * PERIOD
    if not len(times) or times[-1] != now:
        times = np.array([*times, now], np.float64)
    return times


def _random(key: int, times: Floats) -> Floats:
    """Numbers in [0, 1) that depend on key and time alone (SplitMix64)."""
    with np.errstate(over="ignore"):
        mixed = times.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key & 0xFFFFFFFFFFFFFFFF)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    numbers: Floats = np.asarray(mixed, np.float64) / 2.0**64
    return numbers


@dataclass(frozen=True, slots=True)
class HostUse:
    """The use of a program outside of pods."""

    name: str
    samples: Samples
    priority: str = ""
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """The CPU and memory use of a node; `system`: what neither pods nor listed programs use."""

    node: Samples
    system: Samples | None = None
    applications: tuple[HostUse, ...] = ()


class UsageModel:
    """The use of one simulated node, of its pods and of its programs outside of pods."""

    def __init__(self, clock: Clock, node: str, seed: int = 0) -> None:
        self._clock, self._node, self._seed = clock, node, seed
        self._pods: dict[str, Use] = {}  # by uid
        self._past: list[Use] = []
        self._text = ""
        self._system: Use | None = None
        self._applications: dict[str, tuple[Use, HostScript]] = {}

    def started(self, uid: str, key: str, text: str) -> None:
        """A pod runs; `text`: its annotation."""
        if uid not in self._pods and text:
            script = self._read(f"pod {key}: annotation {USAGE}", text)
            if script is not None:
                self._pods[uid] = Use(self._seed, uid, self._clock.now(), script)

    def changed(self, uid: str, key: str, text: str) -> None:
        """The annotation of a running pod changed."""
        use = self._pods.get(uid)
        if use is None:
            self.started(uid, key, text)
            return
        script = self._read(f"pod {key}: annotation {USAGE}", text) if text else NOTHING
        if script is not None:
            use.change(self._clock.now(), script)

    def ended(self, uid: str) -> None:
        """A pod does not run any more."""
        use = self._pods.pop(uid, None)
        now = self._clock.now()
        if use is not None:
            use.ended = now
            self._past.append(use)
        self._past = [past for past in self._past if past.ended is not None and past.ended > now - KEPT]

    def set_node(self, text: str) -> None:
        """The annotation of the node."""
        if text == self._text:
            return
        self._text = text
        try:
            script = read_node_script(f"node {self._node}: annotation {USAGE}", text)
        except UsageError as error:
            log.warning("usage refused node=%s why=%s", self._node, error)
            return
        now = self._clock.now()
        if self._system is not None:
            self._system.change(now, script.system or NOTHING)
        elif script.system is not None:
            self._system = Use(self._seed, f"{self._node}/system", now, script.system)
        for name, (use, _) in self._applications.items():
            if name not in script.host_applications:
                use.change(now, NOTHING)
        for name, host in script.host_applications.items():
            if name in self._applications:
                use = self._applications[name][0]
                use.change(now, host.script)
            else:
                use = Use(self._seed, f"{self._node}/{name}", now, host.script)
            self._applications[name] = (use, host)

    def measure(self, seconds: float) -> tuple[dict[str, Samples], Load | None]:
        """The samples of the last `seconds`: of running pods by uid, and of the node; None if nothing is measured."""
        applications = [application[0] for application in self._applications.values()]
        host = [use for use in (self._system, *applications) if use is not None]
        everything = [*self._pods.values(), *self._past, *host]
        if not everything:
            return {}, None
        began = min(use.began for use in everything)
        now = self._clock.now()
        times = sample_times(now, min(seconds, now - began))
        pods = {uid: use.samples(times) for uid, use in self._pods.items()}
        others = [use.samples(times) for use in (*self._past, *host)]
        listed = [
            HostUse(name, use.samples(times), script.priority, script.qos)
            for name, (use, script) in sorted(self._applications.items())
        ]
        system = self._system.samples(times) if self._system is not None else None
        return pods, Load(total(times, [*pods.values(), *others]), system, tuple(listed))

    def _read(self, where: str, text: str) -> Script | None:
        try:
            return read_script(where, text)
        except UsageError as error:
            log.warning("usage refused node=%s why=%s", self._node, error)
            return None
