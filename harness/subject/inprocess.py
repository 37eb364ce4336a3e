"""Our own scheduler in this process: the only module of the harness that imports `seatrial.scheduler.app`.

`InProcess` is the whole scheduler on a cluster's simulated time; `BareCore` its decisions alone, for benchmarks.
"""

import functools
import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec.structs import replace

from seatrial.harness.clusters.fault_injection.transport import FaultyTransport, Link
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.subject.footprint import objects_of
from seatrial.harness.subject.protocol import IN_PROCESS, Subject
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import DEFAULT_SCHEDULER, Node, Pod, PodResourceClaimStatus, PodSpec, PodStatus
from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.networktopology import ClusterNetworkTopology
from seatrial.scheduler.api.quota import ElasticQuota
from seatrial.scheduler.api.resourceclaims import CLAIMS_PATH, GROUP_PATH
from seatrial.scheduler.api.slo import NodeMetric
from seatrial.scheduler.api.transport import Response
from seatrial.scheduler.api.wire import ObjectMeta, WatchEvent, decoder
from seatrial.scheduler.app import (
    Bind,
    ConfigError,
    Configuration,
    Elector,
    Evict,
    Shell,
    build_candidate,
    build_core,
    build_routes,
    build_shell,
    default_configuration,
    kernel_in_use,
    load,
    parse,
)

LOG_LINES = 2000
ERROR_INJECTION = "ErrorInjection"  # the plugin that raises where a pod asks for it


def _loaded(config: Path) -> Configuration:
    """
    Raises:
        ConfigError: the file cannot be read or used.
    """
    try:
        content = config.read_bytes()
    except OSError:
        content = b""  # `load` has the reason
    return _load_once(config, content)


def check_file(config: Path) -> None:
    """
    Raises:
        UsageError: the file is no KubeSchedulerConfiguration that our scheduler can use.
    """
    try:
        build_core(_loaded(config), SimClock())
    except ConfigError as error:
        raise UsageError(f"--scheduler-config: {error}") from error


@functools.lru_cache(maxsize=8)
def _load_once(config: Path, _content: bytes) -> Configuration:
    """Reading the suites' configuration takes 5 ms; each case in virtual time starts a scheduler with it."""
    return load(config)


def _with_profiles(configuration: Configuration, names: Collection[str]) -> Configuration:
    first, *others = configuration.profiles
    kept = [profile for profile in others if profile.scheduler_name in {DEFAULT_SCHEDULER, *names}]
    return replace(configuration, profiles=(first, *kept))


