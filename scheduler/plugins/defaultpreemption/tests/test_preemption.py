"""Pod-level preemption (PRE-1, FWK-R75 to FWK-R81)."""

from collections.abc import Callable

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.framework.decisions import ClearNomination, Evict
from seatrial.scheduler.tests.rig import Rig


def start(minute: int) -> str:
    return f"2026-01-01T00:{minute:02}:00Z"


def full_node(rig: Rig, name: str, **pods: int) -> None:
    """A node of 4 CPUs, filled by pods named `name`-key with these priorities, one CPU each."""
    rig.node(name, cpu="4")
    for number, (key, priority) in enumerate(pods.items()):
        rig.running(pod(f"{name}-{key}").request(cpu=1).priority(priority), name, started=start(number))


def test_the_least_important_pods_go_and_no_more_than_needed() -> None:
    rig = Rig()
    full_node(rig, "n", a=5, b=1, c=3, d=7)
    rig.submit(pod("p").request(cpu=2).priority(10))
    rig.run()
    assert sorted(rig.victims()) == ["n-b", "n-c"]
    assert rig.rejection("p").nominated == "n"


def test_equal_priority_is_left_alone() -> None:
    rig = Rig()
    full_node(rig, "n", a=10, b=10, c=10, d=10)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == []
    assert rig.message("p").endswith("1 No preemption victims found for incoming pod.")


def test_never_means_never() -> None:
    rig = Rig()
    full_node(rig, "n", a=1, b=1, c=1, d=1)
    rig.submit(pod("p").request(cpu=1).priority(10).never_preempts())
    rig.run()
    assert rig.victims() == []
    assert rig.message("p").endswith("preemption: not eligible due to preemptionPolicy=Never.")


def test_the_node_whose_loss_weighs_least_is_taken() -> None:
    rig = Rig()
    full_node(rig, "dear", a=8, b=8, c=8, d=8)
    full_node(rig, "cheap", a=2, b=2, c=2, d=2)
    full_node(rig, "middling", a=5, b=5, c=5, d=5)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.rejection("p").nominated == "cheap"
    assert rig.victims() == ["cheap-d"], "among equals the one that started last goes"


def test_fewer_victims_are_better_than_more_of_the_same() -> None:
    rig = Rig()
    full_node(rig, "many", a=1, b=1, c=1, d=1)
    rig.node("one", cpu="4")
    rig.running(pod("large").request(cpu=4).priority(1), "one", started=start(1))
    rig.submit(pod("p").request(cpu=2).priority(10))
    rig.run()
    assert rig.victims() == ["large"]


def test_a_budget_is_respected_where_there_is_a_choice() -> None:
    rig = Rig()
    full_node(rig, "guarded", a=1, b=1, c=1, d=1)
    full_node(rig, "free", a=4, b=4, c=4, d=4)
    for name in ("guarded-a", "guarded-b", "guarded-c", "guarded-d"):
        rig.core.intake.set_pod(rig.running(pod(name).request(cpu=1).priority(1).label("app", "db"), "guarded"))
    rig.budget("db", {"app": "db"}, allowed=0)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == ["free-d"], "dearer pods, but no broken budget"


def test_a_budget_yields_where_there_is_none() -> None:
    rig = Rig()
    rig.node("n", cpu="1")
    rig.running(pod("only").request(cpu=1).priority(1).label("app", "db"), "n")
    rig.budget("db", {"app": "db"}, allowed=0)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == ["only"]


def test_pods_under_a_budget_are_put_back_first() -> None:
    rig = Rig()
    rig.node("n", cpu="2")
    rig.running(pod("guarded").request(cpu=1).priority(1).label("app", "db"), "n", started=start(0))
    rig.running(pod("free").request(cpu=1).priority(5), "n", started=start(0))
    rig.budget("db", {"app": "db"}, allowed=0)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == ["free"], "the more important pod, because nothing protects it"


def test_the_nominated_node_is_held_against_pods_of_no_higher_priority() -> None:
    rig = Rig()
    full_node(rig, "n", a=1, b=1, c=1, d=1)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    (victim,) = rig.victims()
    rig.delete(victim)
    rig.submit(pod("thief").request(cpu=1).priority(5))
    rig.run()
    assert rig.where("p") == "", "its backoff is not over"
    assert rig.where("thief") == ""
    rig.clock.advance(1)
    rig.run()
    assert rig.where("p") == "n"


def test_the_preemptor_waits_while_its_victim_is_on_its_way_out() -> None:
    rig = Rig()
    full_node(rig, "n", a=1, b=1, c=1, d=1)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    (victim,) = rig.victims()
    rig.terminating(victim)
    rig.clock.advance(301)
    rig.run()
    assert rig.victims() == [victim], "no other pod is evicted"
    assert rig.message("p").endswith("not eligible due to a terminating pod on the nominated node.")


