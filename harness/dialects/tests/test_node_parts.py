"""What programs on nodes keep writing, on the embedded API."""

from typing import Any

import orjson

from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.dialects.node_parts import CARD, Writer
from seatrial.scheduler.api.transport import Request


def created(embedded: EmbeddedCluster, path: str, kind: str, name: str, **fields: Any) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **fields}
    assert embedded.call(Request("POST", path, orjson.dumps(body))).ok


def annotations(embedded: EmbeddedCluster, path: str) -> dict[str, str]:
    return orjson.loads(embedded.call(Request("GET", path)).body)["metadata"].get("annotations") or {}


def test_a_running_pod_gets_the_name_of_its_card_and_a_waiting_one_does_not() -> None:
    pods, spec = "/api/v1/namespaces/default/pods", {"containers": [{"name": "c", "image": "busybox"}]}
    with EmbeddedBackend(seed=1).start(fleet="default") as embedded:
        created(embedded, pods, "Pod", "a", spec={**spec, "nodeName": "cpu-0"})
        created(embedded, pods, "Pod", "b", spec={**spec, "schedulerName": "nobody"})
        assert embedded.endpoint is not None
        running = f"{pods}?fieldSelector=status.phase%3DRunning"
        assert embedded.wait(lambda: b'"a"' in embedded.call(Request("GET", running)).body, within=60)

        writer = Writer(embedded.endpoint.kubeconfig)
        writer.reservations("default")
        writer.handshake("example.com/handshake", "Reported 1")

        assert annotations(embedded, f"{pods}/a")[CARD] == "card-a"
        assert CARD not in annotations(embedded, f"{pods}/b")
        assert annotations(embedded, "/api/v1/nodes/cpu-0")["example.com/handshake"] == "Reported 1"
