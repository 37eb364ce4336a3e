"""Diagnosis of a running scheduler: log flags, state of plugins, latencies.

Read over HTTP and from the log only, in Koordinator's formats, so that any scheduler with these can be judged.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest

from seatrial.fixtures.cluster import Ask
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.scheduler_metrics import Figures
from seatrial.fixtures.trial import Trial
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, pod, pods, reservation
from seatrial.scheduler.api.device import GPU_CORE

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

SUMMARIES = "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries"
POINTS = "scheduler_framework_extension_point_duration_seconds"
PLUGINS = "scheduler_plugin_execution_duration_seconds"
MANY = 60  # pods: plugins are timed in one cycle of ten, by lot where upstream does it; 0.9 to the 60th is 0.2 %

LogWait = Callable[[str], str]


@pytest.fixture
def flag(services: Ask) -> Iterator[Callable[[str, str], tuple[int, str]]]:
    """Sets a debug flag; returns status code and text. Afterwards all flags are off, and the verbosity is 1."""

    def put(name: str, value: str) -> tuple[int, str]:
        answer = services("PUT", f"/debug/flags/{name}", value.encode())
        return answer.code, answer.body.decode()

    yield put
    for name, value in (("s", "0"), ("f", "false"), ("d", "false"), ("v", "1")):
        put(name, value)


@pytest.fixture
def wait_for_log(trial: Trial, subject: Subject | None) -> LogWait:
    """Wait until the scheduler's log contains a text; returns the log from there on."""
    if subject is None:
        pytest.skip("needs the scheduler's log; the harness did not start this one")

    def wait(words: str) -> str:
        assert trial.wait(lambda: words in subject.log(), within=10), f"not in the log: {words}"
        return subject.log().partition(words)[2]

    return wait


@pytest.mark.feature("SHELL-2.log-level")
@pytest.mark.case("SH-010", severity="critical")
@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        pytest.param("v", "5", 200, "successfully set klog.logging.verbosity to 5\n", id="log-level"),
        pytest.param("s", "100", 200, "successfully set debugTopNScores to 100\n", id="scores"),
        pytest.param("f", "true", 200, "successfully set debugFilterFailure to true\n", id="failures"),
        pytest.param("v", "loud", 400, 'parsing "loud": invalid syntax', id="no-level"),
        pytest.param("s", "all", 400, "failed set debugTopNScores all: ", id="no-number"),
        pytest.param("f", "yes", 400, "failed set debugFilterFailure yes: ", id="neither-true-nor-false"),
    ],
)
def test_switches_answer_in_the_words_of_koordinator(
    flag: Callable[[str, str], tuple[int, str]], name: str, value: str, code: int, words: str
) -> None:
    """A flag is set by PUT; the answer repeats the value, or names the mistake."""
    result, message = flag(name, value)
    assert result == code
    assert message == words if code == 200 else words in message, message


@pytest.mark.feature("SHELL-2.log-level")
@pytest.mark.case("SH-031", severity="normal")
def test_the_level_decides_what_is_logged(
    trial: Trial,
    expect: Expect,
    flag: Callable[[str, str], tuple[int, str]],
    wait_for_log: LogWait,
    subject: Subject | None,
) -> None:
    """At level 0 the table of scores is not logged though it is on; at level 1 it is."""
    trial.add(node("n1").cpu(8), node("n2").cpu(8))
    flag("s", "1")
    flag("v", "0")
    trial.submit(pod("quiet"))
    expect.bound("quiet")
    flag("v", "1")
    trial.submit(pod("loud"))
    expect.bound("loud")
    wait_for_log(f"scores for Pod: {trial.name}/loud")
    assert subject is not None
    assert f"scores for Pod: {trial.name}/quiet" not in subject.log()


@pytest.mark.feature("SHELL-2.log-level")
@pytest.mark.case("SH-011", severity="critical")
@pytest.mark.usefixtures("trial")
def test_switches_are_for_put_alone(services: Ask) -> None:
    """Any other method on a flag is 406; an unknown flag lists the known ones."""
    answer = services("POST", "/debug/flags/s", b"1")
    assert (answer.code, answer.body.decode().strip()) == (406, "unsupported http method")
    index = services("GET", "/debug/flags/unknown")
    assert index.code == 200
    assert {"d", "db", "f", "s", "v"} <= set(re.findall(r">(\w+)<", index.body.decode()))


