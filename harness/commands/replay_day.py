"""`seatrial replay day`: a fleet before and after a day of descheduling, in simulated time."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError
from seatrial.harness.interrupts import interruptible
from seatrial.harness.replay.day import HIGH, rows_of_a_day
from seatrial.harness.replay.day_plot import draw_day
from seatrial.harness.replay.plot import check_installed

FIGURES, PICTURE = "day.json", "day.png"


def day(
    folder: Path,
    *,
    nodes: Annotated[int, Parameter(validator=validators.Number(gte=4))] = 16,
    hours: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 24,
    seed: int = 0,
) -> None:
    """Run a fleet through a day of changing load without and with the descheduler, and draw both.

    Args:
        folder: Where day.json, with what the nodes reported, and day.png, drawn from it, are written.
        nodes: Number of nodes; half of them join after the pods were placed.
        hours: Simulated hours, beginning at midnight.
        seed: Decides ties of the scheduler.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder}: expected a folder, found a file")
    check_installed()
    folder.mkdir(parents=True, exist_ok=True)
    by_name: dict[str, Any] = {"nodes": nodes, "high": HIGH, "seed": seed}
    with interruptible():
        for name, descheduled in (("without", False), ("with", True)):
            by_name[name] = rows_of_a_day(
                nodes,
                hours,
                descheduled=descheduled,
                seed=seed,
                tell=lambda text, name=name: print(f"{name} the descheduler: {text}", file=sys.stderr),  # type: ignore[misc]
            )
    (folder / FIGURES).write_text(json.dumps(by_name))
    draw_day(folder / FIGURES, folder / PICTURE)
    for name in ("without", "with"):
        rows = by_name[name]
        hot = sum(sum(used > HIGH for used in row["used"].values()) for row in rows) / 6  # six rows an hour
        worst = max(max(row["used"].values()) for row in rows)
        print(f"{name:8} the descheduler  {hot:.0f} node-hours above {HIGH} % of CPU, at most {worst:.0f} %")
    print(f"picture  {folder / PICTURE}")
