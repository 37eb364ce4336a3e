"""The use of this machine's cards, CPU and memory by pods: sampled through providers and cgroup files, by pod.

A driver call may take long, so samples are taken outside of the loop and reports show the last one. A process belongs
to the pod from whose first process it descends. With a stand-in no program computes: the values of the pod's annotation
`seatrial.dev/device-usage` are written to the stand-in's table under the pod's process, and read back through NVML.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

from seatrial.harness.devices.stand_in import StandIn
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.local_load import LocalLoad
from seatrial.harness.nodes.node_agent import NodeAgent
from seatrial.harness.nodes.runtimes.protocol import Runtime
from seatrial.harness.nodes.usage import NodeUse, PodUse, reported_classes
from seatrial.scheduler.api.clock import Clock, Timer

SAMPLE_EVERY = 10.0  # seconds, as koordlet collects
_MAX_GENERATIONS = 64  # generations of processes

Owner = tuple[str, str]  # namespace and name of a pod
RunBlocking = Callable[[Callable[[], bool], Callable[[bool], None]], None]


class LocalUse:
    """The last sample of one node."""

    def __init__(
        self,
        hardware: LocalHardware,
        runtime: Runtime,
        clock: Clock,
        *,
        run_blocking: RunBlocking,
        agent: Callable[[], NodeAgent | None],
        stand_in: StandIn | None = None,
    ) -> None:
        """`run_blocking` runs its first argument outside of the loop and passes the result to the second, on the loop;
        `agent` returns the node's agent, or None."""
        self._hardware, self._runtime, self._clock = hardware, runtime, clock
        self._run_blocking, self._agent, self._stand_in = run_blocking, agent, stand_in
        self._load = LocalLoad()
        self._last: NodeUse | None = None
        self._timer: Timer | None = None
        self._stopped = False

    def start(self) -> None:
        """Take a sample now, and from then on every ten seconds."""
        self._sample()

    def stop(self) -> None:
        """Stop sampling."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def now(self) -> NodeUse | None:
        """The last sample; None before the first, and while the node is frozen."""
        agent = self._agent()
        return self._last if agent is not None and not agent.frozen else None

    def _sample(self) -> None:
        owners, now = self._owners(), self._clock.now()
        uses: list[NodeUse] = []

        def ask() -> bool:
            self._load.look(now, owners)
            uses.append(self._hardware.use(lambda pid: owner_of(pid, owners)))
            return True

        def answered(_: bool) -> None:
            if not self._stopped:
                self._timer = self._clock.call_later(SAMPLE_EVERY, self._sample)
                self._last = self._with_load(uses[0]) if uses else None  # None if the driver failed

        self._run_blocking(ask, answered)

    def _with_load(self, use: NodeUse) -> NodeUse:
        """The use of cards, with CPU and memory of the node and its pods."""
        samples, load = self._load.measured()
        agent = self._agent()
        works = agent.works() if agent is not None else []
        cards = {(pod.namespace, pod.name): pod.cards for pod in use.pods}
        pods = []
        for work in works:
            meta = work.pod.metadata
            owner = meta.namespace, meta.name
            priority, qos = reported_classes(meta.labels, work.pod.priority) if owner in samples else ("", "")
            pods.append(PodUse(*owner, cards.pop(owner, ()), samples.get(owner), priority, qos))
        others = [PodUse(*owner, card) for owner, card in cards.items()]
        return NodeUse(use.devices, (*pods, *others), load, numa=self._load.measured_numa())

    def _owners(self) -> dict[int, Owner]:
        """The pods' first processes with their owners; writes the scripted use to the stand-in's table."""
        agent = self._agent()
        works = agent.works() if agent is not None else []
        owners: dict[int, Owner] = {}
        rows: list[tuple[int, str, int, float]] = []
        scripted = agent.device_use() if agent is not None and self._stand_in is not None else None
        message = {(pod.namespace, pod.name): pod.cards for pod in scripted.pods} if scripted is not None else {}
        for work in works:
            owner = work.pod.metadata.namespace, work.pod.metadata.name
            pids = self._runtime.processes(work)
            owners.update(dict.fromkeys(pids, owner))
            cards = message.get(owner, ()) if pids else ()
            rows += [(pids[0], card.uuid, card.memory, card.core) for card in cards if card.memory or card.core]
        if self._stand_in is not None:
            self._stand_in.set_processes(rows, now=self._clock.now())
        return owners


def owner_of(pid: int, owners: Mapping[int, Owner], proc: Path = Path("/proc")) -> Owner | None:
    """The pod of the nearest ancestor that is a pod's first process; None for other processes and ended ones."""
    for _ in range(_MAX_GENERATIONS):
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
