"""Users that create and delete pods, and one watch for all users of a load process, whose Locust file is `own_users`.

It runs in a separate process (started by `seatrial.harness.load.run`, or on another machine by
`seatrial.harness.load.worker`), because Locust's gevent patches sockets and TLS
of the whole process before other imports. `python -m locust` does that; no other module imports Locust. Requests use
Locust's FastHttpUser, one connection for each user. A greenlet reads the watch with http.client.
"""

import copy
import http.client
import itertools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import gevent
import msgspec
import orjson
from gevent.event import Event
from gevent.queue import Queue
from locust import FastHttpUser, events, task
from locust.exception import StopUser
from locust.runners import LocalRunner
from locust.stats import CSV_STATS_INTERVAL_SEC

from seatrial.harness.clusters.access import access
from seatrial.harness.load.record import Record
from seatrial.harness.load.settings import PART_LABEL, WORKER_VARIABLE, StartSignal, WorkerSettings
from seatrial.harness.load.task_queue import PodBodies, Task, TaskQueue, creations
from seatrial.scheduler.api.builders import PodBuilder
from seatrial.scheduler.api.integers import integer

REPORT_EVERY = 0.25  # seconds between two progress reports
RETRY_AFTER = 1.0  # seconds, if a 429 has no Retry-After header
POD_ROW = "POD create to bound"
POLL_INTERVAL = 0.02  # seconds between two checks of a file or a flag
ONE_LOAD = (
    "This page shows the load that `seatrial load --web` started, and starts no other one. End it with Ctrl-C, and"
    " start it again with other --rate, --users, --seconds or --mix."
)

WORKER = msgspec.json.decode(Path(os.environ[WORKER_VARIABLE]).read_bytes(), type=WorkerSettings)
ACCESS = access(Path(WORKER.kubeconfig) if WORKER.kubeconfig else None)
PODS = f"/api/v1/namespaces/{WORKER.namespace}/pods"


