"""Prometheus' text format."""

from collections.abc import Iterable, Iterator, Mapping

from seatrial.scheduler.serving.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Family = tuple[str, str, str, list[str]]  # name, kind, help, samples as lines


def exposed(families: Iterable[Family]) -> bytes:
    """All families in text."""
    lines: list[str] = []
    for name, kind, words, values in families:
        lines += [f"# HELP {name} {words}", f"# TYPE {name} {kind}", *values]
    return ("\n".join(lines) + "\n").encode()


def histogram_lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    """The lines of one histogram in Prometheus' text format: buckets, sum and count."""
    for bound, count in zip((*map(_number, histogram.bounds), "+Inf"), histogram.up_to(), strict=True):
        yield sample(f"{name}_bucket", {**labels, "le": bound}, count)
    yield sample(f"{name}_sum", labels, histogram.sum)
    yield sample(f"{name}_count", labels, histogram.count)


def sample(name: str, labels: Labels, value: float) -> str:
    """One line of Prometheus' text format."""
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.10g}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
