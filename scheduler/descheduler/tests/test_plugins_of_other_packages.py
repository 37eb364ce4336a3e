"""A strategy and an evictor in a package outside of the tree, found by entry points; and wrong entry points."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.transport import Done, OnLine, Request, Response, Stream
from seatrial.scheduler.descheduler.config import ConfigError, parse
from seatrial.scheduler.descheduler.shell import Shell
from seatrial.scheduler.descheduler.tests.cluster import node, pod
from seatrial.scheduler.tests.sample_package import install, on_path

PLUGIN = """
from seatrial.scheduler.descheduler.args import Args
from seatrial.scheduler.descheduler.framework import Deschedule, Evictor


class ColourArgs(Args, frozen=True):
    colour: str = "red"


class RemoveColour(Deschedule):
    name = "RemoveColour"
    args = ColourArgs

    def __init__(self, args):
        self._colour = args.colour

    def run(self, handle, nodes):
        for node in nodes:
            for pod in handle.pods_on(node.name):
                if pod.metadata.labels.get("colour") == self._colour and handle.may_evict(pod):
                    handle.evict(pod, self.name, "colour")


class Marker(Evictor):
    name = "Marker"
    args = ColourArgs

    def __init__(self, context, args):
        self._rest, self._colour = context.rest, args.colour

    def may_evict(self, pod):
        return not pod.metadata.labels.get("keep")

    def evict(self, pod, trigger, reason):
        body = {"metadata": {"labels": {"leave": self._colour}}}
        self._rest.merge(f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}", body, lambda _: None)
        return True


class Unfinished(Evictor):
    name = "Unfinished"


SEVEN = 7
"""
ENTRY_POINTS = """
[seatrial.descheduler.plugins]
RemoveColour = hues.plugin:RemoveColour
Marker = hues.plugin:Marker
Unfinished = hues.plugin:Unfinished
NoClass = hues.plugin:SEVEN
Absent = hues.gone:Absent
Renamed = hues.plugin:Marker
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path) -> Iterator[None]:
    install(tmp_path, "hues", PLUGIN, ENTRY_POINTS)
    with on_path(tmp_path, "hues"):
        yield


class Patches:
    """Records the patches that are sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []

    def send(self, request: Request, done: Done) -> None:
        self.sent.append((request.path, msgspec.json.decode(request.body)))
        done(Response(200, b"{}"))

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise NotImplementedError


def configuration(strategy: str, evictor: str, **args: Any) -> dict[str, Any]:
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": evictor}]}
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [
            {
                "plugins": {"deschedule": {"enabled": [{"name": strategy}]}, "evict": only, "filter": only},
                "pluginConfig": [{"name": name, "args": value} for name, value in args.items()],
            }
        ],
    }


def test_a_strategy_and_an_evictor_of_another_package_work_together() -> None:
    """Of three pods one has another colour and one is kept by the evictor's filter."""
    api = Patches()
    results = parse(configuration("RemoveColour", "Marker", RemoveColour={"colour": "blue"}, Marker={"colour": "grey"}))
    shell = Shell(results, api, SimClock())
    for name in ("n1", "n2"):
        shell.state.set_node(node(name))
    for name, labels in (("a", {"colour": "blue"}), ("b", {"colour": "red"}), ("c", {"colour": "blue", "keep": "1"})):
        shell.state.set_pod(pod(name, "n1", labels=labels))

    shell.rounds.run()

    assert api.sent == [("/api/v1/namespaces/default/pods/a", {"metadata": {"labels": {"leave": "grey"}}})]


def test_a_strategy_that_raises_does_not_end_the_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two strategies raises in each round; the second one works, and the next round comes."""
    api, clock = Patches(), SimClock(faults=Faults())
    settings = configuration("RemoveColour", "Marker", RemoveColour={"colour": "blue"}, Marker={"colour": "grey"})
    settings["profiles"][0]["plugins"]["deschedule"]["enabled"].insert(0, {"name": "RemovePodsViolatingNodeTaints"})
    shell = Shell(parse({**settings, "deschedulingInterval": "60s"}), api, clock)

    def broken(*_: object) -> None:
        raise TypeError("a fault")

    first = shell.rounds._runnable[0].deschedule[0]
    monkeypatch.setattr(type(first), "run", broken)
    for name in ("n1", "n2"):
        shell.state.set_node(node(name))
    shell.state.set_pod(pod("a", "n1", labels={"colour": "blue"}))
    shell._running = True
    shell._plan(0.0)
    clock.advance(61)
    assert len(api.sent) == 2
    assert clock.faults.counts == {type(first).__name__: 2}


@pytest.mark.parametrize(
    ("strategy", "evictor", "args", "why"),
    [
        (
            "RemoveColour",
            "Unfinished",
            {},
            "entry point 'hues.plugin:Unfinished' of hues 1.2: the class does not implement",
        ),
        ("RemoveColour", "NoClass", {}, "expected a subclass of Deschedule, Balance or Evictor, found 7"),
        ("RemoveColour", "Absent", {}, "cannot be loaded: ModuleNotFoundError: No module named 'hues.gone'"),
        ("RemoveColour", "Renamed", {}, "expected the class attribute name = 'Renamed', found 'Marker'"),
        ("RemoveColour", "RemoveColour", {}, "no evict or filter plugin 'RemoveColour'"),
        ("Marker", "Marker", {}, "no deschedule plugin 'Marker'"),
        ("RemoveColour", "Marker", {"Marker": {"hue": 1}}, "arguments of Marker: Object contains unknown field `hue`"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_reason(
    strategy: str, evictor: str, args: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as error:
        parse(configuration(strategy, evictor, **args))
    assert why in str(error.value)
