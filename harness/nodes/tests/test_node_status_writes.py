"""Node status that others write or that comes late: nodes of one name, and nodes that were given up."""

import orjson

from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.harness.nodes.faults import FAULTS_ANNOTATION
from seatrial.harness.nodes.fleet import checked_entry, node_manifest
from seatrial.scheduler.api.builders import node
from seatrial.scheduler.api.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Request, Response

NODES = "/api/v1/nodes"


def test_a_late_status_of_the_old_node_does_not_reach_the_new_one() -> None:
    """A frozen node of 4 cores thaws, is deleted and made again with 8 before its agent hears of any of it. The agent
    writes the status of the thawed node first: the new node must never show 4 cores."""
    with VirtualBackend().start() as cluster:
        cluster.add_nodes([node("n1").cpu(4)])
        cluster.inject({"node": "n1", "verb": "frozen"})
        seen: list[tuple[str, str]] = []  # uid and CPU

        def on_line(line: bytes) -> None:
            result = orjson.loads(line)["object"]
            seen.append((result["metadata"]["uid"], (result.get("status") or {}).get("allocatable", {}).get("cpu", "")))

        def ignore(_response: Response) -> None:
            return

        cluster.transport.stream(Request("GET", f"{NODES}?watch=1"), on_line, ignore)
        cluster.clock.settle()
        old = {uid for uid, _ in seen}
        thawed = orjson.dumps({"metadata": {"annotations": {FAULTS_ANNOTATION: None}}})
        again = orjson.dumps(node_manifest(checked_entry(node("n1").cpu(8).manifest)))
        for request in (
            Request("PATCH", f"{NODES}/n1", thawed, MERGE_PATCH),
            Request("DELETE", f"{NODES}/n1"),
            Request("POST", NODES, again),
        ):
            cluster.transport.send(request, ignore)

        cluster.pass_time(5)

        shown = [cpu for uid, cpu in seen if uid not in old and cpu]
        assert shown
        assert set(shown) == {"8"}


def test_a_node_that_was_given_up_reports_again() -> None:
    """The node lifecycle controller was away and has set Ready to Unknown: the agent, which runs, writes its status."""
    with VirtualBackend().start() as cluster:
        cluster.add_nodes([node("n1").cpu(4)])
        unknown = {"status": {"conditions": [{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}]}}
        body = orjson.dumps(unknown)
        assert cluster.call(Request("PATCH", f"{NODES}/n1/status", body, STRATEGIC_MERGE_PATCH)).ok

        def ready() -> bool:
            conditions = orjson.loads(cluster.call(Request("GET", f"{NODES}/n1")).body)["status"]["conditions"]
            return [entry["status"] for entry in conditions if entry["type"] == "Ready"] == ["True"]

        assert not ready()
        assert cluster.wait(ready, within=11)
