"""Merging of hints: NUMA-E9, and the effect of exclusivity."""

import pytest

from seatrial.scheduler.api.numa import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE
from seatrial.scheduler.framework.status import Status
from seatrial.scheduler.plugins.nodenuma.merging import Lists, binary, merge
from seatrial.scheduler.plugins.numahints import Hint

ALL = "0123"
REFUSED = "Unaligned NUMA Hint cause "


def hints(text: str) -> list[Hint]:
    """`0p 01` as hints: {0} preferred, {0,1} not; `0p=7` with a score."""
    hints = []
    for word in text.split():
        word, _, score = word.partition("=")  # noqa: PLW2901
        mask = frozenset(int(digit) for digit in word.removesuffix("p"))
        hints.append(Hint(mask, word.endswith("p"), int(score or 0)))
    return hints


def merged(policy: str, lists: Lists, *, ids: str = ALL, barred: str = "") -> str:
    union = merge(policy, [int(number) for number in ids], lists, lambda mask: mask == frozenset(map(int, barred)))
    if isinstance(union, Status):
        return union.message
    text = "".join(map(str, sorted(union.mask))) if union.mask is not None else "none"
    return text + ("p" if union.preferred else "")


@pytest.mark.parametrize(
    ("first", "second", "best_effort", "restricted", "single"),
    [
        pytest.param("0p 1p", "0p", "0p", "0p", "0p", id="one-of-two"),
        pytest.param("0p 1p", "0p 01", "0p", "0p", "0p", id="the-wide-one-is-not-preferred"),
        pytest.param("1p 01", "0p 1p 01", "1p", "1p", "1p", id="the-node-both-name"),
        pytest.param(
            "01p 02p",
            "01p 02p",
            "01p",
            "01p",
            f"{REFUSED}resource1 prefer [11 0101] among [11 0101],resource2 prefer [11 0101] among [11 0101]",
            id="two-nodes-each",
        ),
        pytest.param(
            "0p",
            "1p",
            "0123",
            f"{REFUSED}resource1 prefer [01] among [01] & resource2 prefer [10] among [10]",
            f"{REFUSED}resource1 prefer [01] among [01],resource2 prefer [10] among [10]",
            id="nothing-in-common",
        ),
        pytest.param(
            "0p",
            "0",
            "0",
            f"{REFUSED}resource1 prefer [01] among [01] & resource2 prefer [] among [01]",
            f"{REFUSED}resource1 prefer [01] among [01],resource2 prefer [] among [01]",
            id="one-does-not-prefer-it",
        ),
        pytest.param(
            "0p",
            "01p",
            "0123",
            f"{REFUSED}resource1 prefer [01] among [01] & resource2 prefer [11] among [11]",
            f"{REFUSED}resource1 prefer [01] among [01],resource2 prefer [11] among [11]",
            id="one-needs-more",
        ),
        pytest.param(
            "0p 1p",
            "01",
            "0123",
            f"{REFUSED}resource1 prefer [01 10] among [01 10] & resource2 prefer [] among [11]",
            f"{REFUSED}resource1 prefer [01 10] among [01 10],resource2 prefer [] among [11]",
            id="one-is-wide",
        ),
        pytest.param("", "0p", "0123", "Unsatisfied NUMA resource1", "Unsatisfied NUMA resource1", id="nothing-does"),
        pytest.param("0p=1 1p=9", "0p=5 1p=5", "1p", "1p", "1p", id="the-better-score"),
        pytest.param("03p=9 12p=1", "03p 12p", "03p", "03p", None, id="the-better-score-of-two-nodes"),
    ],
)
def test_merge(first: str, second: str, best_effort: str, restricted: str, single: str | None) -> None:
    lists = {"resource1": hints(first), "resource2": hints(second)}
    assert merged(BEST_EFFORT, lists) == best_effort
    assert merged(RESTRICTED, lists) == restricted
    if single is not None:
        assert merged(SINGLE_NUMA_NODE, lists) == single


@pytest.mark.parametrize(
    ("policy", "want"),
    [
        pytest.param(BEST_EFFORT, "0123p", id="best-effort"),
        pytest.param(RESTRICTED, "0123p", id="restricted"),
        pytest.param(SINGLE_NUMA_NODE, "nonep", id="single"),
    ],
)
def test_no_resource_has_a_preference(policy: str, want: str) -> None:
    assert merged(policy, {"resource": None}) == want
    assert merged(policy, {}) == want


def test_a_machine_of_one_numa_node_gives_no_mask() -> None:
    assert merged(SINGLE_NUMA_NODE, {"cpu": hints("0p")}, ids="0") == "nonep"
    assert merged(RESTRICTED, {"cpu": hints("0p")}, ids="0") == "0p"


def test_exclusivity_removes_preferences() -> None:
    lists = {"cpu": hints("0p=9 1p 01")}
    assert merged(RESTRICTED, lists, barred="0") == "1p"
    assert merged(SINGLE_NUMA_NODE, {"cpu": hints("0p")}, barred="0") == f"{REFUSED}cpu prefer [01] among [01]"
    assert merged(BEST_EFFORT, {"cpu": hints("0p")}, barred="0") == "0"


def test_eight_numa_nodes_and_four_resources() -> None:
    everywhere = [Hint(frozenset(item for item in range(8) if mask >> item & 1), False, 0) for mask in range(1, 256)]
    lists = dict.fromkeys(("cpu", "gpu", "memory", "rdma"), everywhere)
    assert merged(BEST_EFFORT, lists, ids="01234567") == "0"


@pytest.mark.parametrize(
    ("mask", "want"),
    [("0", "01"), ("1", "10"), ("01", "11"), ("2", "100"), ("02", "0101"), ("3", "1000"), ("4", "10000")],
)
def test_masks_in_print(mask: str, want: str) -> None:
    assert binary(frozenset(map(int, mask))) == want
