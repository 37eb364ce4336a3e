"""Preemption by and of native gangs: room for a whole gang or nobody goes, and groups that are evicted as a unit.

A pod asks for one CPU, so the room is a number of CPUs. Pods in the way are named after what they are, the gang that
needs room is `train`. Which of several places the gang gets is not judged: its members, or the victims, name a node.
"""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, disruption_budget, gang, native_gang, node, pod
from seatrial.suites.gang.members import RACK, bound, names
from seatrial.suites.preemption.jobs import PREEMPTING
from seatrial.suites.preemption.nominations import freeze, thaw
from seatrial.suites.preemption.priorities import classes
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, storage
from seatrial.suites.scoring.rules import apart_from

__all__ = ["classes", "storage"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.gate("GenericWorkload")]

UPSTREAM = "kubernetes pkg/scheduler/framework/preemption/podgrouppreemption.go@v1.37.2"
UNITS = "kubernetes pkg/scheduler/framework/preemption/types.go@v1.37.2"
ORDER = "kubernetes pkg/scheduler/framework/preemption/util.go@v1.37.2"
BY_PODS = "kubernetes pkg/scheduler/framework/plugins/defaultpreemption/default_preemption.go@v1.37.2"
API = "/apis/scheduling.k8s.io/v1beta1"
WHOLE: dict[str, object] = {"all": {}}
NOT_N2 = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "host", "operator": "NotIn", "values": ["n2"]}]}]
    }
}


@pytest.fixture(autouse=True)
def _served(trial: Trial) -> None:
    if not trial.call("GET", f"{API}/podgroups").ok:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")


def create(trial: Trial, name: str, minimum: int, priority: str, **spec: object) -> None:
    """A gang, with the name of its PriorityClass."""
    path = f"{API}/namespaces/{trial.name}/podgroups"
    trial.accept(native_gang(name, minimum, priorityClassName=priority, **spec), path)


def workers(group: str, count: int, priority: str = "trial-high", first: int = 0) -> list[PodBuilder]:
    return [member(name, group, priority) for name in names(group, count, first)]


def member(name: str, group: str, priority: str) -> PodBuilder:
    return filler(name, priority).in_native_gang(group)


def filler(name: str, priority: str = "trial-low", *, grace: int = 0) -> PodBuilder:
    built = pod(name).request(cpu=1).priority_class(priority)
    built.manifest["spec"]["terminationGracePeriodSeconds"] = grace
    return built


def hosts(trial: Trial, **cpus: int) -> None:
    trial.add(*(node(name).cpu(count).label("host", name) for name, count in cpus.items()))


def left(trial: Trial, prefix: str = "") -> list[str]:
    """Names of pods that are not being deleted, without those of the gang that needs room."""
    return sorted(
        name
        for one in trial.pods()
        if not one.deleting
        and (name := one.metadata.name).startswith(prefix)
        and not name.startswith(("train-", "single"))
    )


