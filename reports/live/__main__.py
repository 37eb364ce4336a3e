"""`python -m seatrial.reports.live`: the process of a live page; started by `seatrial up` and `seatrial run`."""

import argparse
import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.harness.commands.explain import MAX_REASONS, ask, reasons
from seatrial.harness.errors import ClusterError, HarnessError
from seatrial.harness.results import read_info
from seatrial.harness.subject.services import ask as request
from seatrial.reports.live.cluster_view import MAX_DECISIONS, ClusterView
from seatrial.reports.live.run_view import RunView
from seatrial.reports.live.server import Answer, LiveServer, Streams, json_answer
from seatrial.reports.live.tables import Row, Tables
from seatrial.scheduler.api.faults import Faults

log = logging.getLogger(__name__)

INTERVAL = 1.0  # seconds between two messages to browsers
LINGER = 30.0  # seconds for which the cluster is followed after the last page was closed: it may be loaded again
POLL = 0.05  # seconds between two looks at what watches have delivered
BEST_NODES = 5


class View(Protocol):
    """What has rows."""

    tables: Tables

    def refresh(self) -> None: ...


class ClusterPage:
    """The page of a cluster that `seatrial up` recorded."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def title(self) -> str:
        return f"cluster {self._name}"

    @contextmanager
    def opened(self) -> Iterator[tuple[View, PumpedClock]]:
        """The view, which follows the cluster while entered.

        Raises:
            ClusterError: the cluster is not recorded.
        """
        cluster = self._recorded()
        clock = PumpedClock()
        clock.faults = Faults()  # one object that cannot be read does not end the page
        transport = RemoteTransport(load_access(Path(cluster.kubeconfig)), clock)
        view = ClusterView(lambda: _decisions(cluster.scheduler))
        try:
            view.start(transport, clock)
            yield view, clock
        finally:
            view.stop()
            transport.close()

    def answer(self, parts: list[str]) -> tuple[str, bytes] | None:
        """`explain/NAMESPACE/NAME`: the scheduler's explanation, with counted reasons instead of all nodes."""
        if len(parts) != 3 or parts[0] != "explain":
            return None
        try:
            scheduler = self._recorded().scheduler
            if not scheduler:
                raise ClusterError("the cluster has no scheduler of ours, which explains; see the pod's condition")
            explanation = ask(scheduler, *parts[1:])
        except HarnessError as error:
            return json_answer({"error": str(error)})
        fitting, rejected = explanation["feasible"], explanation.pop("rejected")
        counts = {"fits": len(fitting), "nodes": len(fitting) + len(rejected)}
        rows = {"reasons": reasons(rejected)[:MAX_REASONS], "feasible": fitting[:BEST_NODES]}
        return json_answer({**explanation, **counts, **rows})

    def _recorded(self) -> detached.Detached:
        cluster = detached.recorded(self._name)
        if cluster is None:
            raise ClusterError(f"cluster {self._name!r} is not up")
        return cluster


class RunPage:
    """The page of a run."""

    def __init__(self, folder: Path) -> None:
        self._view = RunView(folder)
        info = read_info(folder)
        self.title = f"run of {info.subject.name} on {info.backend}"

    @contextmanager
    def opened(self) -> Iterator[tuple[View, PumpedClock]]:
        yield self._view, PumpedClock()

    def answer(self, parts: list[str]) -> tuple[str, bytes] | None:
        """Files of evidence."""
        return self._view.evidence("/".join(parts))


def _decisions(scheduler: str) -> Iterable[Row]:
    """The newest decisions that the scheduler keeps; none if it does not answer, or keeps none."""
    response = request(scheduler, "GET", f"/debug/decisions?limit={MAX_DECISIONS}") if scheduler else None
    return msgspec.json.decode(response.body)["decisions"] if response is not None and response.ok else ()


def _all_rows(tables: Tables) -> bytes:
    return msgspec.json.encode({"all": tables.all()})


def publish(page: ClusterPage | RunPage, streams: Streams) -> None:
    """Follow while somebody looks: once a second what has changed. Without a page the cluster is not asked."""
    while True:
        streams.wait()
        try:
            with page.opened() as (view, clock):
                last_look = time.monotonic()
                while streams or time.monotonic() < last_look + LINGER:
                    deadline = time.monotonic() + INTERVAL
                    last_look = time.monotonic() if streams else last_look
                    while time.monotonic() < deadline:
                        clock.pump()
                        time.sleep(POLL)
                    view.refresh()
                    changes = view.tables.changes()
                    message = msgspec.json.encode({"changes": changes}) if changes else None
                    streams.publish(message, partial(_all_rows, view.tables))
        except Exception as error:  # not recorded yet, or its API server has ended: follow it anew
            log.warning("live not-followed why=%s", error, exc_info=not isinstance(error, HarnessError))
            time.sleep(INTERVAL)


def main() -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(prog="seatrial.reports.live")
    parser.add_argument("what", choices=["cluster", "run"])
    parser.add_argument("subject", help="name of the cluster, or folder of the run")
    parser.add_argument(
        "--address-file", type=Path, required=True, help="file with the address, which ends with the token"
    )
    parser.add_argument("--listen-descriptor", type=int, required=True)
    options = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname).1s %(name)s %(message)s")
    page = ClusterPage(options.subject) if options.what == "cluster" else RunPage(Path(options.subject))
    token = options.address_file.read_text().strip().strip("/").rpartition("/")[2]
    streams = Streams()
    answer: Answer = page.answer
    server = LiveServer(socket.socket(fileno=options.listen_descriptor), token, page.title, streams, answer)
    threading.Thread(target=server.serve_forever, daemon=True, name="live").start()
    publish(page, streams)


if __name__ == "__main__":
    main()
