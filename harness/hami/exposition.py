"""Prometheus' text exposition format, version 0.0.4, for gauges."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a gauge."""

    name: str
    labels: Mapping[str, str]
    value: float


def exposition(samples: Iterable[Sample], helps: Mapping[str, str]) -> str:
    """All samples as text. Families are in the order of `helps` (name → help text); samples keep their order.

    Raises:
        KeyError: a sample's name is not in `helps`.
    """
    families: dict[str, list[Sample]] = {name: [] for name in helps}
    for sample in samples:
        families[sample.name].append(sample)
    lines: list[str] = []
    for name, members in families.items():
        if members:
            lines += [f"# HELP {name} {_help(helps[name])}", f"# TYPE {name} gauge"]
            lines += [_line(member) for member in members]
    return "".join(f"{line}\n" for line in lines)


def _line(sample: Sample) -> str:
    labels = ",".join(f'{name}="{_value(text)}"' for name, text in sorted(sample.labels.items()))
    number = int(sample.value) if float(sample.value).is_integer() else sample.value
    return f"{sample.name}{{{labels}}} {number}" if labels else f"{sample.name} {number}"


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _value(text: str) -> str:
    return _help(text).replace('"', r"\"")