def nominations(trial: Trial, *members: str) -> list[str]:
    return [trial.pod(name).status.nominated_node_name for name in members]


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-225", severity="critical", source=UPSTREAM)
def test_a_native_gang_gets_the_room_of_less_important_pods(classes: Trial, expect: Expect) -> None:
    """Two nodes are full of less important pods: both go, and both members of the gang run."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low-1"), filler("low-2"))
    expect.running("low-1", "low-2")

    create(classes, "train", 2, "trial-high")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == []


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-226", severity="critical", source=UPSTREAM)
def test_a_native_gang_that_does_not_fit_even_so_evicts_no_pod(classes: Trial, expect: Expect) -> None:
    """A gang of three on three full nodes, one of which has a more important pod: nobody goes, nobody is nominated."""
    hosts(classes, n1=1, n2=1, n3=1)
    classes.submit(
        filler("boss", "trial-top").on(host="n3"), filler("low-1").on(host="n1"), filler("low-2").on(host="n2")
    )
    expect.running("boss", "low-1", "low-2")

    create(classes, "train", 3, "trial-high")
    classes.submit(*workers("train", 3))

    expect.stable(seconds=20)
    assert left(classes) == ["boss", "low-1", "low-2"]
    assert nominations(classes, *names("train", 3)) == ["", "", ""]


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-227", severity="normal", source=UPSTREAM)
def test_no_more_pods_go_than_the_native_gang_needs(classes: Trial, expect: Expect) -> None:
    """A node of five CPUs has four less important pods: a gang of three takes the free CPU and those of two pods."""
    hosts(classes, n1=5)
    classes.submit(*[filler(f"low-{number}") for number in range(4)])
    expect.running(*(f"low-{number}" for number in range(4)))

    create(classes, "train", 3, "trial-high")
    classes.submit(*workers("train", 3))

    expect.running(*names("train", 3))
    assert len(left(classes)) == 2


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-228", severity="critical", source=UPSTREAM)
def test_a_native_gang_spares_pods_of_its_own_priority(classes: Trial, expect: Expect) -> None:
    """One node has two pods of the gang's priority, the other two less important ones: those go."""
    hosts(classes, n1=2, n2=2)
    classes.submit(*[filler(f"equal-{number}", "trial-high").on(host="n1") for number in range(2)])
    classes.submit(*[filler(f"low-{number}").on(host="n2") for number in range(2)])
    expect.running("equal-0", "equal-1", "low-0", "low-1")

    create(classes, "train", 2, "trial-high")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == ["equal-0", "equal-1"]


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-229", severity="normal", source=UPSTREAM)
def test_a_native_gang_that_never_preempts_waits(classes: Trial, expect: Expect) -> None:
    """The class of the gang does not preempt: the less important pods stay. They end: the gang runs."""
    hosts(classes, n1=2)
    classes.submit(filler("low-1"), filler("low-2"))
    expect.running("low-1", "low-2")
    create(classes, "train", 2, "trial-patient")
    classes.submit(*workers("train", 2, "trial-patient"))
    expect.stable(seconds=15)
    assert left(classes) == ["low-1", "low-2"]

    classes.delete("low-1", "low-2")

    expect.running(*names("train", 2))


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-230", severity="critical", source=UNITS)
def test_a_group_of_mode_all_goes_whole_for_a_native_gang(classes: Trial, expect: Expect) -> None:
    """A group of four with disruptionMode all is on two nodes. A gang that needs one of them: all four go."""
    hosts(classes, n1=2, n2=2)
    create(classes, "whole", 4, "trial-low", disruptionMode=WHOLE)
    classes.submit(*workers("whole", 4, "trial-low"))
    expect.running(*names("whole", 4))

    create(classes, "train", 2, "trial-high")
    classes.submit(*[one.on(host="n1") for one in workers("train", 2)])

    expect.running(*names("train", 2))
    assert classes.wait(lambda: left(classes) == [], within=30), left(classes)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-231", severity="normal", source=UNITS)
def test_a_group_of_mode_single_loses_the_pods_that_are_needed(classes: Trial, expect: Expect) -> None:
    """A group of four with the default disruptionMode: two of its pods go for a gang of two, and two stay, fewer than
    its minCount. Its condition stays True."""
    hosts(classes, n1=4)
    create(classes, "loose", 4, "trial-low")
    classes.submit(*workers("loose", 4, "trial-low"))
    expect.running(*names("loose", 4))

    create(classes, "train", 2, "trial-high")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert len(left(classes)) == 2
    group = orjson.loads(classes.call("GET", f"{API}/namespaces/{classes.name}/podgroups/loose").body)
    conditions = {one["type"]: one["status"] for one in group["status"]["conditions"]}
    assert conditions["PodGroupInitiallyScheduled"] == "True"


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-232", severity="normal", source=ORDER)
def test_single_pods_go_before_a_group_of_equal_priority(classes: Trial, expect: Expect) -> None:
    """A node has two pods of a group with disruptionMode all and two older single pods of equal priority. A gang needs
    two places there: the single pods go."""
    hosts(classes, n1=4, n2=2)
    classes.submit(filler("alone-1").on(host="n1"), filler("alone-2").on(host="n1"))
    expect.running("alone-1", "alone-2")
    classes.pass_time(2)
    create(classes, "whole", 4, "trial-low", disruptionMode=WHOLE)
    classes.submit(*workers("whole", 4, "trial-low"))
    expect.running(*names("whole", 4))

    create(classes, "train", 2, "trial-high")
    classes.submit(*[one.on(host="n1") for one in workers("train", 2)])

    expect.running(*names("train", 2))
    assert left(classes) == names("whole", 4)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-233", severity="critical", source=UNITS)
