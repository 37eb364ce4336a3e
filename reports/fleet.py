"""The picture of the fleet: one row for each node, one cell for each device, darker with its allocated part."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from markupsafe import Markup, escape

from seatrial.harness.results import DeviceState, NodeState
from seatrial.reports.run_figures import short

MAX_NODES = 600  # a page with more cells opens slowly and is not readable
ROOMY = 32  # up to this number of nodes, rows are tall and cells have figures
WIDTH = 1060
STEPS = (("o0", "free"), ("o1", "to 25 %"), ("o2", "to 50 %"), ("o3", "to 75 %"), ("o4", "under 100 %"), ("o5", "full"))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The picture with its summary."""

    picture: Markup
    summary: str
    drawn: tuple[NodeState, ...]
    left_out: int


def occupancy(device: DeviceState) -> float:
    """The allocated part of a device in percent: the larger of allocated cores and allocated memory."""
    return max(device.used_core_percent, device.used_memory_percent)


def step_of(percent: float) -> str:
    """The style of a cell with this occupancy."""
    if percent <= 0:
        return "o0"
    bounds = ((25, "o1"), (50, "o2"), (75, "o3"), (99.95, "o4"))
    return next((style for bound, style in bounds if percent <= bound), "o5")


def fleet(nodes: Sequence[NodeState]) -> Fleet:
    """Draw the nodes in their order; only the first `MAX_NODES` if there are more."""
    drawn = tuple(nodes[:MAX_NODES])
    roomy = len(drawn) <= ROOMY
    picture = _roomy(drawn) if roomy else _dense(drawn)
    return Fleet(picture, summary_of(nodes), drawn, len(nodes) - len(drawn))


def summary_of(nodes: Sequence[NodeState]) -> str:
    """The fleet in a sentence; also the text alternative of the picture."""
    devices = [device for node in nodes for device in node.devices]
    parts = [f"{len(nodes):,} nodes"]
    for kind in dict.fromkeys(device.type for device in devices):
        own = [device for device in devices if device.type == kind]
        value = sum(map(occupancy, own)) / len(own)
        full, free = sum(occupancy(d) >= 99.95 for d in own), sum(occupancy(d) <= 0 for d in own)
        parts.append(f"{len(own):,} {kind}: {short(value)} % allocated, {full:,} full, {free:,} free")
    sick = sum(device.health != "ok" for device in devices)
    return "; ".join([*parts, f"{sick:,} unhealthy" if sick else "all healthy"])


def _roomy(nodes: Sequence[NodeState]) -> Markup:
    """Names on the left, figures in the cells, the model on the right."""
    kinds = list(dict.fromkeys(device.type for node in nodes for device in node.devices))
    most = {kind: max(sum(d.type == kind for d in node.devices) for node in nodes) for kind in kinds}
    name_wide = 18 + 7.6 * max((len(_clipped(node.name, 20)) for node in nodes), default=0)
    row, top = 30, 40
    cell = min(72.0, (WIDTH - name_wide - 210 - 18 * len(kinds)) / max(1, sum(most.values())))
    parts, x = list[str](), name_wide
    starts: dict[str, float] = {}
    for kind in kinds:
        starts[kind] = x
        parts.append(f'<text class="node" x="{x:.1f}" y="14">{escape(kind)}</text>')
        parts += [
            f'<text class="tick mid" x="{x + place * cell + cell / 2 - 2:.1f}" y="32">{place}</text>'
            for place in range(most[kind])
        ]
        x += most[kind] * cell + 18
    for number, node in enumerate(nodes):
        y = top + number * row
        parts.append(
            f'<text class="node end" x="{name_wide - 12:.1f}" y="{y + 18}">{escape(_clipped(node.name, 20))}</text>'
        )
        for kind, group in groupby(sorted(node.devices, key=lambda d: (d.type, d.minor)), key=lambda d: d.type):
            for place, device in enumerate(group):
                parts.append(
                    _cell(node, device, starts[kind] + place * cell, y, wide=cell - 4, high=row - 5, figure=cell >= 26)
                )
        models = ", ".join(dict.fromkeys(device.model for device in node.devices if device.model))
        parts.append(f'<text class="tick" x="{x:.1f}" y="{y + 18}">{escape(_clipped(models, 34))}</text>')
    return _picture(parts, top + len(nodes) * row, summary_of(nodes))


def _dense(nodes: Sequence[NodeState]) -> Markup:
    """Many nodes in columns; the names are in the tooltips and the table."""
    most = max((len(node.devices) for node in nodes), default=1)
    cell = 11.0 if len(nodes) <= 200 else 8.0
    block = most * cell + (86 if len(nodes) <= 200 else 10)
    columns = max(1, int(WIDTH // block))
    rows = -(-len(nodes) // columns)
    parts = []
    for number, node in enumerate(nodes):
        x, y = (number // rows) * block, (number % rows) * (cell + 2)
        if len(nodes) <= 200:
            name = escape(_clipped(node.name, 13))
            parts.append(f'<text class="tiny end" x="{x + 72:.1f}" y="{y + cell - 2:.1f}">{name}</text>')
            x += 78
        parts += [
            _cell(node, device, x + place * cell, y, wide=cell - 1.5, high=cell - 1, figure=False)
            for place, device in enumerate(node.devices)
        ]
    return _picture(parts, rows * (cell + 2) + 4, summary_of(nodes))


def _cell(node: NodeState, device: DeviceState, x: float, y: float, *, wide: float, high: float, figure: bool) -> str:
    used = occupancy(device)
    well = device.health == "ok"
    style = step_of(used) if well else "sick"
    box = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="{3 if high > 12 else 1}"'
    parts = [f'<g class="cell"><title>{escape(describe(node, device))}</title><rect class="{style}" {box}/>']
    if figure:
        text = f"{used:.0f}" if well else "✕"
        parts.append(f'<text class="in {style}" x="{x + wide / 2:.1f}" y="{y + high / 2 + 4:.1f}">{text}</text>')
    return "".join(parts) + "</g>"


def describe(node: NodeState, device: DeviceState) -> str:
    """The tooltip of a device: model, allocated part, health and pods."""
    lines = [f"{node.name} {device.type} {device.minor} {device.model}".strip()]
    lines.append(f"core {short(device.used_core_percent)} %, memory {short(device.used_memory_percent)} %")
    if device.numa is not None:
        lines[0] += f", NUMA {device.numa}"
    if device.health != "ok":
        lines.append(f"unhealthy: {device.health}")
    shown = ", ".join(device.pods[:6])
    more = f" and {len(device.pods) - 6} more" if len(device.pods) > 6 else ""
    return "\n".join([*lines, f"pods: {shown}{more}" if shown else "no pods"])


def _clipped(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _picture(parts: Sequence[str], height: float, about: str) -> Markup:
    opening = f'<svg class="fleet" viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{escape(about)}">'
    return Markup(opening + "".join(parts) + "</svg>")  # noqa: S704  # every text in it went through escape
