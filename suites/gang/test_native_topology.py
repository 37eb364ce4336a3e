"""Topology constraints of native gangs: all members are on nodes with one value of a label.

They are alpha in Kubernetes 1.37 (feature gate TopologyAwareWorkloadScheduling): on a cluster that drops the field the
cases are skipped. A member asks for one CPU, so the room is a number of CPUs. Nodes are named by their rack.
"""

import orjson
import pytest

from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import NodeBuilder, PodBuilder, native_gang, node, pod
from seatrial.suites.gang.members import RACK, bound, names

pytestmark = [
    pytest.mark.needs(Capability.NODES),
    pytest.mark.gate("GenericWorkload", "TopologyAwareWorkloadScheduling"),
]

UPSTREAM = "kubernetes 1.37 pkg/scheduler/framework/plugins/topologyaware and schedule_one_podgroup.go"
API = "/apis/scheduling.k8s.io/v1beta1"


def create(trial: Trial, name: str, minimum: int) -> None:
    """A gang within one rack."""
    path = f"{API}/namespaces/{trial.name}/podgroups"
    constraints = {"topology": [{"key": RACK}]}
    answer = trial.call("POST", path, native_gang(name, minimum, schedulingConstraints=constraints))
    if answer.code == 404:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")
    assert answer.ok, answer.body
    if orjson.loads(answer.body)["spec"].get("schedulingConstraints") != constraints:
        pytest.skip("the cluster drops schedulingConstraints (feature gate TopologyAwareWorkloadScheduling)")


def in_rack(name: str, cpus: int) -> NodeBuilder:
    return node(name).cpu(cpus).label(RACK, name.partition("-")[0])


def workers(group: str, count: int, first: int = 0) -> list[PodBuilder]:
    return [pod(name).request(cpu=1).in_native_gang(group) for name in names(group, count, first)]


def racks(trial: Trial, group: str) -> set[str]:
    """The racks of the gang's bound members."""
    members = [each for each in trial.pods() if each.metadata.name.startswith(f"{group}-") and each.spec.node_name]
    return {each.spec.node_name.partition("-")[0] for each in members}


def condition(trial: Trial, name: str) -> dict[str, str]:
    status = orjson.loads(trial.call("GET", f"{API}/namespaces/{trial.name}/podgroups/{name}").body).get("status") or {}
    return next((each for each in status.get("conditions") or () if each["type"] == "PodGroupInitiallyScheduled"), {})


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-220", severity="critical", source=UPSTREAM)
def test_a_native_gang_is_placed_within_one_rack(trial: Trial, expect: Expect) -> None:
    """Rack a has three CPUs on one node, rack b four on two, a node without a rack eight: all four members are in b."""
    trial.add(in_rack("a-0", 3), in_rack("b-0", 2), in_rack("b-1", 2), node("x").cpu(8))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))

    expect.bound(*names("train", 4))

    assert racks(trial, "train") == {"b"}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-221", severity="critical", source=UPSTREAM)
def test_a_native_gang_waits_for_a_rack_with_room_for_all(trial: Trial, expect: Expect) -> None:
    """Two racks have three CPUs each, a node without a rack eight: none of four members is bound, and the condition is
    False. Rack b gets a fourth CPU: all are bound there."""
    trial.add(in_rack("a-0", 3), in_rack("b-0", 3), node("x").cpu(8))
    create(trial, "train", 4)
    trial.submit(*workers("train", 4))
    assert trial.wait(lambda: condition(trial, "train").get("reason") == "Unschedulable", within=30)
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.add(in_rack("b-1", 1))

    expect.bound(*names("train", 4), within=60)
    assert racks(trial, "train") == {"b"}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-222", severity="critical", source=UPSTREAM)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_later_members_join_the_rack_of_the_first(
    trial: Trial, expect: Expect, subject: Subject | None, *, restarted: bool
) -> None:
    """Two members fill rack a. Two more wait for it, also after a restart of the scheduler, while rack b and a node
    without a rack have room. Rack a gets two CPUs: they are bound there."""
    trial.add(in_rack("a-0", 2))
    create(trial, "train", 2)
    trial.submit(*workers("train", 2))
    expect.bound(*names("train", 2))
    if restarted:
        if subject is None:
            pytest.skip("needs a scheduler that the harness started; this one runs elsewhere")
        subject.kill()
        subject.start_again()
    trial.add(in_rack("b-0", 8), node("x").cpu(8))

    trial.submit(*workers("train", 2, first=2))
    expect.stable(seconds=5)
    assert bound(trial) == names("train", 2)

    trial.add(in_rack("a-1", 2))

    expect.bound(*names("train", 2, first=2), within=60)
    assert racks(trial, "train") == {"a"}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-223", severity="normal", source=UPSTREAM)