class Load:
    """The state that the users of this process share."""

    def __init__(self) -> None:
        self.record = Record()
        self.bodies = PodBodies(WORKER.settings, WORKER.part)
        self.tasks = TaskQueue(creations(WORKER))
        self.stays: dict[str, float] = {}  # by pod: seconds from its binding to its deletion
        self.due: Queue[Task] = Queue()
        self.bindings: dict[str, Event] = {}  # of pods of a Locust file of the user's
        self.started = Event()
        self.busy = 0  # requests that users are executing
        self.connected = 0  # users that have a connection
        self.changed = Event()
        self.watching = Event()
        self.spawned = Event()  # all users of this process
        self.start = 0.0  # on the monotonic clock
        self.cpu = 0.0
        self.written = False

    def now(self) -> float:
        return time.monotonic() - self.start

    def add(self, more: Task) -> None:
        self.tasks.add(more)
        self.changed.set()

    def run(self) -> None:
        """Distribute tasks when they are due, until all pods were created and deleted or time is up."""
        _write("ready", b"")
        go = Path(WORKER.folder) / "go"
        while not go.exists():
            gevent.sleep(POLL_INTERVAL)
        self.start = msgspec.json.decode(go.read_bytes(), type=StartSignal).start
        self.cpu = time.process_time()
        gevent.sleep(max(0.0, -self.now()))
        self.started.set()
        deadline = WORKER.settings.seconds + WORKER.settings.drain
        while self.now() < deadline and not self._settled:
            self.changed.clear()
            while (result := self.tasks.take(self.now())) is not None:
                self.busy += 1
                self.due.put(result)
            self.changed.wait(min(self.tasks.wait(self.now()), POLL_INTERVAL))
        self.write()

    @property
    def _settled(self) -> bool:
        over = not WORKER.settings.free_users or self.now() > WORKER.settings.seconds
        return over and not self.tasks and not self.busy and self.record.settled

    def write(self) -> None:
        """Write the result for the parent process; only the first call writes."""
        if self.start and not self.written:
            self.written = True
            cpu = time.process_time() - self.cpu
            _write("part", msgspec.json.encode(self.record.part(cpu_seconds=cpu, wall_seconds=self.now())))

    def report(self) -> None:
        while True:
            gevent.sleep(REPORT_EVERY)
            _write("progress", msgspec.json.encode(self.record.progress))

    # -- the watch ----------------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Watch this process' pods until the process ends."""
        revision = ""
        while True:
            try:
                revision = revision or self._list()
                revision = self._follow(revision)
            except (OSError, http.client.HTTPException) as error:
                self.record.failed(f"watch: {type(error).__name__}")
                gevent.sleep(RETRY_AFTER)
            self.record.watch_restarts += 1

    def _list(self) -> str:
        """List the pods; returns the resource version. Used at the start and after a watch has expired."""
        answer = get(f"{PODS}?{_SELECTOR}")
        document = orjson.loads(answer.read())
        if answer.status != 200:
            raise http.client.HTTPException(document.get("message", answer.status))
        for pod in document["items"]:
            self._event("MODIFIED", pod)
        return str(document["metadata"]["resourceVersion"])

    def _follow(self, revision: str) -> str:
        """Read one watch to its end; returns the resource version for the next one, empty if a list is needed."""
        answer = get(f"{PODS}?watch=1&allowWatchBookmarks=true&{_SELECTOR}&resourceVersion={revision}")
        if answer.status != 200:
            return self._lost() if answer.status == 410 else revision
        self.watching.set()
        rest = b""
        while chunk := answer.read1(1 << 18):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line:
                    event = orjson.loads(line)
                    if event["type"] == "ERROR":
                        return self._lost()
                    revision = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        self._event(event["type"], event["object"])
        return revision

    def _lost(self) -> str:
        self.record.watch_gaps += 1
        return ""

    def _event(self, kind: str, pod: dict[str, Any]) -> None:
        bound = self.record.event(kind, pod, self.now())
        if bound is not None and WORKER.settings.shown:
            seconds = self.record.latency_of(bound)
            assert seconds is not None
            show(POD_ROW, seconds)
        if bound in self.bindings:
            self.bindings.pop(bound).set()
        elif bound is not None and kind != "DELETED":
            self.add(Task("delete", bound, self.now() + self.stays.pop(bound, WORKER.settings.hold)))


_SELECTOR = "labelSelector=" + quote(f"{PART_LABEL}={WORKER.part}")
LOAD = Load()
_NUMBERS = itertools.count()


def show(row: str, seconds: float) -> None:
    """A row and a line in the charts of Locust's page and reports; its type is the row's first word."""
    kind, _, name = row.partition(" ")
    events.request.fire(
        request_type=kind, name=name, response_time=1000 * seconds, response_length=0, exception=None, context={}
    )


def get(path: str) -> http.client.HTTPResponse:
    """The answer to a GET request, on a connection of its own."""
    where = urlsplit(ACCESS.url)
    assert where.hostname is not None
    line: http.client.HTTPConnection
    if ACCESS.tls is not None:
        line = http.client.HTTPSConnection(where.hostname, where.port, context=ACCESS.tls)
    else:
        line = http.client.HTTPConnection(where.hostname, where.port)
    line.request("GET", where.path + path, headers={"Accept": "application/json", **ACCESS.headers})
    return line.getresponse()


def _write(what: str, content: bytes) -> None:
    """Write a file for the parent process, atomically."""
    path = Path(WORKER.folder) / f"{what}-{WORKER.part}"
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


