"""Routes of the scheduler's process: what they answer, and over a real connection."""

import asyncio
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from seatrial.scheduler.__main__ import listen
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.faults import Faults
from seatrial.scheduler.api.numa import NUMA_TOPOLOGY_POLICY_LABEL
from seatrial.scheduler.api.reservation import OPERATING_MODE, RESERVATION_OWNERS
from seatrial.scheduler.api.wire import Condition
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.engine.explanation import explain
from seatrial.scheduler.framework.decisions import Bind, Reject
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines, lsr
from seatrial.scheduler.plugins.reservation.tests.reservations import hold, inside
from seatrial.scheduler.serving.http import MAX_BODY, serve
from seatrial.scheduler.serving.routes import Answer, Routes, text
from seatrial.scheduler.shell.services.metrics import Metrics
from seatrial.scheduler.shell.services.views import routes_of
from seatrial.scheduler.tests.rig import Rig, profile


class Served:
    """A rig and what its process would answer."""

    def __init__(
        self, rig: Rig | None = None, *, ready: bool = True, leading: bool = True, profiling: bool = True
    ) -> None:
        self.rig, self.ready, self.leading = rig or Rig(), ready, leading
        self.metrics = Metrics(self.rig.core)
        logger = logging.getLogger("seatrial.scheduler.test")
        self.routes = routes_of(self.rig.core, self.metrics, self, Configuration(enable_profiling=profiling), logger)

    def get(self, path: str) -> Answer:
        return self.routes.answer("GET", path)

    def json(self, path: str, code: int = 200) -> Any:
        answer = self.get(path)
        assert answer.code == code
        assert answer.content_type.startswith("application/json")
        return json.loads(answer.body)

    def figures(self) -> dict[str, float]:
        """Every sample of /metrics by its name and labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


@pytest.mark.parametrize(
    ("path", "ready", "code"),
    [
        pytest.param("/healthz", False, 200, id="alive-before-it-is-ready"),
        pytest.param("/livez", False, 200, id="livez"),
        pytest.param("/readyz", False, 500, id="not-ready-before-it-has-seen-the-cluster"),
        pytest.param("/readyz", True, 200, id="ready"),
        pytest.param("/nowhere", True, 404, id="no-such-page"),
        pytest.param("/apis/v1/nodes/", True, 404, id="no-node-named"),
    ],
)
def test_health_and_pages_that_are_not_there(path: str, ready: bool, code: int) -> None:
    assert Served(ready=ready).get(path).code == code


def test_who_does_not_lead_has_no_services() -> None:
    standby = Served(ready=False, leading=False)
    assert standby.json("/apis/v1/__services__", 503) == {"message": "the instance is not leader"}
    assert standby.get("/metrics").code == 200


def test_flags_are_there_for_who_profiles() -> None:
    assert Served().get("/debug/flags").code == 200
    assert Served(profiling=False).get("/debug/flags").code == 404


def test_the_configuration_is_shown_as_it_is_used() -> None:
    shown = Served().json("/configz")["componentconfig"]
    assert shown["kind"] == "KubeSchedulerConfiguration"
    assert shown["podMaxBackoffSeconds"] == 10
    assert [profile["schedulerName"] for profile in shown["profiles"]] == ["default-scheduler"]


def test_a_route_for_other_methods_alone_says_so() -> None:
    assert Served().routes.answer("POST", "/healthz").code == 405


def test_services_list_themselves() -> None:
    listed = Served().json("/apis/v1/__services__")
    assert listed == {
        "GET": [
            "/apis/v1/__services__",
            "/apis/v1/explain/:namespace/:name",
            "/apis/v1/nodes/:nodeName",
            "/apis/v1/plugins/Coscheduling/gang/:namespace/:name",
            "/apis/v1/plugins/Coscheduling/gangs",
            "/apis/v1/plugins/Coscheduling/networktopology",
            "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries",
            "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/:name",
            "/apis/v1/plugins/ElasticQuota/quotas",
            "/apis/v1/plugins/ElasticQuota/quotas/:name",
            "/apis/v1/plugins/NodeNUMAResource/nodes/:nodeName",
            "/apis/v1/plugins/NodeNUMAResources/cpuTopologyOptions/:nodeName",
            "/apis/v1/plugins/Reservation/nodeReservations/:nodeName",
            "/apis/v1/plugins/Reservation/reservationSelectorIndex",
        ]
    }


def test_the_first_of_two_answers() -> None:
    routes = Routes(Faults())
    routes.add("GET", "/x", lambda _: text("first"))
    routes.add("GET", "/x", lambda _: text("second"))
    assert routes.answer("GET", "/x?y=1").body == b"first\n"


def test_a_node_as_the_scheduler_counts_it() -> None:
    served = Served()
    served.rig.node("n", cpu="8", memory="16Gi")
    placed = pod("p").request(cpu="1500m")
    placed.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080}]
    served.rig.running(placed, "n")
    view = served.json("/apis/v1/nodes/n")
    assert view["node"]["metadata"]["name"] == "n"
    assert view["pods"] == [{"namespace": "default", "name": "p", "uid": "uid-p"}]
    assert view["requested"] == {"cpu": 1500, "pods": 1}
    assert view["remaining"]["cpu"] == 6500
    assert view["nonZeroRequested"] == {"cpu": 1500, "memory": 200 << 20}
    assert view["usedPorts"] == [{"ip": "0.0.0.0", "protocol": "TCP", "port": 8080}]  # noqa: S104
    assert served.json("/apis/v1/nodes/m", 404) == {"message": "cannot find node m"}


def test_devices_of_nodes() -> None:
    served = Served()
    served.rig.node("n", gpus=2)
    served.rig.submit(pod("p").gpus(1))
    served.rig.run()
    one = served.json("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/n")
    assert served.json("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries") == {"n": one}
    assert one["deviceTotal"]["koordinator.sh/gpu-core"] == "200"
    assert one["deviceFree"]["koordinator.sh/gpu-core"] == "100"
    assert list(one["allocateSet"]["gpu"]) == ["default/p"]
    missing = served.json("/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/m", 404)
    assert missing == {"message": "cannot find node m"}


def test_why_a_pod_waits() -> None:
    served = Served()
    served.rig.node("full", cpu="1")
    served.rig.node("cordoned", unschedulable=True)
    served.rig.submit(pod("p").request(cpu="4"))
    served.rig.run()
    document = served.json("/apis/v1/explain/default/p")
    assert document["queue"] == "unschedulable"
    assert document["feasible"] == []
    assert {
        item["node"]: (item["plugin"], item["reasons"], item["preemptionMightHelp"]) for item in document["rejected"]
    } == {
        "full": ("NodeResourcesFit", ["Insufficient cpu"], False),
        "cordoned": ("NodeUnschedulable", ["node(s) were unschedulable"], False),
    }
    assert served.json("/apis/v1/explain/default/q", 404) == {"message": "cannot find pod default/q"}


def test_an_explanation_names_the_node_that_is_then_taken() -> None:
    served = Served()
    for number in range(5):
        served.rig.node(f"n{number}", cpu=str(8 + number), memory="64Gi")
    served.rig.submit(pod("p").request(cpu="4", memory="1Gi"))
    info = served.rig.core.find("default/p")
    assert info is not None
    explanation = explain(served.rig.core.runners.of(info), info)
    served.rig.run()
    assert explanation.feasible[0].node == served.rig.where("p")
    assert explanation.feasible[0].total > explanation.feasible[1].total


def test_metrics_of_reservations() -> None:
    served = Served()
    served.rig.node("n", cpu="8")
    hold(served.rig, "r", "n", {"cpu": 4000, "memory": 2 << 30})
    inside(served.rig, "p", "n", "r", cpu=1)
    figures = served.figures()
    assert figures['scheduler_reservation_status_phase{name="r",phase="Available"}'] == 1
    assert figures['scheduler_reservation_status_phase{name="r",phase="Failed"}'] == 0
    of_cpu = {
        kind: figures[f'scheduler_reservation_resource{{type="{kind}",name="r",resource="cpu",unit="{unit}"}}']
        for kind, unit in (("allocatable", "core"), ("allocated", "core"), ("utilization", "ratio"))
    }
    assert of_cpu == {"allocatable": 4, "allocated": 1, "utilization": 0.25}


def test_metrics_follow_what_happens() -> None:
    served = Served()
    served.rig.node("n", cpu="2")
    served.rig.submit(pod("p").request(cpu="1"), pod("q").request(cpu="4"))
    while served.rig.core.busy:
        decisions = served.rig.core.decide()
        served.metrics.decided(decisions, 0.0003)
        assert all(isinstance(decision, Bind | Reject) for decision in decisions)
    figures = served.figures()
    name, labels = "scheduler_scheduling_attempt_duration_seconds", 'profile="default-scheduler",result="scheduled"'
    assert figures[f"scheduler_schedule_attempts_total{{{labels}}}"] == 1
    assert figures['scheduler_schedule_attempts_total{profile="default-scheduler",result="unschedulable"}'] == 1
    assert figures['scheduler_pending_pods{queue="unschedulable"}'] == 1
    assert figures['scheduler_scheduler_cache_size{type="pods"}'] == 1
    assert figures[f"{name}_count{{{labels}}}"] == 1
    assert figures[f"{name}_sum{{{labels}}}"] == pytest.approx(0.0003)
    assert figures[f'{name}_bucket{{{labels},le="0.0002"}}'] == 0
    assert figures[f'{name}_bucket{{{labels},le="0.0004"}}'] == 1
    assert figures[f'{name}_bucket{{{labels},le="+Inf"}}'] == 1


def test_what_pods_ask_for_is_told_by_the_leader() -> None:
    served = Served()
    served.rig.node("n", cpu="8", memory="16Gi")
    placed = pod("p").request(cpu="1500m", memory="12884901889")
    placed.manifest["spec"]["containers"][0]["resources"]["limits"] = {"cpu": "2", "nvidia.com/gpu": "1"}
    placed.manifest["spec"]["overhead"] = {"cpu": "250m", "memory": "1"}
    served.rig.running(placed, "n")
    served.rig.submit(pod("q").request(cpu="4"))
    lines = served.get("/metrics/resources").body.decode().splitlines()
    of_p = 'namespace="default",pod="p",node="n",scheduler="default-scheduler",priority="0"'
    of_q = of_p.replace('"p",node="n"', '"q",node=""')
    assert [line for line in lines if line[0] != "#"] == [
        f'kube_pod_resource_limit{{{of_p},resource="cpu",unit="cores"}} 2.25',
        f'kube_pod_resource_limit{{{of_p},resource="nvidia.com/gpu",unit="integer"}} 1',
        f'kube_pod_resource_limit{{{of_q},resource="cpu",unit="cores"}} 4',
        f'kube_pod_resource_request{{{of_p},resource="cpu",unit="cores"}} 1.75',
        f'kube_pod_resource_request{{{of_p},resource="memory",unit="bytes"}} 12884901890',
        f'kube_pod_resource_request{{{of_p},resource="nvidia.com/gpu",unit="integer"}} 1',
        f'kube_pod_resource_request{{{of_q},resource="cpu",unit="cores"}} 4',
    ]
    assert Served(leading=False).get("/metrics/resources").body == b""


def test_latencies_are_shown_by_point_and_by_plugin() -> None:
    served = Served()
    served.rig.node("n")
    served.rig.submit(pod("p").request(cpu="1"))
    served.rig.run()
    figures = served.figures()
    name = "scheduler_framework_extension_point_duration_seconds"
    labels = 'extension_point="Filter",status="Success",profile="default-scheduler"'
    assert figures[f"{name}_count{{{labels}}}"] == figures[f'{name}_bucket{{{labels},le="0.0001"}}'] == 1
    name = "scheduler_plugin_execution_duration_seconds"
    labels = 'plugin="NodeResourcesFit",extension_point="Filter",status="Success"'
    assert figures[f"{name}_count{{{labels}}}"] == figures[f'{name}_bucket{{{labels},le="+Inf"}}'] > 0


def test_there_is_no_pprof() -> None:
    answer = Served().get("/debug/pprof/goroutine")
    assert answer.code == 501
    assert b"py-spy" in answer.body
    assert Served(profiling=False).get("/debug/pprof/goroutine").code == 404


def ask(method: str, url: str, body: bytes | None = None) -> tuple[int, bytes]:
    request = urllib.request.Request(url, data=body, method=method)  # noqa: S310 our own server
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


LOOPS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]


@pytest.mark.parametrize("run", LOOPS)
def test_over_a_connection(run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
    served = Served()
    served.routes.add("GET", "/broken", lambda _: Answer(200, b"%d" % (1 // 0)))

    async def converse() -> list[tuple[int, bytes]]:
        server = await serve(served.routes, "127.0.0.1", 0)
        base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        requests = [
            await asyncio.to_thread(ask, *words)
            for words in (
                ("GET", f"{base}/healthz"),
                ("PUT", f"{base}/debug/flags/s", b"7"),
                ("GET", f"{base}/broken"),
                ("GET", f"{base}/healthz"),
            )
        ]
        server.close()
        await server.wait_closed()
        return requests

    assert run(converse()) == [
        (200, b"ok"),
        (200, b"successfully set debugTopNScores to 7\n"),
        (500, b"500 internal server error, see fault id=1 in the log\n"),
        (200, b"ok"),
    ]
    assert served.rig.core.handle.debug.top_scores == 7


@pytest.mark.parametrize(
    ("sent", "first_line"),
    [
        pytest.param(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", b"HTTP/1.1 200 OK", id="plain"),
        pytest.param(b"nonsense\r\n\r\n", b"HTTP/1.1 400 Bad Request", id="not-http"),
        pytest.param(
            b"PUT /debug/flags/s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (MAX_BODY + 1)
            + b"1" * (MAX_BODY + 1),
            b"HTTP/1.1 413 Request Entity Too Large",
            id="too-much",
        ),
    ],
)
def test_bytes_on_the_wire(sent: bytes, first_line: bytes) -> None:
    async def exchange() -> bytes:
        server = await serve(Served().routes, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(sent)
        received = await asyncio.wait_for(reader.readline(), 60)
        writer.close()
        server.close()
        return received

    assert asyncio.run(exchange()).rstrip() == first_line


def test_a_requested_port_must_be_free_and_the_default_ones_need_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def crowd() -> tuple[int, list[asyncio.Server]]:
        routes = Served().routes
        (first,) = await listen(routes, "127.0.0.1", None)
        with pytest.raises(OSError, match="address already in use"):
            await listen(routes, "127.0.0.1", first.sockets[0].getsockname()[1])
        monkeypatch.setattr("seatrial.scheduler.__main__.DEFAULT_PORTS", (first.sockets[0].getsockname()[1],))
        second = await listen(routes, "127.0.0.1", None)
        none = await listen(routes, "127.0.0.1", 0)
        first.close()
        return len(none), second

    monkeypatch.setattr("seatrial.scheduler.__main__.DEFAULT_PORTS", (0,))
    assert asyncio.run(crowd()) == (0, [])
    assert "services not-served address=127.0.0.1" in caplog.text


def test_cpus_and_numa_nodes_of_a_node() -> None:
    rig = Machines()
    rig.machine("n", (1, 1, 2, 2), labels={NUMA_TOPOLOGY_POLICY_LABEL: "Restricted"})
    rig.machine("blind", cpus=False)
    rig.node("plain")
    rig.submit(lsr("bound", "2").align("Restricted"))
    rig.run()
    served = Served(rig)
    document = served.json("/apis/v1/plugins/NodeNUMAResource/nodes/n")
    assert document["cpuTopology"]["numCores"] == 2
    assert list(document["availableCPUs"]) == ["2", "3"]
    assert document["allocatedCPUs"]["1"] == {
        "cpuID": 1,
        "coreID": 0,
        "nodeID": 0,
        "socketID": 0,
        "refCount": 1,
        "exclusivePolicy": "",
    }
    assert document["remainingNUMANodeResources"] == [{"node": 0, "resources": {"cpu": "2", "memory": "127Gi"}}]
    assert document["allocatedPods"][0]["name"] == "bound"
    assert document["allocatedPods"][0]["cpuset"] == "0-1"
    assert served.json("/apis/v1/plugins/NodeNUMAResources/cpuTopologyOptions/n") == document
    body = served.json("/apis/v1/plugins/NodeNUMAResource/nodes/plain", 404)
    assert body == {"message": "cannot find target node"}
    body = served.json("/apis/v1/plugins/NodeNUMAResource/nodes/blind", 500)
    assert body == {"message": "invalid topology, please check the NodeResourceTopology object"}


def test_reservations_of_a_node() -> None:
    rig = Rig()
    rig.node("n")
    hold(rig, "r", "n", {"cpu": 4000, "memory": 8 << 30}, policy="Restricted")
    inside(rig, "p", "n", "r", cpu=1)
    served = Served(rig)
    (result,) = served.json("/apis/v1/plugins/Reservation/nodeReservations/n")["items"]
    assert result == {
        "name": "r",
        "uid": "r",
        "kind": "Reservation",
        "available": True,
        "allocatable": {"cpu": "4", "memory": "8Gi"},
        "allocated": {"cpu": "1"},
        "availableResource": {"cpu": 3000, "memory": 8 << 30},
        "allocatedResource": {"cpu": 1000},
        "owners": [{"labelSelector": {"matchLabels": {"app": "a"}}}],
        "allocatePolicy": "Restricted",
        "assignedPods": [{"Namespace": "default", "Name": "p", "UID": "uid-p", "Requests": {"cpu": "1"}, "Ports": []}],
    }
    assert served.json("/apis/v1/plugins/Reservation/nodeReservations/nowhere") == {}


def test_the_index_of_reservation_selectors() -> None:
    args = {"reservationSelectorIndex": {"enabled": True, "keys": ["tier"]}}
    rig = Rig(profile(pluginConfig=[{"name": "Reservation", "args": args}]))
    rig.node("n")
    hold(rig, "r", "n", {"cpu": 4000}, labels={"tier": "gold"})
    served = Served(rig)
    path = "/apis/v1/plugins/Reservation/reservationSelectorIndex"
    assert served.json(path)["byKey"] == {"tier": {"nodes": 1, "reservations": 1}}
    assert served.json(f"{path}?detail=true")["byKeyValue"]["tier"]["gold"]["byNode"] == {"n": ["r"]}
    assert Served(Rig()).json(path) == {"enabled": False, "prefixes": [], "indexedReservations": 0}


def test_a_pod_whose_place_others_may_take_is_listed() -> None:
    rig = Rig()
    rig.node("n")
    owners = '[{"labelSelector": {"matchLabels": {"app": "a"}}}]'
    offer = pod("offer").request(cpu=4).label(OPERATING_MODE, "Reservation").annotation(RESERVATION_OWNERS, owners)
    placed = rig.running(offer, "n")
    status = replace(placed.status, phase="Running", conditions=(Condition("Ready", "True"),))
    rig.core.intake.set_pod(replace(placed, status=status))
    inside(rig, "p", "n", "uid-offer", cpu=1)
    (result,) = Served(rig).json("/apis/v1/plugins/Reservation/nodeReservations/n")["items"]
    assert (result["name"], result["namespace"], result["kind"]) == ("offer", "default", "Pod")
    assert (result["allocateOnce"], result["allocatePolicy"]) == (True, "Aligned")
    assert (result["allocatable"], result["allocated"]) == ({"cpu": "4"}, {"cpu": "1"})
