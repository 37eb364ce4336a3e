"""A plot of replays: allocated and fragmented GPU while pods arrive."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.harness.errors import UsageError
from seatrial.harness.replay.comparison import Difference
from seatrial.harness.replay.series import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FROM = 80  # percent arrived: below, all policies place all pods
_PANELS = (("gpu_allocated_percent", "GPU allocated"), ("fragmented_percent", "GPU idle and fragmented"))


def check_target(path: Path) -> None:
    """Refuse a path that cannot be written, before the replays run.

    Raises:
        UsageError: the name does not end in .png, there is no such folder, or matplotlib is not installed.
    """
    check_installed()
    if path.suffix != ".png":
        raise UsageError(f"--plot {path}: expected a name that ends in .png, found {path.suffix or 'no ending'!r}")
    if not path.parent.is_dir():
        raise UsageError(f"--plot {path}: expected a folder {path.parent}, found none")


def check_installed() -> None:
    """
    Raises:
        UsageError: matplotlib is not installed; it is an extra, because only plots need its 76 MB.
    """
    if find_spec("matplotlib") is None:
        raise UsageError("plots: expected the package matplotlib, found none; `pip install 'seatrial[plots]'` adds it")


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure; sizes in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # takes a second, needed for plots only
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_comparison(rows: Sequence[Difference], policy: str, beside: str, path: Path) -> None:
    """Write a PNG with a panel for each workload: allocated by two policies, and the bound, from 80 % arrived on."""
    width = min(len(rows), 4)
    height = -(-len(rows) // width)
    figure = new_figure(3.4 * width, 2.6 * height)
    every = figure.subplots(height, width, squeeze=False).ravel()
    for axes, row in zip(every, rows, strict=False):
        percents = [percent for percent in row.curves if percent >= _FROM]
        for place, (name, style) in enumerate(((policy, "-"), (beside, "--"), ("no policy exceeds", ":"))):
            axes.plot(percents, [row.curves[percent][place] for percent in percents], style, label=name)
        axes.set_title(row.workload, fontsize=9)
        axes.tick_params(labelsize=7)
        axes.grid(visible=True, alpha=0.3)
    every[0].legend(fontsize=7)
    for axes in every[len(rows) :]:
        axes.set_axis_off()
    figure.supxlabel("GPU request arrived, % of capacity", fontsize=9)
    figure.supylabel("GPU allocated, % of capacity", fontsize=9)
    figure.savefig(path, dpi=110)


def draw(curves: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Write a PNG with a line for each policy (name → rows per whole percent arrived)."""
    figure = new_figure(11, 4.5)
    for axes, (field, title) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        for policy, rows in curves.items():
            axes.plot([row["arrived_percent"] for row in rows], [row[field] for row in rows], label=policy)
        axes.set(xlabel="GPU request arrived, % of capacity", ylabel="% of capacity", title=title)
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
