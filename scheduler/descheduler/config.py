"""DeschedulerConfiguration: parsing and validation. Errors name the field, what was expected and what was found."""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import yaml

from seatrial.scheduler.api.wire import LabelSelector
from seatrial.scheduler.api.wrong_values import readable
from seatrial.scheduler.api.yaml_files import load_yaml
from seatrial.scheduler.client.leader import LeaderElection
from seatrial.scheduler.descheduler.args import (
    Args,
    ArgsError,
    MigrationControllerArgs,
    check_duration,
    check_selector,
    read_args,
)
from seatrial.scheduler.descheduler.default_evictor import DefaultEvictorArgs
from seatrial.scheduler.descheduler.framework import Balance, Deschedule, Evictor, Plugin
from seatrial.scheduler.descheduler.plugins.registry import PLUGINS, installed, load_installed
from seatrial.scheduler.framework.entry_points import PluginError

KIND, GROUP = "DeschedulerConfiguration", "descheduler/"
MIGRATION_CONTROLLER, DEFAULT_EVICTOR = "MigrationController", "DefaultEvictor"
EVICTORS = (MIGRATION_CONTROLLER, DEFAULT_EVICTOR)
POINTS = ("deschedule", "balance", "evict", "filter")
DEFAULT_PROFILE = "koord-descheduler"
DEFAULT_INTERVAL = "120s"


class ConfigError(ValueError):
    """The configuration cannot be used. The message has the field and the reason."""


class _Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", kw_only=True):
    pass


class PluginRef(_Struct, frozen=True):
    """A plugin that a profile enables or disables."""

    name: str


class PluginSet(_Struct, frozen=True):
    """The plugins that are enabled and disabled at one extension point."""

    enabled: tuple[PluginRef, ...] = ()
    disabled: tuple[PluginRef, ...] = ()


class Plugins(_Struct, frozen=True):
    """The plugin sets of a profile, by extension point."""

    deschedule: PluginSet = PluginSet()
    balance: PluginSet = PluginSet()
    evict: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()


class PluginConfig(_Struct, frozen=True):
    """A plugin's arguments."""

    name: str
    args: Any = None


class ProfileConfig(_Struct, frozen=True):
    """One profile."""

    name: str = ""
    plugin_config: tuple[PluginConfig, ...] = ()
    node_selector: LabelSelector | None = None
    plugins: Plugins = Plugins()


class Configuration(_Struct, frozen=True):
    """The file as given. Connection and address settings are flags of the process here; they are accepted."""

    api_version: str = ""
    kind: str = ""
    descheduling_interval: str = DEFAULT_INTERVAL
    dry_run: bool = False
    node_selector: LabelSelector | None = None
    max_no_of_pods_to_evict_per_node: int | None = None
    max_no_of_pods_to_evict_per_namespace: int | None = None
    max_no_of_pods_to_evict_total: int | None = None
    leader_election: LeaderElection = LeaderElection(
        resource_name="koord-descheduler", resource_namespace="koordinator-system"
    )
    client_connection: Any = None
    healthz_bind_address: str = ""
    metrics_bind_address: str = ""
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    profiles: tuple[ProfileConfig, ...] = ()

    @property
    def interval(self) -> float:
        """Seconds between two rounds; 0: one round."""
        return check_duration("deschedulingInterval", self.descheduling_interval)


@dataclass(frozen=True, slots=True)
class Profile:
    """A checked profile."""

    name: str
    node_selector: LabelSelector | None
    deschedule: Sequence[tuple[type[Plugin], Args]]
    balance: Sequence[tuple[type[Plugin], Args]]
    evictor: str
    filters: Sequence[str]
    migration: MigrationControllerArgs
    default_evictor: DefaultEvictorArgs
    evictors: Mapping[str, tuple[type[Evictor], Args]] = field(default_factory=dict)  # of other packages, by name


def load(path: Path) -> Configuration:
    """
    Raises:
        ConfigError: the file cannot be used.
    """
    try:
        return parse(load_yaml(path.read_bytes()))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: expected a {KIND} file ({error})") from error


def parse(text: Any) -> Configuration:
    """A configuration from plain data.

    Raises:
        ConfigError: it cannot be used.
    """
    if not isinstance(text, dict) or text.get("kind") != KIND:
        kind = text.get("kind") if isinstance(text, dict) else type(text).__name__
        raise ConfigError(f"kind: expected {KIND}, found {kind!r}")
    if not str(text.get("apiVersion", "")).startswith(GROUP):
        raise ConfigError(f"apiVersion: expected {GROUP}v1alpha2, found {text.get('apiVersion')!r}")
    election = {
        "resourceName": "koord-descheduler",
        "resourceNamespace": "koordinator-system",
        **(text.get("leaderElection") or {}),
    }
    try:
        kind = msgspec.convert({**text, "leaderElection": election}, Configuration)
        kind.leader_election.check()
    except msgspec.ValidationError as error:
        raise ConfigError(readable(error, {**text, "leaderElection": election})) from error
    except ValueError as error:
        raise ConfigError(f"leaderElection.{error}") from error
    for scope in ("per_node", "per_namespace", "total"):
        value = getattr(kind, f"max_no_of_pods_to_evict_{scope}")
        if value is not None and value < 0:
            raise ConfigError(f"maxNoOfPodsToEvict ({scope}): expected 0 or more, found {value}")
    _check_connection(kind)
    expand(kind)
    return kind


