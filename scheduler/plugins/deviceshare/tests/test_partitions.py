"""Cards by partition table: DEV-E8, tables in annotations, and when a table is mandatory."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.device import Device
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.deviceshare.allocator import allocate, verdict
from seatrial.scheduler.plugins.deviceshare.cache import traits_of
from seatrial.scheduler.plugins.deviceshare.gpus import Policy
from seatrial.scheduler.plugins.deviceshare.partitions import (
    NO_SUCH_COUNT,
    NO_TABLE,
    NONE_LEFT,
    TableError,
    parse_table,
)
from seatrial.scheduler.plugins.deviceshare.states import NO_TRAITS, DeviceState, Traits
from seatrial.scheduler.plugins.deviceshare.tests.machines import HALF, ask, card, chosen, single, state, whole

HONOUR = Traits(built_in=True, honour=True)
PREFER = Traits(built_in=True)


def linked(**used: Any) -> DeviceState:
    return state(single(), **used)


@pytest.mark.parametrize(
    ("traits", "used", "cards", "gpus", "nics"),
    [
        pytest.param(HONOUR, {}, 1, [0], [1], id="one"),
        pytest.param(HONOUR, {}, 2, [0, 1], [1, 2], id="two"),
        pytest.param(HONOUR, {}, 4, [0, 1, 2, 3], [1, 2, 3, 4], id="four"),
        pytest.param(HONOUR, {}, 8, list(range(8)), list(range(1, 9)), id="eight"),
        pytest.param(HONOUR, {2: 100, 3: 100}, 2, [0, 1], [1, 2], id="a-free-pair"),
        pytest.param(HONOUR, {4: 100}, 2, [6, 7], [7, 8], id="the-pair-that-keeps-a-four-whole"),
        pytest.param(HONOUR, {4: 100}, 1, [5], [6], id="the-card-that-keeps-most-whole"),
        pytest.param(PREFER, {2: 100, 3: 100}, 3, [4, 5, 6], [5, 6, 7], id="preferred-tables-give-way-to-topology"),
    ],
)
def test_known_machines(traits: Traits, used: dict[int, int], cards: int, gpus: list[int], nics: list[int]) -> None:
    have = linked(cards=used, traits=traits)
    request = ask(whole(cards, rdma=1), joint={"deviceTypes": ["gpu", "rdma"]})
    assert chosen(have, request) == {"gpu": gpus, "rdma": nics}


TABLE = {
    "2": [
        {"minors": [0, 1], "gpuLinkType": "HCCS", "ringBusBandwidth": "100Gi", "allocationScore": 1},
        {"minors": [2, 3], "gpuLinkType": "HCCS", "ringBusBandwidth": "200Gi", "allocationScore": 5},
    ],
    "4": [{"minors": [3, 2, 1, 0], "gpuLinkType": "HCCS", "allocationScore": "1"}],
}


def table(**hints: Any) -> Traits:
    return Traits(partitions=msgspec.json.encode(TABLE).decode(), **hints)


FOUR = [card(minor) for minor in range(4)]


@pytest.mark.parametrize(
    ("have", "cards", "spec", "want"),
    [
        pytest.param(linked(traits=HONOUR), 3, None, NO_SUCH_COUNT, id="three-are-no-partition"),
        pytest.param(linked(traits=HONOUR), 6, None, NO_SUCH_COUNT, id="nor-are-six"),
        pytest.param(linked(cards={0: 1, 4: 1}, traits=HONOUR), 4, None, NONE_LEFT, id="a-percent-taken-spoils-a-four"),
        pytest.param(linked(traits=Traits(honour=True)), 1, None, NO_TABLE, id="nothing-to-honour"),
        pytest.param(linked(), 1, {}, NO_TABLE, id="the-pod-insists-and-there-is-no-table"),
        pytest.param(linked(traits=PREFER), 3, {}, NO_SUCH_COUNT, id="the-pod-insists-where-the-node-prefers"),
        pytest.param(linked(traits=PREFER), 2, {"ringBusBandwidth": "1Gi"}, NONE_LEFT, id="unknown-bandwidth"),
        pytest.param(state(FOUR, traits=table(honour=True)), 1, None, NO_SUCH_COUNT, id="one-card-of-linked-pairs"),
        pytest.param(state(FOUR, traits=table()), 2, {"ringBusBandwidth": "201Gi"}, NONE_LEFT, id="too-slow"),
        pytest.param(
            state(FOUR, cards={2: 100}, traits=table()),
            2,
            {"allocatePolicy": "Restricted"},
            NONE_LEFT,
            id="restricted-to-the-best-score",
        ),
    ],
)
def test_no_partition(have: DeviceState, cards: int, spec: Any, want: Status) -> None:
    request = ask(whole(cards), partition=spec)
    assert allocate(have, request, Policy()) == want
    assert verdict(have, request, Policy()) == want


@pytest.mark.parametrize(
    ("used", "cards", "spec", "want"),
    [
        pytest.param({}, 2, None, [2, 3], id="the-highest-score-first"),
        pytest.param({2: 100}, 2, {"allocatePolicy": "BestEffort"}, [0, 1], id="the-next-score-when-that-is-taken"),
        pytest.param({}, 2, {"ringBusBandwidth": "200Gi"}, [2, 3], id="just-enough-bandwidth"),
        pytest.param({}, 2, {"ringBusBandwidth": "150Gi"}, [2, 3], id="more-than-enough-bandwidth"),
        pytest.param({}, 4, None, [3, 2, 1, 0], id="in-the-tables-order"),
        pytest.param({0: 5}, 1, None, [1], id="a-count-the-table-lacks-when-it-is-only-preferred"),
    ],
)
def test_tables_of_device_objects(used: dict[int, int], cards: int, spec: Any, want: list[int]) -> None:
    have = state(FOUR, cards=used, traits=table())
    assert chosen(have, ask(whole(cards), partition=spec)) == {"gpu": want}


def test_koordinators_order_of_scores_can_be_configured() -> None:
    policy = Policy(lowest_partition_score_first=True)
    assert chosen(state(FOUR, traits=table()), ask(whole(2)), policy) == {"gpu": [0, 1]}


def test_shared_cards_ignore_partitions() -> None:
    have = linked(cards={0: 30}, traits=HONOUR)
    assert chosen(have, ask(HALF, partition={"allocatePolicy": "Restricted"})) == {"gpu": [0]}


def test_unhealthy_cards_are_in_no_free_partition() -> None:
    cards = [card(minor, health=minor != 2) for minor in range(4)]
    assert chosen(state(cards, traits=table(honour=True)), ask(whole(2))) == {"gpu": [0, 1]}


def test_a_partition_must_have_the_requested_amounts() -> None:
    """Upstream compares no amounts here, and allocates 200 percent of one card."""
    request = ask({"koordinator.sh/gpu-core": 200, "koordinator.sh/gpu-memory-ratio": 100})
    assert allocate(linked(traits=HONOUR), request, Policy()) == NONE_LEFT


@pytest.mark.parametrize("text", ["{", "[]", '{"two": []}', '{"2": [{"minors": [0, 1], "allocationScore": "best"}]}'])
def test_an_invalid_table_is_reported_and_not_used(text: str) -> None:
    with pytest.raises(TableError, match="gpu-partitions is not a partition table"):
        parse_table(text)
    traits, (complaint,) = traits_of(device(annotations={"scheduling.koordinator.sh/gpu-partitions": text}), {})
    assert traits.partitions == ""
    assert complaint.startswith("gpu-partitions is not a partition table: ")


def device(**metadata: Any) -> Any:

    return Device(ObjectMeta(name="n", **metadata))


TEXT = '{"2":[{"minors":[0,1]}]}'
POLICY = "node.koordinator.sh/gpu-partition-policy"
VENDOR, MODEL = "node.koordinator.sh/gpu-vendor", "node.koordinator.sh/gpu-model"


@pytest.mark.parametrize(
    ("on_device", "annotated", "on_node", "want"),
    [
        pytest.param({POLICY: "Honor"}, True, {}, Traits(TEXT, honour=True, model="-"), id="its-own-table-and-word"),
        pytest.param({}, True, {POLICY: "Honor"}, Traits(TEXT, model="-"), id="the-nodes-word-means-nothing-then"),
        pytest.param(
            {POLICY: "Honor"}, False, {MODEL: "H800"}, Traits(built_in=True, model="-H800"), id="and-the-devices-here"
        ),
        pytest.param(
            {},
            False,
            {POLICY: "Honor", VENDOR: "nvidia", MODEL: "H20"},
            Traits(built_in=True, honour=True, model="nvidia-H20"),
            id="a-known-machine",
        ),
        pytest.param({}, False, {VENDOR: "huawei", MODEL: "H20"}, Traits(model="huawei-H20"), id="another-vendor-h20"),
        pytest.param({}, False, {POLICY: "honor"}, Traits(model="-"), id="policies-are-spelt-exactly"),
    ],
)
def test_where_the_table_comes_from(
    on_device: dict[str, str], annotated: bool, on_node: dict[str, str], want: Traits
) -> None:
    annotations = {"scheduling.koordinator.sh/gpu-partitions": TEXT} if annotated else {}
    assert traits_of(device(labels=on_device, annotations=annotations), on_node) == (want, [])
    assert traits_of(None, on_node) == (NO_TRAITS, [])
