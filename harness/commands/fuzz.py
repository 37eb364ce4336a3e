"""`seatrial fuzz`: random inputs for everything that reads data of users."""

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError


def fuzz(
    *,
    inputs: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 2400,
    seed: int = 1,
    area: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    out: Path = Path("seatrial-fuzz"),
) -> int:
    """Give random inputs to the API server and to readers of files. Exit code 1: there are faults.

    A fault is a 500, an exception that is not an error in words, or an input that takes more than a second of processor
    time. Each fault is written to a file of `out` with the smallest input found for it.

    Args:
        inputs: Number of inputs in all; the areas share them equally.
        seed: The same seed and number give the same inputs.
        area: Areas; all by default. May be given several times.
        out: Folder for the faults; made if there are any.
    """
    if importlib.util.find_spec("hypothesis") is None:
        raise UsageError("seatrial fuzz needs the package hypothesis: pip install hypothesis")
    from seatrial.harness.fuzzing import running
    from seatrial.harness.fuzzing.areas import AREAS

    known = {one.name: one for one in AREAS}
    for name in area:
        if name not in known:
            raise UsageError(f"area {name!r}: expected one of {', '.join(known)}")
    chosen = [known[name] for name in area] or list(AREAS)
    total = value = 0
    for number, one in enumerate(chosen):
        share = inputs // len(chosen) + (number < inputs % len(chosen))
        begin = time.process_time()
        ran, faults = running.fuzz(one, share, seed) if share else (0, [])
        total, value = total + ran, value + len(faults)
        print(f"{one.name:28} {ran:>8,} inputs {len(faults):>4} faults {time.process_time() - begin:>8.1f} s")
        for at, fault in enumerate(faults):
            out.mkdir(parents=True, exist_ok=True)
            path = out / f"{one.name}-{seed}-{at}.txt"
            path.write_text(
                f"{fault.kind}\n\ninput: {fault.shrunk!r}\n\n{fault.text}", encoding="utf-8", errors="replace"
            )
            print(f"  {fault.kind}: {path}", file=sys.stderr)
    print(json.dumps({"inputs": total, "faults": value, "seed": seed}))
    return 1 if value else 0