def test_a_single_pod_evicts_a_group_of_mode_all_whole(classes: Trial, expect: Expect) -> None:
    """A group of three with disruptionMode all is on two nodes. A single pod needs two places on one: all three go."""
    hosts(classes, n1=1, n2=2)
    create(classes, "whole", 3, "trial-low", disruptionMode=WHOLE)
    classes.submit(*workers("whole", 3, "trial-low"))
    expect.running(*names("whole", 3))

    classes.submit(filler("single", "trial-high").request(cpu=2).on(host="n2"))

    expect.running("single")
    assert classes.wait(lambda: left(classes) == [], within=30), left(classes)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-341", severity="critical", source="spec WAS-R45, WAS-R48")
@pytest.mark.long(seconds=3)
def test_a_group_goes_whole_with_a_member_that_is_not_bound(
    classes: Trial, expect: Expect, storage: StorageOfCase
) -> None:
    """One pod of a group with disruptionMode all runs, the other one has a place and waits for its volume to be made. A
    pod needs the place of the first: that of the second is free, too."""
    storage.of_class(PROVISIONER)
    hosts(classes, n1=1, n2=1)
    storage.claim("c")
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    here, there = workers("whole", 2, "trial-low")
    there.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    classes.submit(here.on(host="n1"), there.on(host="n2"))
    expect.running("whole-0")
    assert storage.selected_node("c") == "n2"

    classes.submit(filler("single", "trial-high").on(host="n1"))

    expect.running("single")
    classes.submit(filler("next").on(host="n2"))
    expect.bound("next", within=60)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-234", severity="normal", source=BY_PODS)
def test_a_single_pod_goes_where_the_fewest_pods_end(classes: Trial, expect: Expect) -> None:
    """One node has a pod of a group of three with disruptionMode all, another a single pod of equal priority that is
    older: that pod goes."""
    hosts(classes, n1=1, n2=1, n3=2)
    classes.submit(filler("alone").on(host="n2"))
    expect.running("alone")
    classes.pass_time(2)
    create(classes, "whole", 3, "trial-low", disruptionMode=WHOLE)
    classes.submit(*workers("whole", 3, "trial-low"))
    expect.running(*names("whole", 3))

    classes.submit(filler("single", "trial-high"))

    expect.running("single")
    assert left(classes) == names("whole", 3)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-235", severity="normal", source=BY_PODS)
def test_on_one_node_a_single_pod_goes_before_a_group(classes: Trial, expect: Expect) -> None:
    """A node has a pod of a group of two with disruptionMode all, and an older single pod of equal priority. A pod
    that needs one place there: the single pod goes."""
    hosts(classes, n1=2, n2=1)
    classes.submit(filler("alone").on(host="n1"))
    expect.running("alone")
    classes.pass_time(2)
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    classes.submit(*workers("whole", 2, "trial-low"))
    expect.running(*names("whole", 2))

    classes.submit(filler("single", "trial-high").on(host="n1"))

    expect.running("single")
    assert left(classes) == names("whole", 2)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-320", severity="normal", source=BY_PODS)
