"""Fields that controllers write are theirs in `managedFields`, in single objects, lists and watches."""

from typing import Any

import orjson

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running, workload
from seatrial.harness.apiserver.streams.responses import Streaming
from seatrial.harness.apiserver.tests.asking import PODS, Api, Lines
from seatrial.scheduler.api.transport import Request

NAMED = {"user-agent": "kubectl/v1.34"}
CONTROLLERS = "kube-controller-manager"


def owners(bench: Bench, plural: str, name: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Manager and subresource of each entry, with its fields."""
    response = bench.cluster.call(Request("GET", bench.path(plural, name), b"", "", NAMED))
    entries = orjson.loads(response.body)["metadata"].get("managedFields") or []
    assert {entry["operation"] for entry in entries} <= {"Update"}
    return {(entry["manager"], entry.get("subresource", "")): entry["fieldsV1"] for entry in entries}


def test_a_rollout() -> None:
    with running(nodes=1) as bench:
        path = bench.path("deployments") + "?fieldManager=me"
        bench.call("POST", path, workload("web", 1))
        bench.settle()
        results = owners(bench, "deployments", "web")
        assert results.keys() == {("me", ""), (CONTROLLERS, ""), (CONTROLLERS, "status")}
        assert "deployment.kubernetes.io/revision" in orjson.dumps(results[CONTROLLERS, ""]).decode()
        assert "f:replicas" in results[CONTROLLERS, "status"]["f:status"]
        (set_,) = bench.names("replicasets")
        assert "f:replicas" in owners(bench, "replicasets", set_)[CONTROLLERS, ""]["f:spec"]
        (pod,) = bench.names("pods")
        fields = owners(bench, "pods", pod)[CONTROLLERS, ""]
        assert "f:ownerReferences" in fields["f:metadata"]
        assert "f:nodeName" not in fields["f:spec"]  # the scheduler's
        (event,) = (row["metadata"]["name"] for row in bench.all("events") if row["reason"] == "SuccessfulCreate")
        assert owners(bench, "events", event).keys() == {(CONTROLLERS, "")}
        bench.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})
        bench.settle()
        assert "f:used" in owners(bench, "resourcequotas", "q")[CONTROLLERS, "status"]["f:status"]


def test_watches_have_them_for_clients_that_name_themselves() -> None:
    """As lists do, but not for schedulers. A pod that leaves the selection is sent with its fields too."""
    api = Api()
    readers = []
    for headers in (NAMED, {}, {"user-agent": "seatrial"}, {"user-agent": "kube-scheduler/v1.34.2 (linux/amd64)"}):
        response = api.server.handle(Request("GET", f"{PODS}?watch=1&labelSelector=app", headers=headers))
        assert isinstance(response, Streaming)
        readers.append(Lines())
        response.start(readers[-1])
    api.do("POST", "/apis/apps/v1/namespaces/default/replicasets", workload("web", 1))
    (pod,) = api.do("GET", PODS)["items"]
    patch = {"metadata": {"labels": {"app": None}}}
    api.do("PATCH", f"{PODS}/{pod['metadata']['name']}?fieldManager=me", patch, "application/merge-patch+json")
    named, *others = (reader.events() for reader in readers)
    for unnamed in others:
        assert [event["type"] for event in named] == [event["type"] for event in unnamed]
        assert not any("managedFields" in event["object"]["metadata"] for event in unnamed)
    assert {event["type"] for event in named} >= {"ADDED", "DELETED"}
    for event in named:
        (entry, *_) = event["object"]["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == (CONTROLLERS, "Update")
