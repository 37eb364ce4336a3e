"""`bench node-qos`, small: each part runs, and its figures say what they are of."""

import pytest

from seatrial.harness.bench.node_qos import bench_node_qos
from seatrial.harness.tests.test_cli import say


def test_a_small_run() -> None:
    lines: list[str] = []
    figures = bench_node_qos(2, 3, 2, 2, 1.0, lines.append, seed=1)
    assert {key: figures[key] for key in ("nodes", "pods_per_node", "agent_pods")} == {
        "nodes": 2,
        "pods_per_node": 3,
        "agent_pods": 2,
    }
    for name in ("reports_core_percent", "manager_round_seconds"):
        each = figures[name]
        assert 0 <= each["low"] <= each["median"] <= each["high"]
    assert figures["agent"]["resident_mib"] > 1
    assert figures["within_budget"].keys() == {"reports", "manager", "agent"}
    assert [line.partition(":")[0] for line in lines] == ["minute 1 of 2", "minute 2 of 2", "agent"]


@pytest.mark.parametrize(
    "words", [("--nodes", "0"), ("--pods", "-1"), ("--rounds", "0"), ("--agent-pods", "x"), ("--agent-seconds", "0")]
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, str]) -> None:
    assert say(monkeypatch, ["bench", "node-qos", *words]) != 0
    text = capsys.readouterr()
    assert words[0] in text.out + text.err
