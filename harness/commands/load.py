"""`seatrial load`: Locust users that create, watch and delete pods, and the measured latency and throughput."""

import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter, validators

from seatrial.harness.clusters.backends import EMBEDDED, backend_named
from seatrial.harness.commands.output_paths import check_writable
from seatrial.harness.commands.text_table import table_lines
from seatrial.harness.errors import UsageError
from seatrial.harness.load.settings import Listener, LoadSettings
from seatrial.harness.load.trace import load_trace

NOT_VALID = 3  # exit status
PAGE_PORT = 8089
MASTER_PORT = 5557  # Locust's own default


def load(
    *,
    users: int = 20,
    rate: float | None = None,
    arrivals: Literal["poisson", "constant", "burst", "ramp"] | None = None,
    seconds: float | None = None,
    mix: str | None = None,
    hold: float | None = None,
    trace: Path | None = None,
    speed: float | None = None,
    pods: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    drain: float = 30.0,
    processes: int = 1,
    kubeconfig: Path | None = None,
    backend: Literal["embedded", "envtest"] | None = None,
    fleet: str | None = None,
    subject: str | None = None,
    scheduler_name: str = "",
    seed: int = 0,
    samples: Path | None = None,
    web: Annotated[bool, Parameter(negative="")] = False,
    locustfile: Path | None = None,
    also: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    html: Path | None = None,
    csv: Path | None = None,
    master: Annotated[bool, Parameter(negative="")] = False,
    bind: str | None = None,
    expect_workers: Annotated[int | None, Parameter(validator=validators.Number(gte=1))] = None,
    workers_within: float | None = None,
    worker: Annotated[bool, Parameter(negative="")] = False,
    master_host: str | None = None,
    master_port: Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=65535))] = None,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Submit pods at a given rate and print how fast they were bound.

    Exit status: 0 the figures are valid, 1 a pod was bound twice, none was created, or an invariant of the auditor was
    broken meanwhile, 2 the harness or its use was at fault, 3 the load was not valid, so that its figures mean nothing.

    Without --kubeconfig, an embedded cluster and our scheduler are started, and stopped afterwards. With it, the
    scheduler of that cluster is measured. The pods are created in a new namespace, which is deleted afterwards.

    Args:
        users: Largest number of requests in flight.
        rate: Pods per second, by default 10; for a ramp, at its end.
        arrivals: poisson (the default): independently. constant: evenly. burst: every 2 s at once. ramp: from 0 up to
            the rate.
        seconds: Duration of the arrivals, by default 10.
        mix: Mix of pod shapes: mixed (the default), whole, shared, bytes, cpu, or a YAML file of shapes.
        hold: Seconds from a pod's binding to its deletion, by default 1; rate x hold pods must fit into the fleet.
        trace: CSV file of a recorded trace (docs/load.md) with the times of pods, what they request and how
            long they stay, instead of rate, arrivals, seconds, mix and hold.
        speed: With --trace: how many times as fast as recorded; 1 by default.
        pods: With --trace: only the first pods, up to this number.
        drain: Longest wait for bindings and deletions after the last arrival, in seconds.
        processes: Number of load processes over which the users are spread.
        kubeconfig: Kubeconfig of the cluster; without it, a cluster is started.
        backend: Backend of the cluster to start: embedded, or envtest (real etcd and kube-apiserver).
        fleet: Fleet of the cluster to start: a name or a file.
        subject: Scheduler to start with the cluster: seatrial, none, or a command line.
        scheduler_name: The pods' schedulerName; by default the cluster's own default.
        seed: Decides arrival times and shapes.
        samples: File for the samples: one line of JSON for each pod. Without it they are not kept.
        web: Serve Locust's page until Ctrl-C.
        locustfile: Python file with user classes of yours (seatrial.testing.load; docs/load.md), instead of rate,
            arrivals, mix, hold and trace.
        also: Users beside those of the plan or the file: gangs, native-gangs (of scheduling.k8s.io), quotas (a full
            one, where room comes), nodes (a simulated one that comes, is cordoned and goes); may be repeated.
        html: File for Locust's report.
        csv: What the names of Locust's CSV files begin with: _stats.csv, _stats_history.csv, _failures.csv and
            _exceptions.csv are added.
        master: Let workers, perhaps of other machines, submit the load (docs/load.md). Needs --kubeconfig and
            --expect-workers.
        bind: With --master: HOST:PORT where workers join, by default 127.0.0.1:5557. Locust's protocol has no
            authentication.
        expect_workers: With --master: number of workers; the load starts when all are there.
        workers_within: With --master: seconds to wait for them, by default 300.
        worker: Submit a part of a master's load, with its settings, to the cluster of --kubeconfig; without that, as
            the service account of the pod that it runs in.
        master_host: With --worker: the host of the master.
        master_port: With --worker: its port, by default 5557.
        json_: Print figures as JSON.
    """
    if worker:
        return _work(kubeconfig, master_host, master_port, alone=not master)
    for flag, value in (("--master-host", master_host), ("--master-port", master_port)):
        if value is not None:
            raise UsageError(f"{flag} {value}: expected --worker with it")
    listener = _listener(bind, expect_workers, workers_within, master=master)
    if listener is not None:
        if kubeconfig is None or web or locustfile or html or csv or processes != 1:
            raise UsageError(
                "--master: expected --kubeconfig FILE, without --web, --locustfile, --html, --csv, --processes"
            )
        if not listener.loopback:
            _say(f"warning: Locust's protocol has no authentication: whoever reaches {listener} can join this load")
    without = {"rate": rate, "arrivals": arrivals, "seconds": seconds, "mix": mix, "hold": hold}
    common: dict[str, Any] = {
        "users": users,
        "drain": drain,
        "processes": expect_workers or processes,
        "seed": seed,
        "scheduler": scheduler_name,
        "web_port": PAGE_PORT if web else 0,
        "locustfile": _own_users(locustfile, others={**without, "seconds": None, "trace": trace}),
        "also": also,
        "html": str(html or ""),
        "csv": str(csv or ""),
    }
    settings = _settings(common, without, trace, {"speed": speed, "pods": pods})
    if kubeconfig is not None and (backend is not None or fleet is not None):
        flag = "--backend" if backend is not None else "--fleet"
        raise UsageError(f"{flag} applies to a cluster that this command starts; it cannot be used with --kubeconfig")
    for flag, path in (("--samples", samples), ("--html", html), ("--csv", csv)):
        if path is not None:
            check_writable(flag, path)
    with _target(kubeconfig, backend=backend or EMBEDDED, fleet=fleet, subject=subject, seed=seed) as where:
        from seatrial.harness.audit.existing import auditing
        from seatrial.harness.load.run import run_load

        with auditing(where) as (audit, cluster):
            result = run_load(settings, where, progress=_say, samples=samples, listener=listener).as_json()
            audit.settle(cluster.clock.monotonic())
            audit.check_state()
        result["violations"] = [str(violation) for violation in audit.violations]
    if json_:
        print(json.dumps(result, indent=2))
    else:
        _show(result)
    return exit_status(result)


def _work(kubeconfig: Path | None, host: str | None, port: int | None, *, alone: bool) -> int:
    """Be a worker until the master's load is over."""
    from seatrial.harness.load.run import run_worker

    if host is None or not alone:
        raise UsageError("--worker: expected --master-host HOST, without --master")
    _say(f"worker of the master at {host}:{port or MASTER_PORT}")
    run_worker(kubeconfig, host, port or MASTER_PORT)
    return 0


