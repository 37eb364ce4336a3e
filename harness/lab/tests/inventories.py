"""Inventories for tests."""

from pathlib import Path
from typing import Any

from seatrial.harness.lab.inventory import Inventory, parse_inventory


def plain(**changes: Any) -> dict[str, Any]:
    """A lab with two machines: four H100 cards and two NICs; two A10 cards."""
    cards = [{"name": str(number), "model": "h100", "numa": number // 2} for number in range(4)]
    nics = [{"name": f"mlx5_{number}", "model": "connectx-7", "numa": number} for number in range(2)]
    content = {
        "lab": "shelf",
        "leases": {"file": "ledger.json"},
        "machines": [
            {"name": "big", "tags": ["nvlink"], "cards": cards, "nics": nics},
            {"name": "small", "cards": [{"name": str(number), "model": "a10"} for number in range(2)]},
        ],
    }
    return content | changes


def inventory(folder: Path = Path(), **changes: Any) -> Inventory:
    return parse_inventory(plain(**changes), where=folder / "lab.yaml")
