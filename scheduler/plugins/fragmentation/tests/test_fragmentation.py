"""DeviceFragmentation: what it reads of pods, where it sends them, and what it learns from those that arrived."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from seatrial.scheduler.api.builders import PodBuilder, pod, pods
from seatrial.scheduler.api.device import GPU_MODEL_LABEL
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.config import ConfigError, expand
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.packing.shapes import Shape
from seatrial.scheduler.plugins.fragmentation.forecast import FIRST, Window
from seatrial.scheduler.plugins.fragmentation.plugin import DeviceFragmentation
from seatrial.scheduler.plugins.fragmentation.requests import shape_of
from seatrial.scheduler.tests.oracle import judge
from seatrial.scheduler.tests.rig import Rig, profile

GIB = 1 << 30


def fragmentation(**args: Any) -> Any:
    return profile(
        plugins={"score": {"enabled": [{"name": "DeviceFragmentation"}], "disabled": [{"name": "*"}]}},
        pluginConfig=[{"name": "DeviceFragmentation", "args": args}] if args else [],
    )


def where(rig: Rig, *pod: PodBuilder) -> list[str]:
    """Their nodes; each pod is placed before the next one comes."""
    results = []
    for builder in pod:
        rig.submit(builder)
        rig.run()
        results.append(rig.where(builder.name))
    return results


def scores(rig: Rig, builder: PodBuilder) -> dict[str, int]:
    one = rig.pod(builder)
    info = PodInfo(one, rig.core.cache.classes.of(one))
    return {scored.node: scored.total for scored in explain(rig.core.runners.of(info), info).feasible}


@pytest.mark.parametrize("strategy", ["FGD", "Balanced", "OpportunityCost"])
def test_halves_share_a_card_and_whole_cards_stay_whole(strategy: str) -> None:
    rig = Rig(fragmentation(strategy=strategy))
    rig.node("a", gpus=4)
    rig.node("b", gpus=4)
    halves = where(rig, *(builder.gpu_share(50) for builder in pods("half", 4)))
    assert len(set(halves)) == 1
    (four,) = where(rig, pod("four").gpus(4))
    assert four not in {"", halves[0]}


@pytest.mark.parametrize("strategy", ["Balanced", "OpportunityCost"])
def test_cpu_is_taken_where_no_card_needs_it(strategy: str) -> None:
    rig = Rig(fragmentation(strategy=strategy, typicalPods=[{"gpu": 100, "cpu": "8"}]))
    rig.node("cards", cpu="32", gpus=4)
    rig.node("plain", cpu="32")
    assert where(rig, *(builder.request(cpu=8) for builder in pods("cpu", 4))) == ["plain"] * 4
    assert where(rig, *(builder.gpus(1).request(cpu=8) for builder in pods("gpu", 4))) == ["cards"] * 4


@pytest.mark.parametrize(
    ("strategy", "lean", "rich"),
    [
        # A typical pod still fits on both, so nothing becomes a fragment; but four cards want 40 CPUs, and 32 are left.
        pytest.param("FGD", 50, 50, id="not-yet-a-fragment"),
        # 0.8 cards without CPU; 100 milli x (32/128 + 4/8) for what is left, against (56/128 + 4/8) on the other.
        pytest.param("Balanced", 26, 45, id="eight-tenths-of-a-card-without-cpu"),
    ],
)
def test_balanced_sees_cpu_run_out_early(strategy: str, lean: int, rich: int) -> None:
    rig = Rig(fragmentation(strategy=strategy, typicalPods=[{"gpu": 100, "cpu": "10"}]))
    rig.node("lean", cpu="40", gpus=4)
    rig.node("rich", cpu="64", gpus=4)
    assert scores(rig, pod("p").request(cpu=8)) == {"lean": lean, "rich": rich}


def test_the_last_place_for_a_large_pod_is_kept() -> None:
    """Both nodes can run the small pod; only one has eight free cards, and pods of eight cards are expected."""
    typical = [{"gpu": 100, "cpu": "8", "weight": 99}, {"gpu": 800, "cpu": "64"}]
    for strategy, node in (("Balanced", "whole"), ("OpportunityCost", "in-use")):
        rig = Rig(fragmentation(strategy=strategy, typicalPods=typical))
        rig.node("whole", cpu="128", gpus=8)
        rig.node("in-use", cpu="256", gpus=7)  # with more left over, so without prices it is the worse fit
        assert where(rig, pod("one").gpus(1).request(cpu=8)) == [node], strategy
    assert where(rig, pod("eight").gpus(8).request(cpu=64)) == ["whole"]


def test_a_model_that_others_require_is_left_to_them() -> None:
    typical = [{"gpu": 100, "cpu": "8"}, {"gpu": 100, "cpu": "8", "models": ["P100"]}]
    rig = Rig(fragmentation(typicalPods=typical))
    rig.node("common", cpu="64", gpus=8, labels={GPU_MODEL_LABEL: "T4"})
    rig.node("scarce", cpu="16", gpus=2, labels={GPU_MODEL_LABEL: "P100"})
    names = where(rig, *(builder.gpus(1).request(cpu=8) for builder in pods("any", 4)))
    assert names == ["common"] * 4
    own = [builder.gpus(1).request(cpu=8).select({GPU_MODEL_LABEL: "P100"}) for builder in pods("own", 2)]
    assert where(rig, *own) == ["scarce"] * 2


def test_expectations_are_learnt_from_the_pods_that_arrived() -> None:
    """Until pods of half a card are known, the parts that are left on a card are of no use to anybody."""
    rig = Rig(fragmentation(strategy="FGD"))
    rig.node("a", cpu="256", gpus=16)
    before = scores(rig, pod("p").gpu_share(70))
    where(rig, *(builder.gpu_share(30).request(cpu=1) for builder in pods("third", 2 * FIRST + 10)))
    rig.node("b", cpu="256", gpus=16)
    assert before["a"] < 50
    assert scores(rig, pod("p").gpu_share(70))["b"] >= 50  # pods of 30 % can use the rest


def test_the_window_counts_each_pod_once_and_forgets_the_oldest() -> None:
    rig = Rig(fragmentation())
    small, large = (rig.core.cache.classes.of(rig.pod(pod("p").gpus(cards))) for cards in (1, 8))
    window = Window(3)
    for uid in ("a", "a", "b"):
        window.arrived(uid, small)
    assert window.counts == {small: 2}
    for uid in ("c", "d"):
        window.arrived(uid, large)
    assert window.counts == {small: 1, large: 2}
    window.arrived("e", large)
    assert window.counts == {large: 3}


def test_a_forecast_is_due_after_the_first_pods_and_then_ever_later() -> None:
    rig = Rig(fragmentation())
    kind = rig.core.cache.classes.of(rig.pod(pod("p").gpus(1)))
    window, due = Window(1000), []
    for number in range(1, 100):
        window.arrived(str(number), kind)
        if window.is_due:
            due.append(number)
            window.taken()
    assert due == [16, 32, 63]


@pytest.mark.parametrize(
    ("builder", "shape"),
    [
        pytest.param(pod("p").request(cpu=2, memory="1Gi"), Shape(2000, GIB, 0, 0), id="no-gpu"),
        pytest.param(pod("p").gpu_share(40).request(cpu="500m"), Shape(500, 0, 1, 400), id="part-of-a-card"),
        pytest.param(pod("p").gpus(4), Shape(0, 0, 4, 1000), id="whole-cards"),
        pytest.param(pod("p").gpu_memory("20Gi"), Shape(0, 0, 1, 250), id="bytes-of-a-card-with-80-GiB"),
        pytest.param(
            pod("p").gpus(1).select({GPU_MODEL_LABEL: "T4"}), Shape(0, 0, 1, 1000, ("T4",)), id="model-by-selector"
        ),
    ],
)
def test_shapes(builder: PodBuilder, shape: Shape) -> None:
    rig = Rig(fragmentation())
    assert shape_of(rig.core.cache.classes.of(rig.pod(builder)), 80 * GIB) == shape


@pytest.mark.parametrize(
    ("terms", "models"),
    [
        pytest.param([("In", ["T4", "A10"])], ("A10", "T4"), id="any-of-two"),
        pytest.param([("In", ["T4"]), ("In", ["A10"])], ("A10", "T4"), id="terms-are-alternatives"),
        pytest.param([("NotIn", ["T4"])], (), id="other-operators-are-not-read"),
        pytest.param([("In", ["T4"]), ("Exists", [])], (), id="one-alternative-is-open"),
    ],
)
def test_models_of_a_required_affinity(terms: list[tuple[str, list[str]]], models: tuple[str, ...]) -> None:
    rig = Rig(fragmentation())
    selector = [
        {"matchExpressions": [{"key": GPU_MODEL_LABEL, "operator": operator, "values": values}]}
        for operator, values in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": selector}}
    one = pod("p").gpus(1)
    one.manifest["spec"]["affinity"] = {"nodeAffinity": required}
    assert shape_of(rig.core.cache.classes.of(rig.pod(one)), 0).models == models


@pytest.mark.parametrize(
    ("args", "message"),
    [
        pytest.param({"strategy": "Best"}, "strategy: .*'Best'|Invalid enum value 'Best'", id="strategy"),
        pytest.param({"window": 0}, "window: expected 1 to 1000000, found 0", id="window"),
        pytest.param({"balanced": True}, "balanced", id="a-field-of-earlier-versions"),
        pytest.param(
            {"typicalPods": [{"gpu": 150}]},
            r"typicalPods\[0\]\.gpu: expected 0 to 100 or a multiple of 100, found 150",
            id="a-card-and-a-half",
        ),
        pytest.param({"typicalPods": [{"gpu": 50, "weight": 0}]}, r"\[0\]\.weight: expected 1 or more", id="weight"),
        pytest.param({"typicalPods": [{"gpu": 50, "cpu": "much"}]}, r"typicalPods\[0\]\.cpu: ", id="cpu"),
        pytest.param({"typicalPods": [{"gpu": 50, "memory": "1x"}]}, r"typicalPods\[0\]\.memory: ", id="memory"),
    ],
)
def test_arguments_that_make_no_sense(args: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        expand(fragmentation(**args))


def test_classes_share_one_order_of_equal_nodes() -> None:
    """Pods of all classes fill the same nodes: of twelve equal ones, six pods with a card each need one.

    With an order for each class they are on several.
    """
    used = {}
    for common in (True, False):
        rig = Rig(fragmentation(strategy="FGD", typicalPods=[{"gpu": 100}], commonTies=common))
        for number in range(12):
            rig.node(f"n{number}", gpus=8)
        requests = [builder.gpus(1).request(cpu=number + 1) for number, builder in enumerate(pods("p", 6))]
        used[common] = len(set(where(rig, *requests)))
    assert used[True] == 1
    assert used[False] > 2


def test_devices_that_come_after_their_node_count() -> None:
    """A node is scored before its Device object exists. Afterwards its cards are seen, with fixed expectations too."""
    rig = Rig(fragmentation(strategy="FGD", typicalPods=[{"gpu": 100, "cpu": "8"}]))
    rig.node("n", cpu="8")
    assert scores(rig, pod("p").request(cpu=1)) == {"n": 50}
    rig.device("n", 4)
    assert scores(rig, pod("p").request(cpu=1)) == {"n": 1}  # four cards lose their CPU: 100 / (1 + e^4)


@pytest.mark.parametrize(
    ("strategy", "requiring"),
    [
        pytest.param("FGD", 1, id="expectations"),
        pytest.param("OpportunityCost", 1, id="prices-of-models"),
        pytest.param("OpportunityCost", 0, id="prices-of-places"),
    ],
)
def test_kept_scores_follow_expectations_and_prices(strategy: str, requiring: int) -> None:
    """Each pod goes where scores from scratch send it, while what is expected and what places cost changes. Nodes
    without GPUs come now and then, with which no price changes.

    `requiring`: weight of pods that require a model. Without them only places have prices.
    """
    rig = Rig(fragmentation(strategy=strategy))
    for number in range(12):
        rig.node(f"n{number}", cpu="96", gpus=8, labels={GPU_MODEL_LABEL: "T4" if number % 3 else "P100"})
    draw = Random(7)  # noqa: S311 for the pods of a test
    kinds = [
        *(pod("p").gpu_share(share).request(cpu=share // 20) for share in (20, 50, 70)),
        *(pod("p").gpus(cards).request(cpu=4 * cards) for cards in (1, 2, 4, 8)),
        pod("p").gpus(1).request(cpu=4).select({GPU_MODEL_LABEL: "P100"}),
        pod("p").request(cpu=6),
    ]
    placed = 0
    for number in range(150):
        builder = deepcopy(draw.choices(kinds, (9, 9, 9, 6, 2, 1, 1, 2 * requiring, 6))[0])
        builder.manifest["metadata"]["name"] = f"p{number}"
        if number % 20 == 19:
            rig.node(f"without-{number}", cpu="1")
        one = rig.pod(builder)
        info = PodInfo(one, rig.core.cache.classes.of(one))
        expected = judge(rig.core, rig.core.runners.of(info), info).node
        (text,) = where(rig, builder)
        assert text == expected, number
        placed += bool(text)
        if text and not draw.randrange(8):
            rig.delete(f"p{number}")
    score = next(score for score, _ in rig.core.runners.of(info).scores if isinstance(score, DeviceFragmentation))
    assert placed > 100
    assert score.revision > 2


def test_prices_follow_nodes_that_come_and_go() -> None:
    """A place for four cards is kept while it is the only one; more nodes make it cheap, and their end dear again."""
    expected = [{"gpu": 100, "cpu": "8", "weight": 99}, {"gpu": 400, "cpu": "32"}]
    rig = Rig(fragmentation(strategy="OpportunityCost", typicalPods=expected))
    rig.node("large", cpu="64", gpus=4)
    rig.node("small", cpu="128", gpus=3)
    builders = pods("one", 3)
    first, second, third = (builder.gpus(1).request(cpu=8) for builder in builders)
    assert where(rig, first) == ["small"]

    for number in range(9):
        rig.node(f"large-{number}", cpu="64", gpus=4)
    assert where(rig, second) != ["small"]

    rig.delete("one-1")
    for number in range(9):
        rig.core.intake.remove_node(f"large-{number}")
    assert where(rig, third) == ["small"]
