"""Checks whether isolation can be measured on this machine; if not, gives a key for reports and a sentence.

The order of the checks is fixed, so that a machine always gives the same reason. Call it once per session.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from seatrial.harness.devices.hami_release import HamiHost, incompatible
from seatrial.harness.devices.provider import Device, Driver, Missing, Process
from seatrial.harness.hami.isolation.tenants import Arrangement, TenantEnded, tenants

CALIBRATED = 0.001  # seconds a launch
SAMPLED = 3.0  # seconds that a tenant runs to get samples from the driver


class Witness(Protocol):
    """An observer of the card outside the library, such as NVIDIA's provider."""

    def probe(self) -> Missing | None: ...
    def devices(self) -> Sequence[Device]: ...
    def driver(self) -> Driver: ...
    def processes(self, uuid: str) -> Sequence[Process]: ...


@dataclass(frozen=True, slots=True)
class Ready:
    """A card on which isolation can be measured. Only the first card is used."""

    card: Device
    driver: str
    release: str


def check_readiness(
    witness: Witness,
    library: Path | None,
    release: str,
    *,
    libcuda: str = "libcuda.so.1",
    bare: Arrangement | None = None,
    sampled: float = SAMPLED,
) -> Ready | Missing:
    """`library`: HAMi's libvgpu.so, of that `release`. `witness` must be open; `bare` starts tenants without a library.

    The reason that comes first in the fixed order wins, whatever else is missing.
    """
    missing = _nothing_to_measure(witness, library, libcuda)
    if missing is not None:
        return missing
    card = witness.devices()[0]
    driver = witness.driver().driver
    if card.slices:
        why = f"{card.uuid} is sliced into MIG instances; the driver then gives no samples of single processes"
        return Missing("mig-enabled", why)
    others = sorted(process.pid for process in witness.processes(card.uuid))  # before the tenant starts
    seen = _check_witness(witness, card.uuid, bare or Arrangement(None), sampled)
    if isinstance(seen, Missing) and seen.key == "hidden-pids":
        return seen
    old = incompatible(HamiHost(driver, release))
    if old is not None:
        return Missing("core-too-old-for-driver", old)
    if others:
        return Missing("gpu-busy", f"other processes are on {card.uuid}: {', '.join(map(str, others))}")
    return seen or Ready(card, driver, release)


def _nothing_to_measure(witness: Witness, library: Path | None, libcuda: str) -> Missing | None:
    absent = witness.probe()
    if absent is not None:
        return Missing("no-gpu", f"no NVIDIA GPU here: {absent.why}")
    if not witness.devices():
        return Missing("no-gpu", "no NVIDIA GPU here: the driver lists none")
    if library is None or not library.is_file():
        text = "--hami-library was not given" if library is None else f"{library} is no file"
        return Missing("no-libvgpu", f"HAMi's libvgpu.so is needed: {text}")
    try:
        ctypes.CDLL(libcuda)
    except OSError as error:
        return Missing("no-libcuda", f"the driver's CUDA library does not load: {error}")
    return None


def _check_witness(witness: Witness, uuid: str, bare: Arrangement, sampled: float) -> Missing | None:
    """Check that the witness lists a tenant's process and reports its core use."""
    try:
        with tenants(bare, None) as (tenant,):
            rounds = tenant.ask("calibrate", seconds=CALIBRATED)["rounds"]
            tenant.send("run", seconds=sampled, rounds=rounds)
            tenant.waiting(sampled * 0.8)
            seen = {process.pid: process for process in witness.processes(uuid)}
            tenant.ticks(within=sampled + 10)
    except TenantEnded as error:
        return Missing("hidden-pids", f"a tenant without the library does not run: {error}")
    if tenant.pid not in seen:
        why = "the driver's list of processes does not show our own (a sandbox or a virtual machine hides them)"
        return Missing("hidden-pids", why)
    if seen[tenant.pid].core is None:
        return Missing("no-process-utilisation", "the driver gives no samples of single processes' use")
    return None