@pytest.mark.feature("SHELL-2.score-table")
@pytest.mark.case("SH-012", severity="critical")
def test_scores_are_logged_as_a_table(
    trial: Trial, expect: Expect, flag: Callable[[str, str], tuple[int, str]], wait_for_log: LogWait
) -> None:
    """With s on, a cycle logs its best nodes by total, a column for each plugin; the pod is on one of the best."""
    trial.add(node("n1").cpu(64), node("n2").cpu(16), node("n3").cpu(8))
    flag("s", "2")
    trial.submit(pod("p").request(cpu=4, memory="1Gi"))
    where = expect.bound("p").spec.node_name

    logged = wait_for_log(f"Top2 scores for Pod: {trial.name}/p, feasibleNodes: 3, plugins:[")

    title, head, rule, first, second, after = (logged + "\n\n").split("\n", 5)
    plugins = title.partition("]")[0].split()
    assert cells(head) == ["#", "Pod", "Node", "Score", *plugins]
    assert cells(rule) == ["---"] * 3 + ["---:"] * (len(plugins) + 1)
    rows = [cells(first), cells(second)]
    assert [row[:2] for row in rows] == [["0", f"{trial.name}/p"], ["1", f"{trial.name}/p"]]
    for row in rows:
        assert int(row[3]) == sum(int(score) for score in row[4:])
    assert int(rows[0][3]) >= int(rows[1][3])
    assert not after.startswith("|"), "more rows than were asked for"
    best = {row[2] for row in rows if row[3] == rows[0][3]}
    assert where in best or len(best) == len(rows), "with as many best ones as rows there may be more below"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


@pytest.mark.feature("SHELL-2.rejections")
@pytest.mark.case("SH-013", severity="normal")
def test_rejected_nodes_are_logged(
    trial: Trial, expect: Expect, flag: Callable[[str, str], tuple[int, str]], wait_for_log: LogWait
) -> None:
    """With f on, each rejected node is logged with plugin and reason; with f off, none is."""
    trial.add(node("small").cpu(2), node("large").cpu(64))
    trial.submit(pod("before").request(cpu=4))
    expect.bound("before")
    flag("f", "true")
    trial.submit(pod("p").request(cpu=4))
    expect.bound("p")

    logged = wait_for_log(f'Failed to filter for Pod "{trial.name}/p" on Node "small"').partition("\n")[0]

    assert re.fullmatch(r"( \(pass \d+\))?, failedPlugin: NodeResourcesFit,.* reason: .*Insufficient cpu.*", logged)
    flag("f", "false")
    trial.submit(pod("after").request(cpu=4))
    expect.bound("after")
    flag("s", "1")
    trial.add(node("third").cpu(64))
    trial.submit(pod("last").request(cpu=4))
    rest = wait_for_log(f'"{trial.name}/p" on Node "small"')
    wait_for_log(f"scores for Pod: {trial.name}/last")
    assert "Failed to filter" not in rest


@pytest.mark.feature("SHELL-2.rejections")
@pytest.mark.case(
    "SC-707", severity="normal", source="koordinator 1.8 pkg/scheduler/frameworkext/schedule_diagnosis.go; spec FWK-R35"
)
def test_a_failure_is_logged_as_json(
    trial: Trial, expect: Expect, flag: Callable[[str, str], tuple[int, str]], wait_for_log: LogWait
) -> None:
    """With d on, a failed cycle is logged with the plugin that rejected each node, and where preemption might help."""
    trial.add(node("small").cpu(2), node("busy").cpu(8))
    trial.submit(pod("filler").request(cpu=6))
    expect.bound("filler")
    flag("d", "true")
    trial.submit(pod("p").request(cpu=4))
    expect.pending("p")
    key, uid = f"{trial.name}/p", trial.pod("p").metadata.uid
    logged = wait_for_log(f"dump diagnosis for {key}, targetPod: {key}/{uid}: $").partition("\n")[0]
    diagnosis = orjson.loads(logged)
    assert diagnosis["questionedKey"] == key
    of_fit = {"failedPlugin": "NodeResourcesFit", "reason": "Insufficient cpu"}
    assert sorted(diagnosis["scheduleDiagnosis"]["nodeFailedDetails"], key=len) == [
        {**of_fit, "failedNodes": ["small"]},
        {**of_fit, "preemptMightHelp": True, "failedNodes": ["busy"]},
    ]


@pytest.mark.feature("SHELL-3.every-route")
@pytest.mark.case(
    "SC-706", severity="normal", source="spec FWK-R39; koordinator cmd/koord-scheduler/app/server.go@v1.7.0"
)
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/healthz", "ok"),
        ("/metrics", "scheduler_pending_pods"),
        ("/metrics/resources", "kube_pod_resource_request"),
        ("/configz", "componentconfig"),
    ],
)
def test_what_is_served_beside_the_services(trial: Trial, expect: Expect, services: Ask, path: str, words: str) -> None:
    """Health, metrics of the scheduler, requests of the pods, and the configuration."""
    trial.add(node("n1").cpu(8))
    trial.submit(pod("p").request(cpu=1))
    expect.bound("p")
    answer = services("GET", path)
    assert answer.code == 200
    lines = [line for line in answer.body.decode().splitlines() if words in line]
    assert lines
    if path == "/metrics/resources":
        assert [line for line in lines if f'namespace="{trial.name}"' in line and 'pod="p"' in line]


