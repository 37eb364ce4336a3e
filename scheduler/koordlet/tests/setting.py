"""A node agent over a fake root, in virtual time, whose API server answers writes and keeps them."""

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import orjson

from seatrial.fake_devices.noderoot import NodeRoot
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.slo import NodeMetric, NodeSlo
from seatrial.scheduler.api.transport import Done, Request, Response
from seatrial.scheduler.koordlet.agent import Agent, AgentConfig
from seatrial.scheduler.koordlet.audit import NO_AUDIT, AuditConfig
from seatrial.scheduler.koordlet.cgroups import Cgroups
from seatrial.scheduler.koordlet.core_sched import FileCookies
from seatrial.scheduler.koordlet.hooks import LIBRARY
from seatrial.scheduler.koordlet.machine import Machine
from seatrial.scheduler.koordlet.objects import AgentPod
from seatrial.scheduler.koordlet.prediction import Models
from seatrial.scheduler.koordlet.resctrl_groups import Resctrl

GI = 1 << 30


class Api:
    """A transport that answers writes with success and keeps them; reads are never answered."""

    def __init__(self) -> None:
        self.writes: list[tuple[str, Any]] = []
        self.code = 200

    def send(self, request: Request, done: Done) -> None:
        if request.method != "GET":
            self.writes.append((request.path, orjson.loads(request.body)))
            done(Response(self.code, b"{}"))

    def stream(self, *_: object) -> object:
        raise AssertionError("no watch in this test")


class Setting:
    """A node of 8 CPUs and 16 GiB whose pods use what `load` says."""

    def __init__(
        self,
        folder: Path,
        *,
        v2: bool = False,
        gates: dict[str, bool] | None = None,
        library: Path = Path(LIBRARY),
        audit: AuditConfig = NO_AUDIT,
        **root: Any,
    ) -> None:
        self.root = NodeRoot(folder, v2=v2, **root)
        self.api, self.clock = Api(), SimClock()
        self.gates = dict(gates or {})
        config = AgentConfig("n1", self.gates, library, audit)
        cgroups, machine = Cgroups(self.root.cgroup, v2=v2), Machine(self.root.proc, self.root.sys)
        resctrl = Resctrl(self.root.resctrl, self.root.proc, cgroups)
        parts = (Models(None), FileCookies(self.root.proc), Random(0))  # noqa: S311
        self.agent = Agent(self.api, self.clock, config, cgroups, machine, resctrl, *parts)  # type: ignore[arg-type]
        self.agent._set_metric(NodeMetric())
        self.load: dict[str, tuple[float, int]] = {}  # group → cores, bytes
        self.system = 0.0
        for informer in self.agent._informers:
            informer.start = lambda: None  # type: ignore[method-assign]
        self.agent.start()

    def slo(self, **blocks: Any) -> None:
        self.agent._set_slo(NodeSlo(spec=blocks))

    def pod(self, name: str, kind: str = "burstable", qos: str = "LS", **more: Any) -> str:
        """A running pod with the container `c`."""
        resources = (
            {}
            if kind == "besteffort"
            else {"requests": {"cpu": "1"}, **({"limits": more.pop("limits")} if "limits" in more else {})}
        )
        plain = {
            "metadata": {
                "name": name,
                "namespace": "d",
                "uid": name,
                "labels": {**({"koordinator.sh/qosClass": qos} if qos else {}), **more.get("labels", {})},
                "annotations": more.get("annotations", {}),
            },
            "spec": {
                "priority": more.get("priority", 0),
                "containers": [{"name": "c", "resources": more.get("resources", resources)}],
            },
            "status": {
                "phase": "Running",
                "startTime": more.get("started"),
                "containerStatuses": [{"name": "c", "containerID": f"containerd://{name}-c"}],
            },
        }
        folder = self.root.pod(kind, name, f"{name}-c")
        self.agent._set_pod(msgspec.convert(plain, AgentPod))
        return folder

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.root.busy += self.system
            for folder, (cores, memory) in self.load.items():
                self.root.use(folder, cores, memory)
            self.root.refresh()
            self.clock.advance(1.0)

    def file(self, folder: str, name: str, subsystem: str = "cpu") -> str:
        return self.root.read(folder, name, subsystem)

    def evicted(self) -> list[str]:
        """The names of pods whose eviction was asked for, in order."""
        return [path.split("/")[-2] for path, _ in self.api.writes if path.endswith("/eviction")]

    def sent(self, ending: str) -> list[Any]:
        return [body for path, body in self.api.writes if path.endswith(ending)]
