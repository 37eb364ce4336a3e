"""A filter plugin in a package outside of the tree, found by its entry point; and entry points that are wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from seatrial import scheduler
from seatrial.scheduler.tests.sample_package import install

PLUGIN = """
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.extension_points import Args, Filter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.serving.routes import json
from seatrial.scheduler.framework.state import CycleState
from seatrial.scheduler.framework.status import SUCCESS, Status


class NodeColourArgs(Args, frozen=True):
    colour: str = "green"


class NodeColour(Filter):
    name = "NodeColour"
    scope = Scope.NODE
    args_type = NodeColourArgs

    def __init__(self, handle: Handle, args: NodeColourArgs | None = None) -> None:
        self._colour = (args or NodeColourArgs()).colour
        handle.serve("plugins/NodeColour/colour", lambda _: json({"colour": self._colour}))

    def filter(self, state: CycleState, pod: Pod, node: NodeInfo) -> Status:
        if node.known.metadata.labels.get("colour") == self._colour:
            return SUCCESS
        return Status.unresolvable(f"node(s) were not {self._colour}")


class Unfinished(Filter):
    name = "Unfinished"
    scope = Scope.NODE


class OtherName(NodeColour):
    name = "SomethingElse"


NOT_A_CLASS = 7
"""

MAIN = """
import json, sys
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.tests.rig import Rig, profile


def decide(name, args):
    config = [{"name": name, "args": args}] if args else []
    try:
        rig = Rig(profile(plugins={"filter": {"enabled": [{"name": name}]}}, pluginConfig=config))
    except ValueError as error:
        return {"error": str(error)}
    for number, colour in enumerate(("red", "green", "red")):
        rig.node(f"n{number}", labels={"colour": colour})
    rig.submit(pod("p").request(cpu=1))
    rig.run()
    rejected = {} if rig.where("p") else {"message": rig.message("p")}
    return {"node": rig.where("p"), "routes": [pattern for pattern, _ in rig.core.handle.routes], **rejected}


print(json.dumps([decide(name, args) for name, args in json.loads(sys.argv[1])]))
"""

ENTRY_POINTS = """
[seatrial.scheduler.plugins]
NodeColour = colours.plugin:NodeColour
Absent = colours.gone:Absent
NoClass = colours.plugin:NOT_A_CLASS
Unfinished = colours.plugin:Unfinished
Renamed = colours.plugin:OtherName
"""


Profile = tuple[str, dict[str, str] | None]  # a plugin and its arguments


def decisions(site: Path, profiles: Sequence[Profile]) -> list[dict[str, object]]:
    """What a process with `site` on its path decides for one pod, with each of the profiles."""
    root = Path(scheduler.__file__).parents[2]
    path = os.pathsep.join([str(site), str(root)])
    done = subprocess.run(
        [sys.executable, "-c", MAIN, json.dumps(profiles)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    decisions: list[dict[str, object]] = json.loads(done.stdout)
    return decisions


def test_a_filter_of_another_package_decides_with_the_arguments_of_the_profile(tmp_path: Path) -> None:
    install(tmp_path, "colours", PLUGIN, ENTRY_POINTS)
    plain, blue = decisions(tmp_path, [("NodeColour", None), ("NodeColour", {"colour": "blue"})])
    assert plain["node"] == "n1"
    assert "plugins/NodeColour/colour" in plain["routes"]  # type: ignore[operator]
    assert blue["node"] == ""
    assert str(blue["message"]).startswith("0/3 nodes are available: 3 node(s) were not blue.")


WRONG: list[tuple[str, dict[str, str] | None, str]] = [
    (
        "NodeColour",
        {"color": "blue"},
        "profiles[0].pluginConfig[0].args: NodeColour: Object contains unknown field `color`",
    ),  # unknown argument
    (
        "Absent",
        None,
        (
            "profiles[0].plugins.filter: plugin Absent: entry point 'colours.gone:Absent' of colours 1.2 cannot be"
            " loaded: ModuleNotFoundError: No module named 'colours.gone'"
        ),
    ),  # module is not there
    (
        "NoClass",
        None,
        (
            "profiles[0].plugins.filter: plugin NoClass: entry point 'colours.plugin:NOT_A_CLASS' of colours 1.2:"
            " expected a subclass of scheduler.framework.extension_points.Plugin, found 7"
        ),
    ),  # no class
    (
        "Unfinished",
        None,
        (
            "profiles[0].plugins.filter: plugin Unfinished: entry point 'colours.plugin:Unfinished' of colours 1.2:"
            " the class does not implement filter"
        ),
    ),  # abstract
    (
        "Renamed",
        None,
        (
            "profiles[0].plugins.filter: plugin Renamed: entry point 'colours.plugin:OtherName' of colours 1.2:"
            " expected the class attribute name = 'Renamed', found 'SomethingElse'"
        ),
    ),  # other name
]


def test_entry_points_that_are_wrong_are_refused(tmp_path: Path) -> None:
    install(tmp_path, "colours", PLUGIN, ENTRY_POINTS)
    results = decisions(tmp_path, [(name, args) for name, args, _ in WRONG])
    assert results == [{"error": error} for *_, error in WRONG]
