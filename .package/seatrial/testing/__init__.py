"""The stable surface for suites outside of this repository: fixtures, builders, claims about pods.

As a pytest plugin (`pytest_plugins = ["seatrial.testing"]` in the top-level conftest.py, or `-p seatrial.testing`) it
brings fixtures (`trial`, `expect`, `lab`, `fleet`, `whole_cluster`, `subject`, `services`, `results`, `backend`,
`seed`), markers (`feature`, `case`, `needs`, `profile`, `long`, `alone`) and options (`--seatrial-…`). As a module it
brings the names below. Names that are not in `__all__` may change between versions without notice; changes to these are
listed in CHANGELOG.md.
"""

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Container, PodEvent, Trial
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.harness.errors import HarnessError
from seatrial.harness.lab.errors import LabError, LeaseLost, PlaceTaken
from seatrial.harness.lab.lab import Lab, Place
from seatrial.harness.results import ResultsWriter
from seatrial.scheduler.api.builders import (
    GangBuilder,
    NodeBuilder,
    PodBuilder,
    ReservationBuilder,
    disruption_budget,
    gang,
    members,
    node,
    nodes,
    pod,
    pods,
    priority_class,
    reservation,
)
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.reservation import Reservation

__all__ = [
    "Capability",
    "Cluster",
    "Container",
    "Expect",
    "GangBuilder",
    "HarnessError",
    "Lab",
    "LabError",
    "LeaseLost",
    "NodeBuilder",
    "Place",
    "PlaceTaken",
    "Pod",
    "PodBuilder",
    "PodEvent",
    "Reservation",
    "ReservationBuilder",
    "ResultsWriter",
    "Trial",
    "disruption_budget",
    "gang",
    "members",
    "node",
    "nodes",
    "pod",
    "pods",
    "priority_class",
    "reservation",
]

pytest_plugins = ("seatrial.fixtures.plugin",)
