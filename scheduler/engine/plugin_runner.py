"""Runs the plugins of one profile: Filter, Reserve, Permit and PostBind for one pod and one node."""

from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo, PodInfo
from seatrial.scheduler.framework.extension_points import (
    NO_METADATA_CHANGES,
    Filter,
    Gate,
    MetadataChanges,
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
    Transformer,
    VictimAware,
)
from seatrial.scheduler.framework.groups import GroupScheduling
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.preparation import merged
from seatrial.scheduler.framework.restored import as_seen
from seatrial.scheduler.framework.state import SKIPPED, CycleState
from seatrial.scheduler.framework.status import SUCCESS, Code, Status
from seatrial.scheduler.framework.timing import PERMIT, POST_BIND, PRE_BIND, PRE_ENQUEUE, RESERVE, UNRESERVE


@dataclass(frozen=True, slots=True)
class Profile:
    """A profile with its plugins, in the order in which each extension point runs them."""

    scheduler_name: str
    pre_enqueue: Sequence[PreEnqueue]
    queue_sort: QueueSort
    pre_filter: Sequence[PreFilter]
    filter: Sequence[Filter]
    post_filter: Sequence[PostFilter]
    score: Sequence[tuple[Score, int]]
    reserve: Sequence[Reserve]
    permit: Sequence[Permit]
    pre_bind: Sequence[PreBind]
    post_bind: Sequence[PostBind]
    all: Sequence[Plugin]


MAX_GATE_LISTS = 65536  # remembered at a time; pods of one quota share a list


