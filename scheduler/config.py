"""KubeSchedulerConfiguration: parsing, validation, and expansion to profiles with ordered plugins (FWK-R1 to FWK-R7).

Errors name the path of the field, the expected and the found value.
"""

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from seatrial.scheduler.api.core import DEFAULT_SCHEDULER
from seatrial.scheduler.api.wrong_values import readable
from seatrial.scheduler.api.yaml_files import load_yaml
from seatrial.scheduler.client.leader import LeaderElection
from seatrial.scheduler.core.queue.backoff import BackoffPolicy
from seatrial.scheduler.framework import extension_points
from seatrial.scheduler.framework.entry_points import PluginError
from seatrial.scheduler.framework.extension_points import Args, Plugin
from seatrial.scheduler.plugins.registry import Registered, Registry

log = logging.getLogger(__name__)

GROUP = "kubescheduler.config.k8s.io/"
OLD_VERSIONS = frozenset({"v1beta2", "v1beta3"})
EVERYTHING = "*"
MAX_TOTAL_SCORE = 2**63 - 1

POINTS: dict[str, tuple[str, type[Plugin]]] = {  # field of a profile → upstream's name for its plugins, our base class
    "preEnqueue": ("PreEnqueuePlugin", extension_points.PreEnqueue),
    "queueSort": ("QueueSortPlugin", extension_points.QueueSort),
    "preFilter": ("PreFilterPlugin", extension_points.PreFilter),
    "filter": ("FilterPlugin", extension_points.Filter),
    "postFilter": ("PostFilterPlugin", extension_points.PostFilter),
    "preScore": ("PreScorePlugin", extension_points.Score),
    "score": ("ScorePlugin", extension_points.Score),
    "reserve": ("ReservePlugin", extension_points.Reserve),
    "permit": ("PermitPlugin", extension_points.Permit),
    "preBind": ("PreBindPlugin", extension_points.PreBind),
    "bind": ("BindPlugin", extension_points.Bind),
    "postBind": ("PostBindPlugin", extension_points.PostBind),
}


class ConfigError(ValueError):
    """The configuration cannot be used. The message has the field and the reason."""


class PluginRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plugin that a profile enables or disables; `weight` 0 means the plugin's default."""

    name: str
    weight: int = 0


class PluginSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugins that are enabled and disabled at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class PluginConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A plugin's arguments."""

    name: str
    args: dict[str, Any] | None = None


class ProfileConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One profile as the file has it."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = None
    plugins: dict[str, PluginSet] | None = None
    plugin_config: tuple[PluginConfig, ...] = ()


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A KubeSchedulerConfiguration as the file has it."""

    api_version: str = GROUP + "v1"
    kind: str = "KubeSchedulerConfiguration"
    parallelism: int = 16
    percentage_of_nodes_to_score: int | None = None
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    leader_election: LeaderElection = LeaderElection()
    client_connection: dict[str, Any] = {}
    delay_cache_until_active: bool = False
    extenders: tuple[dict[str, Any], ...] = ()
    profiles: tuple[ProfileConfig, ...] = (ProfileConfig(DEFAULT_SCHEDULER),)

    @property
    def backoff(self) -> BackoffPolicy:
        return BackoffPolicy(float(self.pod_initial_backoff_seconds), float(self.pod_max_backoff_seconds))


@dataclass(frozen=True, slots=True)
class Expanded:
    """One profile after merging: plugins at each point in running order, score weights, arguments."""

    scheduler_name: str
    at: Mapping[str, Sequence[str]]
    weights: Mapping[str, int]
    args: Mapping[str, Args]


def load(path: Path) -> Configuration:
    """Read a configuration file, YAML or JSON.

    Raises:
        ConfigError: it cannot be read or used.
    """
    try:
        document = load_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    try:
        return parse(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def parse(document: object) -> Configuration:
    """Convert a decoded document to a configuration.

    Raises:
        ConfigError: a field is unknown, of the wrong kind or out of range.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"expected a KubeSchedulerConfiguration, found {type(document).__name__}")
    document = _modern(document)
    try:
        configuration = msgspec.convert(document, Configuration)
    except msgspec.ValidationError as error:
        raise ConfigError(readable(error, document)) from error
    _check(configuration)
    return configuration


