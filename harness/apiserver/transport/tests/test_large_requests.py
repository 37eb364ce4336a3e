"""Large requests are served one after the other, with pauses."""

from collections.abc import Callable

from seatrial.harness.apiserver.transport.large_requests import PAUSE, LargeRequests


class Loop:
    def __init__(self) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> object:
        self.later.append((delay, callback))
        return None

    def turn(self) -> float:
        delay, callback = self.later.pop(0)
        callback()
        return delay


def test_one_large_request_is_served_in_an_iteration() -> None:
    loop, served = Loop(), list[str]()
    large = LargeRequests(loop)
    for name in ("a", "b"):
        large.add(lambda name=name: served.append(name))  # type: ignore[misc]
    assert loop.turn() == 0.0
    assert served == ["a"]
    assert loop.turn() == PAUSE
    assert served == ["a", "b"]
    assert loop.later == []
    large.add(lambda: served.append("c"))
    loop.turn()
    assert served == ["a", "b", "c"]
