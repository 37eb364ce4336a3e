"""What people read and alert on: fit errors worded and counted as upstream's (FWK-R47 and example FWK-E7)."""

from typing import Any

import pytest

from seatrial.scheduler.api.builders import nodes, pod
from seatrial.scheduler.api.core import Taint
from seatrial.scheduler.tests.rig import Rig

NO_HELP = "preemption: 0/{0} nodes are available: {0} Preemption is not helpful for scheduling."
NOBODY = "preemption: 0/{0} nodes are available: {0} No preemption victims found for incoming pod."


def test_each_reason_of_each_node_counts() -> None:
    rig = Rig()
    for name in ("a", "b"):
        rig.node(name, cpu="2")
    rig.node("c", cpu="2", memory="1Gi")
    for name in ("a", "b", "c"):
        rig.running(pod(f"big-{name}").request(cpu="1900m", memory="800Mi"), name)
    rig.submit(pod("p").request(cpu=1, memory="1Gi"))
    rig.run()
    assert rig.message("p") == f"0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu. {NOBODY.format(3)}"


def test_untolerated_taints() -> None:
    rig = Rig()
    for name in ("a", "b", "c"):
        rig.node(name, taints=(Taint("dedicated", "x", "NoSchedule"),))
    rig.submit(pod("p"))
    rig.run()
    assert rig.message("p") == f"0/3 nodes are available: 3 node(s) had untolerated taint(s). {NO_HELP.format(3)}"


@pytest.mark.parametrize(
    "kept_out",
    [
        pytest.param({"taints": (Taint("dedicated", "x", "NoSchedule"),)}, id="taint"),
        pytest.param({"unschedulable": True}, id="cordon"),
    ],
)
def test_when_a_taint_goes_the_message_names_what_is_left(kept_out: dict[str, Any]) -> None:
    """Two pods of one class do not fit; the node's taint goes, and they do not fit for another reason."""
    rig = Rig()
    rig.node("a", cpu="1", **kept_out)
    rig.submit(pod("p").request(cpu=8), pod("q").request(cpu=8))
    rig.run()
    assert "Insufficient cpu" not in rig.message("p")
    rig.node("a", cpu="1")
    rig.clock.advance(10)  # backoff
    rig.run()
    for name in ("p", "q"):
        assert rig.message(name).startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_entries_are_sorted_as_strings() -> None:
    rig = Rig()
    for builder in nodes("small", 10):
        rig.node(builder.name, cpu="1")
    for builder in nodes("cordoned", 2):
        rig.node(builder.name, unschedulable=True)
    rig.submit(pod("p").request(cpu=8))
    rig.run()
    assert rig.message("p").startswith("0/12 nodes are available: 10 Insufficient cpu, 2 node(s) were unschedulable.")


def test_names_in_affinity_leave_the_other_nodes_to_the_plugin() -> None:
    rig = Rig()
    for builder in nodes("n", 4):
        rig.node(builder.name, cpu="1")
    wants = pod("p").request(cpu=8)
    field = {"key": "metadata.name", "operator": "In", "values": ["n-2"]}
    wants.manifest["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
    rig.submit(wants)
    rig.run()
    assert rig.message("p").startswith(
        "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    )


def test_no_nodes_at_all() -> None:
    rig = Rig()
    rig.submit(pod("p"))
    rig.run()
    assert rig.message("p").startswith("no nodes available to schedule pods")


def test_the_reason_after_the_first_node_came() -> None:
    """A pod that was tried without nodes is tried again when the first one comes, though it does not fit there."""
    rig = Rig()
    rig.submit(pod("p").request(cpu=8))
    rig.run()
    rig.node("n", cpu="4")
    rig.clock.advance(1.0)
    rig.run()
    assert rig.message("p").startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_too_many_pods() -> None:
    rig = Rig()
    rig.node("n", pods=1)
    rig.running(pod("there"), "n")
    rig.submit(pod("p"))
    rig.run()
    assert rig.message("p") == f"0/1 nodes are available: 1 Too many pods. {NOBODY.format(1)}"


def test_a_request_beyond_the_whole_node_is_beyond_preemption() -> None:
    rig = Rig()
    rig.node("n", cpu="4")
    rig.running(pod("there").request(cpu=4), "n")
    rig.submit(pod("p").request(cpu=8).priority(10))
    rig.run()
    assert rig.message("p") == f"0/1 nodes are available: 1 Insufficient cpu. {NO_HELP.format(1)}"


def test_an_unknown_resource_is_named() -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(pod("p").resources({"example.com/odd": 1}))
    rig.run()
    assert rig.message("p").startswith("0/1 nodes are available: 1 Insufficient example.com/odd.")


def test_a_quantity_that_is_none_is_the_owners_affair() -> None:
    rig = Rig()
    rig.node("n")
    rig.submit(pod("p").request(memory="lots"))
    rig.run()
    assert "'lots' is not a quantity" in rig.message("p")
