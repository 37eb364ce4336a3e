"""`seatrial bench schedule`: throughput and latency of placing pods, and the limiting process."""

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter, validators

from seatrial.harness.bench.core import Size, bench_core
from seatrial.harness.bench.mixes import mix as mix_named
from seatrial.harness.bench.trace import bench_trace
from seatrial.harness.bench.waiting_gangs import bench_waiting_gangs
from seatrial.harness.clusters.backends import EMBEDDED, ENVTEST, backend_named
from seatrial.harness.errors import UsageError
from seatrial.harness.load.trace import load_trace
from seatrial.harness.subject.foreign import foreign_command
from seatrial.harness.subject.protocol import OURS

MIX = "accelerators"
Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def schedule(
    *,
    nodes: Positive = 5000,
    pods: Positive = 20000,
    mix: str = MIX,
    run: Positive = 1,
    repeat: Positive = 3,
    seed: int = 0,
    through: Literal["core", "http"] = "core",
    rate: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    subject: str | None = None,
    scheduler_config: Path | None = None,
    beside: Annotated[list[str] | None, Parameter(negative="")] = None,
    backend: Literal["embedded", "envtest"] | None = None,
    unschedulable: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    waiting_gangs: Annotated[int, Parameter(validator=validators.Number(gte=0))] = 0,
    trace: Path | None = None,
    on: str = "",
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Place pods on a cluster of 8-GPU nodes and print throughput and latency.

    Args:
        nodes: Number of nodes.
        pods: Number of pods.
        mix: Which shapes: accelerators (32: whole cards, shares by percent and by bytes, none), whole, shared, cpu;
            or accelerators with rules: spread (over zones and nodes), affinity (anti-affinity within an app); or gangs
            (whole cards in gangs of 1,000 pods, each of which is one decision; only through the core); or topology
            (such gangs, each of which must gather in one of 4 spines, and prefers one block of 50 nodes); or dra (each
            pod has a claim of its own for one or two cards, which nodes offer in ResourceSlices).
        run: Number of consecutive pods that share a shape, as the replicas of a job do; 1 is the hardest case.
        repeat: Number of repetitions; figures are medians with lowest and highest.
        seed: Decides the shape of each pod, and ties between nodes.
        through: core: decisions of our scheduler only. http: API server and scheduler as separate processes.
        rate: With --through http: pods per second, arriving independently; by default as fast as possible.
        subject: With --through http: seatrial (the default), or the command line of another scheduler.
        scheduler_config: The scheduler's configuration file.
        beside: With --through http: the command line of another scheduler; may be repeated. Repetitions alternate, and
            throughput is also printed as a ratio.
        backend: With --through http: embedded (the default), or envtest: real etcd and kube-apiserver.
        unschedulable: With --through core: number of further pods that wait and fit on no node.
        waiting_gangs: With --through core: also measure what that many waiting gangs of 8 pods cost other pods: gangs
            without rules, and gangs that have to gather in one spine, each against a scheduler without waiting gangs.
        trace: With --through core: CSV file of a recorded trace (docs/load.md), of which the first --pods pods
            come and leave in simulated time, instead of --mix.
        on: With --through core: run the repetitions on a Dask cluster, as in dask:tcp://127.0.0.1:8786. A machine
            should have one worker with one thread: what runs beside a repetition makes it invalid.
        json_: Print figures as JSON.
    """
    if unschedulable and through != "core":
        raise UsageError(f"--unschedulable {unschedulable} needs --through core")
    if waiting_gangs and through != "core":
        raise UsageError(f"--waiting-gangs {waiting_gangs} needs --through core")
    if on and (through != "core" or waiting_gangs):
        raise UsageError(f"--on {on} needs --through core, without --waiting-gangs")
    for flag, value in (
        ("--rate", rate),
        ("--subject", subject),
        ("--backend", backend),
        ("--beside", beside and beside[0]),
    ):
        if value and through == "core":
            raise UsageError(
                f"{flag} {value} needs --through http: the core has no time, no API server and no other scheduler"
            )
    if through != "core" and mix_named(mix).gang:
        raise UsageError(f"--mix {mix} needs --through core")
    if mix_named(mix).claims and (unschedulable or backend == ENVTEST):
        flag = f"--backend {backend}" if backend == ENVTEST else f"--unschedulable {unschedulable}"
        raise UsageError(f"--mix {mix} cannot be used with {flag}")
    if scheduler_config is not None and not scheduler_config.is_file():
        raise UsageError(f"--scheduler-config {scheduler_config}: expected a file, found none")
    for command in (subject, *(beside or ())):
        if command not in {None, OURS}:
            foreign_command(command, Path("kubeconfig"))  # reports mistakes before anything is started
    if backend is not None:
        backend_named(backend)  # likewise
    if trace is not None:
        refused = {
            "--through http": through != "core",
            f"--mix {mix}": mix != MIX,
            f"--run {run}": run > 1,
            f"--unschedulable {unschedulable}": unschedulable > 0,
            f"--waiting-gangs {waiting_gangs}": waiting_gangs > 0,
        }
        for flag, wrong in refused.items():
            if wrong:
                other = "; `seatrial load --trace` runs one on a cluster" if through != "core" else ""
                raise UsageError(f"{flag} cannot be used with --trace{other}")
        recorded = load_trace(trace, count=pods)
    size = Size(nodes, pods, repeat, run, seed, unschedulable)

    def progress(text: str) -> None:
        print(text, file=sys.stderr)

    if trace is not None:
        figures = bench_trace(recorded, nodes, progress, repeat=repeat, seed=seed, config=scheduler_config, on=on)
    elif through == "http":
        from seatrial.harness.bench.through_http import Contender, bench_http

        figures = bench_http(
            size,
            mix_named(mix),
            progress,
            rate=rate,
            contender=Contender(subject or OURS, scheduler_config),
            beside=beside or (),
            backend=backend or EMBEDDED,
        )
    else:
        figures = bench_core(size, mix_named(mix), progress, config=scheduler_config, on=on)
        if waiting_gangs:
            cost = bench_waiting_gangs(size, mix_named(mix), waiting_gangs, progress, config=scheduler_config)
            figures["waiting_gangs"] = cost
            figures["invalid_because"] += cost["invalid_because"]
            figures["valid"] = not figures["invalid_because"]
    if json_:
        print(json.dumps(figures, indent=2))
        return
    speed = figures["pods_per_second"]
    what = f"trace {figures['trace']}" if trace is not None else f"mix {mix}"
    row = "as recorded" if trace is not None else f"{run} in a row"
    print(f"{nodes:,} nodes, {figures['pods']:,} pods, {what} ({figures['shapes']} shapes, {row}), through {through}")
    print(f"throughput  {speed['median']:,.0f} pods/s (lowest {speed['low']:,.0f}, highest {speed['high']:,.0f})")
    if decision := figures.get("decision_us"):
        print(f"a decision  {decision['p50']} us median, {decision['p99']} us p99")
    elif latency := figures["latency_ms"]:
        print(f"latency     {latency['p50']:,} ms median, {latency['p99']:,} ms p99, from create to bound")
    print(f"placed      {figures['placed']:,}, not placed {figures['unplaced']:,}")
    if trace is not None:
        most = f"at most {figures['most_at_a_time']:,} at a time"
        print(f"left        {figures['left']:,}, {most}; digest {figures['digest']}")
    if kernel := figures.get("kernel"):
        print(f"kernel      {kernel}")
    print(f"limit       {figures['limit']}")
    for other in figures.get("beside", ()):
        theirs, ratio = other["pods_per_second"], other["ratio"]
        times = f"{ratio['median']:g} times ({ratio['low']:g} to {ratio['high']:g})" if ratio else "no comparison"
        print(f"beside      {other['subject']}: {theirs['median']:,.0f} pods/s; the first has {times}")
        if not other["valid"]:
            print("            not valid: " + "; ".join(other["invalid_because"]))
    if waited := figures.get("waiting_gangs"):
        who = f"{waited['gangs']:,} gangs of {waited['members']}"
        print(f"waiting     {who}; processor time for each pod that is placed meanwhile:")
        print(f"  without   {waited['pod_us']['none']['median']:,} us")
        for kind, slower in waited["slower_percent"].items():
            times = f"{waited['pod_us'][kind]['median']:,} us, {slower['median']:+g} %"
            print(f"  {kind:<9} {times} (lowest {slower['low']:+g}, highest {slower['high']:+g})")
    print("valid       " + ("yes" if figures["valid"] else "no: " + "; ".join(figures["invalid_because"])))
