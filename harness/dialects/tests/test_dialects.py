"""How dialects are found, and the words of those whose schedulers do not run in these tests."""

from pathlib import Path

import pytest

from seatrial.harness.dialects.dialect import BUILT_IN, Intent, dialect_named, dialect_of
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.builders import node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.api.wire import ObjectMeta

RECIPES = Path(__file__).parents[3] / "suites" / "recipes"


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_dialect_says_what_it_does_not_leave_out(name: str) -> None:
    dialect = dialect_named(name)("trial-a")
    message = set(Intent) - set(dialect.unsaid)

    if Intent.GANGS in message:
        assert all(made.manifest["kind"] == "PodGroup" for made in dialect.gang("train", 3))
        dialect.join(pod("a"), "train")
    if Intent.LIMITS in message:
        made = list(dialect.queue("team", share={"cpu": 2}, limit={"cpu": 4, "memory": "1Gi"}))
        for each in made:
            assert "/namespaces/trial-a/" in each.path or "trial-a" in each.manifest["metadata"]["name"]
    if Intent.CARDS in message:
        list(dialect.cards(pod("a"), 2))
    if Intent.SHARES in message:
        list(dialect.share(pod("a"), 50))
    if Intent.RESERVATIONS in message:
        list(dialect.reserve("held", pod("a"), {"app": "a"}))
    dialect.enqueue(pod("a"), "")


def test_volcanos_queues() -> None:
    dialect = dialect_named("volcano")("trial-a")
    builder = pod("a")
    dialect.enqueue(builder, "team")

    (made,) = dialect.queue("team", share={"cpu": 2}, limit={"cpu": 4})

    assert made.path == "/apis/scheduling.volcano.sh/v1beta1/queues"
    assert made.manifest["spec"] == {
        "weight": 1,
        "reclaimable": True,
        "deserved": {"cpu": "2"},
        "capability": {"cpu": "4"},
    }
    assert builder.manifest["metadata"]["annotations"] == {
        "scheduling.volcano.sh/queue-name": made.manifest["metadata"]["name"]
    }


def test_kais_groups_have_names_of_their_own_in_the_whole_cluster() -> None:
    """KAI finds the pods of a group by its name alone, in all namespaces."""
    names = set()
    for scope in ("trial-a", "trial-b"):
        dialect, member = dialect_named("kai")(scope), pod("p")
        dialect.join(member, "train")
        (group,) = dialect.gang("train", 2)
        assert member.manifest["metadata"]["annotations"]["pod-group-name"] == group.manifest["metadata"]["name"]
        names.add(group.manifest["metadata"]["name"])

    assert len(names) == 2


def test_kais_queues_count_thousandths_and_megabytes() -> None:
    dialect = dialect_named("kai")("trial-a")

    (made,) = dialect.queue("team", share={"cpu": "1500m"}, limit={"memory": "2G"})

    unlimited = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    assert made.manifest["spec"]["resources"] == {
        "cpu": {**unlimited, "quota": 1500},
        "memory": {**unlimited, "limit": 2000},
        "gpu": unlimited,
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("seatrial.harness.no_such", "No module named"),
        (".kai", "expected koordinator, kubernetes"),
        ("seatrial.harness.errors", "expected the class DIALECT in this module, a Dialect, found None"),
    ],
)
def test_no_dialect(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        dialect_named(name)


@pytest.mark.parametrize(
    ("subject", "dialect"),
    [
        ("seatrial", "koordinator"),
        ("/opt/bin/kube-scheduler --v 2", "kubernetes"),
        ("/opt/volcano/vc-scheduler", "volcano"),
        ("", "koordinator"),
        (str(RECIPES / "kai.yaml"), "kai"),
    ],
)
def test_the_dialect_of_a_program(subject: str, dialect: str) -> None:
    assert dialect_of(subject) == dialect


def test_kueues_queues_borrow_up_to_their_limit() -> None:
    dialect = dialect_named("kueue")("trial-a")
    builder = pod("a")
    dialect.enqueue(builder, "team")

    whole, local = dialect.queue("team", share={"cpu": 2, "memory": "10Gi"}, limit={"cpu": 3, "memory": "100Gi"})

    (group,) = whole.manifest["spec"]["resourceGroups"]
    assert group["flavors"][0]["resources"] == [
        {"name": "cpu", "nominalQuota": "2", "borrowingLimit": "1"},
        {"name": "memory", "nominalQuota": "10Gi", "borrowingLimit": str(90 * 2**30)},
    ]
    assert local.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/trial-a/localqueues"
    assert local.manifest["spec"] == {"clusterQueue": whole.manifest["metadata"]["name"]}
    assert builder.manifest["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]


def nothing_called(_: Request) -> Response:
    raise AssertionError("no request is needed")


@pytest.mark.parametrize(
    ("name", "offered", "annotation"),
    [
        ("volcano", "volcano.sh/vgpu-number", "volcano.sh/vgpu-ids-new"),
        ("hami", "nvidia.com/vgpu", "hami.io/vgpu-devices-allocated"),
    ],
)
def test_nodes_offer_ten_places_on_each_card_and_pods_tell_theirs(name: str, offered: str, annotation: str) -> None:
    dialect, builder = dialect_named(name)("trial-a"), node("n1").cpu(4).cards(2)
    dialect.node(builder)
    plain = node("n2").cpu(4)
    dialect.node(plain)
    bound = Pod(
        metadata=ObjectMeta(name="a", annotations={annotation: "n1-1,NVIDIA,40000,50:;n1-0,NVIDIA,80000,100:;"})
    )

    assert builder.manifest["extended"][offered] == 20
    assert any("n1-1" in text for text in builder.manifest["annotations"].values())
    assert "extended" not in plain.manifest
    assert dialect.held(bound, nothing_called) == {"n1-1": 50, "n1-0": 100}


def test_kais_pods_on_one_card_have_one_group() -> None:
    dialect, builder = dialect_named("kai")("trial-a"), pod("a")
    dialect.share(builder, 40)
    metadata = ObjectMeta(
        name="a", annotations=builder.manifest["metadata"]["annotations"], labels={"runai-gpu-group": "g"}
    )

    assert dialect.held(Pod(metadata=metadata), nothing_called) == {"g": 40}
    assert dialect.held(Pod(metadata=ObjectMeta(name="b")), nothing_called) == {}
