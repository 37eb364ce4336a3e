"""Several preemptors: which nominated room counts for which pod, and the messages when a nomination ends."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import disruption_budget, node
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.suites.preemption.nominations import freeze, of, preempt_on_frozen, thaw
from seatrial.suites.preemption.priorities import classes

__all__ = ["classes"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-040", severity="critical")
@pytest.mark.parametrize(("before", "ends"), [(1, False), (2, False), (1, True)], ids=["one", "two", "ends-anyway"])
def test_the_room_of_an_equal_preemptor_counts(classes: Trial, expect: Expect, *, before: int, ends: bool) -> None:
    """The victim on n1 ends slowly for a first pod, or for two that share its room, or did so before. An equally
    important next one does not wait for the same room: it takes that of the pod on n2, although that one is more
    important."""
    classes.add(node("n1").cpu(4).label("host", "n1"), node("n2").cpu(4).label("host", "n2"))
    classes.submit(of("low", "low", 4).on(host="n1"), of("middle", "middle", 4).on(host="n2"))
    expect.running("low", "middle")
    freeze(classes, "n1")
    if ends:
        assert classes.call("DELETE", classes.path("Pod", "low")).ok
        classes.settle()
    for number in range(before):
        classes.submit(of("high", f"first-{number}", 4 // before))
        expect.nominated(f"first-{number}", "n1")

    classes.submit(of("high", "second", 4 // before))

    expect.gone("middle")
    assert expect.bound("second").spec.node_name == "n2"


@pytest.mark.feature("PRE-1.freed-place")
@pytest.mark.case("PR-041", severity="critical")
def test_the_room_of_a_less_important_preemptor_does_not_count(classes: Trial, expect: Expect) -> None:
    """The only node is nominated for a pod while its victim ends: a more important pod is nominated there instead."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "low", 4), by=of("high", "high", 4))

    classes.submit(of("top", "top", 4))

    expect.nominated("top", "n1")
    expect.nominated("high", "")


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-043", severity="critical")
@pytest.mark.long(seconds=6)
@pytest.mark.parametrize("changed", ["pod", "budget"])
def test_a_budget_that_a_pod_comes_under_counts(classes: Trial, expect: Expect, changed: str) -> None:
    """A first preemption takes the pod of n1. Then the pod of n2 gets the label of a budget, or the budget selects the
    label that it has: the second one takes the more important pod of n3."""
    hosts = ("n1", "n2", "n3")
    classes.add(*(node(name).cpu(4).label("host", name) for name in hosts))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    levels = {"n1": "low", "n2": "low", "n3": "middle"}
    classes.submit(
        *(
            of(level, f"{level}-{name}", 4).label("name", f"{level}-{name}").on(host=name)
            for name, level in levels.items()
        )
    )
    expect.running("low-n1", "low-n2", "middle-n3")
    classes.submit(of("high", "first", 4))
    first = expect.running("first").spec.node_name
    (guarded,) = {"low-n1", "low-n2"} - {f"low-{first}"}
    path = classes.path("Pod", guarded)
    body: dict[str, Any] = {"metadata": {"labels": {"app": "guarded"}}}
    if changed == "budget":
        path = f"/apis/policy/v1/namespaces/{classes.name}/poddisruptionbudgets/keep"
        body = {"spec": {"selector": {"matchLabels": {"app": None, "name": guarded}}}}
    assert classes.call("PATCH", path, body).ok
    classes.settle(3)  # the budget's status counts it

    classes.submit(of("high", "second", 4))

    assert expect.running("second").spec.node_name == "n3"
    assert not classes.pod(guarded).deleting


@pytest.mark.feature("PRE-1.budgets")
@pytest.mark.case("PR-064", severity="critical", source="spec FWK-R78, FWK-R81")
@pytest.mark.long(seconds=8)
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(None, id="deleted"),
        pytest.param({"minAvailable": 0}, id="lowered"),
        pytest.param({"selector": {"matchLabels": {"app": "nobody"}}}, id="other-pods"),
        pytest.param({}, id="enough-others"),
    ],
)
def test_a_budget_that_ends_protects_no_more(classes: Trial, expect: Expect, change: dict[str, Any] | None) -> None:
    """A budget keeps the low pod of n1 from a first preemption, which takes a more important one. Then the budget is
    deleted, allows a disruption, selects other pods, or another of its pods runs: the second preemption takes the low
    pod."""
    classes.add(*(node(name).cpu(4).label("host", name) for name in ("n1", "n2", "n3")))
    classes.apply(disruption_budget("keep", {"app": "guarded"}, min_available=1))
    classes.submit(of("low", "low", 4).label("app", "guarded").on(host="n1"))
    classes.submit(*(of("middle", f"middle-{name}", 4).on(host=name) for name in ("n2", "n3")))
    expect.running("low", "middle-n2", "middle-n3")
    classes.settle(3)  # the budget's status counts it
    classes.submit(of("high", "first", 4))
    assert expect.running("first").spec.node_name != "n1"

    path = f"/apis/policy/v1/namespaces/{classes.name}/poddisruptionbudgets/keep"
    if change is None:
        assert classes.call("DELETE", path).ok
    elif not change:
        classes.add(node("n4").cpu(1).label("host", "n4"))
        classes.submit(of("top", "another", 1).label("app", "guarded").on(host="n4"))
        expect.running("another")
    else:
        assert classes.call("PATCH", path, {"spec": change}).ok
    classes.settle(3)
    classes.submit(of("high", "second", 4))

    expect.gone("low")
    assert expect.running("second").spec.node_name == "n1"