class LoadUser(FastHttpUser):  # type: ignore[misc]  # Locust has no types for us
    """A user with a connection to the cluster of the load, whose pods are measured.

    Classes of a Locust file derive from it and have tasks that create pods, wait for them and delete them.
    """

    abstract = True
    host = ACCESS.url
    insecure = ACCESS.tls is None
    ssl_context_factory = staticmethod(lambda: ACCESS.tls) if ACCESS.tls is not None else None
    default_headers = {"Content-Type": "application/json", "Accept": "application/json", **ACCESS.headers}  # noqa: RUF012
    concurrency = 1

    def on_start(self) -> None:
        """Open the connection before the load: a TLS handshake is not part of a pod's latency."""
        self.client.get("/version", name="connect")
        LOAD.connected += 1
        LOAD.started.wait()

    def create(self, manifest: PodBuilder) -> str:
        """Create a pod in the namespace of the load; returns its name, to which a number is added.

        Raises:
            StopUser: the time of the load is over, or the API server did not create the pod.
        """
        return self.create_all([manifest])[0]

    def create_all(self, manifests: Sequence[PodBuilder], *, aside: bool = False) -> list[str]:
        """Create pods that belong together, as those of a gang: all of them, or none as the time of the load is over.

        With `aside`, pods that wait for something else than the scheduler (for each other, for a quota) are counted,
        and are not in the figures of latency and throughput; `measured` gives them figures of their own.

        Raises:
            StopUser: the time of the load is over, or the API server did not create a pod.
        """
        if LOAD.now() > WORKER.settings.seconds:
            raise StopUser
        return [self._create(manifest, aside=aside) for manifest in manifests]

    def _create(self, manifest: PodBuilder, *, aside: bool) -> str:
        shape = manifest.manifest["metadata"]["name"]
        name = f"{shape}-{WORKER.part}-{next(_NUMBERS)}"
        body = copy.deepcopy(manifest).label(PART_LABEL, str(WORKER.part)).manifest
        body["metadata"] |= {"name": name, "namespace": WORKER.namespace}
        if WORKER.settings.scheduler:
            body["spec"]["schedulerName"] = WORKER.settings.scheduler
        LOAD.bindings[name] = Event()
        LOAD.record.send(name, shape, due=LOAD.now(), now=LOAD.now(), aside=aside)
        try:
            self.send("POST", PODS, body, name="create pod")
        except StopUser:
            LOAD.record.never_created(name)
            raise
        LOAD.record.created(name, LOAD.now())
        return name

    def send(self, method: str, path: str, body: object = None, *, name: str) -> None:
        """Send a request to the API server, with `body` as JSON; `name` is its row in Locust's reports.

        An answer 429 is counted, and the request is repeated after the time that it says, until the load has ended.

        Raises:
            StopUser: it was refused or got no answer, which is an error of the load; DELETE of what is gone is none.
        """
        content = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None
        while (
            answer := self.client.request(method, path, data=content, headers=headers, name=name)
        ).status_code == 429:
            wait = throttled(answer)
            if LOAD.now() + wait > WORKER.settings.seconds + WORKER.settings.drain:
                break
            gevent.sleep(wait)
        if answer.status_code not in {200, 201, 202} and (method, answer.status_code) != ("DELETE", 404):
            LOAD.record.failed(_failure(name.partition(" ")[0], answer))
            raise StopUser

    def bound(self, name: str, within: float) -> bool:
        """Wait for the binding of a pod, at most `within` seconds; whether it was bound."""
        binding = LOAD.bindings.get(name)
        return binding is None or bool(binding.wait(within))

    def all_bound(self, names: Sequence[str], within: float) -> bool:
        """Wait for the bindings of pods, at most `within` seconds; whether all were bound."""
        end = LOAD.now() + within
        return all(self.bound(name, max(0.0, end - LOAD.now())) for name in names)

    def delete(self, *names: str) -> None:
        """Delete pods."""
        for name in names:
            LOAD.record.deleting(name, LOAD.now())
            self.send("DELETE", f"{PODS}/{name}", name="delete pod")

    def gone(self, *names: str, within: float) -> bool:
        """Wait until pods that were deleted are gone, at most `within` seconds; whether they are."""
        end = LOAD.now() + within
        while not (over := all(map(LOAD.record.gone, names))) and LOAD.now() < end:
            gevent.sleep(POLL_INTERVAL)
        return over

    def measured(self, row: str, seconds: float) -> None:
        """Add a duration to the figures of the load, in `row`, and to Locust's page and reports."""
        LOAD.record.rows.setdefault(row, []).append(seconds)
        show(row, seconds)