class _Kept(logging.Handler):
    """Keeps the last lines that the scheduler logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname).1s %(name)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))
        del self.lines[:-LOG_LINES]


class InProcess(Subject):
    """Runs while entered."""

    name = IN_PROCESS
    version = "this checkout"

    def __init__(
        self, cluster: Cluster, *, seed: int = 0, config: Path | None = None, profiles: Collection[str] | None = None
    ) -> None:
        """
        Args:
            cluster: A cluster in virtual time.
            seed: For tie-breaks.
            config: A KubeSchedulerConfiguration file.
            profiles: The profiles of `config` that are needed beside the first one and the one for `default-scheduler`;
                None for all. A profile takes half a millisecond to build.

        Raises:
            UsageError: `config` is no configuration that the scheduler can use.
        """
        self._cluster, self._seed = cluster, seed
        self._link = FaultyTransport(cluster.transport, cluster.clock)
        try:
            self._configuration = _loaded(config) if config is not None else default_configuration()
            if profiles is not None:
                self._configuration = _with_profiles(self._configuration, profiles)
            self._build()
        except ConfigError as error:
            raise UsageError(f"--scheduler-config: {error}") from error
        self._kept = _Kept()
        self._logger = logging.getLogger("seatrial.scheduler")
        self._level = self._logger.level

    def _build(self) -> None:
        clock = self._cluster.clock
        self._alive = True
        self._shell = build_shell(self._link, clock, configuration=self._configuration, seed=self._seed)
        self._routes = build_routes(self._shell, self._configuration)

    def __enter__(self) -> Self:
        self._logger.addHandler(self._kept)
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)  # as the process has it
        self._shell.start()
        if not self._cluster.wait(lambda: self._shell.ready, within=60):
            self.__exit__(None, None, None)
            raise SubjectError("the scheduler did not see the whole cluster within 60 s\n" + self.log())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shell.stop()
        self._logger.removeHandler(self._kept)
        self._logger.setLevel(self._level)  # a case may have changed it

    def ask(self, method: str, path: str, body: bytes = b"") -> Response | None:
        if not self._alive:
            return Response(0, b"the scheduler in this process was ended")
        answer = self._routes.answer(method, path, body)
        return Response(answer.code, answer.body, {"Content-Type": answer.content_type})

    def kill(self) -> None:
        self._link.die()
        self._shell.stop()
        self._alive = False

    def start_again(self) -> None:
        self._logger.removeHandler(self._kept)
        self._logger.setLevel(self._level)
        self._link.begin_again()
        self._build()
        self.__enter__()

    @property
    def link(self) -> Link:
        """Its connection to the API server, which can be made to fail."""
        return self._link

    @contextmanager
    def troubled(self) -> Iterator[Link]:
        yield self._link

    @contextmanager
    def configured(self, config: Path) -> Iterator[None]:
        own, self._configuration = self._configuration, _loaded(config)
        try:
            self.kill()
            self.start_again()
            yield
        finally:
            self._configuration = own
            self.kill()
            self.start_again()

    def log(self) -> str:
        return "\n".join(self._kept.lines)

    def objects(self) -> Counter[str]:
        return objects_of(self._shell)

    def check(self) -> None:
        if not self._shell.ready:
            raise SubjectError("the scheduler in this process has stopped\n" + self.log())
        errors = self._shell.core.handle.plugin_errors.counts
        own = {origin: count for origin, count in errors.items() if origin[0] != ERROR_INJECTION}
        if own:
            raise SubjectError(f"plugins of the scheduler in this process raised exceptions: {own}\n{self.log()}")


class StandbyPair:
    """Two schedulers in this process: one leads, the other follows the cluster and takes over when it is killed."""

    def __init__(self, cluster: Cluster, *, seed: int = 0) -> None:
        self._cluster, self._seed, self._number = cluster, seed, 0
        self._members: dict[int, tuple[FaultyTransport, Shell, Elector]] = {}
        self.start_again()
        self.start_again()

    def start_again(self) -> None:
        """Start a scheduler beside the other one. If it loses its Lease it ends, and another one is started."""
        self._number += 1
        clock, number = self._cluster.clock, self._number
        link = FaultyTransport(self._cluster.transport, clock)

        def lost() -> None:
            self._end(number)
            self.start_again()

        shell, elector = build_candidate(link, clock, f"candidate-{number}", lost, seed=self._seed)
        self._members[number] = link, shell, elector
        shell.start()
        elector.start()

    def kill(self) -> None:
        """Kill the leader; where none leads, the one that was started first."""
        leaders = [number for number, (_, shell, _) in self._members.items() if shell.leading]
        self._end([*leaders, *self._members][0])

    def _end(self, number: int) -> None:
        link, shell, elector = self._members.pop(number)
        link.die()
        shell.stop()
        elector.stop()

    @property
    def links(self) -> list[Link]:
        """The connections of those that live to the API server."""
        return [link for link, _, _ in self._members.values()]


_decode_event = msgspec.json.Decoder(WatchEvent).decode
_decode_metric = decoder(NodeMetric)


class BareCore:
    """The core of our scheduler without anything around it; bindings succeed at once."""

    scheduler_name = DEFAULT_SCHEDULER
    namespace = "bench"

    def __init__(
        self, *, seed: int = 0, preempting_jobs: bool = False, configuration: dict[str, Any] | Path | None = None
    ) -> None:
        """`preempting_jobs`: with job-level preemption. `configuration`: a KubeSchedulerConfiguration or its file.

        Raises:
            UsageError: the scheduler cannot use `configuration`.
        """
        self._clock = SimClock()
        try:
            if isinstance(configuration, Path):
                document = load(configuration)
            elif configuration is not None:
                document = parse(configuration)
            else:
                document = default_configuration(DEFAULT_SCHEDULER, preempting_jobs=preempting_jobs)
            self._core = build_core(document, self._clock, seed=seed)
        except ConfigError as error:
            raise UsageError(f"--scheduler-config: {error}") from error
        self._claims: dict[str, dict[str, Any]] = {}  # those that have no devices, by path of their status
        self.evicted: list[str] = []
        self.bound: list[tuple[str, str]] = []
        """Names and nodes of the pods that `decide` has bound; the caller clears it."""
        self.last: tuple[str, Mapping[str, str]] = ("", {})
        """The node and the annotations of the pod that was bound last."""

    def add_node(self, node: dict[str, Any], device: dict[str, Any] | None = None) -> None:
        """Add a Node, and its Device object if it has one."""
        result = msgspec.convert(node, Node)
        self._core.intake.set_node(result)
        if device is not None:
            self._core.intake.set_device(result.name, msgspec.convert(device, Device))

    def add_object(self, path: str, claim: dict[str, Any]) -> None:
        """Add an object of a collection that a plugin follows; nothing is done if none does."""
        for watch in self._core.handle.watches:
            if watch.path == path:
                watch.on_set(msgspec.convert(claim, watch.kind))

    def add_network_topology(self, topology: dict[str, Any]) -> None:
        """Add the ClusterNetworkTopology, or change it."""
        self._core.intake.set_network_topology(msgspec.convert(topology, ClusterNetworkTopology))

    def receive_node_metric(self, line: bytes) -> None:
        """Decode a line of a watch of NodeMetrics and take it in, as the scheduler's informer does."""
        self._core.intake.set_node_metric(_decode_metric(_decode_event(line).object))

    def place(self, name: str, spec: PodSpec, node: str) -> None:
        """Add a pod that is on a node already."""
        self._core.intake.set_pod(
            Pod(ObjectMeta(name=name, namespace=self.namespace, uid=name), replace(spec, node_name=node))
        )

    def add_quota(self, quota: dict[str, Any]) -> None:
        """Add an ElasticQuota, or change it."""
        self._core.intake.set_quota(msgspec.convert(quota, ElasticQuota))

    def spec(self, spec: dict[str, Any]) -> PodSpec:
        """A pod spec to be shared by many pods, as those of one template share theirs."""
        return msgspec.convert(spec, PodSpec)

    def add_pod(
        self,
        name: str,
        spec: PodSpec,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        *,
        claim: dict[str, Any] | None = None,
    ) -> None:
        """Add a pod. `claim`: the ResourceClaim of its only entry, which has been made for it."""
        metadata = ObjectMeta(
            name=name, namespace=self.namespace, uid=name, labels=labels or {}, annotations=annotations or {}
        )
        status = PodStatus()
        if claim is not None:
            of = claim["metadata"]
            path = f"{GROUP_PATH}/namespaces/{of['namespace']}/resourceclaims/{of['name']}/status"
            self._claims[path] = claim
            self.add_object(CLAIMS_PATH, claim)
            entry = PodResourceClaimStatus(spec.resource_claims[0].name, of["name"])
            status = PodStatus(resource_claim_statuses=(entry,))
        self._core.intake.set_pod(Pod(metadata, spec, status))

    def remove_pod(self, name: str) -> None:
        self._core.intake.remove_pod(name)

    @property
    def kernel(self) -> str:
        """Whether scores of fragmentation are compiled, in words."""
        return kernel_in_use()

    def pause(self, seconds: float) -> None:
        """Move the clock, so that a part that backs off after a failure tries again."""
        self._clock.advance(seconds)

    @property
    def ready(self) -> bool:
        """Whether a pod waits for its first decision."""
        return self._core.busy

    def place_all(self) -> list[tuple[str, str]]:
        """Decide until nothing is ready; the names and nodes of the pods that were bound."""
        bound: list[tuple[str, str]] = []
        while self._core.busy:
            for decision in self._core.decide():
                if isinstance(decision, Bind):
                    self._core.bound(decision.info.uid)
                    bound.append((decision.info.pod.metadata.name, decision.node))
        return bound

    def decide(self) -> int:
        """Make one decision; the number of pods that were bound. The victims are in `evicted`."""
        bound = 0
        for decision in self._core.decide():
            if isinstance(decision, Evict):
                self.evicted.append(decision.victim.uid)
            if isinstance(decision, Bind):
                for patch in decision.preparation.patches if decision.preparation is not None else ():
                    claim = self._claims.pop(patch.path, {})
                    patch.answered(msgspec.json.encode({**claim, "status": patch.body.get("status")}))
                self._core.bound(decision.info.uid)
                self.last = decision.node, decision.annotations
                self.bound.append((decision.info.pod.metadata.name, decision.node))
                bound += 1
        return bound
