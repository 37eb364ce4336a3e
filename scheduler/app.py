"""Composition: builds a core from a configuration, a clock and a seed."""

import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.cache.cache import Cache
from seatrial.scheduler.cache.classes import ClassRegistry
from seatrial.scheduler.cache.columns import NodeColumns, Ties
from seatrial.scheduler.cache.resources import ResourceIndex
from seatrial.scheduler.client.leader import Elector
from seatrial.scheduler.config import (
    ConfigError,
    Configuration,
    Expanded,
    PluginConfig,
    ProfileConfig,
    expand,
    load,
    parse,
)
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.core.queue.queue import SchedulingQueue
from seatrial.scheduler.engine.instrumentation import with_timing
from seatrial.scheduler.engine.plugin_runner import Profile
from seatrial.scheduler.engine.runner import Runner, Runners
from seatrial.scheduler.framework.decisions import Bind, Evict
from seatrial.scheduler.framework.extension_points import (
    Filter,
    Permit,
    Plugin,
    PostBind,
    PostFilter,
    PreBind,
    PreEnqueue,
    PreFilter,
    QueueSort,
    Reserve,
    Score,
    check_plugin,
)
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.kept_decisions import KEPT_DECISIONS
from seatrial.scheduler.packing.kernel import described as kernel_in_use
from seatrial.scheduler.plugins import register
from seatrial.scheduler.plugins.registry import Registry
from seatrial.scheduler.serving.routes import Routes
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.shell.services.views import routes_of

# Used by drivers of the scheduler in other packages.
__all__ = [
    "Bind",
    "ConfigError",
    "Configuration",
    "Elector",
    "Evict",
    "Shell",
    "build_candidate",
    "build_core",
    "build_routes",
    "build_shell",
    "default_configuration",
    "kernel_in_use",
    "load",
    "parse",
]

P = TypeVar("P", bound=Plugin)


def default_configuration(scheduler_name: str = KOORD_SCHEDULER, *, preempting_jobs: bool = False) -> Configuration:
    """A profile with the given name, and one with the default scheduler's name if it differs.

    `preempting_jobs`: with job-level preemption, which is off by default.
    """
    names = dict.fromkeys((scheduler_name, DEFAULT_SCHEDULER))
    arguments = (PluginConfig("Coscheduling", {"enablePreemption": True}),) if preempting_jobs else ()
    return Configuration(profiles=tuple(ProfileConfig(name, plugin_config=arguments) for name in names))


def build_shell(
    transport: Transport, clock: Clock, *, configuration: Configuration | None = None, seed: int = 0
) -> Shell:
    """A scheduler with its shell, on a transport. It does nothing until `start`.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    core = build_core(configuration or default_configuration(), clock, seed=seed)
    return Shell(core, transport, clock)


def build_candidate(
    transport: Transport,
    clock: Clock,
    identity: str,
    on_lost: Callable[[], None],
    *,
    configuration: Configuration | None = None,
    seed: int = 0,
) -> tuple[Shell, Elector]:
    """A scheduler that decides when it is elected; both are not started. It has to end when `on_lost` is called.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    used = configuration or default_configuration()
    shell = Shell(build_core(used, clock, seed=seed), transport, clock, standby=True)
    election = used.leader_election
    return shell, Elector(transport, clock, election, identity, on_leading=shell.lead, on_lost=on_lost)


def build_routes(shell: Shell, configuration: Configuration) -> Routes:
    """The HTTP routes of a scheduler. Debug flags change the level of its loggers."""
    return routes_of(shell.core, shell.metrics, shell, configuration, logging.getLogger("seatrial.scheduler"))


def build_core(
    configuration: Configuration,
    clock: Clock,
    *,
    seed: int = 0,
    ties: Ties | None = None,
    registry: Registry | None = None,
    kept_decisions: int = KEPT_DECISIONS,
) -> Core:
    """A core for all profiles of `configuration`; `seed`: for tie-breaks and the start of preemption's search.

    `kept_decisions`: how many of the last decisions are kept for diagnosis.

    Raises:
        ConfigError: the configuration cannot be used.
    """
    registry = registry or Registry()
    profiles = expand(configuration, registry)
    used = {registry.find(name).kind for profile in profiles for names in profile.at.values() for name in names}
    columns = NodeColumns(ResourceIndex(), ties or Ties(seed))
    classes = ClassRegistry(
        columns.resources,
        {key for plugin in used for key in plugin.reads_labels},
        {key for plugin in used for key in plugin.reads_annotations},
    )
    handle = Handle(clock, Cache(columns, classes), seed=seed, kept_decisions=kept_decisions)
    prepare = functools.cache(_prepare)  # profiles that share a plugin prepare it once
    built = [_build(profile, handle, registry, prepare) for profile in profiles]
    runners = Runners({profile.scheduler_name: Runner(profile, handle) for profile in built})
    register(handle)
    queue = SchedulingQueue(clock, built[0].queue_sort, configuration.backoff)
    return Core(handle, runners, queue)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A plugin class whose declarations are right."""

    kind: type[Plugin]
    timed: type[Plugin]
    takes_args: bool


def _build(
    profile: Expanded, handle: Handle, registry: Registry, prepare: Callable[[type[Plugin]], _Prepared]
) -> Profile:
    names = dict.fromkeys(name for listed in profile.at.values() for name in listed)
    plugins = {name: _construct(prepare(registry.find(name).kind), handle, profile.args.get(name)) for name in names}

    def at(field: str, kind: type[P]) -> Sequence[P]:
        return [plugin for name in profile.at[field] if isinstance(plugin := plugins[name], kind)]

    return Profile(
        scheduler_name=profile.scheduler_name,
        pre_enqueue=at("preEnqueue", PreEnqueue),
        queue_sort=at("queueSort", QueueSort)[0],
        pre_filter=at("preFilter", PreFilter),
        filter=at("filter", Filter),
        post_filter=at("postFilter", PostFilter),
        score=[(plugin, profile.weights[plugin.name]) for plugin in at("score", Score)],
        reserve=at("reserve", Reserve),
        permit=at("permit", Permit),
        pre_bind=at("preBind", PreBind),
        post_bind=at("postBind", PostBind),
        all=list(plugins.values()),
    )


def _prepare(kind: type[Plugin]) -> _Prepared:
    """
    Raises:
        ConfigError: the declarations of the class are wrong.
    """
    try:
        check_plugin(kind)
    except ValueError as error:
        raise ConfigError(f"plugin {kind.name}: {error}") from error
    return _Prepared(kind, with_timing(kind), _takes_args(kind))


@functools.cache
def _takes_args(kind: type[Plugin]) -> bool:
    return "args" in inspect.signature(kind).parameters


def _construct(prepared: _Prepared, handle: Handle, args: object) -> Plugin:
    """Build a plugin.

    Raises:
        ConfigError: the constructor raised an exception.
    """
    kind, timed = prepared.kind, prepared.timed
    try:
        plugin = timed(handle, args) if prepared.takes_args and args is not None else timed(handle)  # type: ignore[call-arg]
    except Exception as error:
        if kind.__module__.startswith(f"{__package__}."):
            raise
        raise ConfigError(
            f"plugin {kind.name}: the constructor of {kind.__module__}.{kind.__qualname__} failed:"
            f" {type(error).__name__}: {error}"
        ) from error
    plugin.timing = handle.timing
    return plugin