@pytest.mark.feature("SHELL-3.list")
@pytest.mark.case("SH-014", severity="critical")
@pytest.mark.usefixtures("trial")
def test_services_list_themselves(services: Ask) -> None:
    """The list has every route by method, including plugins' routes."""
    routes = orjson.loads(services("GET", "/apis/v1/__services__").body)["GET"]
    assert {"/apis/v1/__services__", "/apis/v1/nodes/:nodeName", SUMMARIES} <= set(routes)
    assert routes == sorted(routes)


ROUTES = (  # Koordinator's, beside the list itself
    "/apis/v1/nodes/:nodeName",
    "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries",
    "/apis/v1/plugins/DeviceShare/nodeDeviceSummaries/:name",
    "/apis/v1/plugins/NodeNUMAResources/cpuTopologyOptions/:nodeName",  # as the post of v0.7 has it
    "/apis/v1/plugins/Reservation/nodeReservations/:nodeName",
)


@pytest.mark.feature("SHELL-3.every-route")
@pytest.mark.case("SH-006", severity="critical")
@pytest.mark.parametrize("route", ROUTES)
def test_every_route_of_the_list_answers(trial: Trial, services: Ask, route: str) -> None:
    """The route is in the list, and answers with JSON for a node."""
    trial.add(node("n1").server("cpu-64"))

    def answers() -> bool:
        return services("GET", route.replace(":nodeName", "n1").replace(":name", "n1")).ok

    assert route in orjson.loads(services("GET", "/apis/v1/__services__").body)["GET"]
    if "nodeDeviceSummaries/" in route:
        trial.add(node("n2").gpus("a10", 1))
        route = route.replace(":name", "n2")
    assert trial.wait(answers, within=10), services("GET", route.replace(":nodeName", "n1")).body
    orjson.loads(services("GET", route.replace(":nodeName", "n1")).body)


@pytest.mark.feature("SHELL-3.state")
@pytest.mark.case("SH-029", severity="normal")
def test_a_node_shows_what_is_left(trial: Trial, expect: Expect, services: Ask) -> None:
    """Of four cores a pod takes one: three remain, in thousandths. Koordinator writes the names of Go's fields."""
    trial.add(node("n1").cpu(4))
    trial.submit(pod("p").request(cpu=1))
    expect.bound("p")
    body = orjson.loads(services("GET", "/apis/v1/nodes/n1").body)
    amounts = [body[key] for key in ("allocatable", "requested", "remaining")]
    assert [shown["MilliCPU"] if "MilliCPU" in shown else shown["cpu"] for shown in amounts] == [4000, 1000, 3000]
    shown_pods = [shown["Pod"]["metadata"] if "Pod" in shown else shown for shown in body["pods"]]
    assert [shown["name"] for shown in shown_pods] == ["p"]


@pytest.mark.feature("SHELL-5.scores")
@pytest.mark.case("SH-030", severity="normal")
def test_an_explanation_names_every_node(trial: Trial, expect: Expect, services: Ask) -> None:
    """Of a pod that waits, each node is named with the plugin that rejected it, and whether preemption might help."""
    trial.add(node("closed").cpu(8).taint("team"), node("full").cpu(4))
    trial.submit(pod("first").request(cpu=3))
    expect.bound("first")
    trial.submit(pod("p").request(cpu=2))
    expect.pending("p")
    answer = services("GET", f"/apis/v1/explain/{trial.name}/p")
    if answer.code == 404:
        pytest.skip("needs a scheduler that explains pods; this one does not")
    body = orjson.loads(answer.body)
    assert body["feasible"] == []
    assert [(shown["node"], shown["plugin"], shown["preemptionMightHelp"]) for shown in body["rejected"]] == [
        ("closed", "TaintToleration", False),
        ("full", "NodeResourcesFit", True),
    ]


