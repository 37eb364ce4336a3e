"""The master process of a load over several machines, started by `seatrial.harness.load.run`: Locust's MasterRunner.

Each worker that comes gets a part of the plan. When all are there, Locust spreads the users over them. Files that they
send are written to the folder of the load, where `run` reads them as it reads those of its own processes. Besides it
writes `name-PART` with the machine of the worker, and for a worker that was lost a result that says so.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any

import gevent
import locust
import msgspec
from locust.env import Environment
from locust.runners import STATE_MISSING, MasterRunner

from seatrial.harness.load.messages import FILE, FORWARDED, GO, HELLO, PLAN, POLL_INTERVAL, READY, REFUSAL
from seatrial.harness.load.record import Part
from seatrial.harness.load.settings import BESIDE, WORKER_VARIABLE, MasterSettings, StartSignal
from seatrial.harness.source import source_digest


class Master:
    """Assigns the parts of the load to workers."""

    def __init__(self, settings: MasterSettings, runner: MasterRunner) -> None:
        self._settings, self._runner = settings, runner
        self._folder = Path(settings.folder)
        self._parts: dict[str, int] = {}  # by client ID of the worker
        self._ready: set[str] = set()
        self._source = source_digest()

    def hello(self, msg: Any, **_: Any) -> None:
        """Give a worker its part, or say why it gets none."""
        name, source = msg.data["name"], msg.data["source"]
        free = sorted(set(range(len(self._settings.workers))) - set(self._parts.values()))
        if source != self._source:
            reason = (
                f"worker on {name}: its source of seatrial ({source}) is not the master's ({self._source});"
                " install the same on both"
            )
            self._runner.send_message(REFUSAL, {"reason": reason}, msg.node_id)
        elif not free:
            reason = f"worker on {name}: the master has its {len(self._settings.workers)} workers; see --expect-workers"
            self._runner.send_message(REFUSAL, {"reason": reason}, msg.node_id)
        else:
            part = self._parts[msg.node_id] = free[0]
            self._write(f"name-{part}", name.encode())
            self._runner.send_message(PLAN, self._plan(part), msg.node_id)

    def _plan(self, part: int) -> dict[str, Any]:
        worker = msgspec.to_builtins(self._settings.workers[part])
        named = {name: Path(worker["settings"][name]) for name in ("mix", "trace")}
        files = {name: [path.name, path.read_bytes()] for name, path in named.items() if path.is_file()}
        return {"worker": worker, "files": files}

    def ready(self, msg: Any, **_: Any) -> None:
        self._ready.add(msg.node_id)

    def file(self, msg: Any, **_: Any) -> None:
        """Keep what a worker sends; a result that comes after its worker was lost is too late.

        Only files of the known kinds are written: whoever reaches the port can send a name.
        """
        part = self._parts.get(msg.node_id)
        if part is not None and msg.data["kind"] in FORWARDED and not (self._folder / f"part-{part}").exists():
            self._write(f"{msg.data['kind']}-{part}", msg.data["content"])

    def run(self) -> None:
        """Wait for the workers, start their users, pass the start signal on, and watch who is lost."""
        expected = len(self._settings.workers)
        while not (len(self._ready) == expected and self._ready == self._present()):
            self._release()
            gevent.sleep(POLL_INTERVAL)
        users = sum(worker.users for worker in self._settings.workers)
        self._runner.start(users, users)
        self._runner._users_dispatcher = None  # noqa: SLF001 who comes or goes now must not move the users of others
        go = self._folder / "go"
        while not go.exists():
            self._report_lost("ready", "part")
            gevent.sleep(POLL_INTERVAL)
        start = msgspec.json.decode(go.read_bytes(), type=StartSignal).start
        self._runner.send_message(GO, {"seconds": start - time.monotonic()})
        while True:
            self._report_lost("part")
            gevent.sleep(POLL_INTERVAL)

    def _present(self) -> set[str]:
        return {client for client, node in self._runner.clients.items() if node.state != STATE_MISSING}

    def _lost(self) -> set[str]:
        return self._parts.keys() - self._present()

    def _release(self) -> None:
        """The parts of workers that ended before the load are for others."""
        for client in self._lost():
            (self._folder / f"name-{self._parts.pop(client)}").unlink()
            self._ready.discard(client)

    def _report_lost(self, *kinds: str) -> None:
        for client in self._lost():
            for kind in kinds:
                path = self._folder / f"{kind}-{self._parts[client]}"
                if not path.exists():
                    self._write(path.name, msgspec.json.encode(Part(lost=True)))

    def _write(self, name: str, content: bytes) -> None:
        """Write a file, atomically."""
        unfinished = self._folder / f"{name}.new"
        unfinished.write_bytes(content)
        unfinished.replace(self._folder / name)


def _stand_in(name: str, **attributes: object) -> type[locust.User]:
    """A class for the users of this name, which the workers have; the master has none."""
    return type(name, (locust.User,), attributes)


def main() -> None:
    """Serve workers until SIGTERM, which ends them too."""
    settings = msgspec.json.decode(Path(os.environ[WORKER_VARIABLE]).read_bytes(), type=MasterSettings)
    also = settings.workers[0].settings.also
    stand_ins = [_stand_in("PodUser"), *(_stand_in(BESIDE[name], fixed_count=1) for name in also)]
    environment = Environment(user_classes=stand_ins, events=locust.events)
    runner = environment.create_master_runner(settings.host, settings.port)
    gevent.signal_handler(signal.SIGTERM, runner.quit)
    master = Master(settings, runner)
    for kind, listener in ((HELLO, master.hello), (READY, master.ready), (FILE, master.file)):
        runner.register_message(kind, listener)
    runner.greenlet.spawn(master.run)
    runner.greenlet.join()


if __name__ == "__main__":
    main()
