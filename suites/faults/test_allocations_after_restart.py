"""What a scheduler that is started again reads: CPUs, functions and locks of bound pods, and members that ended."""

import orjson
import pytest

from seatrial.fixtures.allocated_devices import functions
from seatrial.fixtures.cpus import cpus
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import PodBuilder, gang, members, node, pod
from seatrial.suites.allocation.mlus import CARD, LOCK, PLUGINS, slice_of
from seatrial.suites.faults.schedulers import running
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, storage
from seatrial.suites.scoring.rules import HOST

__all__ = ["running", "storage"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("HIL-4.scheduler-crash", "CPU-1.policies")
@pytest.mark.case("FT-063", severity="critical")
def test_bound_cpus_are_known_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """An LSR pod has four CPUs. After a restart of the scheduler the next one gets four others."""
    trial.add(node("n1").server("cpu-64"))
    trial.submit(pod("before").qos("LSR").request(cpu=4, memory="1Gi"))
    before = expect.running("before")
    running.kill()
    running.start_again()

    trial.submit(pod("after").qos("LSR").request(cpu=4, memory="1Gi"))

    after = expect.running("after")
    assert (len(cpus(before)), len(cpus(after))) == (4, 4)
    assert not cpus(before) & cpus(after)


@pytest.mark.feature("HIL-4.scheduler-crash", "GANG-1.status")
@pytest.mark.case("FT-067", severity="critical")
def test_members_that_ended_count_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """Of a gang of two one member succeeds, and the other while the scheduler is away. The PodGroup counts both as
    scheduled all the time, and is Finished in the end."""
    trial.add(node("n1").cpu(8))
    train = gang("train", 2)
    trial.apply(train)
    trial.submit(*(member.request(cpu=1) for member in members(train, 2)))
    expect.running("train-0", "train-1")
    path = trial.path("PodGroup", "train")

    def becomes(phase: str, succeeded: int) -> None:
        def status() -> tuple[str, int, int]:
            entry = orjson.loads(trial.call("GET", path).body).get("status") or {}
            return entry.get("phase", ""), entry.get("scheduled", 0), entry.get("succeeded", 0)

        trial.wait(lambda: status() == (phase, 2, succeeded), within=30)
        assert status() == (phase, 2, succeeded), "phase, members that were scheduled, members that succeeded"

    def succeed(name: str) -> None:
        status = f"/api/v1/namespaces/{trial.name}/pods/{name}/status"
        assert trial.call("PATCH", status, {"status": {"phase": "Succeeded"}}).ok

    succeed("train-0")
    becomes("Running", 1)
    running.kill()
    succeed("train-1")
    running.start_again()
    becomes("Finished", 2)


@pytest.mark.feature("HIL-4.scheduler-crash", "DEV-7.vf")
@pytest.mark.case("FT-064", severity="critical")
def test_virtual_functions_are_known_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """A pod has a virtual function of the only NIC. After a restart of the scheduler the next one gets another."""
    trial.add(node("n1").devices("a10", 1).nics("connectx-7", 1))

    def tenant(name: str) -> PodBuilder:
        return pod(name).gpu_share(10).rdma(1).jointly("gpu", "rdma").hint("rdma", vfSelector={})

    trial.submit(tenant("before"))
    before = functions(expect.running("before"))
    running.kill()
    running.start_again()

    trial.submit(tenant("after"))

    after = functions(expect.running("after"))
    assert (len(before), len(after)) == (1, 1)
    assert before != after


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("HIL-4.scheduler-crash", "DEV-12.dynamic-smlu")
@pytest.mark.case("FT-065", severity="critical")
@pytest.mark.long(seconds=4)
@pytest.mark.needs(Capability.DEVICE_FAULTS)
def test_a_lock_of_the_node_is_known_after_a_restart(trial: Trial, expect: Expect, running: Subject) -> None:
    """The node is frozen while its plugin cuts a slice: the scheduler that is started again sees the lock."""
    trial.add(node("n1").gpus(CARD, 1))
    trial.inject({"node": "n1", "verb": "frozen"})
    trial.submit(slice_of("first", 20, 8 << 30).scheduler(PLUGINS))
    expect.bound("first")
    assert LOCK in trial.node("n1")["metadata"].get("annotations", {}), "expected the lock of the first slice"
    running.kill()
    running.start_again()

    trial.submit(slice_of("second", 20, 8 << 30).scheduler(PLUGINS))

    expect.pending("second")
    expect.stable(seconds=10)
    assert not trial.pod("second").spec.node_name


@pytest.mark.feature("HIL-4.scheduler-crash", "SCORE-4.volumes")
@pytest.mark.case("FT-073", severity="critical")
@pytest.mark.long(seconds=4)
def test_a_node_told_to_a_provisioner_is_kept_after_a_restart(
    trial: Trial, expect: Expect, running: Subject, storage: StorageOfCase
) -> None:
    """The scheduler is started again while a volume is made for n1: the pod goes there, though n2 is emptier now."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1").cpu(32), node("n2").cpu(32))
    trial.submit(pod("small").request(cpu=8, memory="1Gi").select({HOST: "n2"}))
    expect.bound("small")
    storage.claim("c")
    storage.submit("p", "c")
    assert storage.selected_node("c") == "n1"
    trial.submit(pod("large").request(cpu=24, memory="1Gi").select({HOST: "n1"}))
    expect.bound("large")
    running.kill()
    running.start_again()
    trial.settle(3)
    assert storage.selected_node("c") == "n1"

    volume = storage.made("c")

    assert expect.bound("p", within=60).spec.node_name == "n1"
    assert storage.volume_of("c") == volume
