"""Settings of the kernel that a NodeSLO's systemStrategy has (SY-1, SY-2); what it does not name stays as it is."""

import logging
from collections.abc import Iterator
from pathlib import Path

from seatrial.scheduler.koordlet.machine import Machine
from seatrial.scheduler.koordlet.strategies import SystemStrategy
from seatrial.scheduler.serving.once import Once

log = logging.getLogger(__name__)

_PER = 10_000  # of the memory, to which minFreeKbytesFactor relates
_FEATURES = "kernel/debug/sched_features"


def kernel_settings(strategy: SystemStrategy, machine: Machine) -> Iterator[tuple[Path, int]]:
    """Files and what they are to contain; values that are out of range are left out.

    Raises:
        MachineError: the memory of the node cannot be read.
    """
    memory, kernel = machine.proc / "sys/vm", machine.proc / "sys/kernel"
    factor = strategy.min_free_kbytes_factor
    least = None if factor is None else machine.memory().total // 1024 * factor // _PER
    for path, value, low, high in (
        (memory / "min_free_kbytes", least, 10_240, 10_485_760),
        (memory / "watermark_scale_factor", strategy.watermark_scale_factor, 10, 400),
        (machine.sys / "kernel/mm/memcg_reaper/reap_background", strategy.memcg_reap_back_ground, 0, 1),
        (machine.sys / "kernel/mm/pagecache_limit/enabled", strategy.page_cache_limit_enabled, 0, 1),
        (kernel / "sched_group_identity_enabled", strategy.sched_group_identity_enabled, 0, 1),
        (kernel / "sched_idle_saver_wmark", strategy.sched_idle_saver_wmark, 0, (1 << 63) - 1),
    ):
        if value is not None and low <= value <= high:
            yield path, value


class SystemConfig:
    """Writes the settings where the kernel has them."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._say = Once(log)

    def reconcile(self, strategy: SystemStrategy) -> None:
        """Write what differs.

        Raises:
            MachineError: the memory of the node cannot be read.
        """
        for path, value in kernel_settings(strategy, self._machine):
            self._write(path, str(value))
        for name, on in strategy.sched_features.items():
            self._write(self._machine.sys / _FEATURES, name if on else f"NO_{name}")

    def _write(self, path: Path, word: str) -> None:
        """Write a word that the file does not have; a file that the kernel lacks is no error."""
        try:
            if word not in path.read_text(encoding="ascii", errors="replace").split():
                path.write_text(f"{word}\n", encoding="ascii")
        except FileNotFoundError:
            return
        except OSError as error:
            self._say(path, f"{path}: {error.strerror}")