def test_a_more_important_pod_takes_the_nomination() -> None:
    rig = Rig()
    rig.node("n", cpu="1")
    rig.running(pod("victim").request(cpu=1).priority(1), "n")
    rig.submit(pod("first").request(cpu=1).priority(5))
    rig.run()
    rig.submit(pod("second").request(cpu=1).priority(10))
    made = rig.run()
    assert [d.info.pod.metadata.name for d in made if isinstance(d, ClearNomination)] == ["first"]
    assert [d.by.pod.metadata.name for d in made if isinstance(d, Evict)] == ["second"]


def test_a_whole_card_is_freed_by_the_pod_that_holds_one() -> None:
    """Taking a pod that holds no card would not help, however unimportant it is (DEV-15)."""
    rig = Rig()
    rig.node("n", gpus=2)
    rig.submit(pod("half").gpu_share(50).priority(1))
    rig.run()
    rig.submit(pod("whole").gpus(1).priority(5), pod("idle").request(cpu=1).priority(0))
    rig.run()
    rig.submit(pod("other-half").gpu_share(50).priority(50))
    rig.run()
    rig.submit(pod("p").gpus(1).priority(10))
    rig.run()
    assert rig.victims() == ["whole"], "beside the half card stays a pod that is too important to go"


def two_nodes(rig: Rig) -> None:
    """Two full nodes; of the four pods d started last, and goes first."""
    for node, names in (("left", "ab"), ("right", "cd")):
        rig.node(node, cpu="2")
        for name in names:
            show(rig, name, node, minute="abcd".index(name))


def show(rig: Rig, name: str, node: str, *, minute: int, app: str = "") -> None:
    labels = {"app": app} if app else {}
    rig.running(pod(name).request(cpu=1).priority(1), node, started=start(minute), labels=labels)


def preempt(rig: Rig, name: str) -> str:
    """Who has to go for one more important pod, which then thinks better of it."""
    before = len(rig.victims())
    rig.submit(pod(name).request(cpu=1).priority(10))
    rig.run()
    rig.delete(name)
    (victim,) = rig.victims()[before:]
    return victim


def starts_later(rig: Rig) -> None:
    show(rig, "a", "left", minute=9)


def is_protected(rig: Rig) -> None:
    show(rig, "d", "right", minute=3, app="db")


def protects(rig: Rig) -> None:
    rig.budget("db", {"app": "db"}, allowed=0)


def may_lose_one(rig: Rig) -> None:
    rig.budget("db", {"app": "db"}, allowed=1)


def covers_others(rig: Rig) -> None:
    rig.budget("db", {"app": "web"}, allowed=0)


def is_gone(rig: Rig) -> None:
    rig.core.intake.remove_budget("default/db")


def grows(rig: Rig) -> None:
    rig.node("left", cpu="3")
    show(rig, "e", "left", minute=5)


@pytest.mark.parametrize(
    ("before", "first", "change", "second"),
    [
        pytest.param([], "d", starts_later, "a", id="another-starts-later"),
        pytest.param([], "d", grows, "e", id="a-pod-came"),
        pytest.param([protects], "d", is_protected, "c", id="the-victim-comes-under-a-budget"),
        pytest.param([is_protected], "d", protects, "c", id="a-budget-comes"),
        pytest.param([is_protected, may_lose_one], "d", protects, "c", id="the-budget-is-used-up"),
        pytest.param([is_protected, protects], "c", may_lose_one, "d", id="the-budget-recovers"),
        pytest.param([is_protected, protects], "c", covers_others, "d", id="the-budget-covers-others-now"),
        pytest.param([is_protected, protects], "c", is_gone, "d", id="the-budget-goes"),
    ],
)
def test_what_is_known_of_trials_does_not_outlive_a_change(
    before: list[Callable[[Rig], None]], first: str, change: Callable[[Rig], None], second: str
) -> None:
    rig = Rig()
    two_nodes(rig)
    for step in before:
        step(rig)
    assert preempt(rig, "p") == first
    assert preempt(rig, "q") == first, "nothing has changed"
    change(rig)
    assert preempt(rig, "r") == second


def test_trials_beside_a_nominated_pod_are_true_only_while_it_is_nominated() -> None:
    rig = Rig()
    two_nodes(rig)
    rig.submit(pod("p").request(cpu=1).priority(10))
    rig.run()
    assert rig.victims() == ["d"]
    assert preempt(rig, "q") == "b", "on the other node one pod is enough"
    rig.delete("p")
    assert preempt(rig, "r") == "d"


def test_where_amounts_decide_the_filters_find_the_words() -> None:
    """Evicting pods would not help: the filters say why, although amounts had decided."""
    rig = Rig()
    rig.node("n", cpu="2", gpus=2)
    rig.running(pod("a").request(cpu=2).priority(1), "n")
    rig.running(pod("b").request(cpu=1).gpus(2).priority(20), "n")
    rig.submit(pod("p").request(cpu=1).gpus(1).priority(10))
    rig.run()
    assert rig.victims() == []
    assert "preemption: 0/1 nodes are available: 1 Insufficient" in rig.message("p")
