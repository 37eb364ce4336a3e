"""The log of changed rows is bounded, and so are facts of nodes; readers that are behind read all rows."""

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.cache import domains, node_facts, row_log
from seatrial.scheduler.cache.domains import Domains
from seatrial.scheduler.cache.row_log import RowLog
from seatrial.scheduler.tests.rig import Rig

ZONE = "topology.kubernetes.io/zone"


def test_old_entries_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_log, "LIMIT", 8)
    log = RowLog()
    for row in range(100):
        log.add(row % 5)
        assert len(log._rows) <= 8
    assert log.since(log.end, 5) == []
    assert log.since(log.end - 3, 5) == [2, 3, 4]
    assert log.since(0, 1000) is None
    assert log.since(log.end - 4, 3) is None, "more entries than rows"
    marks = bytearray([0, 0, 0, 0, 1])
    assert log.has_marked(marks, 0)
    assert log.has_marked(marks, log.end - 1)
    assert not log.has_marked(bytearray(5), log.end - 1)


def test_decisions_follow_node_objects_with_a_short_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a node's label is seen, though the log keeps less than the changes between two decisions."""
    monkeypatch.setattr(row_log, "LIMIT", 4)
    rig = Rig()
    for turn in range(10):
        for number in range(6):
            rig.node(f"n{number}", labels={"turn": str(turn), "here": str(number == turn % 6)})
        rig.submit(pod(f"p{turn}").request(cpu=1).select({"here": "True", "turn": str(turn)}))
        rig.run()
        assert rig.where(f"p{turn}") == f"n{turn % 6}"


def test_facts_of_nodes_that_are_gone_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come and go in zones of their own; the groups of those that are there stay right."""
    monkeypatch.setattr(node_facts, "MIN_VALUES", 4)
    monkeypatch.setattr(domains, "MAX_KEYS", 2)
    rig = Rig()
    known = Domains(rig.core.cache)
    zones = known.of(ZONE)
    for number in range(100):
        for name in ("a", "b"):
            rig.node(f"{name}{number}", labels={ZONE: f"z{number}", f"key{number}": "x"})
        assert known.of(f"key{number}").present().sum() == 2
        codes, present = zones.codes(), zones.present()
        rows = [rig.core.cache.columns.rows[f"{name}{number}"] for name in ("a", "b")]
        assert present[rows].all()
        assert codes[rows[0]] == codes[rows[1]]
        assert zones.size <= 4 + 2 * rig.core.cache.columns.count + 2
        for name in ("a", "b"):
            rig.core.intake.remove_node(f"{name}{number}")
    assert len(known._by_key) <= 2
