"""InterPodAffinity: near whom pods may and like to be, whose word counts against them, and who is woken when."""

from typing import Any

import numpy as np
import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.core.waking import PLACEMENT_CHANGES_THRESHOLD
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.tests.rig import Rig, profile

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NOT_NEAR = "node(s) didn't match pod affinity rules"
TOO_NEAR = "node(s) didn't match pod anti-affinity rules"
UNWELCOME = "node(s) didn't satisfy existing pods anti-affinity rules"
REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def term(app: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def wishing(
    name: str,
    app: str,
    *,
    near: tuple[dict[str, Any], ...] = (),
    far: tuple[dict[str, Any], ...] = (),
    likes: tuple[tuple[int, dict[str, Any]], ...] = (),
    dislikes: tuple[tuple[int, dict[str, Any]], ...] = (),
) -> PodBuilder:
    builder = pod(name).request(cpu="1").label("app", app)
    builder.manifest["spec"]["affinity"] = {
        kind: {
            REQUIRED: list(required),
            PREFERRED: [{"weight": weight, "podAffinityTerm": target} for weight, target in preferred],
        }
        for kind, required, preferred in (("podAffinity", near, likes), ("podAntiAffinity", far, dislikes))
    }
    return builder


def cluster(places: dict[str, str | None], running: dict[str, str], **setup: Any) -> Rig:
    """Nodes with their zones, and apps of running pods with their nodes."""
    rig = Rig(**setup)
    for node, zone in places.items():
        rig.node(node, labels={HOST: node} | ({ZONE: zone} if zone else {}))
    for number, (app, node) in enumerate(running.items()):
        rig.running(pod(f"old-{number}").label("app", app), node)
    return rig


def outcome(rig: Rig, builder: PodBuilder) -> str:
    rig.submit(builder)
    rig.run()
    return rig.where(builder.name) or rig.message(builder.name)


ZONES: dict[str, str | None] = {"a1": "a", "b1": "b", "x1": None}


@pytest.mark.parametrize(
    ("running", "wish", "where"),
    [
        pytest.param({"db": "a1"}, {"near": (term("db"),)}, "a1", id="near"),
        pytest.param({"db": "x1"}, {"near": (term("db"),)}, f"3 {NOT_NEAR}.", id="a-node-without-the-label-is-nowhere"),
        pytest.param({}, {"near": (term("db"),)}, f"3 {NOT_NEAR}.", id="no-pod-to-be-near-to"),
        pytest.param({"db": "a1"}, {"near": (term("db"), term("web"))}, f"3 {NOT_NEAR}.", id="one-pod-must-mean-all"),
        pytest.param({"db": "b1"}, {"near": (term("db", HOST),)}, "b1", id="near-on-the-host"),
        pytest.param({"web": "x1"}, {"near": (term("web"),), "far": (term("db"),)}, "a1|b1", id="its-kind-is-nowhere"),
        pytest.param({"web": "b1"}, {"near": (term("web"),)}, "b1", id="its-kind-is-somewhere"),
        pytest.param(
            {"db": "b1"}, {"near": (term("web"),)}, "a1|b1", id="the-first-of-its-kind-goes-anywhere-with-label"
        ),
        pytest.param({"db": "a1"}, {"far": (term("db"),)}, "b1|x1", id="far"),
        pytest.param(
            {"db": "a1", "dc": "b1", "dd": "x1"},
            {"far": (term("db"), term("dc"), term("dd", HOST))},
            f"3 {TOO_NEAR}.",
            id="far-from-all",
        ),
        pytest.param(
            {"db": "a1"}, {"near": (term("db"),), "far": (term("db"),)}, f"1 {TOO_NEAR}, 2 {NOT_NEAR}.", id="both"
        ),
    ],
)
def test_required_terms(running: dict[str, str], wish: dict[str, Any], where: str) -> None:
    """`where`: nodes that will do, or the message."""
    text = outcome(cluster(ZONES, running), wishing("p", "web", **wish))
    if text.startswith("0/"):
        assert text.startswith(f"0/3 nodes are available: {where}")
    else:
        assert text in where.split("|")


@pytest.mark.parametrize(
    ("scope", "meant"),
    [
        pytest.param({}, {"default"}, id="its-own-namespace"),
        pytest.param({"namespaces": ["other"]}, {"other"}, id="named-ones-instead"),
        pytest.param({"namespaceSelector": {}}, {"default", "other", "third"}, id="all"),
        pytest.param({"namespaceSelector": {"matchLabels": {"team": "x"}}}, {"third"}, id="labelled-ones"),
        pytest.param(
            {"namespaces": ["other"], "namespaceSelector": {"matchLabels": {"team": "x"}}},
            {"other", "third"},
            id="union",
        ),
    ],
)
def test_namespaces_that_a_term_means(scope: dict[str, Any], meant: set[str]) -> None:
    for namespace in ("default", "other", "third"):
        rig = cluster({"a1": "a"}, {})
        rig.core.intake.set_namespace("third", {"team": "x"})
        rig.running(pod("db").label("app", "db").namespace(namespace), "a1")
        text = outcome(rig, wishing("p", "web", near=(term("db", **scope),)))
        assert (text == "a1") is (namespace in meant), namespace


def test_a_placed_pods_word_counts_against_newcomers() -> None:
    rig = cluster({"a1": "a", "a2": "a"}, {})
    rig.running(wishing("proud", "db", far=(term("web"),)), "a1")
    assert outcome(rig, pod("p").label("app", "web")).startswith(f"0/2 nodes are available: 2 {UNWELCOME}.")
    assert outcome(rig, pod("q").label("app", "batch")) in {"a1", "a2"}, "no term selects it"
    rig.delete("proud")
    rig.clock.advance(30)
    rig.run()
    assert rig.where("p")


def test_replicas_that_shun_each_other_take_one_host_each() -> None:
    rig = cluster({f"n{number}": "a" for number in range(4)}, {})
    rig.submit(*(wishing(f"p{number}", "web", far=(term("web", HOST),)) for number in range(5)))
    rig.run()
    assert sorted(rig.where(f"p{number}") for number in range(5)) == ["", "n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("keys", "where"),
    [
        pytest.param({"matchLabelKeys": ["rev"]}, "b1", id="only-pods-of-its-revision-are-shunned"),
        pytest.param({"mismatchLabelKeys": ["rev"]}, "a1", id="only-pods-of-other-revisions-are-shunned"),
    ],
)
def test_label_keys(keys: dict[str, Any], where: str) -> None:
    rig = cluster({"a1": "a", "b1": "b"}, {})
    rig.running(pod("new").label("app", "web").label("rev", "2"), "a1")
    rig.running(pod("old").label("app", "web").label("rev", "1"), "b1")
    assert outcome(rig, wishing("p", "web", far=(term("web", **keys),)).label("rev", "2")) == where


def only(**args: Any) -> dict[str, Any]:
    return {
        "configuration": profile(
            plugins={"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "InterPodAffinity"}]}},
            pluginConfig=[{"name": "InterPodAffinity", "args": args}],
        )
    }


@pytest.mark.parametrize(
    ("args", "placed", "wish", "where"),
    [
        pytest.param({}, {}, {"likes": ((5, term("db")),)}, "a1", id="likes"),
        pytest.param({}, {}, {"dislikes": ((5, term("db")),)}, "b1", id="dislikes"),
        pytest.param({}, {}, {"likes": ((5, term("db")),), "dislikes": ((9, term("db")),)}, "b1", id="the-stronger"),
        pytest.param({}, {"likes": ((5, term("web")),)}, {}, "a1", id="is-liked"),
        pytest.param({}, {"dislikes": ((5, term("web")),)}, {}, "b1", id="is-disliked"),
        pytest.param({}, {"near": (term("web"),)}, {}, "a1", id="is-needed"),
        pytest.param(
            {"hardPodAffinityWeight": 0},
            {"near": (term("web"),)},
            {"dislikes": ((1, term("db")),)},
            "b1",
            id="a-need-may-weigh-nothing",
        ),
        pytest.param(
            {"hardPodAffinityWeight": 9},
            {"near": (term("web"),)},
            {"dislikes": ((1, term("db")),)},
            "a1",
            id="a-need-may-weigh-more",
        ),
        pytest.param(
            {"ignorePreferredTermsOfExistingPods": True},
            {"dislikes": ((9, term("web")),)},
            {"likes": ((1, term("db")),)},
            "a1",
            id="placed-pods-likings-ignored",
        ),
    ],
)
def test_scores(args: dict[str, Any], placed: dict[str, Any], wish: dict[str, Any], where: str) -> None:
    """One pod of app=db is on a1 and has a wish of its own, or the newcomer has."""
    rig = cluster({"a1": "a", "b1": "b"}, {}, **only(**args))
    rig.running(wishing("old", "db", **placed), "a1")
    assert outcome(rig, wishing("p", "web", **wish)) == where


def test_scores_span_zero_to_a_hundred() -> None:
    """Worked example: raw -5, 0 and 5 become 0, 50 and 100."""
    rig = cluster({"a1": "a", "b1": "b", "c1": "c"}, {"bad": "a1", "good": "c1"}, **only())
    plugin = next(score for score, _ in rig.core.runners["default-scheduler"].scores)
    newcomer = rig.pod(wishing("p", "web", likes=((5, term("good")),), dislikes=((5, term("bad")),)))
    state, nodes = CycleState(), sorted(rig.core.cache, key=lambda node: node.name)
    assert plugin.pre_score(state, newcomer)
    plugin.survey(state, newcomer, nodes)
    raw = np.array([plugin.score(state, newcomer, node) for node in nodes], np.int64)
    assert raw.tolist() == [-5, 0, 5]
    assert plugin.normalize(state, raw).tolist() == [0, 50, 100]


def test_a_pod_waits_for_the_one_it_wants_to_be_near() -> None:
    rig = cluster({"a1": "a", "b1": "b"}, {})
    assert NOT_NEAR in outcome(rig, wishing("p", "web", near=(term("db"),)))
    rig.clock.advance(400)
    assert outcome(rig, pod("db").label("app", "db"))
    rig.clock.advance(30)
    rig.run()
    assert rig.where("p")[0] == rig.where("db")[0]


def test_a_pod_that_waits_gets_its_turn_before_a_long_queue_is_done() -> None:
    rig = cluster({"a1": "a", "b1": "b"}, {})
    assert NOT_NEAR in outcome(rig, wishing("p", "web", near=(term("db"),)).priority(10))
    rig.clock.advance(30)
    rig.submit(*(pod(f"db{number}").label("app", "db").request(cpu="100m") for number in range(100)))
    order = [decision.info.pod.metadata.name for decision in rig.run() if isinstance(decision, Bind)]
    assert order.index("p") <= PLACEMENT_CHANGES_THRESHOLD + 1
    assert len(order) == 101


def test_one_pod_nobody_wants_does_not_hold_up_others_of_its_shape() -> None:
    """Two pods of one class; a placed pod speaks against one of them. Both wait for the same room."""
    rig = cluster({"a1": "a"}, {})
    rig.running(wishing("proud", "db", far=(term("web"),)), "a1")
    rig.running(pod("large").request(cpu="63"), "a1")
    rig.submit(pod("p").request(cpu="8").label("app", "web"), pod("q").request(cpu="8").label("app", "batch"))
    rig.run()
    assert not rig.where("p")
    assert not rig.where("q")
    rig.clock.advance(30)
    rig.delete("large")
    rig.run()
    assert rig.where("q") == "a1"
    assert not rig.where("p")


def test_one_pod_shunned_while_it_waited_does_not_hold_up_others_of_its_shape() -> None:
    """Both wait as alike; the one that is tried in the name of both turns out to be unwelcome."""
    rig = cluster({"a1": "a"}, {})
    rig.running(pod("large").request(cpu="63"), "a1")
    rig.submit(pod("p").request(cpu="8").label("app", "web"), pod("q").request(cpu="8").label("app", "batch"))
    rig.run()
    rig.running(wishing("proud", "db", far=(term("web"),)), "a1")
    rig.clock.advance(30)
    rig.delete("large")
    rig.run()
    assert (rig.where("p"), rig.where("q")) == ("", "a1")


def test_preemption_takes_the_pod_whose_word_counts() -> None:
    rig = cluster({"a1": "a"}, {"batch": "a1"})
    rig.running(wishing("proud", "db", far=(term("web"),)), "a1")
    assert UNWELCOME in outcome(rig, pod("p").label("app", "web").priority(10))
    assert rig.victims() == ["proud"]


def test_a_weight_out_of_range_is_refused() -> None:
    with pytest.raises(ValueError, match="hardPodAffinityWeight: expected 0 to 100, found 101"):
        cluster({}, {}, **only(hardPodAffinityWeight=101))
