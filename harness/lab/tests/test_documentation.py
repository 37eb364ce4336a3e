"""The inventory in docs/lab.md is one."""

import re
from pathlib import Path

from seatrial.harness.lab.inventory import load_inventory
from seatrial.harness.lab.windows import next_start

PAGE = Path(__file__).resolve().parents[3] / "docs/lab.md"


def test_the_documented_inventory_can_be_read(tmp_path: Path) -> None:
    match = re.search(r"```yaml lab\.yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert match is not None
    (tmp_path / "lab.yaml").write_text(match[1])
    inventory = load_inventory(tmp_path / "lab.yaml")
    assert [machine.name for machine in inventory.machines] == ["dgx-1", "a10-box"]
    assert inventory.machines[0].hooks["power-cycle"].command[2] == "{machine}-bmc"
    sunday = 1_767_484_800.0  # 2026-01-04 00:00 UTC
    assert next_start(inventory.windows, "dgx-1", sunday, besides="") == sunday + 24 * 3600
