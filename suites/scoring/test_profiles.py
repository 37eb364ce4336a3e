"""Profiles of one configuration file, and what the scheduler reports to the owner of a pod."""

from functools import partial

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.extension import KOORD_SCHEDULER, RAISES_IN, SCHEDULER_NAME_LABEL

NO_PREEMPTION = "no-preemption"
PLUGIN_ERRORS = "plugin-errors"  # pods name the extension point at which a plugin raises an exception

pytestmark = [pytest.mark.needs(Capability.NODES)]


def refusal(trial: Trial, name: str) -> str:
    """The message of the pod's PodScheduled condition."""
    return next(
        condition.message for condition in trial.pod(name).status.conditions if condition.type == "PodScheduled"
    )


@pytest.mark.profile(NO_PREEMPTION)
@pytest.mark.feature("SHELL-1.disable-plugin")
@pytest.mark.case("SH-001", severity="critical")
@pytest.mark.long(seconds=4)
def test_a_plugin_that_the_profile_turned_off(trial: Trial, expect: Expect) -> None:
    """Without DefaultPreemption a high-priority pod waits, with no word of preemption; by default it preempts."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod("weak").request(cpu=3))
    expect.running("weak")
    trial.submit(pod("patient").request(cpu=3).priority_class("system-cluster-critical").scheduler(NO_PREEMPTION))
    expect.pending("patient", saying="Insufficient")
    assert "preemption" not in refusal(trial, "patient")
    expect.stable(seconds=3)
    trial.delete("patient")
    trial.submit(pod("strong").request(cpu=3).priority_class("system-cluster-critical"))
    expect.gone("weak")
    expect.bound("strong", within=90)


@pytest.mark.feature("SHELL-1.profiles")
@pytest.mark.case("SH-002", severity="critical")
def test_a_pod_of_another_scheduler_is_left_alone(trial: Trial, expect: Expect) -> None:
    """A pod of another scheduler gets neither a node nor a condition."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod("other").request(cpu=3).scheduler("absent-scheduler"))
    expect.stable(seconds=3)
    assert trial.pod("other").status.conditions == ()
    assert trial.events("other") == []
    trial.submit(pod("mine").request(cpu=3))
    expect.bound("mine")


@pytest.mark.profile(KOORD_SCHEDULER)
@pytest.mark.feature("SHELL-1.profiles")
@pytest.mark.case(
    "SC-700", severity="normal", source="spec FWK-R9; koordinator apis/extension/multi_scheduler.go@v1.7.0"
)
def test_a_label_names_the_scheduler_of_a_pod(trial: Trial, expect: Expect) -> None:
    """The label wins over schedulerName: a pod that names another scheduler is placed, and one that names this one is
    left alone until the label is gone. A pod that waits and gets the label is left alone from then on."""
    trial.add(node("n1").cpu(4))
    away = pod("away").request(cpu=1).label(SCHEDULER_NAME_LABEL, "absent-scheduler")
    here = pod("here").request(cpu=1).scheduler("absent-scheduler")
    trial.submit(away.scheduler(KOORD_SCHEDULER))
    trial.submit(here.label(SCHEDULER_NAME_LABEL, trial.cluster.scheduler_name(KOORD_SCHEDULER)))
    expect.bound("here")
    expect.stable(seconds=2)
    assert trial.pod("away").status.conditions == ()

    def rename(name: str, scheduler: str | None) -> None:
        body = {"metadata": {"labels": {SCHEDULER_NAME_LABEL: scheduler}}}
        assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/{name}", body).ok

    rename("away", None)
    expect.bound("away")
    trial.submit(pod("leaves").request(cpu=8).scheduler(KOORD_SCHEDULER))
    expect.pending("leaves")
    rename("leaves", "absent-scheduler")
    trial.settle(2)
    trial.add(node("n2").cpu(16))
    expect.stable(seconds=2)
    assert not trial.pod("leaves").spec.node_name


@pytest.mark.feature("SHELL-5.refusal", "SHELL-5.binding")
@pytest.mark.case("SH-003", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)
def test_why_a_pod_is_where_it_is_or_nowhere(trial: Trial, expect: Expect) -> None:
    """A refusal counts the nodes by reason, in condition and event; a binding is an event with the node."""
    trial.add(node("n1").gpus("a10", 1), node("n2").gpus("a10", 1).taint("closed"))
    trial.submit(pod("placed").gpus(1))
    expect.bound("placed")
    trial.submit(pod("refused").gpus(1))
    expect.pending("refused")
    message = refusal(trial, "refused")
    assert "Insufficient" in message
    assert "1 node(s) had untolerated taint" in message
    events = {(event.reason, event.message) for event in trial.events("refused")}
    assert ("FailedScheduling", message) in events
    (bound,) = [event.message for event in trial.events("placed") if event.reason == "Scheduled"]
    assert bound == f"Successfully assigned {trial.name}/placed to n1"


@pytest.mark.profile(PLUGIN_ERRORS)
@pytest.mark.feature("SHELL-5.plugin-error")
@pytest.mark.case("SH-033", severity="critical")
def test_a_plugin_that_raises_an_exception(trial: Trial, expect: Expect) -> None:
    """For six pods that want the only card a plugin raises in each attempt, before or after the card is reserved: they
    are told so, and another pod gets the card. For six more pods the plugin raises twice: then they are bound."""
    points = ("PreFilter", "Filter", "Score", "Reserve", "Permit", "PreBind")

    def raising(name: str, pool: str, where: str) -> PodBuilder:
        built = pod(name).gpus(1).on(pool=pool).scheduler(PLUGIN_ERRORS)
        return built.annotation(RAISES_IN, where) if where else built

    def has_event(name: str) -> bool:
        return any(
            event.reason == "FailedScheduling" and 'plugin "ErrorInjection"' in event.message
            for event in trial.events(name)
        )

    trial.add(node("n1").gpus("a10", 1).label("pool", "one"), node("n2").gpus("a10", 6).label("pool", "six"))
    for point in points:
        name = f"always-{point.lower()}"
        trial.submit(raising(name, "one", point))
        expect.pending(name, saying=f'running {point} plugin "ErrorInjection"')
        (condition,) = [
            candidate for candidate in trial.pod(name).status.conditions if candidate.type == "PodScheduled"
        ]
        assert condition.reason == "SchedulerError", condition
        assert trial.reaches(partial(has_event, name), within=60), f"expected an event of {name}: {trial.events(name)}"
    trial.submit(raising("other", "one", ""))
    expect.bound("other", within=60)
    trial.submit(*(raising(f"twice-{point.lower()}", "six", f"{point}/2") for point in points))
    expect.bound(*(f"twice-{point.lower()}" for point in points), within=60)
