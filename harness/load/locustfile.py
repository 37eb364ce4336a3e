"""The load as Locust runs it: users that create and delete pods, one watch for all of them.

Runs in a process of its own (`harness.load.run` starts it): Locust's gevent patches sockets and TLS of the whole
process, and must do so before anything else imports them. `python -m locust` sees to that, this is the only file of
ours that imports it. Requests go through Locust's FastHttpUser, a connection for each user; the watch is read by
http.client in a greenlet and decoded by orjson.
"""

import http.client
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import gevent
import msgspec
import orjson
from gevent.event import Event
from gevent.queue import Queue
from locust import FastHttpUser, events, task

from harness.clusters.kubeconfig import load_access
from harness.load.agenda import Agenda, Bodies, Task, creations
from harness.load.record import Record
from harness.load.settings import ERRAND_VARIABLE, PART_LABEL, Errand, Go

REPORT_EVERY = 0.25  # seconds between two words on how far we are
RETRY_AFTER = 1.0  # seconds, where a 429 names none
LOOK = 0.02  # seconds between two looks at a file or a flag

ERRAND = msgspec.json.decode(Path(os.environ[ERRAND_VARIABLE]).read_bytes(), type=Errand)
ACCESS = load_access(Path(ERRAND.kubeconfig))
PODS = f"/api/v1/namespaces/{ERRAND.namespace}/pods"


class Load:
    """Everything that this process' users share."""

    def __init__(self) -> None:
        self.record = Record()
        self.bodies = Bodies(ERRAND.settings, ERRAND.part)
        self.agenda = Agenda(creations(ERRAND))
        self.due: Queue[Task] = Queue()
        self.busy = 0  # requests that users have in hand
        self.connected = 0  # users that have a connection
        self.changed = Event()
        self.watching = Event()
        self.start = 0.0  # on the monotonic clock
        self.cpu = 0.0
        self.written = False

    def now(self) -> float:
        return time.monotonic() - self.start

    def add(self, more: Task) -> None:
        self.agenda.add(more)
        self.changed.set()

    def run(self) -> None:
        """Hand out tasks as they become due, until all pods have come and gone or time is up."""
        _write("ready", b"")
        go = Path(ERRAND.folder) / "go"
        while not go.exists():
            gevent.sleep(LOOK)
        self.start = msgspec.json.decode(go.read_bytes(), type=Go).start
        self.cpu = time.process_time()
        deadline = ERRAND.settings.seconds + ERRAND.settings.drain
        while self.now() < deadline and not self._settled:
            self.changed.clear()
            while (found := self.agenda.take(self.now())) is not None:
                self.busy += 1
                self.due.put(found)
            self.changed.wait(min(self.agenda.wait(self.now()), LOOK))
        self.write()

    @property
    def _settled(self) -> bool:
        return not self.agenda and not self.busy and self.record.settled

    def write(self) -> None:
        """Leave the result where the parent finds it; once."""
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
        """Follow this process' pods for as long as it lives."""
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
        """What there is now; an empty revision in `watch` leads here, at the beginning and after a gap."""
        answer = _open(f"{PODS}?{_SELECTOR}")
        found = orjson.loads(answer.read())
        if answer.status != 200:
            raise http.client.HTTPException(found.get("message", answer.status))
        for pod in found["items"]:
            self._event("MODIFIED", pod)
        return str(found["metadata"]["resourceVersion"])

    def _follow(self, revision: str) -> str:
        """Read one watch to its end; returns where the next one goes on, empty if its place is lost."""
        answer = _open(f"{PODS}?watch=1&allowWatchBookmarks=true&{_SELECTOR}&resourceVersion={revision}")
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
        if bound is not None and kind != "DELETED":
            self.add(Task("delete", bound, self.now() + ERRAND.settings.hold))


_SELECTOR = "labelSelector=" + quote(f"{PART_LABEL}={ERRAND.part}")
LOAD = Load()