class PodUser(LoadUser):
    """Executes one task of the plan at a time."""

    @task  # type: ignore[untyped-decorator]
    def carry_out(self) -> None:
        entry = LOAD.due.get()
        try:
            if entry.verb == "create":
                self._submit(entry)
            else:
                self._remove(entry)
        finally:
            LOAD.busy -= 1
            LOAD.changed.set()

    def _submit(self, request: Task) -> None:
        record = LOAD.record
        body = LOAD.bodies.body(request.shape, request.pod)
        if request.stay is not None:
            LOAD.stays[request.pod] = request.stay
        record.send(request.pod, request.shape, due=request.due, now=LOAD.now())
        answer = self.client.post(PODS, data=body, name="create pod")
        if answer.status_code == 201:
            record.created(request.pod, LOAD.now())
        elif answer.status_code == 429:
            self._again(request, answer)
        else:
            record.failed(_failure("create", answer))
            record.never_created(request.pod)

    def _remove(self, request: Task) -> None:
        LOAD.record.deleting(request.pod, LOAD.now())
        answer = self.client.delete(f"{PODS}/{request.pod}", name="delete pod")
        if answer.status_code == 429:
            self._again(request, answer)
        elif answer.status_code not in {200, 202, 404}:
            LOAD.record.failed(_failure("delete", answer))

    def _again(self, request: Task, answer: Any) -> None:
        """Other requests go first meanwhile."""
        LOAD.tasks.add(Task(request.verb, request.pod, LOAD.now() + throttled(answer), request.shape, request.stay))


def throttled(answer: Any) -> float:
    """Count an answer 429; the seconds after which the request may come again."""
    LOAD.record.throttled += 1
    seconds = integer((answer.headers or {}).get("Retry-After", ""), 0)
    return RETRY_AFTER if seconds is None else float(seconds)


def _failure(verb: str, answer: Any) -> str:
    """The kind of failure without the pod's name, so that equal failures can be counted."""
    if not answer.status_code:
        return f"{verb}: {type(answer.error).__name__}"
    try:
        reason = orjson.loads(answer.content).get("reason", "")
    except orjson.JSONDecodeError:
        reason = ""
    return f"{verb}: {answer.status_code} {reason}".strip()


@events.init.add_listener  # type: ignore[untyped-decorator]
def _show_one_load(web_ui: Any, **_: Any) -> None:
    """Locust's page changes users while they run; of a load, rate and mix count, and what is measured is one plan.

    The button Edit is off, as for Locust's own shapes; the form of the button New answers with what to do instead.
    """
    if web_ui is None:
        return
    update = web_ui.update_template_args

    def update_without_edit() -> None:
        update()
        web_ui.template_args["hide_common_options"] = True

    web_ui.update_template_args = update_without_edit
    web_ui.app.view_functions["locust.swarm"] = lambda: {"success": False, "message": ONE_LOAD}


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _begin(environment: Any, **_: Any) -> None:
    gevent.spawn(LOAD.watch)
    gevent.spawn(LOAD.report)
    gevent.spawn(_work, environment)


def _work(environment: Any) -> None:
    LOAD.watching.wait()
    LOAD.spawned.wait()
    while LOAD.connected < environment.runner.user_count:
        gevent.sleep(POLL_INTERVAL)
    environment.stats.clear_all()  # connections that were opened before are no part of the load
    try:
        LOAD.run()
        if WORKER.settings.csv:
            gevent.sleep(2 * CSV_STATS_INTERVAL_SEC)  # Locust writes them at intervals, and not once more at the end
    finally:
        if environment.web_ui is None and isinstance(environment.runner, LocalRunner):
            environment.runner.quit()  # a worker waits for its master, which ends it
        else:
            environment.runner.stop()


@events.user_error.add_listener  # type: ignore[untyped-decorator]
def _task_failed(exception: Exception, **_: Any) -> None:
    LOAD.record.failed(f"task: {type(exception).__name__}: {exception}")


@events.spawning_complete.add_listener  # type: ignore[untyped-decorator]
def _spawned(**_: Any) -> None:
    LOAD.spawned.set()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _leave(**_: Any) -> None:
    LOAD.write()
