"""`seatrial isolation`: HAMi-core's limits, measured on this machine's first NVIDIA GPU, without a cluster."""

import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from seatrial.harness.commands.output_paths import check_writable
from seatrial.harness.errors import UsageError


def isolation(
    *checks: str,
    hami_library: Path | None = None,
    hami_release: str = "v2.6.0",
    out: Path | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Measure memory and core isolation of HAMi's library on a real GPU. Exits with 1 if a limit was not kept.

    Args:
        checks: The checks to run; by default those that take seconds. `all` takes about half an hour.
        hami_library: HAMi's libvgpu.so.
        hami_release: Its release; known deviations of a release are reported separately.
        out: File to which each finding is appended as a line of JSON.
        json_: Print findings as JSON.
    """
    from seatrial.harness.devices.nvidia import NvidiaProvider
    from seatrial.harness.devices.provider import Missing
    from seatrial.harness.hami.isolation.checks import CHECKS, LONG, Bench
    from seatrial.harness.hami.isolation.probe import check_readiness
    from seatrial.harness.hami.isolation.tenants import Arrangement

    target = list(CHECKS) if "all" in checks else list(checks) or [name for name in CHECKS if name not in LONG]
    for name in target:
        if name not in CHECKS:
            raise UsageError(f"no check {name!r}; expected all, or some of: {', '.join(CHECKS)}")
    if out is not None:
        check_writable("--out", out)  # before the first check, which may take minutes
    witness = NvidiaProvider()
    absent = witness.probe()
    if absent is not None:
        raise UsageError(f"isolation cannot be measured here (no-gpu): {absent.why}")
    broken = False
    with witness, tempfile.TemporaryDirectory(prefix="seatrial-isolation-") as folder:
        ready = check_readiness(witness, hami_library, hami_release)
        if isinstance(ready, Missing):
            raise UsageError(f"isolation cannot be measured here ({ready.key}): {ready.why}")
        bench = Bench(Arrangement(hami_library), Arrangement(None), Path(folder), ready=ready, witness=witness)
        for name in target:
            finding = CHECKS[name](bench)
            broken |= bool(finding.breaches)
            line = json.dumps(asdict(finding))
            if out is not None:
                out.parent.mkdir(parents=True, exist_ok=True)
                with out.open("a") as file:
                    file.write(line + "\n")
            if json_:
                print(line, flush=True)
            else:
                verdict = "broken" if finding.breaches else "kept, but for what is known" if finding.known else "kept"
                print(f"{name}: {verdict}")
                print("".join(f"  {text}\n" for text in (*finding.breaches, *finding.known)), end="", flush=True)
    return int(broken)
