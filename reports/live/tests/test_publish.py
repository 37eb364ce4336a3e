"""When a cluster is followed: from the first browser until a while after the last one, whatever fails in between."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest

from seatrial.harness.clusters.remote import PumpedClock
from seatrial.harness.errors import ClusterError
from seatrial.reports.live import __main__ as module
from seatrial.reports.live.server import Streams
from seatrial.reports.live.tables import Tables


class Ended(BaseException):
    """Ends the loop, which goes on after every other exception."""


class Page:
    """Not followed at first, broken once, and then closed by its browser."""

    def __init__(self, streams: Streams) -> None:
        self.tables, self.events = Tables(), list[str]()
        self._streams = streams
        self.queue = streams.open()

    @contextmanager
    def opened(self) -> Iterator[tuple["Page", PumpedClock]]:
        self.events.append("opened")
        if len(self.events) == 1:
            raise ClusterError("not up yet")
        try:
            yield self, PumpedClock()
        finally:
            self.events.append("closed")
        raise Ended

    def refresh(self) -> None:
        self.events.append("read")
        if self.events.count("read") == 1:
            raise ValueError("not what was expected")
        self.tables.set("nodes", "n", {"number": len(self.events)})
        if self.queue is not None and self.events.count("read") == 4:
            self._streams.close(self.queue)


def test_the_cluster_is_followed_while_a_browser_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(time, "sleep", sleep)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    streams = Streams()
    page = Page(streams)
    with pytest.raises(Ended):
        module.publish(cast("module.ClusterPage", page), streams)
    assert page.events[:5] == ["opened", "opened", "read", "closed", "opened"]
    reads = page.events[5:-1]
    assert set(reads) == {"read"}
    assert len(reads) == pytest.approx(3 + module.LINGER / module.INTERVAL, abs=2)
    assert page.events[-1] == "closed"
    assert page.queue is not None
    assert page.queue.get_nowait() == b'{"all":{"nodes":{"n":{"number":6}}}}'
    assert page.queue.get_nowait() == b'{"changes":{"nodes":{"n":{"number":7}}}}'
    assert page.queue.empty()