def _open(path: str) -> http.client.HTTPResponse:
    where = urlsplit(ACCESS.url)
    assert where.hostname is not None  # noqa: S101 load_access has seen to it
    line: http.client.HTTPConnection
    if ACCESS.tls is not None:
        line = http.client.HTTPSConnection(where.hostname, where.port, context=ACCESS.tls)
    else:
        line = http.client.HTTPConnection(where.hostname, where.port)
    line.request("GET", where.path + path, headers={"Accept": "application/json", **ACCESS.headers})
    return line.getresponse()


def _write(what: str, content: bytes) -> None:
    """Put a file where the parent looks, whole or not at all."""
    path = Path(ERRAND.folder) / f"{what}-{ERRAND.part}"
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


class PodUser(FastHttpUser):  # type: ignore[misc]  # Locust has no types for us
    """Carries one request at a time; which one, the agenda says."""

    host = ACCESS.url
    insecure = ACCESS.tls is None
    ssl_context_factory = staticmethod(lambda: ACCESS.tls) if ACCESS.tls is not None else None
    default_headers = {"Content-Type": "application/json", "Accept": "application/json", **ACCESS.headers}  # noqa: RUF012
    concurrency = 1

    def on_start(self) -> None:
        """Open the connection now: a TLS handshake is no part of a pod's latency."""
        self.client.get("/version", name="connect")
        LOAD.connected += 1

    @task  # type: ignore[untyped-decorator]
    def carry_out(self) -> None:
        asked = LOAD.due.get()
        try:
            if asked.verb == "create":
                self._create(asked)
            else:
                self._delete(asked)
        finally:
            LOAD.busy -= 1
            LOAD.changed.set()

    def _create(self, asked: Task) -> None:
        record = LOAD.record
        body = LOAD.bodies.body(asked.shape, asked.pod)
        record.send(asked.pod, asked.shape, due=asked.due, now=LOAD.now())
        answer = self.client.post(PODS, data=body, name="create pod")
        if answer.status_code == 201:
            record.created(asked.pod, LOAD.now())
        elif answer.status_code == 429:
            self._again(asked, answer)
        else:
            record.failed(_failure("create", answer))
            record.never_created(asked.pod)

    def _delete(self, asked: Task) -> None:
        LOAD.record.deleting(asked.pod, LOAD.now())
        answer = self.client.delete(f"{PODS}/{asked.pod}", name="delete pod")
        if answer.status_code == 429:
            self._again(asked, answer)
        elif answer.status_code not in {200, 202, 404}:
            LOAD.record.failed(_failure("delete", answer))

    def _again(self, asked: Task, answer: Any) -> None:
        LOAD.record.throttled += 1
        said = (answer.headers or {}).get("Retry-After", "")
        wait = float(said) if said.isdigit() else RETRY_AFTER
        LOAD.agenda.add(Task(asked.verb, asked.pod, LOAD.now() + wait, asked.shape))


def _failure(verb: str, answer: Any) -> str:
    """Which kind of refusal it was, without the pod's name, so that refusals can be counted."""
    if not answer.status_code:
        return f"{verb}: {type(answer.error).__name__}"
    try:
        reason = orjson.loads(answer.content).get("reason", "")
    except orjson.JSONDecodeError:
        reason = ""
    return f"{verb}: {answer.status_code} {reason}".strip()


@events.test_start.add_listener  # type: ignore[untyped-decorator]
def _begin(environment: Any, **_: Any) -> None:
    gevent.spawn(LOAD.watch)
    gevent.spawn(LOAD.report)
    gevent.spawn(_work, environment)


def _work(environment: Any) -> None:
    LOAD.watching.wait()
    while LOAD.connected < ERRAND.users:
        gevent.sleep(LOOK)
    try:
        LOAD.run()
    finally:
        if environment.web_ui is None:
            environment.runner.quit()
        else:
            environment.runner.stop()


@events.quitting.add_listener  # type: ignore[untyped-decorator]
def _leave(**_: Any) -> None:
    LOAD.write()
