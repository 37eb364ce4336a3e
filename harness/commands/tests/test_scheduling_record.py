"""`seatrial explain --kubeconfig`: what the API of a real cluster has on record, with and without our scheduler."""

import json
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from seatrial.harness import cli
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.errors import SubjectError, UsageError
from seatrial.harness.subject.process import ProcessSubject, our_command
from seatrial.harness.subject.protocol import OURS
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.transport import Request

PODS = "/api/v1/namespaces/default/pods"
EXPLANATIONS = "/apis/scheduling.koordinator.sh/v1alpha1/namespaces/default/scheduleexplanations"
NOWHERE = "http://127.0.0.1:9"  # no program listens there


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedBackend().start() as started:
        started.add_nodes([node("n1").gpus("a10", 1)])
        command = [*our_command(kubeconfig_of(started), 0), "--port", "0"]
        with ProcessSubject(OURS, command, log_file=tmp_path_factory.mktemp("s") / "log"):
            yield started


def kubeconfig_of(cluster: EmbeddedCluster) -> Path:
    assert cluster.endpoint is not None
    return cluster.endpoint.kubeconfig


def explain(cluster: EmbeddedCluster, *more: str) -> None:
    cli.app(["explain", *more, "--kubeconfig", str(kubeconfig_of(cluster))], exit_on_error=False)


def submit(cluster: EmbeddedCluster, pod: PodBuilder, saying: str) -> None:
    """Create a pod and wait until an event says so."""
    accepted(cluster.call(Request("POST", PODS, orjson.dumps(pod.manifest))), f"create {pod.name}")
    path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{pod.name}"
    assert cluster.wait(lambda: saying in cluster.call(Request("GET", path)).body.decode(), within=60)


def test_a_pod_that_is_somewhere(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    submit(cluster, pod("here").gpus(1), "Scheduled")
    explain(cluster, "here")
    message = capsys.readouterr().out
    assert message.startswith("default/here: on node n1, by the API server\n")
    assert "event Scheduled: Successfully assigned default/here to n1" in message


def test_a_pod_that_is_nowhere(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    submit(cluster, pod("large").gpus(8), "FailedScheduling")
    explain(cluster, "large", "-n", "default", "--json")
    document = json.loads(capsys.readouterr().out)
    record = document["record"]
    assert record["node"] == ""
    (condition,) = record["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    assert condition["message"].startswith("0/1 nodes are available: 1 Insufficient koordinator.sh/gpu.")
    assert record["events"][0]["message"] == condition["message"]
    assert record["explanations"] == []


def test_an_explanation_that_somebody_filled_in(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    submit(cluster, pod("odd").gpus(16), "FailedScheduling")
    for name, key in (("mine", "default/odd"), ("other", "default/someone-else")):
        body = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "ScheduleExplanation",
            "metadata": {"name": name},
            "spec": {"questionObjectKey": key},
        }
        accepted(cluster.call(Request("POST", EXPLANATIONS, orjson.dumps(body))), "create explanation")
        status = {**body, "status": {"schedulable": False, "failedMessage": f"no room for {name}"}}
        path = f"{EXPLANATIONS}/{name}/status"
        patch = Request("PATCH", path, orjson.dumps({"status": status["status"]}), "application/merge-patch+json")
        accepted(cluster.call(patch), "fill it in")
    explain(cluster, "odd")
    message = capsys.readouterr().out
    assert "explanation: no room for mine" in message
    assert "no room for other" not in message


def test_a_pod_of_a_scheduler_that_does_not_run(cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]) -> None:
    body = orjson.dumps(pod("unheard").scheduler("absent-scheduler").manifest)
    accepted(cluster.call(Request("POST", PODS, body)), "create")
    explain(cluster, "unheard")
    message = capsys.readouterr().out
    assert "for scheduler absent-scheduler" in message
    assert "no conditions and no events about scheduling" in message


def test_a_pod_that_is_not_there(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UsageError, match="there is no pod 'gone' in namespace 'team'"):
        explain(cluster, "team/gone")


def test_a_scheduler_that_was_named_has_to_answer(cluster: EmbeddedCluster) -> None:
    submit(cluster, pod("named").gpus(8), "FailedScheduling")
    with pytest.raises(SubjectError, match="no scheduler answers at"):
        explain(cluster, "named", "--server", NOWHERE)


def test_two_namespaces_for_one_pod(cluster: EmbeddedCluster) -> None:
    with pytest.raises(UsageError, match="names another namespace"):
        explain(cluster, "a/p", "-n", "b")
