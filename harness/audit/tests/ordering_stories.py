"""Stories of reservations, preemption, gangs and quotas."""

import json
from collections.abc import Callable
from typing import Any

from seatrial.harness.audit.tests.story import Story, preempted
from seatrial.scheduler.api.reservation import RESERVATION_AFFINITY, RESERVATION_ALLOCATED


def owned(story: Story, name: str, **more: Any) -> None:
    story.pod(name, **more)
    story.bind(name, **{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})})


def other_node(story: Story, broken: bool) -> None:
    story.node("n2")
    story.reservation(node="n2" if broken else "n1")
    owned(story, "p")


def no_owner(story: Story, broken: bool) -> None:
    story.reservation()
    owned(story, "p", labels={"app": "b" if broken else "a"})


def second_owner(story: Story, broken: bool) -> None:
    story.reservation(allocateOnce=broken)
    owned(story, "a")
    owned(story, "b")


def overdrawn(story: Story, broken: bool) -> None:
    story.reservation(allocatePolicy="Restricted")
    owned(story, "a", cpu="3")
    owned(story, "b", cpu="2" if broken else "1")


def outside(story: Story, broken: bool) -> None:
    story.reservation()
    story.pod("p", annotations={RESERVATION_AFFINITY: "{}"})
    if broken:
        story.bind("p")
    else:
        story.bind("p", **{RESERVATION_ALLOCATED: json.dumps({"name": "r", "uid": "r"})})


def failed_reservation(story: Story, broken: bool) -> None:
    story.reservation(phase="Failed" if broken else "Available")
    owned(story, "p")


def takes_reserved(story: Story, broken: bool) -> None:
    story.reservation(cpu="5")
    story.pod("p", cpu="4" if broken else "3", labels={"app": "b"}).bind("p")


def for_nobody(story: Story, broken: bool) -> None:
    story.pod("low", priority=5).bind("low")
    story.pod("other", priority=5 if broken else 9)
    preempted(story, "low")


def not_preemptible(story: Story, broken: bool) -> None:
    label = {"scheduling.koordinator.sh/disable-preemptible": "true" if broken else "false"}
    story.pod("low", priority=5, labels=label).bind("low")
    story.pod("high", priority=9)
    preempted(story, "low")


def never(story: Story, broken: bool) -> None:
    story.pod("low", priority=5).bind("low")
    story.pod("p", priority=9, preemptionPolicy="Never" if broken else "PreemptLowerPriority")
    preempted(story, "low")


REFUSED = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def takes_nominated(story: Story, broken: bool) -> None:
    story.pod("high", cpu="6", priority=9)
    story.change("high", status={"nominatedNodeName": "n1", "conditions": REFUSED})
    story.pod("low", cpu="3" if broken else "2", priority=1).bind("low")


def inversion(story: Story, broken: bool) -> None:
    story.pod("high", priority=9 if broken else 1)
    story.pod("low", priority=1)
    story.keep_deciding()
    story.bind("low")


def lost(story: Story, broken: bool) -> None:
    story.pod("first").bind("first")
    story.tell("PodGroup", "ADDED", {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}})
    # Two gangs that lack a member: one by its PodGroup, the other by annotations.
    story.pod("member", labels={"pod-group.scheduling.sigs.k8s.io": "g"})
    declared = {"name": "h", "min-available": "2"}
    story.pod("alone", annotations={f"gang.scheduling.koordinator.sh/{key}": value for key, value in declared.items()})
    story.at += 60
    story.pod("p")
    story.at += 90 if broken else 30


def half_gang(story: Story, broken: bool) -> None:
    group = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
    story.tell("PodGroup", "ADDED", group)
    refused = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    for name in ("a", "b"):
        story.pod(name, labels={"pod-group.scheduling.sigs.k8s.io": "g"}, status=refused)
    story.bind("a")
    if not broken:
        story.bind("b")
    story.at += 300


def quota(story: Story, broken: bool) -> None:
    body = {"metadata": {"name": "q", "namespace": "default"}, "spec": {"max": {"cpu": "3"}}}
    story.tell("ElasticQuota", "ADDED", body)
    for name in ("a", "b"):
        story.pod(name, cpu="2" if broken else "1500m", labels={"quota.scheduling.koordinator.sh/name": "q"}).bind(name)


STORIES: dict[str, Callable[[Story, bool], None]] = {
    "AUD-401": other_node,
    "AUD-402": no_owner,
    "AUD-403": second_owner,
    "AUD-404": overdrawn,
    "AUD-405": outside,
    "AUD-406": failed_reservation,
    "AUD-407": takes_reserved,
    "AUD-501": for_nobody,
    "AUD-502": not_preemptible,
    "AUD-503": never,
    "AUD-504": takes_nominated,
    "AUD-505": inversion,
    "AUD-506": lost,
    "AUD-601": half_gang,
    "AUD-602": quota,
}
