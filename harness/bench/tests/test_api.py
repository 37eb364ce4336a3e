"""`bench api` and `bench start` at their smallest: real processes, and figures that can be what they say."""

import json

import orjson
import pytest

from seatrial.harness.bench.api import OPERATIONS, ApiSize, bench_api, pod_of_1_kb
from seatrial.harness.bench.start import bench_start
from seatrial.harness.cli import app


def test_the_pod_has_about_a_kilobyte() -> None:
    body = pod_of_1_kb("pod-0000001")
    assert 900 <= len(body) <= 1100
    assert orjson.loads(body)["metadata"]["name"] == "pod-0000001"


def test_a_small_run_has_all_figures() -> None:
    messages: list[str] = []
    size = ApiSize(seconds=0.2, pods=300, nodes=20, watchers=3, repeat=1, connections=4)
    figures = bench_api(size, None, messages.append)
    for name in OPERATIONS:
        rate = figures[f"{name}_per_second"]
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert 0 < figures["server_us"][name]["median"] < 1e6
    assert figures["fanout_cost_ratio"]["median"] > 0.3
    assert 500 < figures["bytes_per_pod"] < 200_000
    assert len(messages) == 1


def test_a_start_is_timed() -> None:
    figures = bench_start(1, lambda _: None)
    assert 0 < figures["first_answer_seconds"]["median"] <= figures["nodes_ready_seconds"]["median"]
    assert figures["nodes"] == 10


def test_the_commands_print_json(capsys: pytest.CaptureFixture[str]) -> None:
    app("bench api --seconds 0.2 --pods 0 --watchers 2 --repeat 1 --json")
    figures = json.loads(capsys.readouterr().out)
    assert set(figures) >= {"creates_per_second", "fanout_cost_ratio", "client_was_the_limit_of"}
    assert "bytes_per_pod" not in figures
