"""The node agent on this machine's own control groups: pods are processes, and the kernel does what is written.

Nothing here is simulated. Other programs of the machine count as the system: the figures need an idle machine.
"""

import itertools
import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.cpusets import parse_cpuset
from seatrial.harness.nodes.local_agent import CGROUP_ANNOTATION, LIMITS_ANNOTATION
from seatrial.harness.nodes.stress import command
from seatrial.harness.subject.koordlet import running_koordlet
from seatrial.harness.subject.services import free_port
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL
from seatrial.suites.qos.colocation import WITHIN

pytestmark = [pytest.mark.needs(Capability.CONTAINERS)]

PERIOD = 100_000  # microseconds
IDLE = 0.35  # of the machine: what other programs may use
SETTLE = 5.0  # seconds in which the agent has seen a change and written what follows
BESTEFFORT = "kubepods/besteffort"
GI, MI = 1 << 30, 1 << 20
QUOTA = "cpu.cfs_quota_us"


class Machine:
    """The only node, whose agent runs over the roots of this machine."""

    def __init__(self, trial: Trial, expect: Expect, name: str, parent: str, running: ExitStack) -> None:
        self._trial, self._expect, self.name, self.parent, self._running = trial, expect, name, parent, running
        self.cpus = len(parse_cpuset(Path("/sys/devices/system/cpu/online").read_text().strip()))
        self._root = Path("/sys/fs/cgroup")

    def start_agent(self, *gates: str, port: int = 0) -> "subprocess.Popen[bytes]":
        process = self._running.enter_context(
            running_koordlet(self._trial.cluster, self.name, Path("/"), *gates, parent=self.parent, port=port)
        )
        assert process is not None
        return process

    def slo(self, **blocks: object) -> None:
        """Make or change the NodeSLO of the node."""
        path = self._trial.path("NodeSLO", self.name)
        if self._trial.call("GET", path).code == 404:
            body = {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO", "metadata": {"name": self.name}}
            self._trial.apply({**body, "spec": blocks})
        else:
            assert self._trial.call("PATCH", path, {"spec": blocks}).ok

    def run(self, builder: PodBuilder, *load: str) -> str:
        """Start a pod that makes this load. Returns its control group."""
        builder.manifest["spec"]["containers"][0]["command"] = command(*load)
        builder.manifest["spec"]["terminationGracePeriodSeconds"] = 1
        self._trial.submit(builder.node_name(self.name))
        uid = self._expect.running(builder.name).metadata.uid
        groups = list(self._file("cpu", "kubepods").rglob(f"pod{uid}"))
        assert len(groups) == 1, f"expected one control group of pod {builder.name!r}, found {groups}"
        return str(groups[0].relative_to(self._file("cpu", "")))

    def _file(self, subsystem: str, path: str) -> Path:
        return self._root / subsystem / self.parent / path

    def text(self, folder: str, name: str, subsystem: str = "cpu") -> str:
        return self._file(subsystem, f"{folder}/{name}").read_text().strip()

    def number(self, folder: str, name: str = QUOTA, subsystem: str = "cpu") -> int:
        return int(self.text(folder, name, subsystem))

    def container(self, folder: str) -> str:
        """The group of the only container of a pod."""
        (only,) = (path for path in self._file("cpu", folder).iterdir() if path.is_dir())
        return f"{folder}/{only.name}"

    def cores(self, folder: str, seconds: float = 2.0) -> float:
        """What a group uses from now on."""
        before, begin = self.number(folder, "cpuacct.usage", "cpuacct"), time.monotonic()
        self._trial.pass_time(seconds)
        return (self.number(folder, "cpuacct.usage", "cpuacct") - before) / 1e9 / (time.monotonic() - begin)

    def reaches(self, condition: Callable[[], bool]) -> bool:
        return self._trial.reaches(condition, within=WITHIN)


@pytest.fixture
def machine(trial: Trial, expect: Expect) -> Iterator[Machine]:
    only = trial.machine()
    annotations = only["metadata"]["annotations"]
    parent = annotations.get(CGROUP_ANNOTATION, "")
    if annotations.get(LIMITS_ANNOTATION) not in {"cgroup v1", "docker"} or not parent:
        pytest.skip(f"needs writable control groups of version 1, as root has; found {annotations[LIMITS_ANNOTATION]}")
    with ExitStack() as running:
        yield Machine(trial, expect, only["metadata"]["name"], parent, running)


@pytest.fixture
def idle(machine: Machine, trial: Trial) -> Machine:
    """Skips where other programs use so much that the machine's figures say nothing about the agent."""

    def busy() -> int:
        return sum(int(Path("/proc/stat").read_text().split()[place]) for place in (1, 2, 3, 6, 7))

    before, begin = busy(), time.monotonic()
    trial.pass_time(2.0)
    used = (busy() - before) / 100 / (time.monotonic() - begin) / machine.cpus
    if used > IDLE:
        pytest.skip(f"needs an idle machine: other programs use {used:.0%} of its CPUs")
    return machine


def prod(name: str) -> PodBuilder:
    builder = pod(name).qos("LS").label(PRIORITY_CLASS_LABEL, "koord-prod")
    builder.manifest["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    return builder


def best_effort(name: str) -> PodBuilder:
    return pod(name).qos("BE").label(PRIORITY_CLASS_LABEL, "koord-batch")


def ended(trial: Trial, name: str) -> bool:
    seen = trial.find(name)
    return seen is None or seen.metadata.deletion_timestamp is not None


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-080", severity="critical", source="spec CS-2, CS-7, CS-8, on real control groups")
@pytest.mark.long(seconds=60)
def test_the_quota_of_best_effort_processes(idle: Machine, trial: Trial) -> None:
    """As a prod process gets busy, best-effort processes get less time, and the kernel keeps to it; when it has ended,
    they get more again, a tenth of the node each second at most; and all when suppression is disabled."""
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 90, "cpuSuppressPolicy": "cfsQuota"}
    idle.slo(resourceUsedThresholdWithBE=threshold)
    job = idle.run(best_effort("job"), "--cores", "1")
    idle.start_agent()
    trial.pass_time(SETTLE)
    before = idle.number(BESTEFFORT)
    assert 0 < before <= idle.cpus * 0.9 * PERIOD

    service = idle.run(prod("service"), "--cores", str(idle.cpus - 1))
    trial.pass_time(SETTLE)
    after = idle.number(BESTEFFORT)
    used = idle.cores(service)
    assert after <= before - used * PERIOD * 0.7, f"quota {before}, {after} beside a pod that uses {used:.2f} cores"
    rows = dict(line.split() for line in idle.text(BESTEFFORT, "cpu.stat").splitlines())
    if after < 0.8 * PERIOD:
        assert int(rows["nr_throttled"]) > 0
    assert idle.number(service) == -1

    trial.delete("service")
    steps: list[int] = []
    while len(steps) < 12 and (not steps or steps[-1] < before * 0.9):
        steps.append(idle.number(BESTEFFORT))
        trial.pass_time(0.5)
    growth = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert max(growth) <= idle.cpus * PERIOD * 0.1 * 2, f"quotas each half second: {steps}"
    assert steps[-1] > after

    idle.slo(resourceUsedThresholdWithBE={**threshold, "enable": False})
    assert idle.reaches(lambda: idle.number(BESTEFFORT) == -1)
    assert idle.cores(job) > 0.5


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-081", severity="critical", source="spec CS-3, CS-6, CS-8, on real control groups")
@pytest.mark.long(seconds=40)
def test_the_cpus_of_best_effort_processes(idle: Machine) -> None:
    """Beside a busy prod process, best-effort processes have two CPUs, their container too; all when it is disabled."""
    if idle.cpus <= 2:
        pytest.skip(f"best-effort pods keep two CPUs, and this machine has {idle.cpus}")
    job = idle.run(best_effort("job"), "--cores", "1")
    idle.run(prod("service"), "--cores", str(idle.cpus - 1))
    idle.slo(resourceUsedThresholdWithBE={"enable": True, "cpuSuppressThresholdPercent": 65})
    idle.start_agent()
    groups = (BESTEFFORT, job, idle.container(job))

    def counts() -> list[int]:
        return [len(parse_cpuset(idle.text(group, "cpuset.cpus", "cpuset"))) for group in groups]

    assert idle.reaches(lambda: counts() == [2] * 3), f"CPUs of class, pod and container: {counts()}"
    idle.slo(resourceUsedThresholdWithBE={"enable": False})
    assert idle.reaches(lambda: counts() == [idle.cpus] * 3), f"CPUs of class, pod and container: {counts()}"


@pytest.mark.feature("QOS-7.burst")
@pytest.mark.case("CO-082", severity="critical", source="spec CB-4 to CB-6, on real control groups")
@pytest.mark.long(seconds=50)
def test_a_throttled_process(idle: Machine) -> None:
    """A process that wants more than its limit of 0.2 cores is throttled; it gets up to half more while the node has
    CPUs to spare, its pod as much, and it does more; without the policy it has its limit again."""
    service = idle.run(prod("service").limits({"cpu": "200m"}), "--cores", "1", "--burst", "0.5", "0.1")
    container = idle.container(service)
    assert idle.number(container) == 20_000
    plain = idle.cores(container)
    idle.slo(cpuBurstStrategy={"policy": "auto", "cfsQuotaBurstPercent": 150, "sharePoolThresholdPercent": 100})
    idle.start_agent()
    assert idle.reaches(lambda: idle.number(container) == 30_000), f"quota {idle.number(container)}"
    assert idle.number(service) == 30_000
    assert idle.cores(container) > plain * 1.2
    idle.slo(cpuBurstStrategy={"policy": "none"})
    assert idle.reaches(lambda: [idle.number(group) for group in (container, service)] == [20_000] * 2)


@pytest.mark.feature("QOS-7.groups")
@pytest.mark.case("CO-083", severity="critical", source="spec HK-7, on real control groups")
@pytest.mark.long(seconds=40)
def test_a_batch_process_has_its_limits(machine: Machine, trial: Trial, expect: Expect) -> None:
    """Batch resources become shares, quota and memory of the process: one that takes more memory is ended by the
    kernel, another pod is not; and without an agent it would not be."""
    amounts = {"kubernetes.io/batch-cpu": "250", "kubernetes.io/batch-memory": "64Mi"}
    spec = json.dumps({"containers": {"main": {"requests": amounts, "limits": amounts}}})
    machine.slo()
    machine.start_agent()
    job = machine.run(best_effort("job").annotation(EXTENDED_RESOURCE_SPEC, spec), "--cores", "1")
    groups = (job, machine.container(job))

    def limits() -> list[list[int]]:
        files = (("cpu.shares", "cpu"), (QUOTA, "cpu"), ("memory.limit_in_bytes", "memory"))
        return [[machine.number(group, *file) for file in files] for group in groups]

    assert machine.reaches(lambda: limits() == [[256, 25_000, 64 * MI]] * 2), f"limits of pod, container: {limits()}"
    assert machine.cores(job) < 0.3
    other = machine.run(best_effort("other"), "--memory", str(128 * MI))
    greedy = best_effort("greedy").annotation(EXTENDED_RESOURCE_SPEC, spec)
    greedy.manifest["spec"]["restartPolicy"] = "Never"
    machine.run(greedy, "--memory", str(128 * MI), "--after", "12")

    def reason() -> str:
        raw = orjson.loads(trial.call("GET", trial.path("Pod", "greedy")).body)
        (status,) = raw["status"]["containerStatuses"]
        return str(status["state"].get("terminated", {}).get("reason", ""))

    assert machine.reaches(lambda: reason() == "OOMKilled"), f"expected OOMKilled, found {reason()!r}"
    expect.running("other")
    assert machine.number(other, "memory.usage_in_bytes", "memory") > 120 * MI


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-084", severity="critical", source="spec EV-6, EV-8, on real control groups")
@pytest.mark.long(seconds=40)
def test_memory_that_really_runs_short(machine: Machine, trial: Trial, expect: Expect) -> None:
    """When the machine uses more than its threshold, the best-effort process with most memory is evicted; a smaller one
    and a larger prod process stay, and the memory is free again."""
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    total, available = (int(rows[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    size = total * 8 // 100  # far more than other programs of the machine take meanwhile
    if available < 4 * size:
        pytest.skip(f"needs {4 * size >> 20} MiB of free memory; found {available >> 20}")
    machine.run(prod("service"), "--memory", str(size + size // 2))
    machine.run(best_effort("small"), "--memory", str(64 * MI))
    large = machine.run(best_effort("large"), "--memory", str(size))
    assert machine.reaches(lambda: machine.number(large, "memory.usage_in_bytes", "memory") >= size)
    rows = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    used = total - (int(rows["MemAvailable"].split()[0]) << 10)
    threshold = used * 100 // total - 1
    machine.slo(resourceUsedThresholdWithBE={"enable": True, "memoryEvictThresholdPercent": threshold})
    machine.start_agent("BEMemoryEvict")
    assert machine.reaches(lambda: ended(trial, "large")), "expected pod 'large' to be evicted"
    trial.pass_time(SETTLE)
    for name in ("service", "small"):
        expect.running(name)
    assert machine.number(large.rpartition("/")[0], "memory.usage_in_bytes", "memory") < size
    messages = [event.message for event in trial.events("large")]
    assert "trigger by koordlet feature BEMemoryEvict, kill pod: large" in messages


@pytest.mark.feature("QOS-7.eviction")
@pytest.mark.case("CO-085", severity="critical", source="spec EV-2 to EV-4, EV-8, on real control groups")
@pytest.mark.long(seconds=50)
def test_processes_that_really_get_too_little(machine: Machine, trial: Trial, expect: Expect) -> None:
    """Suppression leaves best-effort processes less than half of what they request: the one of the lowest priority is
    evicted, the other one and the prod process that took the CPUs are not."""
    amounts = {"kubernetes.io/batch-cpu": "20000", "kubernetes.io/batch-memory": "8Gi"}
    offer = {"status": {"capacity": amounts, "allocatable": amounts}}
    assert trial.call("PATCH", f"/api/v1/nodes/{machine.name}/status", offer).ok
    for name, value in (("first", 5900), ("second", 5100)):
        priority = f"{trial.name}-{value}"
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": priority}}
        trial.apply({**kind, "value": value})
        job = best_effort(name).priority_class(priority)
        job.resources({"kubernetes.io/batch-cpu": 1000, "kubernetes.io/batch-memory": "1Gi"})
        machine.run(job, "--cores", "1")
    machine.run(prod("service"), "--cores", str(machine.cpus))
    lines = {"cpuEvictBESatisfactionLowerPercent": 50, "cpuEvictBESatisfactionUpperPercent": 50}
    suppress = {"enable": True, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota"}
    machine.slo(resourceUsedThresholdWithBE={**suppress, **lines})
    machine.start_agent("BECPUEvict")
    assert machine.reaches(lambda: ended(trial, "second")), "expected pod 'second' to be evicted"
    trial.pass_time(SETTLE)
    for name in ("first", "service"):
        expect.running(name)


@pytest.mark.feature("QOS-7.suppression")
@pytest.mark.case("CO-086", severity="critical", source="spec CS-8; an agent that ends takes suppression back")
@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("how", ["killed", "ended"])
def test_an_agent_that_ends(machine: Machine, trial: Trial, how: str) -> None:
    """An agent that is ended takes suppression back; after one that was killed, the next one goes on from there, and
    takes it back when that is disabled. Nothing of prod pods has changed."""
    threshold = {"enable": True, "cpuSuppressThresholdPercent": 60, "cpuSuppressPolicy": "cfsQuota"}
    machine.slo(resourceUsedThresholdWithBE=threshold)
    service = machine.run(prod("service"), "--cores", str(machine.cpus))
    machine.run(best_effort("job"), "--cores", "1")
    files = ((QUOTA, "cpu"), ("cpu.shares", "cpu"), ("cpuset.cpus", "cpuset"))
    before = [machine.text(service, *file) for file in files]
    process = machine.start_agent()
    assert machine.reaches(lambda: 0 < machine.number(BESTEFFORT) < PERIOD)
    if how == "ended":
        process.terminate()
        process.wait()
        assert machine.number(BESTEFFORT) == -1
    else:
        process.kill()
        process.wait()
        assert machine.number(BESTEFFORT) > 0
        machine.start_agent()
        trial.pass_time(SETTLE)
        assert 0 < machine.number(BESTEFFORT) < PERIOD
        machine.slo(resourceUsedThresholdWithBE={**threshold, "enable": False})
        assert machine.reaches(lambda: machine.number(BESTEFFORT) == -1)
    assert [machine.text(service, *file) for file in files] == before


@pytest.mark.feature("QOS-8.cpi")
@pytest.mark.case("CO-087", severity="normal", source="spec KM-17; release post v1.4")
@pytest.mark.long(seconds=90)
def test_cycles_and_instructions(machine: Machine, trial: Trial) -> None:
    """Of a busy container the agent's metrics have both, each minute; a loop of additions needs less than ten cycles
    for an instruction, and does not do more than ten in one."""
    counters = [each.name for each in Path("/sys/bus/event_source/devices").glob("*")]
    if not any(name.startswith(("cpu", "armv8_pmuv3")) for name in counters):
        pytest.skip("needs the CPU's performance counters (PMU), which this kernel does not have")
    if not Path("/sys/fs/cgroup/perf_event").is_dir():
        pytest.skip("needs the hierarchy perf_event of control groups of version 1 at /sys/fs/cgroup/perf_event")
    port = free_port()
    machine.run(prod("service"), "--cores", "1")
    machine.start_agent("CPICollector", port=port)
    pattern = re.compile(r'koordlet_container_cpi\{.*pod_name="service".*cpi_field="(.*)"\} (.*)')

    def counts() -> dict[str, float]:
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
        return {field: float(value) for field, value in pattern.findall(page)}

    assert trial.reaches(lambda: bool(counts()), within=80.0), "expected cycles and instructions within 80 s"
    both = counts()
    assert set(both) == {"cycles", "instructions"}
    assert 0.1 < both["cycles"] / both["instructions"] < 10
