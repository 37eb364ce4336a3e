"""Ratios of nodes: CPU normalization by CPU model, and amplification of resources (NUMA-R50 to NUMA-R53)."""

from collections.abc import Mapping

import msgspec

from seatrial.scheduler.api.integers import finite
from seatrial.scheduler.api.numa import (
    AMPLIFICATION_RATIO,
    CPU_BASIC_INFO,
    CPU_NORMALIZATION_ENABLED,
    CPU_NORMALIZATION_RATIO,
    CpuBasicInfo,
)
from seatrial.scheduler.api.quantity import CPU
from seatrial.scheduler.api.wire import decode_as
from seatrial.scheduler.api.wrong_values import shown
from seatrial.scheduler.manager.sections import Settings, SettingsError

LEAST, MOST = 1.0, 5.0
CLOSE = 0.01  # ratios that differ by no more are no change
_FIELDS = {  # (hyper-threading, turbo) → field of the ratio model
    (True, True): "hyperThreadTurboEnabledRatio",
    (True, False): "hyperThreadEnabledRatio",
    (False, True): "turboEnabledRatio",
    (False, False): "baseRatio",
}
_BOOLS = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


def normalization_ratio(settings: Settings, labels: Mapping[str, str], topology: Mapping[str, str]) -> str:
    """The annotation `cpu-normalization-ratio` of a node.

    Args:
        settings: of the node, from `cpu-normalization-config`.
        labels: of the node.
        topology: annotations of its NodeResourceTopology.

    Raises:
        SettingsError: there is no ratio, or it is out of range; the node keeps the ratio that it has.
    """
    enabled = settings.get("enable") is True
    own = labels.get(CPU_NORMALIZATION_ENABLED)
    if own is not None:
        if own.lower() not in _BOOLS:
            raise SettingsError(f"label {CPU_NORMALIZATION_ENABLED}: expected true or false, found {own!r}")
        enabled = _BOOLS[own.lower()]
    if not enabled:
        return f"{LEAST:.2f}"
    ratio = _model_ratio(settings, topology.get(CPU_BASIC_INFO, ""))
    if ratio < LEAST:
        raise SettingsError(f"the ratio is too small, cur[{ratio:g}] < min[{LEAST:g}]")
    if ratio > MOST:
        raise SettingsError(f"the ratio is too big, cur[{ratio:g}] > max[{MOST:g}]")
    return f"{ratio:.2f}"


def _model_ratio(settings: Settings, basic_info: str) -> float:
    try:
        cpu = decode_as(basic_info or "{}", CpuBasicInfo)
    except msgspec.DecodeError as error:
        raise SettingsError(f"annotation {CPU_BASIC_INFO}: expected JSON: {error}") from error
    if not cpu.cpu_model:
        raise SettingsError(f"annotation {CPU_BASIC_INFO}: expected a CPU model, found {shown(basic_info)}")
    models = settings.get("ratioModel")
    if models is None:
        raise SettingsError("ratio model is nil")
    default = settings.get("defaultRatio")
    model = models.get(cpu.cpu_model)
    if model is None:
        if default is None:
            raise SettingsError(f"no ratio for CPU {cpu.cpu_model}")
        return float(default)
    field = _FIELDS[cpu.hyper_thread_enabled, cpu.turbo_enabled]
    entry = model.get(field, default)
    if entry is None:
        raise SettingsError(f"missing {field[0].upper()}{field[1:]} for CPU {cpu.cpu_model}")
    return float(entry)


def amplification_ratios(settings: Settings, annotations: Mapping[str, str]) -> str | None:
    """The annotation `resource-amplification-ratio` of a node; None: it has none.

    Raises:
        SettingsError: a ratio is below 1 or not a number.
    """
    ratios: dict[str, float] = {}
    if settings.get("enable") is True:
        configured = settings.get("resourceAmplificationRatio") or {}
        if not isinstance(configured, dict):
            raise SettingsError(f"resourceAmplificationRatio: expected ratios by resource, found {shown(configured)}")
        ratios = {name: _number(name, value) for name, value in configured.items()}
    text = annotations.get(CPU_NORMALIZATION_RATIO, "")
    if text:
        normalization = finite(text)
        if normalization is None:
            raise SettingsError(f"annotation {CPU_NORMALIZATION_RATIO}: expected a number, found {shown(text)}")
        cpu = ratios.get(CPU, 1) * normalization
        if cpu > LEAST:
            ratios[CPU] = cpu
    for name, value in ratios.items():
        if value < LEAST:
            raise SettingsError(f"resourceAmplificationRatio[{name}]: expected {LEAST:g} or more, found {value!r}")
    if not ratios:
        return None
    return "{" + ",".join(f'"{name}":{value:.2f}' for name, value in sorted(ratios.items())) + "}"


def _number(name: str, value: object) -> float:
    """
    Raises:
        SettingsError: it is no number, or one that no float holds.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SettingsError(f"resourceAmplificationRatio[{name}]: expected a number, found {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        raise SettingsError(f"resourceAmplificationRatio[{name}]: expected a number, found one above 1e308") from None


def close(before: str | None, after: str) -> bool:
    """Whether two normalization ratios are equal up to rounding."""
    value = finite(before or "")
    return value is not None and abs(value - float(after)) <= CLOSE


def changed_annotations(
    normalization: Settings,
    amplification: Settings,
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    topology: Mapping[str, str],
) -> tuple[dict[str, str | None], list[str]]:
    """The annotations of a node to write (None: to remove), and what is wrong with the settings.

    The amplification uses the normalization ratio that the node has, so a new one counts after it was written.
    """
    changes: dict[str, str | None] = {}
    wrong: list[str] = []
    try:
        ratio = normalization_ratio(normalization, labels, topology)
        if not close(annotations.get(CPU_NORMALIZATION_RATIO), ratio):
            changes[CPU_NORMALIZATION_RATIO] = ratio
    except SettingsError as error:
        wrong.append(str(error))
    try:
        ratios = amplification_ratios(amplification, annotations)
        if ratios != annotations.get(AMPLIFICATION_RATIO):
            changes[AMPLIFICATION_RATIO] = ratios
    except SettingsError as error:
        wrong.append(str(error))
        if AMPLIFICATION_RATIO in annotations:
            changes[AMPLIFICATION_RATIO] = None  # the other plugins' results are written without it
    return changes, wrong