def test_members_beyond_the_minimum_are_in_the_same_rack(trial: Trial, expect: Expect) -> None:
    """Six members come before their gang, whose minimum is four: rack a has five CPUs, rack b three. Five are bound in
    a. One leaves: the sixth is bound there."""
    trial.add(in_rack("a-0", 5), in_rack("b-0", 3))
    trial.submit(*workers("train", 6))
    create(trial, "train", 4)
    assert trial.wait(lambda: len(bound(trial)) == 5, within=60), bound(trial)
    expect.stable(seconds=5)
    assert racks(trial, "train") == {"a"}

    trial.delete(bound(trial)[0])

    assert trial.wait(lambda: len(bound(trial)) == 5, within=60), bound(trial)
    assert racks(trial, "train") == {"a"}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-224", severity="normal", source=UPSTREAM)
def test_a_native_gang_without_any_rack_waits(trial: Trial, expect: Expect) -> None:
    """No node has a rack: no member is bound, and a pod without a gang is. A rack comes: all are bound."""
    trial.add(node("x").cpu(3))
    create(trial, "train", 2)
    trial.submit(*workers("train", 2))
    trial.submit(pod("plain").request(cpu=1))
    expect.bound("plain")
    expect.stable(seconds=5)
    assert bound(trial) == ["plain"]

    trial.add(in_rack("a-0", 2))

    expect.bound(*names("train", 2), within=60)
    assert racks(trial, "train") == {"a"}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-244", severity="normal", source="kubernetes pkg/scheduler/schedule_one_podgroup.go@v1.37.2")
def test_a_large_member_does_not_hold_smaller_ones_back(trial: Trial, expect: Expect) -> None:
    """The first member of a gang is bound in rack a. Of two later ones the first asks for more than the rack has, the
    second is bound. A third one waits for the rack, and is bound when it has room, while the first still waits."""
    trial.add(in_rack("a-0", 2), in_rack("b-0", 4))
    create(trial, "train", 1)
    trial.submit(*workers("train", 1))
    expect.bound("train-0")
    rack = next(iter(racks(trial, "train")))
    room = {"a": 1, "b": 3}[rack]

    trial.submit(pod("train-1").request(cpu=8).in_native_gang("train"), *workers("train", room + 1, first=2))
    assert trial.wait(lambda: len(bound(trial)) == 1 + room, within=60), bound(trial)
    expect.stable(seconds=5)
    assert len(bound(trial)) == 1 + room

    trial.add(in_rack(f"{rack}-1", 1))

    expect.bound(*names("train", room + 1, first=2), within=20)
    assert bound(trial, "train-1") == []
    assert racks(trial, "train") == {rack}


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case(
    "GA-282", severity="normal", source="kubernetes pkg/scheduler/framework/plugins/topologyaware@v1.37.2"
)
@pytest.mark.parametrize("other", ["b-0", "x"], ids=["in-another-rack", "without-a-rack"])
def test_members_that_are_not_in_one_rack_hold_the_others_back(trial: Trial, expect: Expect, other: str) -> None:
    """One member of a gang is in rack a, and another component has put one elsewhere: a third one waits, though each
    node has room. The one elsewhere leaves: the third is bound in rack a."""
    trial.add(in_rack("a-0", 4), in_rack("b-0", 4), node("x").cpu(4))
    create(trial, "train", 1)
    first, second, third = workers("train", 3)
    trial.submit(first.node_name("a-0"), second.node_name(other))
    expect.running(*names("train", 2))
    trial.submit(third)
    expect.stable(seconds=5)
    assert bound(trial, "train-2") == []

    trial.delete("train-1")

    assert expect.bound("train-2", within=60).spec.node_name == "a-0"


@pytest.mark.feature("WAS-1.topology")
@pytest.mark.case("GA-342", severity="normal", source="ours")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the scheduler's endpoints have the real names of namespaces
def test_the_summary_of_a_native_gang_names_the_best_rack(trial: Trial, services: Ask) -> None:
    """Three racks have one, three and two CPUs: the summary of a gang of four that waits names the second."""
    trial.add(in_rack("a-0", 1), in_rack("b-0", 3), in_rack("c-0", 2))
    create(trial, "train", 4)

    trial.submit(*workers("train", 4))

    assert trial.wait(lambda: condition(trial, "train").get("reason") == "Unschedulable", within=30)
    name = "train@scheduling.k8s.io"
    summary = orjson.loads(services("GET", f"/apis/v1/plugins/Coscheduling/gang/{trial.name}/{name}").body)
    assert summary["gathering"] == f"best domain {RACK}=b has room for 3 of 4 members"