@pytest.mark.feature("SHELL-3.state")
@pytest.mark.case("SH-015", severity="critical")
def test_a_plugins_state_shows_what_a_pod_took(trial: Trial, expect: Expect, services: Ask) -> None:
    """DeviceShare's summary of a node shows a pod's allocation and its name, and returns to the state before."""
    trial.add(node("n1").gpus("a10", 2))
    trial.submit(pod("first").gpus(1))
    expect.bound("first")

    def summary() -> Any:
        return orjson.loads(services("GET", f"{SUMMARIES}/n1").body)

    def used() -> int:
        return amount(GPU_CORE, summary()["deviceUsed"].get(GPU_CORE, 0))

    assert used() == 100
    assert list(summary()["allocateSet"]["gpu"]) == [f"{trial.name}/first"]
    trial.submit(pod("half").gpu_share(50))
    expect.bound("half")
    assert used() == 150
    result = summary()
    total, free = (amount(GPU_CORE, result[key][GPU_CORE]) for key in ("deviceTotal", "deviceFree"))
    assert (total, free) == (200, 50)
    assert orjson.loads(services("GET", SUMMARIES).body)["n1"] == result
    trial.delete("first")
    assert trial.wait(lambda: used() == 50, within=10)


@pytest.mark.feature("SHELL-3.unknown")
@pytest.mark.case("SH-016", severity="normal")
@pytest.mark.parametrize("path", [f"{SUMMARIES}/nowhere", "/apis/v1/nodes/nowhere"])
@pytest.mark.usefixtures("trial")
def test_what_is_not_there_is_said(services: Ask, path: str) -> None:
    """A node that the scheduler does not know is 404, with its name."""
    answer = services("GET", path)
    assert answer.code == 404
    assert "cannot find node nowhere" in answer.body.decode()


def figures(services: Ask) -> Figures:
    return Figures(services("GET", "/metrics").body.decode())


def observed(trial: Trial, services: Ask, before: Figures, name: str, **labels: str) -> None:
    """Wait until the histogram has more values with these labels than before."""

    def more() -> bool:
        return figures(services).sum(f"{name}_count", **labels) > before.sum(f"{name}_count", **labels)

    assert trial.wait(more, within=10), f"no new value in {name}{labels}"


@pytest.mark.feature("SHELL-4.extension-points")
@pytest.mark.case("SH-017", severity="critical")
def test_latencies_of_every_extension_point(trial: Trial, expect: Expect, services: Ask) -> None:
    """Placed and unplaced pods leave values at each extension point that they passed, and at its plugins."""
    trial.add(node("n1").cpu(64).gpus("a10", MANY), node("n2").cpu(64).gpus("a10", MANY))
    before = figures(services)
    requests = [builder.gpus(1).request(cpu=f"{100 + number}m") for number, builder in enumerate(pods("p", MANY))]
    trial.submit(*requests)
    expect.bound(requests[0].name, requests[1].name, *(builder.name for builder in requests[2:]))
    refused = [builder.request(cpu=f"{100_000 + number}m") for number, builder in enumerate(pods("large", MANY))]
    trial.submit(*refused)
    expect.pending(*(pod.name for pod in refused))

    for point in (
        "PreEnqueue",
        "PreFilter",
        "Filter",
        "PostFilter",
        "PreScore",
        "Score",
        "Reserve",
        "Permit",
        "PreBind",
        "Bind",
        "PostBind",
    ):
        observed(trial, services, before, POINTS, extension_point=point, profile="default-scheduler")
    for plugin, point in (
        ("NodeResourcesFit", "PreFilter"),
        ("NodeResourcesFit", "Filter"),
        ("NodeResourcesFit", "Score"),
        ("DeviceShare", "Reserve"),
        ("DefaultPreemption", "PostFilter"),
    ):
        observed(trial, services, before, PLUGINS, plugin=plugin, extension_point=point)
    service_figures = figures(services)
    assert service_figures.broken_histograms(POINTS) == service_figures.broken_histograms(PLUGINS) == []
    assert service_figures.values(f"{POINTS}_count", "status") >= {"Success", "Unschedulable"}


@pytest.mark.feature("SHELL-4.transformers")
@pytest.mark.case("SH-018", severity="critical")
def test_latencies_of_transformers(trial: Trial, expect: Expect, services: Ask) -> None:
    """Owners of a reservation leave values at BeforePreFilter and AfterPreFilter."""
    trial.add(node("n1").cpu(64))
    trial.reserve(reservation("held").like(pod("x").request(cpu=32, memory="1Gi")).for_labels(app="owner").many())
    expect.available("held")
    before = figures(services)
    requests = [pod.label("app", "owner").request(cpu="100m") for pod in pods("p", MANY)]
    trial.submit(*requests)
    expect.bound(requests[0].name, requests[1].name, *(builder.name for builder in requests[2:]))

    for point in ("BeforePreFilter", "AfterPreFilter"):
        observed(trial, services, before, PLUGINS, plugin="Reservation", extension_point=point)
    assert figures(services).broken_histograms(PLUGINS) == []