@pytest.mark.long(seconds=10)
def test_a_group_that_became_smaller_counts_as_it_is(classes: Trial, expect: Expect) -> None:
    """A group of three with disruptionMode all is on two nodes, and two nodes have an older single pod each. For a
    first pod a single pod goes. Then the two pods of the group on the second node end: of the pods that are left, the
    one of the group started last, so that it goes for a second pod."""
    hosts(classes, n1=1, n2=2, n3=1, n4=1)
    classes.submit(filler("a").on(host="n3"), filler("b").on(host="n4"))
    expect.running("a", "b")
    classes.settle(2)  # start times have whole seconds
    create(classes, "whole", 1, "trial-low", disruptionMode=WHOLE)
    here, *there = workers("whole", 3, "trial-low")
    classes.submit(here.on(host="n1"), *(built.on(host="n2") for built in there))
    expect.running(*names("whole", 3))

    def preempt(name: str) -> None:
        single = filler(name, "trial-high")
        single.manifest["spec"]["affinity"] = {"nodeAffinity": NOT_N2}
        classes.submit(single)
        expect.running(name)

    preempt("single-1")
    (stays,) = set(left(classes)) - {*names("whole", 3)}
    classes.delete("whole-1", "whole-2")
    classes.settle(2)

    preempt("single-2")

    assert left(classes) == [stays]


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case(
    "GA-323",
    severity="normal",
    source="spec GANG-R82; kubernetes preemption/executor.go: a victim that ends is skipped",
)
def test_a_pod_of_a_group_that_ends_already_is_not_evicted(classes: Trial, expect: Expect) -> None:
    """A group of two with disruptionMode all is on a node; one of its pods is deleted and ends slowly. A pod
    needs the place of the other one, too: that is evicted, and nothing is written about the first."""
    hosts(classes, n1=2)
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    slow = workers("whole", 2, "trial-low")
    for built in slow:
        built.manifest["spec"]["terminationGracePeriodSeconds"] = 60
    classes.submit(*slow)
    expect.running(*names("whole", 2))
    freeze(classes, "n1")
    assert classes.call("DELETE", classes.path("Pod", "whole-0")).ok
    expect.gone("whole-0")
    single = pod("single").request(cpu=2).priority_class("trial-high")

    classes.submit(single)

    expect.gone("whole-1")
    reasons = [[each.type for each in classes.pod(name).status.conditions] for name in names("whole", 2)]
    assert ["DisruptionTarget" in each for each in reasons] == [False, True]
    thaw(classes, "n1")
    expect.running("single")


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-324", severity="normal", source="spec WAS-R47")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize("goes", ["a", "b"])
@pytest.mark.parametrize("differs", ["size", "age"])
@pytest.mark.parametrize("gathered", [False, True], ids=["pod", "gang"])
def test_of_two_groups_the_smaller_or_the_younger_goes(
    classes: Trial, expect: Expect, differs: str, goes: str, *, gathered: bool
) -> None:
    """A node has a pod of each of two groups with disruptionMode all, whose other pods are on a second node. A pod, or
    a gang, needs one place on the first: the group with fewer pods goes whole, and of equal ones the younger."""
    (stays,) = {"a", "b"} - {goes}
    hosts(classes, n1=2, n2=3)
    sizes = {goes: 2, stays: 3 if differs == "size" else 2}
    for group in (goes, stays) if differs == "size" else (stays, goes):
        create(classes, group, 2, "trial-low", disruptionMode=WHOLE)
        here, *there = workers(group, sizes[group], "trial-low")
        classes.submit(here.on(host="n1"), *(built.on(host="n2") for built in there))
        expect.running(*names(group, sizes[group]))
        classes.settle(2)  # start times have whole seconds
    if gathered:
        create(classes, "train", 1, "trial-high")
    single = member("train-0", "train", "trial-high") if gathered else filler("single", "trial-high")
    single.manifest["spec"]["affinity"] = {"nodeAffinity": NOT_N2}

    classes.submit(single)

    expect.running(single.name)
    assert left(classes) == names(stays, sizes[stays])


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-330", severity="normal", source="spec WAS-R49")
def test_rules_on_other_pods_count_a_whole_group_as_gone(classes: Trial, expect: Expect) -> None:
    """A group of two with disruptionMode all has a pod on each of two nodes of one rack. A single pod that has to be on
    the first node keeps apart from the group in its rack: both pods go."""
    classes.add(*(node(name).cpu(1).label("host", name).label(RACK, "a") for name in ("n1", "n2")))
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    classes.submit(*(built.label("app", "whole") for built in workers("whole", 2, "trial-low")))
    expect.running(*names("whole", 2))
    single = filler("single", "trial-high").on(host="n1")
    single.manifest["spec"]["affinity"] = apart_from("whole", key=RACK)

    classes.submit(single)

    expect.running("single")
    assert left(classes) == []


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-241", severity="normal", source=BY_PODS)
def test_a_budget_protects_a_whole_group(classes: Trial, expect: Expect) -> None:
    """A group of two with disruptionMode all is on two nodes; the pod on the second one is under a budget that allows
    no disruption. A single pod does not need that node, but leaves the group alone: a more important pod goes."""
    hosts(classes, n1=1, n2=1, n3=1)
    classes.submit(filler("middle", "trial-middle").on(host="n3"))
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    first, second = workers("whole", 2, "trial-low")
    classes.submit(first.on(host="n1"), second.on(host="n2").label("app", "guarded"))
    expect.running("middle", *names("whole", 2))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.settle(2)

    single = filler("single", "trial-high")
    single.manifest["spec"]["affinity"] = {"nodeAffinity": NOT_N2}
    classes.submit(single)

    expect.running("single")
    assert left(classes) == names("whole", 2)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-245", severity="normal", source=ORDER)
