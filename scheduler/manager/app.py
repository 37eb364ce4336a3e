"""Composition: builds a manager and its HTTP routes."""

from random import Random

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.manager.profile_controller import ProfileController
from seatrial.scheduler.manager.shell import Manager
from seatrial.scheduler.serving.exposition import CONTENT_TYPE, exposed
from seatrial.scheduler.serving.routes import Answer, Routes, text

__all__ = ["build_manager", "build_routes"]


def build_manager(
    transport: Transport,
    clock: Clock,
    *,
    selector: str = "",
    profiles: bool = False,
    all_profiles: bool = False,
    gpu_shared: bool = False,
    seed: int | None = None,
) -> Manager:
    """A manager for the nodes that a label selector selects. It does nothing until `start`.

    `profiles`: bring pods that wait for a node in line with the ClusterColocationProfiles that demand it, or with
    `all_profiles`; `seed`: of the dice for those with a probability. `gpu_shared`: write `koordinator.sh/gpu.shared`.
    """
    dice = Random(seed)  # noqa: S311 dice, no secret
    controller = ProfileController(transport, clock, dice, by_default=all_profiles) if profiles else None
    return Manager(transport, clock, selector=selector, profiles=controller, gpu_shared=gpu_shared)


def build_routes(manager: Manager) -> Routes:
    """Health and metrics."""
    routes = Routes(manager.faults)
    routes.add_health(lambda: manager.ready, text("not synced", 503))
    routes.add("GET", "/metrics", lambda _: Answer(200, exposed(manager.families()), CONTENT_TYPE))
    return routes
