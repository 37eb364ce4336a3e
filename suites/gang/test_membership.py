"""Which gang and group a pod belongs to, and in which order members get their nodes."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, gang, node, pod, priority_class
from seatrial.scheduler.api.podgroup import (
    BIND_GANG_GROUP,
    BIND_MEMBER_COUNT,
    GANG_GROUPS,
    GANG_MIN,
    GANG_NAME,
    NETWORK_TOPOLOGY_INDEX,
    POD_GROUP_LABEL,
    POD_GROUP_NAME_LABEL,
)
from seatrial.suites.gang.members import bound, names, status, workers

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


def wanting(name: str, *, cards: int = 1, index: int | None = None) -> PodBuilder:
    """A member that would rather be on the node `wanted`."""
    built = pod(name).gpus(cards).in_gang("train")
    if index is not None:
        built.annotation(NETWORK_TOPOLOGY_INDEX, str(index))
    term = {"weight": 100, "preference": {"matchExpressions": [{"key": "best", "operator": "Exists"}]}}
    built.manifest["spec"]["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return built


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-080", severity="normal")
@pytest.mark.parametrize("later", [1, None], ids=["larger-index", "no-index"])
def test_members_get_their_nodes_in_the_order_of_their_index(trial: Trial, expect: Expect, later: int | None) -> None:
    """Two members want the same node, which has room for one: the one with the smaller index gets it, or the only one
    with an index, although its name comes last."""
    trial.add(node("wanted").cards(1).label("best", "yes"), node("other").cards(1))
    trial.apply(gang("train", 2))

    trial.submit(wanting("a", index=later), wanting("z", index=0))

    first, second = expect.bound("z", "a")
    assert (first.spec.node_name, second.spec.node_name) == ("wanted", "other")


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-345", severity="normal", source="spec GANG-R64, GANG-D13")
@pytest.mark.parametrize("differs", ["size", "priority"])
def test_the_order_of_members_that_differ(trial: Trial, expect: Expect, differs: str) -> None:
    """Two members want the same node, which has room for one. The one with the smaller index gets it from a larger one,
    and without an index the more important one does, although its name comes last."""
    cards = 2 if differs == "size" else 1
    trial.add(node("wanted").cards(cards).label("best", "yes"), node("other").cards(cards))
    trial.apply(gang("train", 2), priority_class("trial-high", 9000, preempts=False))
    if differs == "size":
        trial.submit(wanting("a", cards=2, index=1), wanting("z", index=0))
    else:
        trial.submit(wanting("a"), wanting("z").priority_class("trial-high"))

    first, second = expect.bound("z", "a")
    assert (first.spec.node_name, second.spec.node_name) == ("wanted", "other")


@pytest.mark.feature("GANG-4.groups", "GANG-1.replaced")
@pytest.mark.case("GA-081", severity="normal")
def test_a_gang_with_bound_members_joins_a_group(trial: Trial, expect: Expect) -> None:
    """Two members are on a node before their PodGroup exists, which names a second gang. A third member starts at once,
    although that gang has no pods: the group was bound once. A member of another such group waits."""
    trial.add(node("n1").cards(4))
    trial.submit(*(worker.node_name("n1") for worker in workers("train", 2)))
    expect.running("train-0", "train-1")
    together = [f"{trial.name}/train", f"{trial.name}/eval"]
    trial.apply(gang("train", 2).together_with(*together), gang("eval", 1).together_with(*together))

    trial.submit(*workers("train", 1, first=2))

    expect.bound("train-2")
    apart = [f"{trial.name}/late", f"{trial.name}/none"]
    trial.apply(gang("late", 1).together_with(*apart), gang("none", 1).together_with(*apart))
    trial.submit(*workers("late", 1))
    expect.pending("late-0")


@pytest.mark.feature("GANG-5.annotations", "GANG-6.said")
@pytest.mark.case("GA-082", severity="normal")
def test_the_label_of_a_pod_group_wants_the_pod_group(trial: Trial, expect: Expect) -> None:
    """Pods name a PodGroup by label and a gang by annotations: they wait for the PodGroup."""
    trial.add(node("n1").cards(4))
    built = [worker.annotation(GANG_NAME, "train").annotation(GANG_MIN, "2") for worker in workers("train", 2)]
    trial.submit(*built)
    expect.held(*names("train", 2), saying="has not init")

    trial.apply(gang("train", 2))

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-5.annotations")
@pytest.mark.case("GA-390", severity="normal", source="spec GANG-R1")
@pytest.mark.parametrize(
    ("first", "second"),
    [(POD_GROUP_LABEL, POD_GROUP_NAME_LABEL), (POD_GROUP_NAME_LABEL, GANG_NAME)],
    ids=["label-before-old-label", "old-label-before-annotation"],
)
def test_which_of_two_names_counts(trial: Trial, expect: Expect, first: str, second: str) -> None:
    """Two members of a gang of two have a name of their own for another gang beside that of the first one."""
    trial.add(node("n1").cards(4))
    if first == POD_GROUP_LABEL:
        trial.apply(gang("train", 2))
    built = [pod(name).gpus(1).label(first, "train").annotation(GANG_MIN, "2") for name in names("train", 2)]
    for member in built:
        (member.annotation if second == GANG_NAME else member.label)(second, f"own-{member.name}")
    trial.submit(built[0])
    expect.stable(seconds=5)
    assert bound(trial) == []

    trial.submit(built[1])

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.marked", "GANG-4.groups")
@pytest.mark.case(
    "GA-422",
    severity="normal",
    source="koordinator 1.8 pkg/scheduler/plugins/coscheduling/core/core.go: GetGangBindingInfo",
)
def test_members_of_a_group_say_how_many_are_bound_together(trial: Trial, expect: Expect) -> None:
    """A gang of two and one of one are a group: each member has the names of both gangs, and the number three."""
    trial.add(node("n1").cards(3))
    ids = [f"{trial.name}/{name}" for name in ("serve", "train")]
    groups = orjson.dumps(ids).decode()
    trial.apply(*(gang(name, count).annotation(GANG_GROUPS, groups) for name, count in (("train", 2), ("serve", 1))))
    trial.submit(*workers("train", 2), *workers("serve", 1))
    marks = [each.metadata.annotations for each in expect.bound(*names("train", 2), "serve-0")]
    assert [(each.get(BIND_GANG_GROUP), each.get(BIND_MEMBER_COUNT)) for each in marks] == [(",".join(ids), "3")] * 3


@pytest.mark.feature("GANG-4.groups")
@pytest.mark.case("GA-083", severity="normal", source="ours")
def test_a_later_list_of_groups_does_not_move_a_gang(trial: Trial, expect: Expect) -> None:
    """The list of a known PodGroup is changed to name a gang that does not exist: its members start."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 2))
    assert trial.reaches(lambda: bool(status(trial, "train").get("phase")), within=30), "no status was written"
    listed = orjson.dumps([f"{trial.name}/train", f"{trial.name}/absent"]).decode()
    patch = {"metadata": {"annotations": {GANG_GROUPS: listed}}}
    assert trial.call("PATCH", trial.path("PodGroup", "train"), patch).ok
    trial.pass_time(1)

    trial.submit(*workers("train", 2))

    expect.bound(*names("train", 2))


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case("GA-084", severity="normal")
def test_the_status_names_the_owners_of_the_members(trial: Trial) -> None:
    """The members belong to a Job: occupiedBy names it with its namespace."""
    trial.add(node("n1").cards(4))
    trial.apply(gang("train", 2))
    template = pod("x").gpus(1).in_gang("train").manifest
    trial.apply(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "trainer"},
            "spec": {
                "completions": 2,
                "parallelism": 2,
                "template": {
                    "metadata": {"labels": template["metadata"]["labels"]},
                    "spec": {**template["spec"], "restartPolicy": "Never"},
                },
            },
        }
    )

    def occupied_by() -> str:
        return str(status(trial, "train").get("occupiedBy", ""))

    trial.wait(lambda: bool(occupied_by()), within=30)
    assert occupied_by() == f"{trial.name}/trainer"


@pytest.mark.feature("GANG-1.status")
@pytest.mark.case(
    "GA-256", severity="normal", source="koordinator: coscheduling/controller/podgroup.go@v1.7.0 (fillOccupiedObj)"
)
def test_the_status_names_all_owners_of_a_member(trial: Trial, expect: Expect) -> None:
    """The members have two owners: occupiedBy has both, in the order of their names."""
    trial.add(node("n1").cards(4))
    owners = []
    for name in ("z", "a"):
        path = f"/api/v1/namespaces/{trial.name}/configmaps"
        body = trial.accept({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}, path)
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": body["metadata"]["uid"]})
    trial.apply(gang("train", 2))
    built = workers("train", 2)
    for worker in built:
        worker.manifest["metadata"]["ownerReferences"] = owners
    trial.submit(*built)

    expect.bound(*names("train", 2))
    target = f"{trial.name}/a,{trial.name}/z"
    assert trial.reaches(lambda: status(trial).get("occupiedBy") == target, within=30), status(trial)
