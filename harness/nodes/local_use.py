"""What pods really do with this machine's cards: sampled through the providers, counted by pod.

A driver may think long, so a sample is taken beside the loop and reports show the last one. A process belongs to the
pod from whose first process it descends. With a stand-in nothing computes: what a pod's annotation
`seatrial.dev/device-usage` says is put into the stand-in's table under the pod's own process, and read back through
NVML like everything else.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from seatrial.harness.devices.stand_in import StandIn
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.node import NodeAgent
from seatrial.harness.nodes.runtimes.protocol import Runtime
from seatrial.harness.nodes.usage import NodeUse
from seatrial.scheduler.api.clock import Clock, Timer

SAMPLE_EVERY = 10.0  # seconds, as koordlet collects
_DEEPEST = 64  # generations of processes

Owner = tuple[str, str]  # namespace and name of a pod
Aside = Callable[[Callable[[], bool], Callable[[bool], None]], None]


class LocalUse:
    """The last sample of one node."""

    def __init__(
        self,
        hardware: LocalHardware,
        runtime: Runtime,
        clock: Clock,
        *,
        aside: Aside,
        agent: Callable[[], NodeAgent | None],
        standing: StandIn | None = None,
    ) -> None:
        """`aside` runs its first argument where it may block and hands the answer to the second, on the loop; `agent`
        gives the node's agent while there is one."""
        self._hardware, self._runtime, self._clock = hardware, runtime, clock
        self._aside, self._agent, self._standing = aside, agent, standing
        self._last: NodeUse | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Take a sample now, and from then on every ten seconds."""
        self._sample()

    def stop(self) -> None:
        """No more samples."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> NodeUse | None:
        """The last sample; None before the first, and while the node plays dead."""
        agent = self._agent()
        return self._last if agent is not None and not agent.frozen else None

    def _sample(self) -> None:
        owners = self._owners()
        found: list[NodeUse] = []

        def ask() -> bool:
            found.append(self._hardware.use(lambda pid: owner_of(pid, owners)))
            return True

        def answered(_: bool) -> None:
            if not self._stopped:
                self._last = found[0] if found else None  # a driver that does not answer says nothing
                self._timer = self._clock.call_later(SAMPLE_EVERY, self._sample)

        self._aside(ask, answered)

    def _owners(self) -> dict[int, Owner]:
        """Whose the first processes of pods are; a stand-in's table gets what they are said to do."""
        agent = self._agent()
        works = agent.works() if agent is not None else []
        owners: dict[int, Owner] = {}
        rows: list[tuple[int, str, int, float]] = []
        scripted = agent.device_use() if agent is not None and self._standing is not None else None
        said = {(pod.namespace, pod.name): pod.cards for pod in scripted.pods} if scripted is not None else {}
        for work in works:
            owner = work.pod.metadata.namespace, work.pod.metadata.name
            pids = self._runtime.processes(work)
            owners.update(dict.fromkeys(pids, owner))
            cards = said.get(owner, ()) if pids else ()
            rows += [(pids[0], card.uuid, card.memory, card.core) for card in cards if card.memory or card.core]
        if self._standing is not None:
            self._standing.set_processes(rows, now=self._clock.now())
        return owners


def owner_of(pid: int, owners: Mapping[int, Owner], proc: Path = Path("/proc")) -> Owner | None:
    """The pod of the nearest ancestor that is one's first process; None for strangers and for what is gone."""
    for _ in range(_DEEPEST):
        if pid in owners:
            return owners[pid]
        try:
            fields = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        pid = int(fields[1])
        if pid <= 1:
            return None
    return None
