"""The score configurations of the release posts: what each must change, against the scheduler's defaults."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.profiles import announced
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import NodeBuilder, node, pod, pods
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.transport import STRATEGIC_MERGE_PATCH

FIT_PLUS, SCARCE = "released-fit-plus", "released-scarce-resource"
NODES = ("n1", "n2")

pytestmark = [pytest.mark.needs(Capability.NODES)]


def add_with_cards(trial: Trial, *machines: NodeBuilder) -> None:
    """Add nodes of four cards, which are in their status as nvidia.com/gpu too, as NVIDIA's device plugin has it."""
    trial.add(*machines)
    amounts = {"nvidia.com/gpu": "4"}
    body = {"status": {"capacity": amounts, "allocatable": amounts}}
    for machine in machines:
        answer = trial.call("PATCH", f"/api/v1/nodes/{machine.name}/status", body, kind=STRATEGIC_MERGE_PATCH)
        assert answer.ok, answer.body


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.configuration-fit-plus")
@pytest.mark.case("SC-175", severity="critical")
@pytest.mark.parametrize("used", NODES)
@pytest.mark.parametrize(
    ("profile", "joins"),
    [
        pytest.param(FIT_PLUS, True, id="released-packs-cards"),
        pytest.param(KOORD_SCHEDULER, False, id="by-default-cards-are-spread"),
    ],
)
def test_fit_plus_packs_cards(trial: Trial, expect: Expect, used: str, profile: str, joins: bool) -> None:
    """One of two equal nodes has two used cards: by the announced configuration the next cards are taken there."""
    assert announced("v1.6/config/fit-plus.config.yaml", FIT_PLUS)
    add_with_cards(trial, *(node(name).gpus("a10", 4).cpu(64) for name in NODES))
    trial.submit(pod("holder").nvidia(2).select({"kubernetes.io/hostname": used}))
    expect.bound("holder")

    for builder in pods("a", 2):
        trial.submit(builder.nvidia(1).scheduler(profile))
        assert (expect.bound(builder.name).spec.node_name == used) == joins


@pytest.mark.profile(FIT_PLUS)
@pytest.mark.feature("SCORE-1.configuration-fit-plus")
@pytest.mark.case("SC-176", severity="critical")
@pytest.mark.parametrize("used", NODES)
def test_fit_plus_spreads_processors(trial: Trial, expect: Expect, used: str) -> None:
    """By the same configuration pods of CPU and memory avoid the node that the cards were packed onto."""
    assert announced("v1.6/config/fit-plus.config.yaml", FIT_PLUS)
    add_with_cards(trial, *(node(name).gpus("a10", 4).cpu(64) for name in NODES))
    trial.submit(pod("holder").nvidia(1).request(cpu=8, memory="16Gi").select({"kubernetes.io/hostname": used}))
    expect.bound("holder")

    for builder in pods("a", 2):
        trial.submit(builder.nvidia(1).scheduler(FIT_PLUS))
        assert expect.bound(builder.name).spec.node_name == used
    for builder in pods("b", 2):
        trial.submit(builder.request(cpu=2, memory="4Gi").scheduler(FIT_PLUS))
        assert expect.bound(builder.name).spec.node_name != used


@pytest.mark.profile(SCARCE)
@pytest.mark.feature("SCORE-2.configuration-scarce-resource", "SCORE-1.manifest-scarce-resource")
@pytest.mark.case("SC-177", severity="critical")
@pytest.mark.parametrize("cards", NODES)
@pytest.mark.parametrize(
    ("profile", "kept"),
    [
        pytest.param(SCARCE, True, id="released-keeps-cards-free"),
        pytest.param(KOORD_SCHEDULER, False, id="by-default-the-emptier-node"),
    ],
)
def test_scarce_resources_are_kept(trial: Trial, expect: Expect, cards: str, profile: str, kept: bool) -> None:
    """The two pods of the announcement, three times: those without a card stay off the node with cards, which is by
    far the emptier one, and those with a card take it."""
    assert announced("v1.6/config/scarce-resource.config.yaml", SCARCE)
    (plain,) = set(NODES) - {cards}
    add_with_cards(trial, node(cards).gpus("a10", 4).cpu(64))
    trial.add(node(plain).cpu(16))
    trial.submit(pod("holder").request(cpu=8, memory="8Gi").select({"kubernetes.io/hostname": plain}))
    expect.bound("holder")

    for number in range(3):
        for manifest in documents(suites_folder() / "manifests/v1.6/scarce-resource.yaml"):
            name = f"{manifest['metadata']['name']}-{number}"
            manifest["metadata"] |= {"name": name, "namespace": trial.name}
            manifest["spec"]["schedulerName"] = profile
            trial.accept(manifest, f"/api/v1/namespaces/{trial.name}/pods")
            expect.bound(name)

    where = {pod.metadata.name: pod.spec.node_name for pod in trial.pods()}
    assert {where[f"with-gpu-{number}"] for number in range(3)} == {cards}
    assert {where[f"without-gpu-{number}"] for number in range(3)} == {plain if kept else cards}


def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_bytes()) if document]
