"""Quotas of devices: NPUs, MLUs and shares of GPUs by resource name, and GPUs by model as trees of their nodes."""

from functools import partial

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod, quota
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY_RATIO, GPU_MODEL_LABEL, NPU_CORE
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.quota import IS_PARENT, QUOTAS_PATH, RESOURCE_KEYS, RUNTIME, TOTAL_RESOURCE, TREE_ID
from seatrial.suites.quota.quotas import annotation, make, named, read

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER), pytest.mark.profile(KOORD_SCHEDULER)]

CARD = "nvidia.com/gpu"
MLU = "cambricon.com/mlu"


@pytest.mark.feature("QUOTA-1.devices")
@pytest.mark.case("QU-070", severity="critical")
@pytest.mark.parametrize(
    ("server", "key", "one_card", "admitted"),
    [
        pytest.param("atlas-800t-a2", NPU_CORE, {NPU_CORE: 20, GPU_MEMORY_RATIO: 100}, 40, id="npu"),
        pytest.param("mlu370-x8-8", MLU, {GPU_CORE: 100, GPU_MEMORY_RATIO: 100, MLU: 1}, 2, id="mlu"),
        pytest.param("dgx-h100", GPU_MEMORY_RATIO, {GPU_CORE: 50, GPU_MEMORY_RATIO: 50}, 100, id="shares-of-gpus"),
    ],
)
def test_devices_by_resource_name(  # noqa: PLR0917 one argument for each column
    trial: Trial, expect: Expect, server: str, key: str, one_card: dict[str, int], admitted: int
) -> None:
    """A quota of two cards, or of one in halves, admits two pods of three, while the node has eight cards free."""
    trial.add(node("n1").server(server))
    make(trial, quota(named(trial, "a")).limits({key: admitted}, {key: admitted}))

    trial.submit(
        *(
            pod(f"p-{number}").resources(dict(one_card)).quota(named(trial, "a")).scheduler(KOORD_SCHEDULER)
            for number in range(3)
        )
    )

    expect.bound("p-0", "p-1")
    expect.pending("p-2", saying=f"exceedDimensions: [{key}]")


def card(name: str, own: str) -> PodBuilder:
    return pod(name).nvidia(1).quota(own).scheduler(KOORD_SCHEDULER)


def exists(trial: Trial, path: str) -> bool:
    return trial.call("GET", path).ok


@pytest.mark.feature("QUOTA-1.devices", "QUOTA-7.profile")
@pytest.mark.case("QU-071", severity="critical")
def test_gpus_by_model(trial: Trial, expect: Expect) -> None:
    """The cards of each model are a tree of their own: a team gets no more than there are of its model.

    There are 2 A10s and 8 H100s. Six pods of one card ask for A10s, which a quota over all cards would admit.
    """
    for name, model, count in (("a10-0", "a10", 2), ("h100-0", "h100-80g", 8)):
        trial.add(node(name).gpus(model, count).label(GPU_MODEL_LABEL, model))
        profile = {
            "apiVersion": "quota.koordinator.sh/v1alpha1",
            "kind": "ElasticQuotaProfile",
            "metadata": {
                "name": model,
                "labels": {TREE_ID: named(trial, model)},
                "annotations": {RESOURCE_KEYS: orjson.dumps([CARD]).decode()},
            },
            "spec": {
                "quotaName": named(trial, f"{model}-root"),
                "quotaLabels": {IS_PARENT: "true"},
                "nodeSelector": {"matchLabels": {GPU_MODEL_LABEL: model}},
            },
        }
        trial.apply(profile)
    path = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{trial.name}/elasticquotas")
    for model, cards in (("a10", "2"), ("h100-80g", "8")):
        root = named(trial, f"{model}-root")
        assert trial.reaches(partial(exists, trial, f"{path}/{root}"), within=30)
        assert orjson.loads(read(trial, root)["metadata"]["annotations"][TOTAL_RESOURCE])[CARD] == cards
        team = quota(named(trial, f"{model}-team")).limits({}, {CARD: 100}).below(root)
        trial.apply(team.label(TREE_ID, named(trial, model)).manifest)
    trial.pass_time(2)  # the order of the watches for quotas and pods is not defined

    trial.submit(
        *(
            card(f"{model}-{number}", named(trial, f"{model}-team")).select({GPU_MODEL_LABEL: model})
            for model in ("a10", "h100-80g")
            for number in range(6)
        )
    )

    expect.bound("h100-80g-0", "h100-80g-1", "h100-80g-2", "h100-80g-3", "h100-80g-4", "h100-80g-5", "a10-0", "a10-1")
    expect.pending("a10-2", "a10-5", saying=f"runtime: {CARD}:2, used: {CARD}:2")


@pytest.mark.feature("QUOTA-1.devices")
@pytest.mark.case("QU-168", severity="normal", source="koordinator: pkg/util/transformer/node_transformer.go")
@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("name", [GPU_CORE, "kubernetes.io/gpu-core"], ids=["new", "old"])
def test_a_node_may_offer_devices_under_their_old_names(trial: Trial, expect: Expect, name: str) -> None:
    """A node offers 200 of gpu-core by the name of today or of v0.7: a quota that asks for more gets those."""
    trial.add(node("n1").extended(name, 200))
    make(trial, quota(named(trial, "a")).limits({}, {GPU_CORE: 1000}))
    greedy = pod("greedy").resources({GPU_CORE: 1000, GPU_MEMORY_RATIO: 1000}).quota(named(trial, "a"))
    trial.submit(greedy.scheduler(KOORD_SCHEDULER))
    expect.pending("greedy")

    def share() -> object:
        return annotation(read(trial, named(trial, "a")), RUNTIME).get(GPU_CORE)

    assert trial.reaches(lambda: share() == "200", within=30), share()
