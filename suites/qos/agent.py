"""A node whose agent runs over a fake root: the case says what its pods use, and reads what the agent writes."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fake_devices.noderoot import IN_MEMORY, NodeRoot
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.agent_rules import AgentView, agent_breaches
from seatrial.harness.subject.foreign_koordlet import running_foreign_koordlet
from seatrial.harness.subject.koordlet import running_koordlet
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, QOS_LABEL

CPUS, MEMORY = 8, 16 << 30
ROUND = 12  # seconds in which an agent has written what pods have by their annotations
SEEN = 4  # seconds in which an agent has seen all and written what follows
LAG = 6  # seconds more in which Koordinator's agent has measured a new pod: it asks the kubelet each second
COOL = 21  # seconds from its start in which Koordinator's agent evicts nobody for CPU, as after an eviction
GI = 1 << 30
BESTEFFORT = "kubepods/besteffort"
SUPPRESS = {"enable": True, "cpuSuppressThresholdPercent": 65}
_KINDS = {"Guaranteed": "", "Burstable": "burstable", "BestEffort": "besteffort"}


StartAgent = Callable[..., "AgentNode"]


class AgentNode:
    """A node of 8 CPUs and 16 GiB, with cgroup v1."""

    def __init__(self, trial: Trial, expect: Expect, root: NodeRoot, name: str, lag: int = 0) -> None:
        """`lag`: seconds more that pass after pods were started."""
        self._trial, self._expect, self.root, self.name = trial, expect, root, name
        self._lag, self._late = lag, 0
        self._load: dict[str, tuple[float, int]] = {}  # group → cores, bytes
        self._containers: dict[str, list[str]] = {}  # by the group of the pod
        self._uids: dict[str, str] = {}  # likewise
        self._throttled: dict[str, tuple[int, int]] = {}
        self._pods: dict[str, Pod] = {}  # by uid
        self._suppressing = self._lifted = False
        self._ages: dict[str, int] = {}  # seconds that a group is there with these settings, by uid
        self.system = 0.0  # cores

    def slo(self, **blocks: Any) -> None:
        """Make or replace the NodeSLO of the node."""
        threshold = blocks.get("resourceUsedThresholdWithBE", {})
        by_quota = threshold.get("cpuSuppressPolicy", "cpuset") != "cpuset"
        self._suppressing = bool(threshold.get("enable")) and not by_quota
        self._lifted = bool(threshold.get("enable")) and by_quota
        self._ages.clear()
        body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": self.name}}
        path = self._trial.path("NodeSLO", self.name)
        if self._trial.call("GET", path).code == 404:
            self._trial.apply({**body, "spec": blocks})
        else:
            self._trial.call("PATCH", path, {"spec": blocks})

    def run(self, pod: PodBuilder, *, cores: float = 0.0, memory: int = 0) -> str:
        """Start a pod on the node, which then uses so much. Returns its control group."""
        self._trial.submit(pod.node_name(self.name))
        pods: Pod = self._expect.running(pod.name)
        self._pods[pods.metadata.uid] = pods
        raw = self._raw(pod.name)
        ids = [each["containerID"].partition("://")[2] for each in raw["status"]["containerStatuses"]]
        folder = self.root.pod(_KINDS[raw["status"]["qosClass"]], pods.metadata.uid, *ids)
        self._containers[folder] = [self.root.container(folder, each) for each in ids]
        self._uids[folder] = pods.metadata.uid
        self._load[folder] = (cores, memory)
        self._late = self._lag
        return folder

    def container(self, folder: str) -> str:
        """The group of the only container of a pod."""
        return self.containers(folder)[0]

    def containers(self, folder: str) -> list[str]:
        """The groups of the containers of a pod."""
        return self._containers[folder]

    def uses(self, folder: str, cores: float, memory: int = 0) -> None:
        """From now on."""
        self._load[folder] = (cores, memory)

    def throttles(self, folder: str, periods: int, throttled: int) -> None:
        """In each second from now on."""
        self._throttled[folder] = (periods, throttled)

    def pass_time(self, seconds: int) -> None:
        """Let the pods use what they do for some seconds."""
        seconds, self._late = seconds + self._late, 0
        for _ in range(seconds):
            self.root.busy += self.system
            self.root.memory_used = sum(memory for _, memory in self._load.values())
            for folder, (cores, memory) in self._load.items():
                self.root.use(folder, cores, memory)
            for folder, counts in self._throttled.items():
                self.root.throttle(folder, *counts)
            self.root.refresh()
            self._trial.pass_time(1.0)
        for uid in self._pods:
            self._ages[uid] = self._ages.get(uid, 0) + seconds
        if seconds >= SEEN:
            self.judge()

    def judge(self) -> None:
        """Check the invariants of a node agent, which has seen everything by now."""
        below = self.root.cgroup / "cpuset"
        cpusets = below.glob(f"{self.root.of_class('besteffort')}/**/cpuset.cpus")
        groups = [str(path.parent.relative_to(below)) for path in cpusets]
        view = AgentView(
            pods=self._pods,
            best_effort_cpus={group: self.cpus(group) for group in groups},
            suppressing=self._suppressing,
            evicted=frozenset(uid for uid, pod in self._pods.items() if self._evicted(pod)),
            quotas={
                uid: (
                    self.number(folder, "cpu.shares"),
                    self.number(folder, "cpu.cfs_quota_us"),
                    self.number(folder, "memory.limit_in_bytes", "memory"),
                )
                for folder, uid in self._uids.items()
                if self._ages.get(uid, 0) >= ROUND
                and EXTENDED_RESOURCE_SPEC in self._pods[uid].metadata.annotations
                and self._pods[uid].metadata.labels.get(QOS_LABEL) == "BE"
            },
            lifted=self._lifted,
        )
        breaches = agent_breaches(view)
        assert not breaches, "; ".join(breaches)

    def _evicted(self, pod: Pod) -> bool:
        return any(event.reason == "evictPodSuccess" for event in self._trial.events(pod.metadata.name))

    def cpus(self, folder: str) -> str:
        return self.root.read(folder, "cpuset.cpus", "cpuset")

    def number(self, folder: str, name: str, subsystem: str = "cpu") -> int:
        return int(self.root.read(folder, name, subsystem))

    def _raw(self, name: str) -> dict[str, Any]:
        pod: dict[str, Any] = orjson.loads(self._trial.call("GET", self._trial.path("Pod", name)).body)
        return pod


@contextmanager
def agent_node(
    trial: Trial,
    expect: Expect,
    *gates: str,
    anolis: bool = False,
    kernel: str = "",
    foreign: str = "",
    numa_nodes: int = 1,
    systemd: bool = False,
) -> Iterator[AgentNode]:
    """A node with its agent, for which these features are switched on; `anolis`: its kernel has group identities;
    `systemd`: kubelet names groups by this driver;
    `kernel`: what other agents than ours do on a kernel alone; `foreign`: the command line of such an agent."""
    if foreign and kernel:
        pytest.skip(f"needs a kernel with {kernel}: this agent does it by system calls, or expects files of the kernel")
    trial.add(node("n1").cpu(CPUS).memory(str(MEMORY)))
    with TemporaryDirectory(prefix="seatrial-root-", dir=IN_MEMORY) as folder:
        root = NodeRoot(Path(folder), cpus=CPUS, memory=MEMORY, anolis=anolis, nodes=numa_nodes, systemd=systemd)
        running = (
            running_foreign_koordlet(trial.cluster, foreign, "n1", Path(folder), *gates)
            if foreign
            else running_koordlet(trial.cluster, "n1", Path(folder), *gates)
        )
        with running:
            agent_node = AgentNode(trial, expect, root, "n1", LAG if foreign else 0)
            if foreign and {"BECPUEvict", "CPUEvict"} & set(gates):
                agent_node.pass_time(COOL)
            yield agent_node
            agent_node.judge()


@pytest.fixture
def start_agent(request: pytest.FixtureRequest, trial: Trial, expect: Expect) -> Iterator[StartAgent]:
    """Starts a node with its agent; the names of features switch them on."""
    foreign = request.config.getoption("--seatrial-agent")
    if request.config.getoption("--seatrial-manager") and not foreign:
        pytest.skip("judges the node agent")
    with ExitStack() as running:
        yield lambda *gates, **more: running.enter_context(agent_node(trial, expect, *gates, foreign=foreign, **more))


def announced(file: str, kind: str, name: str = "") -> dict[str, Any]:
    """An object in a manifest of a release post."""
    path = suites_folder() / "manifests" / file
    document: dict[str, Any] = next(
        each
        for each in yaml.safe_load_all(path.read_bytes())
        if each["kind"] == kind and name in {"", each["metadata"]["name"]}
    )
    return document


def prod(name: str, cpu: int = 1) -> PodBuilder:
    return pod(name).request(cpu=cpu).qos("LS").label(PRIORITY_CLASS_LABEL, "koord-prod")


def best_effort(name: str) -> PodBuilder:
    return pod(name).qos("BE").label(PRIORITY_CLASS_LABEL, "koord-batch")


def batch(name: str, cpu: int, limit: int = 0) -> PodBuilder:
    """A pod that requests thousandths of a core by its annotation alone: this node offers none. `limit`: by default as
    much."""
    requests, limits = (
        {"kubernetes.io/batch-cpu": str(each), "kubernetes.io/batch-memory": "1Gi"} for each in (cpu, limit or cpu)
    )
    spec = {"containers": {"main": {"requests": requests, "limits": limits}}}
    return best_effort(name).annotation(EXTENDED_RESOURCE_SPEC, json.dumps(spec))