@pytest.mark.feature("PRE-1.lower-goes", "SHELL-5.refusal")
@pytest.mark.case("PR-044", severity="normal")
def test_a_victim_has_an_event(classes: Trial, expect: Expect) -> None:
    """The event Preempted of the victim names the preemptor's uid and the node."""
    classes.add(node("n1").cpu(4))
    classes.submit(of("low", "low", 4))
    expect.running("low")
    classes.submit(of("high", "high", 4))
    uid = expect.running("high").metadata.uid

    def event_messages() -> list[str]:
        return [event.message for event in classes.events("low") if event.reason == "Preempted"]

    assert classes.reaches(lambda: bool(event_messages()), within=10), classes.events("low")
    assert uid in event_messages()[0]
    assert "n1" in event_messages()[0]


@pytest.mark.feature("PRE-1.lower-goes", "SHELL-5.refusal")
@pytest.mark.case(
    "PR-272", severity="normal", source="kubernetes framework/preemption/preemption.go@v1.34: Eventf(victim, preemptor"
)
def test_the_event_of_a_victim_refers_to_the_preemptor(classes: Trial, expect: Expect) -> None:
    """The event Preempted has the preemptor as its related object."""
    classes.add(node("n1").cpu(4))
    classes.submit(of("low", "low", 4))
    expect.running("low")
    classes.submit(of("high", "high", 4))
    uid = expect.running("high").metadata.uid

    def related() -> list[str]:
        events = orjson.loads(classes.call("GET", f"/apis/events.k8s.io/v1/namespaces/{classes.name}/events").body)
        return [each.get("related", {}).get("uid", "") for each in events["items"] if each["reason"] == "Preempted"]

    assert classes.reaches(lambda: related() == [uid], within=10), related()


@pytest.mark.feature("PRE-1.lower-goes", "SHELL-5.refusal")
@pytest.mark.case("PR-274", severity="normal", source="kubernetes framework/preemption/preemption.go@v1.34: PreemptPod")
@pytest.mark.profile(KOORD_SCHEDULER)
def test_a_victim_says_which_scheduler_preempted_it(classes: Trial, expect: Expect) -> None:
    """The message of the victim's condition DisruptionTarget begins with the preemptor's scheduler name."""
    classes.add(node("n1").cpu(4))
    preempt_on_frozen(classes, expect, of("low", "low", 4), by=of("high", "high", 4).scheduler(KOORD_SCHEDULER))
    (condition,) = (each for each in classes.pod("low").status.conditions if each.type == "DisruptionTarget")
    assert condition.message.startswith(f"{KOORD_SCHEDULER}: preempting to accommodate"), condition


@pytest.mark.feature("PRE-1.minimal-victims")
@pytest.mark.case("PR-081", severity="normal", source="spec FWK-R77, FWK-R78: of equal victims the younger goes")
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # what a node's agent writes is written by the case
@pytest.mark.parametrize("younger", ["a", "b"])
def test_when_pods_started_counts_as_soon_as_it_is_known(classes: Trial, expect: Expect, younger: str) -> None:
    """Preemptions take the pods of n2 and n3, while two equal pods of n1 have not started. Then these start one after
    the other: the next preemption takes the younger one."""
    classes.add(*(node(name).cpu(8).label("host", name) for name in ("n1", "n2", "n3")))
    classes.submit(*(of("low", f"cheap-{name}", 8).on(host=name) for name in ("n2", "n3")))
    expect.running("cheap-n2", "cheap-n3")
    freeze(classes, "n1")
    classes.settle(2)
    classes.submit(*(of("middle", name, 4).on(host="n1") for name in ("a", "b")))
    expect.bound("a", "b")
    for name in ("n2", "n3"):
        classes.submit(of("high", f"on-{name}", 8))
        expect.running(f"on-{name}")
    for name in ("a", "b"):
        moment = classes.cluster.clock.now() - (10 if name == younger else 20)
        status = {"status": {"phase": "Running", "startTime": rfc3339(moment)}}
        assert classes.call("PATCH", f"{classes.path('Pod', name)}/status", status).ok
    classes.settle(2)

    classes.submit(of("high", "third", 4))

    expect.gone(younger)
    assert not classes.pod("b" if younger == "a" else "a").deleting
    thaw(classes, "n1")
