"""Composition: builds an agent for the roots of a node, and its HTTP routes."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.koordlet.agent import Agent, AgentConfig
from seatrial.scheduler.koordlet.audit import NO_AUDIT, AuditConfig, AuditPages
from seatrial.scheduler.koordlet.cgroups import Cgroups, Layout
from seatrial.scheduler.koordlet.core_sched import FileCookies, KernelCookies
from seatrial.scheduler.koordlet.hooks import LIBRARY
from seatrial.scheduler.koordlet.machine import Machine
from seatrial.scheduler.koordlet.prediction import Models
from seatrial.scheduler.koordlet.resctrl_groups import Resctrl
from seatrial.scheduler.serving.exposition import CONTENT_TYPE, exposed
from seatrial.scheduler.serving.routes import Answer, Routes, text

_KERNEL = Path("/proc")


def build_agent(
    transport: Transport,
    clock: Clock,
    node: str,
    *,
    cgroup: Path,
    proc: Path,
    sys: Path,
    driver: str = "",
    parent: str = "",
    gates: Mapping[str, bool] | None = None,
    checkpoints: Path | None = None,
    seed: int | None = None,
    library: Path = Path(LIBRARY),
    audit: AuditConfig = NO_AUDIT,
) -> Agent:
    """An agent for a node. It does nothing until `start`.

    Version and driver of the control groups are seen from what is there. Predictions are kept in the folder
    `checkpoints`. `library`: HAMi-core on the node. `audit`: which changes are recorded. Processes of another root than
    /proc are none of this kernel: their cookies are files.

    Raises:
        MachineError: the node's CPUs cannot be read.
    """
    v2 = (cgroup / "cgroup.controllers").exists() or (cgroup / parent / "kubepods" / "cpu.max").exists()
    base = cgroup if v2 else cgroup / "cpu"
    systemd = driver == "systemd" or (not driver and (base / parent / "kubepods.slice").is_dir())
    cgroups = Cgroups(cgroup, v2=v2, layout=Layout(systemd, parent.strip("/")))
    config = AgentConfig(node, gates or {}, library, audit)
    resctrl = Resctrl(sys / "fs/resctrl", proc, cgroups)
    machine, models, dice = Machine(proc, sys), Models(checkpoints), Random(seed)  # noqa: S311 dice, no secret
    cookies = KernelCookies() if proc == _KERNEL else FileCookies(proc)
    return Agent(transport, clock, config, cgroups, machine, resctrl, models, cookies, dice)


def build_routes(agent: Agent, pages: AuditPages | None = None) -> Routes:
    """Health, metrics, and `pages` of recorded changes."""
    routes = Routes(agent.faults)
    routes.add_health(lambda: agent.ready, text("not synced", 503))
    routes.add("GET", "/metrics", lambda _: Answer(200, exposed(agent.families()), CONTENT_TYPE))
    if pages is not None:
        routes.add("GET", "/events", pages.answer)
    return routes
