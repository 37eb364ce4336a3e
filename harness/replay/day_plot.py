"""A picture of `seatrial replay day`, drawn from the file that the command has written."""

import json
from pathlib import Path
from typing import Any

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.plot import new_figure

TITLES = {"without": "without a descheduler", "with": "with the descheduler"}


def draw_day(file: Path, picture: Path) -> None:
    """Write a PNG: CPU usage of each node over the day, once without and once with descheduling.

    Raises:
        UsageError: the file has no such rows.
    """
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
        parts = {name: document[name] for name in TITLES}
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"{file}: expected the figures of seatrial replay day ({error!r})") from error
    figure = new_figure(11, 6.5)
    axes = figure.subplots(2, 2, height_ratios=(2, 1), sharex=True, sharey="row")
    for column, (name, rows) in enumerate(parts.items()):
        nodes = sorted(rows[0]["used"], key=lambda node: (node.startswith("new"), int(node.rpartition("-")[2])))
        hours = [row["hour"] for row in rows]
        grid = [[row["used"].get(node, 0.0) for row in rows] for node in nodes]
        extent = (hours[0], hours[-1], len(nodes) - 0.5, -0.5)
        axes[0][column].imshow(grid, aspect="auto", vmin=0, vmax=100, cmap="viridis", extent=extent)
        axes[0][column].set(title=TITLES[name], ylabel="" if column else "node (upper half: since the beginning)")
        hot = [sum(used > document["high"] for used in row["used"].values()) for row in rows]
        axes[1][column].plot(hours, hot, label=f"nodes above {document['high']} %")
        axes[1][column].plot(hours, [row["jobs"] for row in rows], label="migration jobs kept")
        axes[1][column].set(xlabel="hour")
        axes[1][column].grid(visible=True, alpha=0.3)
        axes[1][column].legend()
    figure.colorbar(axes[0][1].get_images()[0], ax=axes[0], label="CPU used, %")
    figure.savefig(picture, dpi=100)
