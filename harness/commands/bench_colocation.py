"""`seatrial bench colocation`: what best-effort load costs a latency-sensitive pod."""

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.colocation import MODES, bench_colocation, draw
from seatrial.harness.replay.plot import check_target


def colocation(
    *,
    rounds: Annotated[int, Parameter(validator=validators.Number(gte=1))] = 10,
    seconds: Annotated[float, Parameter(validator=validators.Number(gt=1))] = 5.0,
    plot: Path | None = None,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure the latency of a pod on this machine: alone, beside best-effort load, and beside it with our node agent.

    A request of fixed work is due every 10 ms on each CPU. Needs control groups that this user may make; the three take
    turns in each round.

    Args:
        rounds: Number of rounds; figures are medians with their 95 % interval.
        seconds: Duration of each measurement.
        plot: A PNG file to be drawn.
        seed: Of the intervals.
        json_: Print figures as JSON.
    """
    if plot is not None:
        check_target(plot)
    figures = bench_colocation(rounds, seconds, lambda text: print(text, file=sys.stderr), seed=seed)
    if plot is not None:
        draw(figures, plot)
    if json_:
        print(json.dumps(figures, indent=2))
        return
    for mode, words in MODES.items():
        p50, p99, cores = (figures["modes"][mode][name] for name in ("p50_ms", "p99_ms", "best_effort_cores"))
        print(
            f"{words:29} p50 {p50['median']:.2f} ms ({p50['low']:.2f} to {p50['high']:.2f}),"
            f" p99 {p99['median']:.2f} ms ({p99['low']:.2f} to {p99['high']:.2f}), load {cores['median']:.2f} cores"
        )
    for because in figures["invalid_because"]:
        print(f"note: {because}")
