"""A filter plugin in a package outside of the tree, found by its entry point; and entry points that are wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from seatrial import scheduler

PLUGIN = """
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.cache.nodeinfo import NodeInfo
from seatrial.scheduler.framework.extension_points import Args, Filter, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.framework.routes import json
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

name, args = json.loads(sys.argv[1])
config = [{"name": name, "args": args}] if args else []
try:
    rig = Rig(profile(plugins={"filter": {"enabled": [{"name": name}]}}, pluginConfig=config))
except ValueError as error:
    print(json.dumps({"error": str(error)}))
    sys.exit()
for number, colour in enumerate(("red", "green", "red")):
    rig.node(f"n{number}", labels={"colour": colour})
rig.submit(pod("p").request(cpu=1))
rig.run()
rejected = {} if rig.where("p") else {"message": rig.message("p")}
print(json.dumps({"node": rig.where("p"), "routes": [pattern for pattern, _ in rig.core.handle.routes], **rejected}))
"""

ENTRY_POINTS = """
[seatrial.scheduler.plugins]
NodeColour = colours.plugin:NodeColour
Absent = colours.gone:Absent
NoClass = colours.plugin:NOT_A_CLASS
Unfinished = colours.plugin:Unfinished
Renamed = colours.plugin:OtherName
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves it: the package, and its metadata with entry points."""
    site = tmp_path_factory.mktemp("site")
    (site / "colours").mkdir()
    (site / "colours" / "__init__.py").touch()
    (site / "colours" / "plugin.py").write_text(PLUGIN)
    metadata = site / "colours-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: colours\nVersion: 1.2\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    return site


def run(site: Path, name: str, args: dict[str, str] | None = None) -> dict[str, object]:
    """What a process says that has `site` on its path and a profile that names the plugin."""
    root = Path(scheduler.__file__).parents[2]
    path = os.pathsep.join([str(site), str(root)])
    done = subprocess.run(  # noqa: S603 the command is made of what is above
        [sys.executable, "-c", MAIN, json.dumps([name, args])],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_filter_of_another_package_decides(site: Path) -> None:
    found = run(site, "NodeColour")
    assert found["node"] == "n1"
    assert "plugins/NodeColour/colour" in found["routes"]  # type: ignore[operator]


def test_its_arguments_come_from_the_profile(site: Path) -> None:
    found = run(site, "NodeColour", {"colour": "blue"})
    assert found["node"] == ""
    assert str(found["message"]).startswith("0/3 nodes are available: 3 node(s) were not blue.")


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        pytest.param(
            "NodeColour",
            {"color": "blue"},
            "profiles[0].pluginConfig[0].args: NodeColour: Object contains unknown field `color`",
            id="unknown-argument",
        ),
        pytest.param(
            "Absent",
            None,
            "profiles[0].plugins.filter: plugin Absent: entry point 'colours.gone:Absent' of colours 1.2 cannot be"
            " loaded: ModuleNotFoundError: No module named 'colours.gone'",
            id="module-is-not-there",
        ),
        pytest.param(
            "NoClass",
            None,
            "profiles[0].plugins.filter: plugin NoClass: entry point 'colours.plugin:NOT_A_CLASS' of colours 1.2:"
            " expected a subclass of scheduler.framework.extension_points.Plugin, found 7",
            id="no-class",
        ),
        pytest.param(
            "Unfinished",
            None,
            "profiles[0].plugins.filter: plugin Unfinished: entry point 'colours.plugin:Unfinished' of colours 1.2:"
            " the class does not implement filter",
            id="abstract",
        ),
        pytest.param(
            "Renamed",
            None,
            "profiles[0].plugins.filter: plugin Renamed: entry point 'colours.plugin:OtherName' of colours 1.2:"
            " expected the class attribute name = 'Renamed', found 'SomethingElse'",
            id="other-name",
        ),
    ],
)
def test_an_entry_point_that_is_wrong_is_refused(
    site: Path, name: str, args: dict[str, str] | None, error: str
) -> None:
    assert run(site, name, args) == {"error": error}