def _modern(document: dict[str, Any]) -> dict[str, Any]:
    """Convert old versions, and the spelling `pluginConfigs` of published examples, to v1 (FWK-R6)."""
    version = str(document.get("apiVersion", "")).removeprefix(GROUP)
    if version in OLD_VERSIONS:
        log.warning("config old-version found=%s read-as=v1", version)
        document = document | {"apiVersion": GROUP + "v1"}
    profiles = document.get("profiles")
    if isinstance(profiles, list):
        renamed = []
        for profile in profiles:
            if isinstance(profile, dict) and "pluginConfigs" in profile and "pluginConfig" not in profile:
                log.warning("config old-field found=pluginConfigs read-as=pluginConfig")
                profile = {**profile, "pluginConfig": profile["pluginConfigs"]}  # noqa: PLW2901
                del profile["pluginConfigs"]
            renamed.append(profile)
        document = document | {"profiles": renamed}
    return document


def _check(configuration: Configuration) -> None:
    if configuration.api_version != GROUP + "v1" or configuration.kind != "KubeSchedulerConfiguration":
        raise ConfigError(
            f"apiVersion, kind: expected {GROUP}v1 KubeSchedulerConfiguration,"
            f" found {configuration.api_version} {configuration.kind}"
        )
    if configuration.pod_initial_backoff_seconds <= 0:
        raise ConfigError(
            f"podInitialBackoffSeconds: expected more than 0, found {configuration.pod_initial_backoff_seconds}"
        )
    if configuration.pod_max_backoff_seconds < configuration.pod_initial_backoff_seconds:
        raise ConfigError(
            f"podMaxBackoffSeconds: expected at least podInitialBackoffSeconds"
            f" ({configuration.pod_initial_backoff_seconds}), found {configuration.pod_max_backoff_seconds}"
        )
    try:
        configuration.leader_election.check()
    except ValueError as error:
        raise ConfigError(f"leaderElection.{error}") from None
    if not configuration.profiles:
        raise ConfigError("profiles: expected at least one, found none")
    percentages = [("percentageOfNodesToScore", configuration.percentage_of_nodes_to_score)]
    names: set[str] = set()
    for index, profile in enumerate(configuration.profiles):
        where = f"profiles[{index}]"
        percentages.append((f"{where}.percentageOfNodesToScore", profile.percentage_of_nodes_to_score))
        name = profile.scheduler_name or (DEFAULT_SCHEDULER if len(configuration.profiles) == 1 else "")
        if not name:
            raise ConfigError(f"{where}.schedulerName: Required value")
        if name in names:
            raise ConfigError(f"{where}.schedulerName: Duplicate value: {name!r}")
        names.add(name)
    for field, percentage in percentages:
        if percentage is not None and not 0 <= percentage <= 100:
            raise ConfigError(f"{field}: not in valid range [0-100], found {percentage}")


def expand(configuration: Configuration, registry: Registry | None = None) -> list[Expanded]:
    """All profiles, merged with the defaults.

    Raises:
        ConfigError: a profile names a plugin that does not exist, cannot be used, is listed twice or does not serve the
            extension point; or arguments are wrong.
    """
    registry = registry or Registry()
    merge = functools.cache(functools.partial(_merge, registry=registry))  # most profiles differ in arguments only
    expanded = []
    for index, profile in enumerate(configuration.profiles):
        where = f"profiles[{index}]"
        at, weights = merge(msgspec.json.encode(profile.plugins), where=where if profile.plugins else "")
        used = {name for names in at.values() for name in names}
        name = profile.scheduler_name or DEFAULT_SCHEDULER
        expanded.append(Expanded(name, at, weights, _arguments(profile, where, used, registry)))
    sorts = {profile.at["queueSort"][0] for profile in expanded}
    if len(sorts) > 1:
        raise ConfigError(f"profiles: queueSort must be the same for all profiles, found {' and '.join(sorted(sorts))}")
    return expanded


_decode_plugins = msgspec.json.Decoder(dict[str, PluginSet] | None).decode