class PluginRunner:
    """Runs a profile's plugins."""

    def __init__(self, profile: Profile, handle: Handle) -> None:
        self.profile = profile
        self.handle = handle
        self.scheduler_name = profile.scheduler_name
        self.pre_filters = profile.pre_filter
        self.filters = profile.filter
        self.scores = profile.score
        self.gates = [plugin for plugin in profile.all if isinstance(plugin, Gate)]
        self.groups = next((plugin.groups for plugin in profile.all if isinstance(plugin, GroupScheduling)), None)
        # A node takes no more pods than its free resources allow.
        self.requests_bound = any(plugin.limits_by_requests for plugin in profile.filter)
        self.transformers = [plugin for plugin in profile.all if isinstance(plugin, Transformer)]
        self._gate_lists: dict[tuple[tuple[Gate, str], ...], tuple[tuple[Gate, str], ...]] = {}  # each kept once
        self._reserving = [plugin for plugin in profile.reserve if plugin.reserves]
        self._reserve_on = [(plugin.acts_on, plugin) for plugin in self._reserving]
        self._pre_bind_on = [(plugin.acts_on, plugin) for plugin in profile.pre_bind]
        self._victim_aware = [plugin for plugin in profile.all if isinstance(plugin, VictimAware)]

    @property
    def plugins(self) -> Sequence[Plugin]:
        """All plugins of the profile."""
        return self.profile.all

    def pre_enqueue(self, pod: Pod) -> Status:
        """Whether the pod may enter the queue, or why not."""
        return self.handle.timing.of_point(PRE_ENQUEUE, self.scheduler_name, self._pre_enqueue, pod)

    def _pre_enqueue(self, pod: Pod) -> Status:
        for plugin in self.profile.pre_enqueue:
            try:
                status = plugin.pre_enqueue(pod)
            except Exception as error:  # noqa: BLE001 the pod is asked again after a pause
                return Status.error(self._record(error, pod)).by(plugin.name)
            if status is not SUCCESS and not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def gates_of(self, pod: Pod) -> tuple[tuple[Gate, str], ...]:
        """The gates that concern a pod, with their wake keys."""
        if not self.gates:
            return ()
        gates = tuple((gate, key) for gate in self.gates if (key := gate.gate_key(pod)))
        if len(self._gate_lists) >= MAX_GATE_LISTS:
            self._gate_lists.clear()
        return self._gate_lists.setdefault(gates, gates)

    def closed_gate(self, info: PodInfo) -> Status | None:
        """The status of the first gate that holds the pod back, for explanations."""
        for gate, _ in self.gates_of(info.pod):
            status = gate.gate(info)
            if not status.ok:
                return status.by(gate.name)
        return None

    def check(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        """Run the filters in order on one node. The first rejection is returned (FWK-R17)."""
        skipped = state[SKIPPED]
        for plugin in self.filters:
            if plugin.name in skipped:
                continue
            status = plugin.filter(state, pod, node)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def check_with_nominated(self, state: CycleState, info: PodInfo, node: NodeInfo) -> Status:
        """Run the filters with nominated pods of equal or higher priority on the node, then without them (FWK-R16)."""
        state, node = as_seen(state, node)
        others = [
            other
            for other in self.handle.nominator.on(node.name)
            if other.uid != info.uid and other.priority >= info.priority and other.uid not in node.pods
        ]
        if others and self.handle.groups is not None:
            own = self.handle.groups.key_of(info.pod)
            if own:  # members of one group do not hold room against each other (GANG-R87)
                others = [other for other in others if self.handle.nominator.group_of(other.uid) != own]
        if others:
            crowded, inner = node.copy(), state.fork()
            for other in others:
                crowded.add(other)
                self.returned(inner, other, crowded)
            status = self.check(inner, info.pod, crowded)
            if not status.ok:
                return status
        return self.check(state, info.pod, node)

    def removed(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Notify the filters with their own state that `victim` is removed from `node`, a copy."""
        for plugin in self._victim_aware:
            plugin.victim_removed(state, victim, node)

    def returned(self, state: CycleState, victim: PodInfo, node: NodeInfo) -> None:
        """Notify them that `victim` is on `node` again."""
        for plugin in self._victim_aware:
            plugin.victim_returned(state, victim, node)

    def reserve(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Run the Reserve plugins. A rejection runs Unreserve of all."""
        timing = self.handle.timing
        paused = timing.paused
        for key, plugin in self._reserve_on:
            if key is not None and key not in state:
                continue
            if paused:
                status = plugin.reserve(state, pod, node_name)
            else:
                status = timing.ask(RESERVE, plugin, plugin.reserve, state, pod, node_name)
            if status is not SUCCESS and not status.ok:
                self.unreserve(state, pod, node_name)
                return status.by(plugin.name)
        return SUCCESS

    def permit(self, state: CycleState, pod: Pod, node_name: str) -> Status:
        """Run the Permit plugins after Reserve, as upstream's RunPermitPlugins; the first rejection runs Unreserve.

        Wait, with `waits`: the pod keeps its place until these plugins allow it.
        """
        timing = self.handle.timing
        waits: list[tuple[str, float]] = []
        for plugin in self.profile.permit:
            if timing.paused:
                status = plugin.permit(state, pod, node_name)
            else:
                status = timing.ask(PERMIT, plugin, plugin.permit, state, pod, node_name)
            if status.code is Code.WAIT:
                waits.append((plugin.name, status.seconds))
            elif not status.ok:
                self.unreserve(state, pod, node_name)
                return status.by(plugin.name)
        return Status(Code.WAIT, waits=tuple(waits)) if waits else SUCCESS

    def pre_bind(self, state: CycleState, pod: Pod, node_name: str) -> MetadataChanges:
        """What the PreBind plugins want written with the binding."""
        timing, changes = self.handle.timing, NO_METADATA_CHANGES
        paused = timing.paused
        for key, plugin in self._pre_bind_on:
            if key is not None and key not in state:
                continue
            if paused:
                more = plugin.pre_bind(state, pod, node_name)
            else:
                more = timing.ask(PRE_BIND, plugin, plugin.pre_bind, state, pod, node_name)
            if more is not NO_METADATA_CHANGES:
                changes = more if changes is NO_METADATA_CHANGES else _merged(changes, more)
        return changes

    def post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Call the PostBind plugins: the API server accepted the binding."""
        self.handle.timing.of_point(POST_BIND, self.scheduler_name, self._post_bind, state, pod, node_name)

    def _post_bind(self, state: CycleState, pod: Pod, node_name: str) -> None:
        for plugin in self.profile.post_bind:
            try:
                plugin.post_bind(state, pod, node_name)
            except Exception as error:  # noqa: BLE001 the pod is bound; the other plugins are called
                self._record(error, pod)

    def unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        """Call Unreserve of all plugins, the last first, also where one of them raises an exception."""
        self.handle.timing.of_point(UNRESERVE, self.scheduler_name, self._unreserve, state, pod, node_name)

    def _unreserve(self, state: CycleState, pod: Pod, node_name: str) -> None:
        for plugin in reversed(self._reserving):
            try:
                plugin.unreserve(state, pod, node_name)
            except Exception as error:  # noqa: BLE001 the other plugins give back what they took
                self._record(error, pod)

    def _record(self, error: Exception, pod: Pod) -> str:
        return self.handle.plugin_errors.record(error, f"pod={pod.key}")


def _merged(changes: MetadataChanges, other: MetadataChanges) -> MetadataChanges:
    return MetadataChanges(
        {**changes.annotations, **other.annotations},
        {**changes.labels, **other.labels},
        {**changes.node_annotations, **other.node_annotations},
        merged(changes.preparation, other.preparation),
        changes.stale + other.stale,
    )
