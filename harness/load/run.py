"""Run a load against a cluster: create a namespace, start Locust processes, merge their results, clean up.

The processes are on this machine, or this one is the master of workers that `run_worker` runs, perhaps elsewhere.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import orjson

from seatrial.harness.clusters.access import access
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.harness.errors import ApiRefused, ClusterError, UsageError
from seatrial.harness.interrupts import shortened
from seatrial.harness.load.load_figures import LoadResult, summarise
from seatrial.harness.load.record import Part, Progress
from seatrial.harness.load.settings import (
    FILE_REFUSED,
    LOAD_LABEL,
    WORKER_VARIABLE,
    Listener,
    LoadSettings,
    MasterSettings,
    StartSignal,
    WorkerSettings,
)
from seatrial.harness.load.task_queue import PodBodies
from seatrial.harness.load.workload import crowding
from seatrial.harness.nodes.kwok import is_simulated
from seatrial.harness.processes import die_with_parent, stop
from seatrial.scheduler.api.transport import Request, Response

Say = Callable[[str], None]

LOCUSTFILE = Path(__file__).with_name("own_users.py")
PAGE_HOST = "127.0.0.1"
READY_WITHIN = 60.0  # seconds for Locust to start and open its watch
HEAD_START = 0.1  # seconds from the start signal to time 0 of the load
MASTER_HEAD_START = 1.0  # the same where the signal goes to other machines
GRACE = 30.0  # seconds after the planned end for the processes to finish
NAMESPACE_WITHIN = 60.0  # seconds for a namespace to accept pods, and to be deleted
POLL_INTERVAL = 0.05
PROGRESS_INTERVAL = 1.0
LAST_LINES = 15


def run_load(
    settings: LoadSettings,
    kubeconfig: Path,
    *,
    progress: Say = lambda _: None,
    samples: Path | None = None,
    listener: Listener | None = None,
) -> LoadResult:
    """Submit the load and measure it; one line for each pod is written to `samples` (JSON Lines), if it is given.

    Blocks for `settings.seconds` and at most `settings.drain` more. With a web page it runs until it is interrupted.
    With a `listener`, `settings.processes` workers that join there submit it in place of processes of this machine.

    Raises:
        UsageError: the server of the kubeconfig cannot be reached, or the Locust file of the settings cannot be used.
        ClusterError: the API server does not answer, refuses the pods, a load process ended early, or there are not
            enough workers.
    """
    cluster = RemoteTransport(load_access(kubeconfig), PumpedClock())
    try:
        try:
            fullness = _fullness(settings, cluster)
        except ClusterError as error:
            raise UsageError(f"kubeconfig {kubeconfig}: {error}") from error
        with tempfile.TemporaryDirectory(prefix="seatrial-load-") as folder, _namespace(cluster, progress) as namespace:
            _wait_for_admission(settings, cluster, namespace)
            workers = [
                WorkerSettings(settings, str(kubeconfig.absolute()), namespace, folder, part)
                for part in range(settings.processes)
            ]
            parts = _run(workers, Path(folder), progress, listener)
    finally:
        cluster.close()
    if samples is not None:
        _write_samples(samples, parts)
    return summarise(settings, parts, crowding=fullness, samples=samples)


# -- around the load --------------------------------------------------------------------------------------------------


def _fullness(settings: LoadSettings, cluster: RemoteTransport) -> dict[str, float]:
    answer = _expect(cluster.call(Request("GET", "/api/v1/nodes")), "list nodes", 200)
    nodes = orjson.loads(answer.body)["items"]
    if "nodes" in settings.also and not any(_simulated(node["metadata"]) for node in nodes):
        raise UsageError("--also nodes: expected a cluster with simulated nodes, found none")
    offers = [node.get("status", {}).get("allocatable", {}) for node in nodes]
    if settings.locustfile:
        return {}
    trace = settings.recorded()
    alive = settings.rate * settings.hold if trace is None else trace.alive()
    return crowding(settings.demand(), alive, offers)


def _simulated(metadata: dict[str, Any]) -> bool:
    return is_simulated(metadata.get("labels", {}), metadata.get("annotations", {}))


@contextmanager
def _namespace(cluster: RemoteTransport, progress: Say) -> Iterator[str]:
    """A new namespace; it is deleted with all its pods when the context is left."""
    name = f"seatrial-load-{uuid.uuid4().hex[:8]}"
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {LOAD_LABEL: "true"}}}
    _expect(cluster.call(Request("POST", "/api/v1/namespaces", orjson.dumps(manifest))), "create namespace", 201)
    path = f"/api/v1/namespaces/{name}"
    try:
        yield name
    finally:
        try:
            cluster.call(Request("DELETE", path))
            _remove_nodes(cluster, name)
            if not _poll(lambda: cluster.call(Request("GET", path)).code == 404, shortened(NAMESPACE_WITHIN)):
                progress(f"namespace {name} is still terminating after {NAMESPACE_WITHIN:.0f} s; check its pods")
        except ClusterError as error:  # Ctrl-C in a terminal also ends an embedded cluster and with it the namespace
            progress(f"namespace {name} could not be deleted: {error}")


def _remove_nodes(cluster: RemoteTransport, namespace: str) -> None:
    """Remove the nodes of the load that an interrupted user has left; their names begin with its namespace."""
    answer = cluster.call(Request("GET", f"/api/v1/nodes?labelSelector={LOAD_LABEL}"))
    for node in orjson.loads(answer.body).get("items", []):
        if node["metadata"]["name"].startswith(f"{namespace}-"):
            cluster.call(Request("DELETE", f"/api/v1/nodes/{node['metadata']['name']}"))


def _wait_for_admission(settings: LoadSettings, cluster: RemoteTransport, namespace: str) -> None:
    """Create a pod of each shape with dryRun: a mistake is reported once instead of thousands of times.

    A new namespace refuses pods with 403 until its service account exists; that is waited for.
    """
    bodies = PodBodies(settings, 0)
    for shape in settings.demand().shapes:
        request = Request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", bodies.body(shape.name, "trial"))
        answers: list[Response] = []

        def passed(request: Request = request, answers: list[Response] = answers) -> bool:
            answers.append(cluster.call(request))
            return answers[-1].code != 403

        _poll(passed, NAMESPACE_WITHIN)
        _expect(answers[-1], f"create a pod of shape {shape.name!r}", 201)


def _expect(answer: Response, what: str, code: int) -> Response:
    if answer.code == code:
        return answer
    try:
        body: dict[str, Any] = orjson.loads(answer.body)
    except orjson.JSONDecodeError:
        body = {"message": answer.body.decode(errors="replace")[:200]}
    raise ApiRefused(what, code=answer.code, reason=body.get("reason", ""), message=body.get("message", ""))


def _write_samples(path: Path, parts: list[Part]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    lifetimes = sorted((sample for part in parts for sample in part.samples), key=lambda sample: sample.sent)
    path.write_bytes(b"".join(msgspec.json.encode(sample) + b"\n" for sample in lifetimes))


# -- the load's processes ---------------------------------------------------------------------------------------------


def run_worker(kubeconfig: Path | None, host: str, port: int) -> None:
    """Work for the master of a load at that address until the load is over; without a kubeconfig, as the pod's account.

    Raises:
        UsageError: the kubeconfig or the service account cannot be used.
        ClusterError: there is no master, it refuses this worker, or it ended before the load was complete.
    """
    access(kubeconfig)
    with tempfile.TemporaryDirectory(prefix="seatrial-load-") as name:
        file = str(kubeconfig.absolute()) if kubeconfig is not None else ""
        command = [sys.executable, "-m", "seatrial.harness.load.worker", name, host, str(port), file]
        with _process(command, Path(name), 0) as process:
            if process.wait():
                raise ClusterError(f"load worker: {_last_lines(Path(name), 0)}")


def _run(workers: list[WorkerSettings], folder: Path, progress: Say, listener: Listener | None) -> list[Part]:
    settings = workers[0].settings
    with contextlib.ExitStack() as stack:
        commands = [_locust(worker) for worker in workers]
        values: list[msgspec.Struct] = list(workers)
        if listener is not None:
            commands = [[sys.executable, "-m", "seatrial.harness.load.master"]]
            values = [MasterSettings(listener.host, listener.port, tuple(workers), str(folder))]
        for number, value in enumerate(values):
            _settings_file(folder, number).write_bytes(msgspec.json.encode(value))
        processes = [stack.enter_context(_process(command, folder, n)) for n, command in enumerate(commands)]

        def ended(*, what: str) -> bool:
            """Whether every process has written its file `what`.

            Raises:
                UsageError: the user's Locust file cannot be used.
                ClusterError: a process ended without writing it.
            """
            missing = [number for number in range(len(workers)) if not (folder / f"{what}-{number}").exists()]
            for worker in missing:
                number = worker % len(processes)  # the master is the only one
                code = processes[number].poll()
                if code is not None and not (folder / f"{what}-{worker}").exists():
                    last = _last_lines(folder, number)
                    if code == FILE_REFUSED and workers[number].settings.locustfile:
                        raise UsageError(last)
                    raise ClusterError(f"load process {number} ended with status {code}:\n{last}")
            return not missing

        if settings.web_port:
            progress(f"Locust's page: http://{PAGE_HOST}:{settings.web_port} (Ctrl-C ends it and prints the result)")
        if listener is None:
            _wait(lambda: ended(what="ready"), READY_WITHIN, "start", lambda: None)
        else:
            _wait_for_workers(lambda: ended(what="ready"), listener, folder, len(workers), progress)
        go = folder / "go.new"
        head_start = HEAD_START if listener is None else MASTER_HEAD_START
        go.write_bytes(msgspec.json.encode(StartSignal(time.monotonic() + head_start)))
        go.rename(folder / "go")
        progress_report = _ProgressReport(folder, len(workers), progress)
        within = settings.seconds + settings.drain + GRACE
        try:
            _wait(lambda: ended(what="part"), within, "finish", progress_report.look)
            while settings.web_port and processes[0].poll() is None:
                time.sleep(POLL_INTERVAL)  # the page is served until Ctrl-C
        except KeyboardInterrupt:
            if not settings.web_port:
                raise
            for process in processes:
                stop(process)
        if listener is not None:
            stop(processes[0])  # it ends its workers
    return [_part(folder, number) for number in range(len(workers))]


def _part(folder: Path, number: int) -> Part:
    part = msgspec.json.decode((folder / f"part-{number}").read_bytes(), type=Part)
    name = folder / f"name-{number}"
    if name.exists():
        part.worker = f"worker {number} on {name.read_text()}"
    return part


def _wait_for_workers(ready: Callable[[], bool], listener: Listener, folder: Path, count: int, progress: Say) -> None:
    """
    Raises:
        ClusterError: fewer than `count` came in time.
    """
    progress(f"waiting for {count} workers at {listener}")
    names: list[str] = []

    def look() -> None:
        before = names.copy()
        names[:] = [file.read_text() for file in sorted(folder.glob("name-*[0-9]"))]
        if names != before:
            progress(f"{len(names)} of {count} workers: {', '.join(names) or 'none'}")

    if not _poll(ready, listener.within, look):
        raise ClusterError(
            f"{len(names)} of {count} workers came within {listener.within:g} s ({', '.join(names) or 'none'});"
            " start the others with"
            f" `seatrial load --worker --kubeconfig FILE --master-host HOST --master-port {listener.port}`"
        )


def _wait(until: Callable[[], bool], within: float, what: str, meanwhile: Callable[[], None]) -> None:
    if not _poll(until, within, meanwhile):
        raise ClusterError(f"the load processes did not {what} within {within:.0f} s")


def _poll(until: Callable[[], bool], within: float, meanwhile: Callable[[], None] = lambda: None) -> bool:
    deadline = time.monotonic() + within  # real processes use real time
    while not until():
        if time.monotonic() > deadline:
            return False
        meanwhile()
        time.sleep(POLL_INTERVAL)
    return True


class _ProgressReport:
    """Reports the progress of the load every second."""

    def __init__(self, folder: Path, parts: int, progress: Say) -> None:
        self._files = [folder / f"progress-{part}" for part in range(parts)]
        self._progress = progress
        self._start = self._last = time.monotonic()

    def look(self) -> None:
        now = time.monotonic()
        if now - self._last < PROGRESS_INTERVAL:
            return
        self._last = now
        all_ = [msgspec.json.decode(file.read_bytes(), type=Progress) for file in self._files if file.exists()]
        created, bound, deleted, errors = (
            sum(getattr(progress, name) for progress in all_) for name in ("created", "bound", "deleted", "errors")
        )
        self._progress(
            f"{now - self._start:5.0f} s  created {created:,}  bound {bound:,}  deleted {deleted:,}  errors {errors:,}"
        )


def _settings_file(folder: Path, number: int) -> Path:
    return folder / f"settings-{number}"


def _last_lines(folder: Path, number: int) -> str:
    """The end of the log of a load process."""
    return "\n".join((folder / f"log-{number}").read_text(errors="replace").strip().splitlines()[-LAST_LINES:])


def _locust(worker: WorkerSettings) -> list[str]:
    """The command of a load process of this machine."""
    command = [sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--loglevel", "WARNING"]
    command += ["--users", str(worker.users), "--spawn-rate", str(worker.users), "--exit-code-on-error", "0"]
    port = worker.settings.web_port
    command += ["--autostart", "--web-host", PAGE_HOST, "--web-port", str(port)] if port else ["--headless"]
    for flag, path in (("--html", worker.settings.html), ("--csv", worker.settings.csv)):
        command += [flag, str(Path(path).absolute())] if path else []
    return command if port else [*command, "--only-summary"]


@contextmanager
def _process(command: list[str], folder: Path, number: int) -> Iterator["subprocess.Popen[bytes]"]:
    """One load process; stopped when the context is left. It has its own session, so Ctrl-C does not reach it."""
    with (folder / f"log-{number}").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, WORKER_VARIABLE: str(_settings_file(folder, number))},
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 one call into libc, which is loaded
        )
    try:
        yield process
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=GRACE)  # its result is written; it writes its reports and ends
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        stop(process)