def _listener(bind: str | None, workers: int | None, within: float | None, *, master: bool) -> Listener | None:
    """Where workers join; None: the load is of this machine alone."""
    for flag, value in (("--bind", bind), ("--expect-workers", workers), ("--workers-within", within)):
        if value is not None and not master:
            raise UsageError(f"{flag} {value}: expected --master with it")
    if not master:
        return None
    if workers is None:
        raise UsageError("--master: expected --expect-workers N")
    return Listener.at(bind or f"127.0.0.1:{MASTER_PORT}", within=300.0 if within is None else within)


def exit_status(result: dict[str, Any]) -> int:
    """The status of `seatrial load` for a result."""
    if not result["bound_once"] or not result["created"] or result["violations"]:
        return 1
    return 0 if result["valid"] else NOT_VALID


def _settings(
    common: dict[str, Any], without: dict[str, Any], trace: Path | None, of_trace: dict[str, Any]
) -> LoadSettings:
    """The settings of options that were given; `without` a trace, or `of_trace`."""
    refused = without if trace is not None else of_trace
    for name, value in refused.items():
        if value is not None:
            rule = "cannot be used with --trace, whose file has it" if trace is not None else "needs --trace"
            raise UsageError(f"--{name} {value} {rule}")
    values = {name: value for name, value in (without | of_trace).items() if value is not None}
    if trace is None:
        return LoadSettings(**common, **values)
    seconds = load_trace(trace, speed=values.get("speed", 1.0), count=values.get("pods")).seconds
    return LoadSettings(**common, **values, trace=str(trace.absolute()), seconds=max(seconds, 1.0))