def test_a_budget_protects_a_whole_group_from_a_native_gang(classes: Trial, expect: Expect) -> None:
    """A node has a pod of a group of two with disruptionMode all, and a more important single pod. The group's other
    pod is elsewhere, under a budget that allows no disruption: for a gang the single pod goes."""
    hosts(classes, n1=2, n2=1)
    classes.submit(filler("middle", "trial-middle").on(host="n1"))
    create(classes, "whole", 2, "trial-low", disruptionMode=WHOLE)
    first, second = workers("whole", 2, "trial-low")
    classes.submit(first.on(host="n1"), second.on(host="n2").label("app", "guarded"))
    expect.running("middle", *names("whole", 2))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.settle(2)

    create(classes, "train", 1, "trial-high")
    classes.submit(*[one.on(host="n1") for one in workers("train", 1)])

    expect.running("train-0")
    assert left(classes) == names("whole", 2)


@pytest.mark.feature("WAS-1.units")
@pytest.mark.case("GA-242", severity="normal", source="ours")
@pytest.mark.profile(PREEMPTING)
def test_the_mode_of_a_native_group_counts_for_job_preemption_too(classes: Trial, expect: Expect) -> None:
    """With job-level preemption, which evicts Koordinator's gangs whole, a group of the default disruptionMode still
    loses only the pod that is needed."""
    hosts(classes, n1=2)
    create(classes, "loose", 2, "trial-low")
    classes.submit(*[one.scheduler(PREEMPTING) for one in workers("loose", 2, "trial-low")])
    expect.running(*names("loose", 2))

    classes.submit(filler("single", "trial-high").scheduler(PREEMPTING))

    expect.running("single")
    assert len(left(classes)) == 1


