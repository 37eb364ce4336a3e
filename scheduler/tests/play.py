"""Random stories are fed to one core, and each of its decisions is held against the slow reference."""

from collections.abc import Sequence
from typing import Any

from hypothesis import Phase, settings
from msgspec.structs import replace

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Pod, PodSpec
from seatrial.scheduler.app import build_core
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.core.queue.active import Entry
from seatrial.scheduler.framework.decisions import Bind, Evict, Reject
from seatrial.scheduler.tests.oracle import judge


def stories(examples: int, *, shrink: bool = True) -> settings:
    """Settings of Hypothesis for that many stories. Without `shrink` a failing one is not made shorter."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink] if shrink else [])]
    return settings(max_examples=examples, phases=phases)


def first_ready(core: Core) -> Entry | None:
    """The entry that the next decision takes: the least key, the earliest arrival among equal ones."""
    ready = (entry for part, entry in core.queue.entries() if part == "active")
    return min(ready, key=lambda entry: entry.key, default=None)


class Play:
    """Feeds one core with events; asks the reference before each decision."""

    def __init__(self, configuration: Configuration) -> None:
        self.clock = SimClock()
        self.core: Core = build_core(configuration, self.clock, seed=3)
        self.runner = self.core.runners.of  # by pod
        self.pods: dict[str, Pod] = {}
        self.bound: dict[str, tuple[Pod, str]] = {}
        self.count = 0

    def tell(self, start: Sequence[Any], story: Sequence[tuple[str, Any]], *, first: str = "node") -> None:
        """All of a story; what is there at its start comes by events of the kind `first`."""
        for item in start:
            self.act(first, item)
        for kind, what in story:
            self.act(kind, what)

    def act(self, kind: str, what: Any) -> None:
        core = self.core
        match kind:
            case "node":
                node, device = what
                core.intake.set_node(node)
                core.intake.set_device(node.name, device)
            case "device":
                node, device = what
                core.intake.set_device(node.name, device)
            case "gone":
                core.intake.remove_node(f"n{what % 8}")
            case "delete" if self.bound:
                uid = sorted(self.bound)[what % len(self.bound)]
                del self.bound[uid]
                core.intake.remove_pod(uid)
            case "leaving" if self.bound:
                uid = sorted(self.bound)[what % len(self.bound)]
                pod, name = self.bound[uid]
                metadata = replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z", labels={"app": "b"})
                self.bound[uid] = (Pod(metadata, replace(pod.spec, node_name=name)), name)
                core.intake.set_pod(self.bound[uid][0])
            case "labels":
                core.intake.set_namespace(*what)
            case "pod":
                self.count += 1
                spec, metadata = what
                core.intake.set_pod(Pod(replace(metadata, name=f"p{self.count}", uid=f"u{self.count:04}"), spec))
            case "foreign" if list(core.cache):
                node = sorted(core.cache, key=lambda info: info.name)[self.count % core.cache.known_count]
                self.count += 1
                spec, metadata = what
                spec = PodSpec(containers=spec.containers, affinity=spec.affinity, node_name=node.name)
                pod = Pod(replace(metadata, name=f"f{self.count}", uid=f"u{self.count:04}"), spec)
                core.intake.set_pod(pod)
                self.bound[pod.metadata.uid] = (pod, node.name)
        self.decide()

    def decide(self) -> None:
        core = self.core
        for _ in range(100):
            self.confirm()
            if not core.busy:
                return
            entry = first_ready(core)
            assert entry is not None
            want = judge(core, core.runners.of(entry.info), entry.info)
            for decision in core.decide():
                match decision:
                    case Bind(info, node):
                        assert node == want.node, f"{info.key} should go to {want}"
                        self.bind(decision)
                    case Reject(info, message):
                        assert not want.node, f"{info.key} should go to {want.node}, was refused: {message}"
                        assert message.startswith(want.message), (message, want.message)
                    case Evict(victim):
                        self.evict(victim)
                    case _:
                        pass
        raise AssertionError("the queue does not come to rest")

    def confirm(self) -> None:
        """What the API server has to say before the next decision."""

    def bind(self, decision: Bind) -> None:
        """A binding is taken."""
        self.core.bound(decision.info.uid)
        self.bound[decision.info.uid] = (decision.info.pod, decision.node)

    def evict(self, victim: PodInfo) -> None:
        """Pods are to be evicted; here all stay."""
