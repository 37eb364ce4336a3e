"""Small SVG pictures for the page: latency distribution and throughput. Colours come from the page's style sheet."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

from markupsafe import Markup, escape

from seatrial.reports.run_figures import Load, Series, cumulative, decades, nice_step, short

WIDTH, HEIGHT = 520, 270
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 42
COLOURS = 5
BUDGET_WITHIN = 3  # a budget above this multiple of the highest figure would flatten the line of the figures


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the legend: CSS class and name."""

    style: str
    name: str


def latency(series: Sequence[Series], names: Sequence[str]) -> Markup:
    """Percent of samples up to a time, one curve per series, p50 and p99 marked. Time is on a logarithmic axis.

    The series share one unit.
    """
    high = max(1e-9, *(entry.samples[-1] for entry in series))  # a logarithmic axis begins above 0
    ticks = decades(max(high * 1e-6, min(entry.samples[0] for entry in series)), high)
    parts = [_frame(_logarithmic_ticks(ticks), [(f"{p}", _y(p / 100)) for p in (0, 25, 50, 75, 90, 100)])]
    parts += [_axis_names(f"{series[0].unit}, logarithmic", "% of pods within")]
    for number, (figure, name) in enumerate(zip(series, names, strict=True)):
        style = f"c{number % COLOURS}"
        points = [
            (_log_x(max(value, ticks[0]), ticks), _y(percent / 100)) for value, percent in cumulative(figure.samples)
        ]
        drawn = style if figure.valid else f"{style} invalid"
        parts.append(f'<polyline class="line {drawn}" points="{_points(points)}"/>')
        for percent in (50, 99):
            value = figure.at(percent)
            label = f"{name}: p{percent} {short(value)} {figure.unit}"
            x, y = _log_x(max(value, ticks[0]), ticks), _y(percent / 100)
            parts.append(
                f'<circle class="mark {drawn}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{escape(label)}</title></circle>'
            )
    about = "; ".join(
        f"{name}: p50 {short(figure.at(50))}, p99 {short(figure.at(99))} {figure.unit}"
        for figure, name in zip(series, names, strict=True)
    )
    return _picture(parts, f"Cumulative distribution. {about}")


def throughput(load: Load) -> Markup:
    """Pods bound per second over time as bars, pods created as a line."""
    top = max(*load.bound, *load.created)
    step = nice_step(top / 4)
    ceiling = step * -(-top // step)
    span = load.width * len(load.bound)
    every = nice_step(span / 6)
    marks = [(short(every * n), _x(every * n / span)) for n in range(int(span / every + 1e-9) + 1)]
    rungs = [(short(step * n), _y(step * n / ceiling)) for n in range(round(ceiling / step) + 1)]
    parts = [_frame(marks, rungs), _axis_names("seconds since the first event", "pods/s")]
    for number, rate in enumerate(load.bound):
        x, y = _x(number / len(load.bound)), _y(rate / ceiling)
        wide = max(0.5, _x((number + 1) / len(load.bound)) - x - 0.8)
        says = f"{short(number * load.width)} s: {short(rate)} pods/s bound, {short(load.created[number])} created"
        parts.append(
            f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{_y(0) - y:.1f}">'
            f"<title>{says}</title></rect>"
        )
    if any(load.created):
        middle = [(_x((n + 0.5) / len(load.created)), _y(rate / ceiling)) for n, rate in enumerate(load.created)]
        parts.append(f'<polyline class="line c1 thin" points="{_points(middle)}"/>')
    return _picture(parts, f"{load.pods:,} pods bound in {short(load.seconds)} s, {short(load.rate)} pods/s")


def trend(
    points: Sequence[tuple[int, float, bool]], unit: str, name: str, budgets: Sequence[tuple[str, float]] = ()
) -> Markup:
    """A figure over runs: `points` are (number of the run, figure, valid); the line joins those that are valid.

    `budgets` are (name, bound) in the unit of the figure. A bound far above all figures is not drawn.
    """
    first, last = points[0][0], points[-1][0]
    highest = max(1e-9, *(value for _, value, _ in points))
    drawn = [(name, bound) for name, bound in budgets if 0 <= bound <= BUDGET_WITHIN * highest]
    highest = max(highest, *(bound for _, bound in drawn), 0.0)
    step = nice_step(highest / 4)
    ceiling = step * max(1, -int(-highest // step))
    span = max(1, last - first)
    every = max(1, round(nice_step(span / 8)))
    marks = [(f"{number}", _x((number - first) / span)) for number in range(first, last + 1, every)]
    rungs = [(short(step * n), _y(step * n / ceiling)) for n in range(round(ceiling / step) + 1)]
    places = [(_x((number - first) / span), _y(value / ceiling)) for number, value, _ in points]
    parts = [_frame(marks, rungs), _axis_names("run", unit)]
    for label, bound in drawn:
        y = _y(bound / ceiling)
        parts.append(
            f'<line class="budget" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}">'
            f"<title>{escape(f'{label} {short(bound)} {unit}')}</title></line>"
        )
    joined = [place for place, (_, _, valid) in zip(places, points, strict=True) if valid]
    parts.append(f'<polyline class="line c0" points="{_points(joined)}"/>')
    for (number, value, valid), (x, y) in zip(points, places, strict=True):
        title = escape(f"run {number}: {short(value)} {unit}{'' if valid else ', not valid'}")
        style = "c0" if valid else "c0 invalid"
        parts.append(f'<circle class="mark {style}" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{title}</title></circle>')
    return _picture(parts, f"{name} by run, in {unit}")


def legend(names: Sequence[str]) -> list[Line]:
    """The legend for the curves of `latency`."""
    return [Line(f"c{number % COLOURS}", name) for number, name in enumerate(names)]


def _x(part: float) -> float:
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(part: float) -> float:
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM)


def _log_x(value: float, ticks: Sequence[float]) -> float:
    return _x(log(value / ticks[0]) / log(ticks[-1] / ticks[0]))


def _logarithmic_ticks(ticks: Sequence[float]) -> list[tuple[str, float]]:
    every = 1 if len(ticks) <= 9 else 3
    return [(short(tick), _log_x(tick, ticks)) for tick in ticks[::every]]


def _points(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _frame(below: Sequence[tuple[str, float]], beside: Sequence[tuple[str, float]]) -> str:
    parts = []
    for text, y in beside:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick end" x="{LEFT - 7}" y="{y + 4:.1f}">{text}</text>')
    for text, x in below:
        parts.append(f'<line class="grid faint" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{_y(0):.1f}"/>')
        parts.append(f'<text class="tick mid" x="{x:.1f}" y="{HEIGHT - BOTTOM + 17}">{text}</text>')
    return "".join(parts)


def _axis_names(below: str, beside: str) -> str:
    middle = TOP + (HEIGHT - TOP - BOTTOM) / 2
    return (
        f'<text class="axis mid" x="{_x(0.5):.1f}" y="{HEIGHT - 6}">{escape(below)}</text>'
        f'<text class="axis mid" transform="translate(12 {middle:.1f}) rotate(-90)">{escape(beside)}</text>'
    )


def _picture(parts: Sequence[str], about: str) -> Markup:
    opening = f'<svg class="plot" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(about)}">'
    return Markup(opening + "".join(parts) + "</svg>")  # noqa: S704  # every text in it went through escape
