"""What prod pods have requested and will not use: predicted from their past (PR-1, PR-7 to PR-9).

Follows Koordinator's pkg/koordlet/prediction. Amounts are thousandths of a core and bytes.
"""

import json
import logging
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import NamedTuple

from seatrial.scheduler.koordlet.histogram import CPU_BUCKETS, MEMORY_BUCKETS, Histogram, restored
from seatrial.scheduler.koordlet.samples import Samples, percentile

log = logging.getLogger(__name__)

TRAINING = 60.0  # seconds between two samples of each model
COLD_START = 24 * 3600.0  # seconds: younger pods are not predicted
CHECKPOINT = 600.0  # seconds between two checkpoints
MARGIN = 10  # percent
_TRAINED_BY = 0.9  # percentile of the usage in one interval
_CPU_PEAK, _MEMORY_PEAK = 0.95, 0.98  # percentiles of a model
SYSTEM, PROD = "__node-sys__", "__node-koord-prod__"


class Amounts(NamedTuple):
    """CPU in thousandths of a core and memory in bytes."""

    cpu: float = 0.0
    memory: float = 0.0


class Prediction(NamedTuple):
    """What can be taken from prod pods, and what they use at most."""

    reclaimable: Amounts
    peak: Amounts


class PodPeak(NamedTuple):
    """A pod's request, and its peak; None: it is too young, or has no model."""

    request: Amounts
    peak: Amounts | None


def of_pods(pods: Iterable[PodPeak], allocatable: Amounts, margin: int = MARGIN) -> Prediction:
    """By the models of pods: those without one use what they request, and give nothing (PR-7)."""
    reclaimable, peaks = Amounts(), Amounts()
    for request, peak in pods:
        if peak is None:
            peaks = _plus(peaks, request)
        else:
            wide = _wider(peak, margin)
            peaks = _plus(peaks, wide)
            reclaimable = _plus(reclaimable, _left(request, wide))
    return Prediction(_smaller(reclaimable, _left(allocatable, peaks)), peaks)


def of_classes(request: Amounts, peaks: Iterable[Amounts], allocatable: Amounts, margin: int = MARGIN) -> Prediction:
    """By the models of the system and of all prod pods together (PR-8)."""
    total = Amounts()
    for peak in peaks:
        total = _plus(total, _wider(peak, margin))
    return Prediction(_smaller(_left(request, total), _left(allocatable, total)), total)


def combined(first: Prediction, second: Prediction) -> Prediction:
    """The more careful of both (PR-9)."""
    peak = Amounts(*(max(pair) for pair in zip(first.peak, second.peak, strict=True)))
    return Prediction(_smaller(first.reclaimable, second.reclaimable), peak)


def _plus(first: Amounts, second: Amounts) -> Amounts:
    return Amounts(first.cpu + second.cpu, first.memory + second.memory)


def _left(whole: Amounts, part: Amounts) -> Amounts:
    return Amounts(max(whole.cpu - part.cpu, 0.0), max(whole.memory - part.memory, 0.0))


def _smaller(first: Amounts, second: Amounts) -> Amounts:
    return Amounts(min(first.cpu, second.cpu), min(first.memory, second.memory))


def _wider(peak: Amounts, margin: int) -> Amounts:
    return Amounts(peak.cpu * (100 + margin) / 100, peak.memory * (100 + margin) / 100)


class Models:
    """A model for each pod, for the system, and for all prod pods together; kept in a folder if there is one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._models: dict[str, tuple[Histogram, Histogram]] = {}
        if folder is not None:
            self._load(folder)

    def train(self, samples: Samples, now: float, at: float, owners: Iterable[tuple[str, Hashable, Hashable]]) -> None:
        """One sample for each model: the usage of the last interval.

        Args:
            samples: with times of the same clock as `now`.
            now: the moment.
            at: the moment as seconds since 1970.
            owners: names of models, with the metrics of their CPU (cores) and memory.
        """
        for name, *metrics in owners:
            used = [percentile(samples.between(metric, now - TRAINING, now), _TRAINED_BY) for metric in metrics]
            if None not in used:
                model = self._models.setdefault(name, (Histogram(CPU_BUCKETS), Histogram(MEMORY_BUCKETS)))
                for histogram, value in zip(model, used, strict=True):
                    histogram.add(value or 0.0, at)

    def peak(self, name: str) -> Amounts | None:
        """The peak of a model; None without one."""
        model = self._models.get(name)
        if model is None:
            return None
        return Amounts(model[0].percentile(_CPU_PEAK) * 1000, model[1].percentile(_MEMORY_PEAK))

    def keep(self, names: Iterable[str]) -> None:
        """Forget the models of pods that are gone."""
        targets = {*names, SYSTEM, PROD}
        for name in [name for name in self._models if name not in targets]:
            del self._models[name]
            if self._folder is not None:
                (self._folder / f"{name}.json").unlink(missing_ok=True)

    def save(self) -> None:
        """Write a file for each model, never half of one."""
        if self._folder is None:
            return
        try:
            for name, (cpu, memory) in self._models.items():
                text = json.dumps({"cpu": cpu.checkpoint(), "memory": memory.checkpoint()})
                fresh = self._folder / f"{name}.tmp"
                fresh.write_text(text, encoding="ascii")
                fresh.replace(self._folder / f"{name}.json")
        except OSError as error:
            log.warning("models are not kept: %s: %s", error.filename, error.strerror)

    def _load(self, folder: Path) -> None:
        for path in sorted(folder.glob("*.json")):
            try:
                saved = json.loads(path.read_text(encoding="ascii"))
                model = restored(CPU_BUCKETS, saved["cpu"]), restored(MEMORY_BUCKETS, saved["memory"])
            except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
                log.warning("model left out: %s: %s", path, error)
            else:
                self._models[path.stem] = model
