"""Pressure of pods and containers, as `/metrics` shows it (KM-16)."""

from pathlib import Path

import pytest

from seatrial.scheduler.koordlet.pressure import averages
from seatrial.scheduler.koordlet.tests.setting import Setting
from seatrial.scheduler.serving.exposition import exposed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("some avg10=1.50 avg60=0.10 total=7\nfull avg10=0.25 avg60=0.00 total=1", {"some": 1.5, "full": 0.25}),
        ("some avg10=1.50 avg60=0.10 total=7", {"some": 1.5}),
        ("", {}),
        ("some avg60=1.00\nfull avg10=x\nother avg10=1", {}),
    ],
)
def test_averages(text: str, expected: dict[str, float]) -> None:
    assert averages(text) == expected


@pytest.mark.parametrize("v2", [False, True], ids=["v1", "v2"])
def test_pressure_of_a_pod(tmp_path: Path, v2: bool) -> None:
    """Of the pod and its container; a kernel without `full` of the CPU says so. A pod that is gone has none."""
    setting = Setting(tmp_path, v2=v2, gates={"PSICollector": True})
    pod = setting.pod("a")
    setting.root.press(pod, "cpu", some=12.5)
    setting.root.press(f"{pod}/a-c", "memory", some=3.0, full=1.0)
    setting.run(11)
    rows = [line for line in exposed(setting.agent.families()).decode().splitlines() if "_psi{" in line]
    assert len(rows) == 4
    assert any('cpu_full_supported="false"' in line and line.endswith(" 12.5") for line in rows)
    of_container = [line for line in rows if 'container_name="c"' in line]
    assert any('psi_resource_type="mem"' in line and line.endswith(" 3") for line in of_container)
    setting.agent._pod_gone(setting.agent._pods["a"].pod)
    setting.run(10)
    assert b"_psi{" not in exposed(setting.agent.families())