@pytest.mark.feature("WAS-1.two-dialects")
@pytest.mark.case("GA-243", severity="normal", source="ours")
def test_a_koordinator_gang_preempts_only_where_it_is_switched_on(classes: Trial, expect: Expect) -> None:
    """A Koordinator gang waits for the room of less important pods, a native one of equal priority evicts them."""
    hosts(classes, n1=2)
    classes.submit(filler("low-1"), filler("low-2"))
    expect.running("low-1", "low-2")
    classes.apply(gang("labelled", 2))
    classes.submit(*[filler(name, "trial-high").in_gang("labelled") for name in names("labelled", 2)])
    expect.stable(seconds=10)
    assert bound(classes, "low") == ["low-1", "low-2"]

    create(classes, "train", 2, "trial-top")
    classes.submit(*workers("train", 2, "trial-top"))

    expect.running(*names("train", 2))


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-236", severity="critical", source=UPSTREAM)
def test_pods_under_a_disruption_budget_go_last(classes: Trial, expect: Expect) -> None:
    """A node has two pods of a higher priority and two less important ones under a budget that allows no disruption.
    A gang of two takes the places of the others. A second one takes those of the protected pods."""
    hosts(classes, n1=4)
    guarded = [filler(f"guarded-{number}").label("app", "guarded") for number in range(2)]
    classes.submit(*guarded, *[filler(f"plain-{number}", "trial-middle") for number in range(2)])
    expect.running("guarded-0", "guarded-1", "plain-0", "plain-1")
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=2))
    classes.settle(2)

    create(classes, "train", 2, "trial-high")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == ["guarded-0", "guarded-1"]
    create(classes, "train-more", 2, "trial-high")
    classes.submit(*workers("train-more", 2))
    expect.running(*names("train-more", 2))
    assert left(classes) == []


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-237", severity="critical", source=UPSTREAM)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # simulated containers end soon, whatever their grace period is
def test_members_keep_their_nominations_while_victims_end(classes: Trial, expect: Expect) -> None:
    """Victims need twenty seconds to end. Both members are nominated to their node, a pod of lower priority does not
    get the room, and no third pod goes."""
    hosts(classes, n1=2, n2=1)
    classes.submit(*[filler(f"low-{number}", grace=20).on(host="n1") for number in range(2)])
    classes.submit(filler("other").on(host="n2"))
    expect.running("low-0", "low-1", "other")

    create(classes, "train", 2, "trial-high")
    classes.submit(*[one.on(host="n1") for one in workers("train", 2)])
    for name in names("train", 2):
        expect.nominated(name, "n1")
    (why,) = [one.message for one in classes.pod("low-0").status.conditions if one.type == "DisruptionTarget"]
    assert why.endswith(": preempting to accommodate a higher priority podgroup"), why
    classes.submit(filler("rival", "trial-middle").on(host="n1"))

    expect.running(*names("train", 2), within=60)
    assert left(classes) == ["other", "rival"]
    assert bound(classes, "rival") == []


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-238", severity="critical", source="ours")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # simulated containers end soon, whatever their grace period is
def test_a_native_gang_that_loses_a_member_gives_its_room_back(classes: Trial, expect: Expect) -> None:
    """Two pods end for a gang of two. One of its members is deleted meanwhile: the other is not nominated any more,
    and a less important pod gets the room."""
    hosts(classes, n1=2)
    classes.submit(*[filler(f"low-{number}", grace=20) for number in range(2)])
    expect.running("low-0", "low-1")
    create(classes, "train", 2, "trial-high")
    classes.submit(*workers("train", 2))
    for name in names("train", 2):
        expect.nominated(name, "n1")

    classes.delete("train-1")
    classes.submit(pod("next").request(cpu=2).priority_class("trial-middle"))

    expect.running("next", within=60)
    assert nominations(classes, "train-0") == [""]


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-239", severity="normal", source="kubernetes pkg/scheduler/schedule_one_podgroup.go@v1.37.2")
def test_a_member_beyond_the_minimum_preempts_too(classes: Trial, expect: Expect) -> None:
    """Two members, a minimum of one, one free CPU: the first runs there. The second evicts a less important pod."""
    hosts(classes, n1=1, n2=1)
    classes.submit(filler("low").on(host="n1"))
    expect.running("low")

    create(classes, "train", 1, "trial-high")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == []


@pytest.mark.feature("WAS-1.preempts")
@pytest.mark.case("GA-240", severity="normal", source=UPSTREAM)
@pytest.mark.gate("TopologyAwareWorkloadScheduling")
def test_a_native_gang_makes_room_in_one_rack(classes: Trial, expect: Expect) -> None:
    """A gang within one rack. Rack a has a pod that may go and one that may not, rack b two that may: those go."""
    racks = {"a-1": "trial-low", "a-2": "trial-top", "b-1": "trial-low", "b-2": "trial-low"}
    classes.add(*(node(name).cpu(1).label(RACK, name[0]).label("host", name) for name in racks))
    classes.submit(*[filler(f"on-{name}", priority).on(host=name) for name, priority in racks.items()])
    expect.running(*(f"on-{name}" for name in racks))
    constraints = {"topology": [{"key": RACK}]}

    create(classes, "train", 2, "trial-high", schedulingConstraints=constraints)
    group = orjson.loads(classes.call("GET", f"{API}/namespaces/{classes.name}/podgroups/train").body)
    if group["spec"].get("schedulingConstraints") != constraints:
        pytest.skip("the cluster drops schedulingConstraints (feature gate TopologyAwareWorkloadScheduling)")
    classes.submit(*workers("train", 2))

    expect.running(*names("train", 2))
    assert left(classes) == ["on-a-1", "on-a-2"]