def _check_connection(configuration: Configuration) -> None:
    """Refuse what Koordinator refuses, though flags of the process decide here."""
    connection = configuration.client_connection
    if connection is not None and not isinstance(connection, dict):
        raise ConfigError(f"clientConnection: expected a map, found {connection!r:.80}")
    burst = (connection or {}).get("burst", 0)
    if not isinstance(burst, int) or burst < 0:
        raise ConfigError(f"clientConnection.burst: expected 0 or more, found {burst!r}")
    for field_name, text in (
        ("healthzBindAddress", configuration.healthz_bind_address),
        ("metricsBindAddress", configuration.metrics_bind_address),
    ):
        if text and not _is_address(text):
            raise ConfigError(f"{field_name}: expected an address with its port such as 0.0.0.0:10251, found {text!r}")


def _is_address(text: str) -> bool:
    """Whether it is `host:port`, `:port`, or an IP address, which gets the default port."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        host, separator, port = text.rpartition(":")
        return bool(separator and port) and (":" not in host or (host[0], host[-1]) == ("[", "]"))
    return True


def expand(configuration: Configuration) -> list[Profile]:
    """The profiles with their plugins and arguments.

    Raises:
        ConfigError: a plugin does not exist, or its arguments are wrong.
    """
    try:
        _ = configuration.interval
        check_selector("nodeSelector", configuration.node_selector)
        for number, profile in enumerate(configuration.profiles):
            check_selector(f"profiles[{number}].nodeSelector", profile.node_selector)
    except ArgsError as error:
        raise ConfigError(str(error)) from error
    profiles = configuration.profiles or (ProfileConfig(),)
    names = [profile.name or (DEFAULT_PROFILE if len(profiles) == 1 else "") for profile in profiles]
    if "" in names or len(set(names)) < len(names):
        raise ConfigError(f"profiles: expected a name of its own for each, found {names}")
    return [_expand(profile, name) for profile, name in zip(profiles, names, strict=True)]


def _expand(profile: ProfileConfig, name: str) -> Profile:
    where = f"profile {name}"
    by_entry: dict[str, Any] = {}
    for entry in profile.plugin_config:
        if entry.name in by_entry:
            raise ConfigError(f"{where}: pluginConfig: {entry.name} is given twice")
        if entry.name not in PLUGINS and entry.name not in EVICTORS and entry.name not in installed():
            raise ConfigError(f"{where}: pluginConfig: no plugin {entry.name!r}; there are: {', '.join(_known())}")
        by_entry[entry.name] = entry.args
    evictors = _names(profile.plugins.evict, (MIGRATION_CONTROLLER,))
    if not evictors:
        raise ConfigError(f"{where}: no evict plugin is enabled")
    if len(evictors) > 1:
        raise ConfigError(f"{where}: only one evict plugin can be enabled")
    filters = _names(profile.plugins.filter, (MIGRATION_CONTROLLER,))
    others = {
        evictor: _other_evictor(where, evictor, by_entry)
        for evictor in (*evictors, *filters)
        if evictor not in EVICTORS
    }
    return Profile(
        name=name,
        node_selector=profile.node_selector,
        deschedule=_plugins(where, profile.plugins.deschedule, Deschedule, by_entry),
        balance=_plugins(where, profile.plugins.balance, Balance, by_entry),
        evictor=evictors[0],
        filters=filters,
        migration=_args(where, MIGRATION_CONTROLLER, MigrationControllerArgs, by_entry),
        default_evictor=_args(where, DEFAULT_EVICTOR, DefaultEvictorArgs, by_entry),
        evictors=others,
    )


def _other_evictor(where: str, name: str, values: dict[str, Any]) -> tuple[type[Evictor], Args]:
    """An evictor of another package, with its arguments."""
    kind = _of_other_package(where, name)
    if kind is None or not issubclass(kind, Evictor):
        raise ConfigError(f"{where}: no evict or filter plugin {name!r}; there are: {', '.join(EVICTORS)}")
    return kind, _args(where, name, kind.args, values)


def _of_other_package(where: str, name: str) -> type[Plugin] | type[Evictor] | None:
    points = installed()
    try:
        return load_installed(name, points[name]) if name in points else None
    except PluginError as error:
        raise ConfigError(f"{where}: {error}") from error


def _names(listed: PluginSet, default: Sequence[str]) -> list[str]:
    """The enabled plugins: defaults without the disabled ones, then what is enabled besides (RSV-R76)."""
    disabled = {entry.name for entry in listed.disabled}
    enabled = [entry.name for entry in listed.enabled]
    kept = [] if "*" in disabled else [name for name in default if name not in disabled]
    return [*kept, *(name for name in enabled if name not in kept)]


def _plugins(
    where: str, listed: PluginSet, kind: type[Plugin], values: dict[str, Any]
) -> list[tuple[type[Plugin], Args]]:
    plugins = []
    for name in _names(listed, ()):
        plugin = PLUGINS.get(name) or _of_other_package(where, name)
        if plugin is None or not issubclass(plugin, kind):
            there = ", ".join(known for known in sorted(PLUGINS) if issubclass(PLUGINS[known], kind))
            raise ConfigError(f"{where}: no {kind.__name__.lower()} plugin {name!r}; there are: {there}")
        plugins.append((plugin, _args(where, name, plugin.args, values)))
    return plugins


def _args(where: str, name: str, kind: type[Any], values: dict[str, Any]) -> Any:
    try:
        return read_args(kind, values.get(name))
    except ArgsError as error:
        raise ConfigError(f"{where}: arguments of {name}: {error}") from error


def _known() -> list[str]:
    return sorted({*PLUGINS, *EVICTORS, *installed()})