def _own_users(file: Path | None, *, others: dict[str, Any]) -> str:
    if file is None:
        return ""
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"--{name} {value} cannot be used with --locustfile, whose users have it")
    if not file.is_file():
        raise UsageError(f"--locustfile {file}: expected a file, found {'a folder' if file.exists() else 'none'}")
    return str(file.absolute())


def _say(text: str) -> None:
    print(text, file=sys.stderr)


@contextmanager
def _target(
    kubeconfig: Path | None, *, backend: str, fleet: str | None, subject: str | None, seed: int
) -> Iterator[Path]:
    """Start cluster and scheduler if needed; yields the kubeconfig to use."""
    from seatrial.harness.subject.foreign import foreign_command
    from seatrial.harness.subject.protocol import DEPLOYED, IN_PROCESS, NONE, OURS, open_subject

    if kubeconfig is not None:
        if subject not in {None, NONE, DEPLOYED}:
            raise UsageError(
                f"--subject {subject} applies to a cluster that this command starts; with --kubeconfig, start the"
                f" scheduler yourself, as in `seatrial scheduler --kubeconfig {kubeconfig}`"
            )
        yield kubeconfig
        return
    from seatrial.harness.nodes.fleet import DEFAULT, fleet_path, load_fleet

    load_fleet(fleet or DEFAULT)  # reports mistakes before anything is started
    if subject == IN_PROCESS:
        raise UsageError(f"--subject {subject}: load is in real time; expected {OURS}, {NONE} or a command line")
    if subject not in {None, OURS, DEPLOYED, NONE}:
        foreign_command(subject, Path("kubeconfig"))
    chosen = backend_named(backend, seed=seed)
    _say(f"starting a cluster (backend {backend}) and the scheduler")
    with chosen.start(fleet=fleet_path(fleet or DEFAULT)) as cluster, open_subject(subject or OURS, cluster, seed=seed):
        assert cluster.endpoint is not None
        yield cluster.endpoint.kubeconfig


WORKER_COLUMNS = ["worker", "created", "bound", "p50 ms", "p99 ms", "sent late ms", "core", "watch lag ms", "valid"]


def worker_lines(workers: Iterable[dict[str, Any]]) -> list[str]:
    """The figures of workers beside each other."""
    return table_lines([WORKER_COLUMNS, *map(_worker_row, workers)])


def _worker_row(one: dict[str, Any]) -> list[str]:
    validity = one["validity"]
    figures = [one["latency_ms"].get(name) for name in ("p50", "p99")]
    figures += [validity[name].get("p99") for name in ("generator_lag_ms", "watch_lag_ms")]
    p50, p99, late, behind = ("-" if figure is None else f"{figure:g}" for figure in figures)
    core = "-" if late == "-" else f"{validity['client_cpu_share']:.0%}"
    valid = "yes" if one["valid"] else "no"
    return [one["worker"], f"{one['created']:,}", f"{one['bound']:,}", p50, p99, late, core, behind, valid]


def _row_line(name: str, figures: dict[str, float]) -> str:
    count, *milliseconds = (f"{key} {value:g}" for key, value in figures.items())
    return f"            {', '.join(milliseconds)} ms as {name} ({count.removeprefix('count ')} times)\n"


def _show(result: dict[str, Any]) -> None:
    latency, throughput, validity = result["latency_ms"], result["throughput"], result["validity"]
    print(
        f"pods        {result['created']:,} created, {result['bound']:,} bound, {result['deleted']:,} deleted;"
        f" {result['unbound']} never bound, {result['rebound']} bound twice"
    )
    if latency:
        figures = ", ".join(f"{name} {value:g}" for name, value in latency.items())
        print(f"latency     {figures} ms from create to bound")
    print("".join(_row_line(*row) for row in result["rows"].items()), end="")
    if throughput:
        print(
            f"throughput  {throughput['pods_per_second']:,} pods/s from the first binding at"
            f" {throughput['first_bind']:.1f} s to the last at {throughput['last_bind']:.1f} s"
        )
    late, behind = validity["generator_lag_ms"].get("p99", 0), validity["watch_lag_ms"].get("p99", 0)
    busy = validity["client_cpu_share"]
    print(f"generator   sent {late:g} ms late at p99, used {busy:.0%} of a core, watch lag {behind:g} ms at p99")
    if result["workers"]:
        print("\n".join(["", *worker_lines(result["workers"]), ""]))
    print("valid       " + ("yes" if result["valid"] else "no: " + "; ".join(result["invalid_because"])))
    print("audit       " + ("; ".join(result["violations"]) or "no violation"))
    if result["samples"] is not None:
        print(f"samples     {result['samples']}")
