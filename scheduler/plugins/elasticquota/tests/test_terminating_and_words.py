"""Pods that are being deleted, pods of a quota with children, the latency of hooks, and figures in messages."""

from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod, quota
from seatrial.scheduler.api.clock import rfc3339
from seatrial.scheduler.framework.decisions import Reject
from seatrial.scheduler.plugins.elasticquota.tests.test_plugin import cores, put, refusals, rig_with
from seatrial.scheduler.serving.exposition import exposed
from seatrial.scheduler.tests.rig import Rig

AFTER_GRACE = {"ignoreTerminatingPodAfterGracePeriod": True}


def deleted(rig: Rig, name: str, *, grace: int | None) -> None:
    """The pod gets its deletion mark now."""
    pod = rig.pods[name]
    metadata = replace(pod.metadata, deletion_timestamp=rfc3339(rig.clock.now()), deletion_grace_period_seconds=grace)
    rig.pods[name] = replace(pod, metadata=metadata)
    rig.core.intake.set_pod(rig.pods[name])
    rig.run()


def full(**args: bool) -> Rig:
    """A quota of four cores with a running pod of three, and a waiting one of three."""
    rig = rig_with(**args)
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.running(cores("old", "q", 3), "n1")
    rig.submit(cores("new", "q", 3))
    rig.run()
    assert rig.where("new") == ""
    rig.clock.advance(20)
    return rig


def test_a_terminating_pod_counts_until_its_grace_period_ends() -> None:
    """QUOTA-R34: thirty seconds after the deletion timestamp, and not at it, the room is free."""
    rig = full(**AFTER_GRACE)
    deleted(rig, "old", grace=30)
    rig.clock.advance(29)
    rig.run()
    assert rig.where("new") == ""
    rig.clock.advance(2)
    rig.run()
    assert rig.where("new") == "n1"


def test_without_a_grace_period_it_counts_until_its_timestamp() -> None:
    rig = full(**AFTER_GRACE)
    deleted(rig, "old", grace=None)
    rig.clock.advance(1)
    rig.run()
    assert rig.where("new") == "n1"


def test_without_the_gate_a_terminating_pod_counts_until_it_is_gone() -> None:
    rig = full()
    deleted(rig, "old", grace=1)
    rig.clock.advance(250)
    rig.run()
    assert rig.where("new") == ""


def test_immediately_wins_over_after_the_grace_period() -> None:
    rig = full(ignoreTerminatingPod=True, **AFTER_GRACE)
    deleted(rig, "old", grace=3600)
    assert rig.where("new") == "n1"


def test_a_terminating_pod_that_is_gone_sooner_is_forgotten_once() -> None:
    rig = full(**AFTER_GRACE)
    deleted(rig, "old", grace=30)
    rig.delete("old")
    rig.run()
    assert rig.where("new") == "n1"
    rig.clock.advance(60)
    rig.submit(cores("more", "q", 2))
    rig.run()
    assert rig.where("more") == "", "the room of the old pod was given back once"


def test_pods_of_a_quota_with_children_count_there() -> None:
    """A parent of six cores has a pod of four itself: its child gets two (QUOTA-R7)."""
    rig = rig_with(enableCheckParentQuota=True)
    rig.node("n1")
    put(rig, quota("p").max(cpu=6).parent(), quota("c").max(cpu=6).below("p"))
    rig.submit(cores("own", "p", 4))
    rig.run()
    rig.submit(cores("big", "c", 3), cores("small", "c", 2))
    rig.run()
    assert (rig.where("own"), rig.where("big"), rig.where("small")) == ("n1", "", "n1")


def test_new_figures_are_told_after_a_pause() -> None:
    """The quota's use changes while the pod waits: its message follows ten seconds later, and once."""
    rig = rig_with()
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.running(cores("a", "q", 1), "n1")
    rig.running(cores("b", "q", 1), "n1")
    rig.submit(cores("waits", "q", 4))
    rig.run()
    assert "used: cpu:2" in refusals(rig)["waits"]
    rig.decisions.clear()
    rig.clock.advance(20)
    rig.delete("a")
    rig.run()
    assert not rig.decisions
    rig.clock.advance(10)
    rig.run()
    decisions = [one for one in rig.decisions if isinstance(one, Reject)]
    assert [one.info.pod.metadata.name for one in decisions] == ["waits"]
    assert "used: cpu:1" in decisions[0].message
    rig.clock.advance(30)
    rig.run()
    assert len([one for one in rig.decisions if isinstance(one, Reject)]) == 1


def test_calls_of_hooks_are_measured() -> None:
    rig = rig_with(hookPlugins=[{"key": "count", "factoryKey": "podCount", "factoryArgs": '{"maxPods": 1}'}])
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.submit(cores("a", "q", 1), cores("b", "q", 1), pod("c"))
    rig.run()
    text = exposed(family for collect in rig.core.handle.exports for family in collect()).decode()
    name = "scheduler_elastic_quota_hook_plugin_latency_count"
    assert f'{name}{{plugin="count",operation="OnPodUpdated"}} 2' in text  # a, and c in the default quota
    assert f'{name}{{plugin="count",operation="PreQuotaUpdate"}} 1' in text
    assert f'{name}{{plugin="count",operation="CheckPod"}}' in text
