"""Reasons for reservations that did not take a pod: RSV-E6 and RSV-E7."""

import pytest

from seatrial.scheduler.api.core import Taint
from seatrial.scheduler.framework.status import SUCCESS, Status
from seatrial.scheduler.plugins.reservation.diagnosis import Diagnosis, reservation_note
from seatrial.scheduler.plugins.reservation.matching import Match

UNREACHABLE = Taint("node.kubernetes.io/unreachable", effect="NoSchedule")
TOTAL = "Reservation(s) matched owner total"
Finding = tuple[str, Match, int]  # node, what they are to the pod, how many


@pytest.mark.parametrize(
    ("findings", "statuses", "expected"),
    [
        pytest.param([], {}, [f"0 {TOTAL}"], id="no-owner"),
        pytest.param(
            [("n1", Match.UNSCHEDULABLE, 3), ("n2", Match.UNSCHEDULABLE, 1)],
            {},
            ["4 Reservation(s) is unschedulable", f"4 {TOTAL}"],
            id="closed",
        ),
        pytest.param(
            [("n1", Match.NAME, 3), ("n2", Match.NAME, 1)],
            {},
            ["4 Reservation(s) didn't match the requested reservation name", f"4 {TOTAL}"],
            id="other-names",
        ),
        pytest.param(
            [("n1", Match.TAINT, 3), ("n2", Match.TAINT, 1)],
            {},
            ["4 Reservation(s) had untolerated taint {node.kubernetes.io/unreachable: }", f"4 {TOTAL}"],
            id="tainted",
        ),
        pytest.param(
            [("n1", Match.INEXACT, 3), ("n2", Match.UNSCHEDULABLE, 1), ("n2", Match.INEXACT, 1)],
            {},
            ["1 Reservation(s) is unschedulable", "4 Reservation(s) is not exact matched", f"5 {TOTAL}"],
            id="inexact",
        ),
        pytest.param(
            [("n1", Match.AFFINITY, 3), ("n2", Match.UNSCHEDULABLE, 1), ("n2", Match.MATCHED, 2)],
            {"n2": Status.unresolvable("node(s) didn't match the requested node name")},
            [
                "3 Reservation(s) didn't match affinity rules",
                "1 Reservation(s) is unschedulable",
                "2 Reservation(s) for node reason that node(s) didn't match the requested node name",
                f"6 {TOTAL}",
            ],
            id="the-node-will-not-do",
        ),
        pytest.param(
            [("n1", Match.MATCHED, 1)],
            {"n1": Status.unschedulable("Reservation(s) Insufficient cpu")},
            [f"1 {TOTAL}"],
            id="said-already",
        ),
    ],
)
def test_reasons(findings: list[Finding], statuses: dict[str, Status], expected: list[str]) -> None:
    diagnosis = Diagnosis(required=True)
    for node, match, count in findings:
        for _ in range(count):
            diagnosis.note(node, match, UNREACHABLE if match is Match.TAINT else None)
    assert diagnosis.reasons(lambda node: statuses.get(node, SUCCESS)) == expected


def test_a_pod_without_affinity_gets_no_second_event() -> None:
    assert Diagnosis(required=False).reasons(lambda _: SUCCESS) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            "0/3 nodes are available: 1 Reservation(s) Insufficient cpu. 1 Reservation(s) matched owner total.",
            "0/1 reservations are available: 1 Reservation(s) Insufficient cpu.",
            id="one-too-small",
        ),
        pytest.param(
            "0/21 nodes are available: 1 Insufficient nvidia.com/gpu by node,"
            " 4 Reservation(s) Insufficient nvidia.com/gpu. 1 Reservation(s) is unschedulable,"
            " 5 Reservation(s) matched owner total",
            "0/5 reservations are available: 4 Reservation(s) Insufficient nvidia.com/gpu,"
            " 1 Reservation(s) is unschedulable.",
            id="what-nodes-lack-falls-out",
        ),
        pytest.param(
            "0/10 nodes are available: 1 Reservation(s) Insufficient cpu, requested: 4000, used: 30000,"
            " capacity: 32000, 4 Insufficient cpu, 5 Insufficient memory,"
            " 1 Reservation(s) exactly matches the requested reservation name,"
            " 3 Reservation(s) didn't match the requested reservation name, 4 Reservation(s) matched owner total.",
            "0/4 reservations are available: 1 Reservation(s) exactly matches the requested reservation name,"
            " 1 Reservation(s) Insufficient cpu, 3 Reservation(s) didn't match the requested reservation name.",
            id="the-name-goes-first-and-numbers-fall-out",
        ),
        pytest.param(
            "0/3 nodes are available: 3 Reservation(s) for node reason that X, 2 Reservation(s) Insufficient cpu,"
            " 5 Reservation(s) matched owner total.",
            "0/5 reservations are available: 2 Reservation(s) Insufficient cpu,"
            " 3 Reservation(s) for node reason that X.",
            id="node-reasons-go-last",
        ),
        pytest.param("0/5 nodes are available: 3 Insufficient cpu, 2 Insufficient memory.", "", id="none-spoken-of"),
        pytest.param('Gang "a/b" is not ready, 1 Reservation(s) matched owner total.', "", id="another-message"),
    ],
)
def test_the_second_event(message: str, expected: str) -> None:
    assert reservation_note(message) == expected