def _merge(plugins: bytes, *, where: str, registry: Registry) -> tuple[dict[str, list[str]], dict[str, int]]:
    """The plugins at each point in running order, and the score weights; `plugins`: a profile's own, as JSON."""
    sets = _decode_plugins(plugins) or {}
    for field in sets:
        if field not in POINTS and field != "multiPoint":
            raise ConfigError(
                f"{where}.plugins: unknown extension point {field!r}; expected one of multiPoint, {', '.join(POINTS)}"
            )
    defaults = [PluginRef(plugin, weight) for plugin, weight in registry.defaults]
    multi = _merged(defaults, sets.get("multiPoint", PluginSet()))
    of_multi = [
        (ref, _find(registry, ref.name, f"{where}.plugins.multiPoint", f'plugin "{ref.name}"').kind) for ref in multi
    ]
    at: dict[str, list[str]] = {}
    weights: dict[str, int] = {}
    for field, (kind, base) in POINTS.items():
        listed = sets.get(field, PluginSet())
        refs = _at_point(of_multi, listed, kind, base, f"{where}.plugins.{field}", registry)
        at[field] = [ref.name for ref in refs]
        if field == "score":
            weights = {ref.name: ref.weight or 1 for ref in refs}
    if len(at["queueSort"]) != 1:
        raise ConfigError(f"{where}.plugins.queueSort: expected exactly one plugin, found {len(at['queueSort'])}")
    if not at["bind"]:
        raise ConfigError(f"{where}.plugins.bind: at least one bind plugin is needed, found none")
    if sum(weights.values()) * extension_points.MAX_NODE_SCORE > MAX_TOTAL_SCORE:
        raise ConfigError(f"{where}.plugins.score: the sum of weights could overflow; use smaller weights")
    return at, weights


def _merged(defaults: Sequence[PluginRef], own: PluginSet) -> list[PluginRef]:
    """The default list with the changes of a profile: plugins replaced in place, removed or appended (FWK-R1)."""
    dropped = {ref.name for ref in own.disabled}
    replacing = {ref.name: ref for ref in own.enabled}
    merged: list[PluginRef] = []
    for ref in defaults:
        if EVERYTHING in dropped or ref.name in dropped:
            continue
        merged.append(replacing.pop(ref.name, ref))
    return merged + [ref for ref in own.enabled if ref.name in replacing]


def _find(registry: Registry, name: str, where: str, what: str) -> Registered:
    if name not in registry:
        raise ConfigError(f"{where}: {what} does not exist; known: {', '.join(registry)}")
    try:
        return registry.find(name)
    except PluginError as error:
        raise ConfigError(f"{where}: {error}") from error


@functools.cache
def _serves(kind: type[Plugin], base: type[Plugin]) -> bool:
    """Whether plugins of `kind` serve the extension point. `issubclass` of abstract classes is slow."""
    return issubclass(kind, base)


def _at_point(  # noqa: PLR0917 all six are different things
    multi: Sequence[tuple[PluginRef, type[Plugin]]],
    listed: PluginSet,
    kind: str,
    base: type[Plugin],
    where: str,
    registry: Registry,
) -> list[PluginRef]:
    """Plugins of one point in running order (FWK-R2): listed multi-point, other multi-point, other listed."""
    seen: set[str] = set()
    for ref in listed.enabled:
        if not issubclass(_find(registry, ref.name, where, f'{kind} "{ref.name}"').kind, base):
            raise ConfigError(f'{where}: plugin "{ref.name}" does not extend {kind} plugin')
        if ref.name in seen:
            raise ConfigError(f'{where}: plugin "{ref.name}" already registered as "{kind}"')
        seen.add(ref.name)
    dropped = {ref.name for ref in listed.disabled}
    expanded = {
        ref.name: ref
        for ref, served in multi
        if _serves(served, base) and (ref.name in seen or not (EVERYTHING in dropped or ref.name in dropped))
    }
    first = [
        PluginRef(ref.name, ref.weight or expanded[ref.name].weight) for ref in listed.enabled if ref.name in expanded
    ]
    middle = [ref for ref in expanded.values() if ref.name not in seen]
    last = [ref for ref in listed.enabled if ref.name not in expanded]
    return [*first, *middle, *last]


def _arguments(profile: ProfileConfig, where: str, used: set[str], registry: Registry) -> dict[str, Args]:
    arguments: dict[str, Args] = {}
    for index, config in enumerate(profile.plugin_config):
        path = f"{where}.pluginConfig[{index}]"
        if config.name in arguments:
            raise ConfigError(f"{path}: repeated config for plugin {config.name}")
        kind = _find(registry, config.name, path, f"plugin {config.name!r}").args
        if kind is None:
            if config.args:
                raise ConfigError(f"{path}.args: plugin {config.name} takes no arguments")
            continue
        try:
            result = msgspec.convert(config.args or {}, kind)
            result.check()
        except msgspec.ValidationError as error:
            raise ConfigError(f"{path}.args: {config.name}: {readable(error, config.args)}") from error
        except ValueError as error:
            raise ConfigError(f"{path}.args: {config.name}: {error}") from error
        if result.kind and result.kind != f"{config.name}Args":
            raise ConfigError(f"{path}.args.kind: expected {config.name}Args, found {result.kind}")
        arguments[config.name] = result
    return {plugin: argument for plugin, argument in arguments.items() if plugin in used}
