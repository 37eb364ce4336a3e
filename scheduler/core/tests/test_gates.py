"""Gates: pods that wait for a condition of their own are woken by its key, in queue order, and by nothing else."""

from typing import ClassVar

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.extension_points import Gate, PreEnqueue, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.tests.rig import Rig, profile


class Licences(Gate, PreEnqueue):
    """Pods with the label `licence` need free licences of that name, as many as their cpu request."""

    name = "Licences"
    scope = Scope.NODE
    reads_labels: ClassVar = ["licence"]
    free: ClassVar[dict[str, int]]
    pod_names: ClassVar[list[str]]
    known: ClassVar[set[str]]

    def __init__(self, handle: Handle) -> None:
        del handle

    def pre_enqueue(self, pod: Pod) -> Status:
        owner = pod.metadata.labels.get("owner", "")
        if not owner or owner in self.known:
            return SUCCESS
        return Status.unresolvable(f"owner {owner} is unknown").until(f"owner/{owner}")

    def gate_key(self, pod: Pod) -> str:
        name = pod.metadata.labels.get("licence", "")
        return f"licence/{name}" if name else ""

    def gate(self, info: PodInfo) -> Status:
        self.pod_names.append(info.pod.metadata.name)
        name = info.pod.metadata.labels["licence"]
        if self.free[name] * 1000 >= info.pod_class.requests["cpu"]:
            return SUCCESS
        return Status.unschedulable(f"no licence {name}")


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    for name, value in {"free": {"a": 0, "b": 0}, "pod_names": [], "known": set()}.items():
        monkeypatch.setattr(Licences, name, value, raising=False)
    rig = Rig(profile(plugins={"multiPoint": {"enabled": [{"name": "Licences"}]}}), plugins=[Licences])
    rig.node("n1")
    return rig


def take(rig: Rig, name: str) -> None:
    """Decide once, and count the licence of a pod that is placed."""
    for decision in rig.core.decide():
        rig.decisions.append(decision)
        if isinstance(decision, Bind) and rig.where(decision.info.pod.metadata.name):
            Licences.free[name] -= 1


def test_a_closed_gate_is_reported_and_only_its_key_wakes_the_pod(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    assert rig.message("p").startswith("0/1 nodes are available: no licence a. preemption:")
    Licences.free["a"] = 1
    rig.clock.advance(20)
    rig.node("n2")
    rig.core.handle.open_gate("licence/b")
    rig.run()
    assert (rig.where("p"), Licences.pod_names) == ("", ["p"])
    rig.core.handle.open_gate("licence/a")
    rig.run()
    assert rig.where("p")


def test_a_gate_that_opens_during_backoff_lets_the_pod_through_at_its_end(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    Licences.free["a"] = 1
    rig.core.handle.open_gate("licence/a")
    rig.clock.advance(0.9)
    rig.run()
    assert not rig.where("p")
    rig.clock.advance(0.2)
    rig.run()
    assert rig.where("p") == "n1"


def test_pods_pass_an_opened_gate_in_queue_order_until_it_closes(rig: Rig) -> None:
    rig.submit(*(pod(f"p{number}").request(cpu=1).label("licence", "a") for number in range(5)))
    rig.submit(
        pod("large").request(cpu=3).label("licence", "a"), pod("first").request(cpu=1).label("licence", "a").priority(5)
    )
    rig.run()
    rig.clock.advance(20)
    Licences.free["a"], Licences.pod_names[:] = 2, []
    rig.core.handle.open_gate("licence/a")
    while rig.core.busy:
        take(rig, "a")
    assert [name for name in rig.pods if rig.where(name)] == ["p0", "first"]
    assert len(Licences.pod_names) < 12, "each class is asked once for each pod that passes"


def test_a_smaller_pod_passes_a_gate_that_holds_a_larger_one_back(rig: Rig) -> None:
    rig.submit(pod("large").request(cpu=3).label("licence", "a"), pod("small").request(cpu=1).label("licence", "a"))
    rig.run()
    rig.clock.advance(20)
    Licences.free["a"] = 1
    rig.core.handle.open_gate("licence/a")
    while rig.core.busy:
        take(rig, "a")
    assert (rig.where("large"), rig.where("small")) == ("", "n1")


def test_pre_enqueue_is_asked_again_under_its_key(rig: Rig) -> None:
    rig.submit(*(pod(f"p{number}").request(cpu=1).label("owner", "x") for number in range(3)))
    rig.run()
    assert rig.core.queue.counts()["gated"] == 3
    Licences.known.add("x")
    rig.core.handle.open_gate("owner/x")
    rig.run()
    assert all(rig.where(name) for name in rig.pods)


def test_held_pods_are_asked_again_after_five_minutes(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    Licences.free["a"] = 1
    rig.clock.advance(299)
    rig.run()
    assert not rig.where("p")
    rig.clock.advance(2)
    rig.run()
    assert rig.where("p") == "n1"


def test_keys_are_read_again_on_request(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    monkeypatch.setattr(Licences, "gate_key", lambda *_: "")
    rig.core.handle.request_regate()
    rig.run()
    assert rig.where("p") == "n1"


def test_explain_names_the_closed_gate(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    entry = rig.core.queue.find("uid-p")
    assert entry is not None
    rejected = explain(rig.core.runners.of(entry.info), entry.info).rejected["n1"]
    assert (rejected.plugin, rejected.message) == ("Licences", "no licence a")


def test_a_held_pod_that_is_deleted_leaves_nothing_behind(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    rig.delete("p")
    assert len(rig.core.queue) == 0
    rig.core.handle.open_gate("licence/a")
    assert not rig.core.busy


def test_pods_behind_closed_gates_are_asked_again_after_five_minutes_each(rig: Rig) -> None:
    rig.submit(pod("p").request(cpu=1).label("licence", "a"))
    rig.run()
    rig.clock.advance(200)
    rig.submit(pod("q").request(cpu=1).label("licence", "b"))
    rig.run()
    Licences.pod_names.clear()
    Licences.free["b"] = 1  # without a word to the scheduler
    rig.clock.advance(100)
    rig.run()
    assert Licences.pod_names == ["p"]
    rig.clock.advance(300)
    rig.run()
    assert rig.where("q")
