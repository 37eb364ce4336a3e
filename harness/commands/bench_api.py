"""`seatrial bench api`: request rates of the API server, and its memory for each object."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from seatrial.harness.bench.api import OPERATIONS, ApiSize, bench_api
from seatrial.harness.clusters.backends import EMBEDDED, backend_named
from seatrial.harness.errors import UsageError

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]
NotNegative = Annotated[int, Parameter(validator=validators.Number(gte=0))]


def api(
    *,
    seconds: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 5.0,
    pods: NotNegative = 100_000,
    nodes: NotNegative = 10_000,
    watchers: Positive = 100,
    repeat: Positive = 3,
    connections: Positive = 16,
    compare_kubeconfig: Path | None = None,
    backend: Literal["embedded", "envtest"] | None = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Measure creates, gets, lists and patches of 1 kB pods over HTTPS, the cost of watchers, and memory for each pod.

    Args:
        seconds: Duration of each kind of request.
        pods: Number of stored pods for `bytes_per_pod`; 0 skips that measurement.
        nodes: Number of nodes stored beside them.
        watchers: Number of watchers that are compared with one.
        repeat: Number of repetitions; figures are medians with lowest and highest.
        connections: Number of connections, each with one request in flight.
        compare_kubeconfig: Run the same against this API server instead of the embedded one.
        backend: embedded (the default), or envtest: real etcd and kube-apiserver.
        json_: Print figures as JSON.
    """
    size = ApiSize(seconds, pods, nodes, watchers, repeat, connections)
    if backend is not None:
        if compare_kubeconfig is not None:
            raise UsageError(f"--compare-kubeconfig {compare_kubeconfig}: not with --backend, which starts a server")
        backend_named(backend)  # what is missing is reported before anything is started
    figures = bench_api(
        size, compare_kubeconfig, lambda text: print(text, file=sys.stderr), backend=backend or EMBEDDED
    )
    if json_:
        print(json.dumps(figures, indent=2))
    else:
        _print(figures)


def _print(figures: dict[str, Any]) -> None:
    for name in OPERATIONS:
        rate, cost = figures[f"{name}_per_second"], figures["server_us"].get(name)
        what = f"lists of {figures['list_of']}" if name == "lists" else name
        kernel = figures["server_us_in_kernel"].get(name)
        spent = f", {cost['median']} us of the server each ({kernel} in the kernel)" if cost else ""
        print(f"{what:14} {rate['median']:>9,.0f}/s (lowest {rate['low']:,.0f}, highest {rate['high']:,.0f}){spent}")
    ratio = figures["fanout_cost_ratio"]
    print(f"{figures['watchers']} watchers cost {ratio['median']} times one ({ratio['low']} to {ratio['high']})")
    if "bytes_per_pod" in figures:
        print(
            f"a pod costs {figures['bytes_per_pod']:,} bytes;"
            f" {figures['pods']:,} pods and {figures['nodes']:,} nodes {figures['resident_mib']:,} MiB"
        )
    for name, why in (
        ("client_was_the_limit_of", "the client was the limit of"),
        ("machine_was_shared_during", "other programs used the machine during"),
    ):
        if figures[name]:
            print(f"note: {why} {', '.join(figures[name])}")
