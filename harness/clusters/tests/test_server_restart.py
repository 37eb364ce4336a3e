"""The API server of a virtual cluster ends and starts again: objects stay, connections and history do not."""

import orjson

from seatrial.harness.clusters.virtual import VirtualBackend
from seatrial.scheduler.api.transport import Request, Response

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


def test_objects_stay_and_watches_begin_anew() -> None:
    """A watch breaks; while the server is away nothing is answered; afterwards the old revision is too old."""
    with VirtualBackend().start() as cluster:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kept"}}
        made = orjson.loads(cluster.call(Request("POST", CONFIG_MAPS, orjson.dumps(body))).body)
        watch = Request("GET", f"{CONFIG_MAPS}?watch=1&resourceVersion={int(made['metadata']['resourceVersion']) - 1}")
        lines: list[bytes] = []
        ends: list[Response] = []
        cluster.transport.stream(watch, lines.append, ends.append)
        cluster.clock.settle()
        assert (len(lines), ends) == (1, [])

        cluster.end_api_server()

        answers: list[Response] = []
        cluster.transport.send(Request("GET", CONFIG_MAPS), answers.append)
        cluster.transport.stream(watch, lines.append, ends.append)
        cluster.clock.settle()
        assert [item.code for item in (*ends, *answers, cluster.call(Request("GET", CONFIG_MAPS)))] == [0, 0, 0, 0]
        cluster.start_api_server()
        listed = orjson.loads(cluster.call(Request("GET", CONFIG_MAPS)).body)["items"]
        assert "kept" in [row["metadata"]["name"] for row in listed]
        cluster.transport.stream(watch, lines.append, ends.append)
        cluster.clock.settle()
        assert (len(lines), ends[-1].code) == (1, 410)
