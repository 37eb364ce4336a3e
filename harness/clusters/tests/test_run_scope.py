"""Requests and responses of a run on a cluster that others use."""

import json
from typing import Any

import pytest

from seatrial.harness.clusters.run_scope import RUN_LABEL, RunScope
from seatrial.harness.errors import ClusterError
from seatrial.harness.nodes.fleet import SIMULATED_LABEL
from seatrial.scheduler.api.podgroup import GANG_NAME, POD_GROUP_LABEL, POD_GROUP_NAME_LABEL
from seatrial.scheduler.api.transport import MERGE_PATCH, Request, Response

PODS = "/api/v1/namespaces/trial-x/pods"


def sent(scope: RunScope, method: str, path: str, body: Any = None) -> tuple[str, Any]:
    content = MERGE_PATCH if method == "PATCH" else "application/json"
    data = json.dumps(body).encode() if body is not None else b""
    request = scope.outgoing(Request(method, path, data, content))
    return request.path, json.loads(request.body) if request.body else None


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [], **spec}}


@pytest.fixture
def scope() -> RunScope:
    scope = RunScope("1a2b3c")
    sent(scope, "POST", "/api/v1/nodes", {"kind": "Node", "metadata": {"name": "n1"}})
    return scope


@pytest.mark.parametrize(
    ("path", "want"),
    [
        pytest.param("/api/v1/nodes/n1", "/api/v1/nodes/st-1a2b3c-n1", id="node"),
        pytest.param("/api/v1/nodes/n1/status", "/api/v1/nodes/st-1a2b3c-n1/status", id="subresource"),
        pytest.param(f"{PODS}/n1", "/api/v1/namespaces/st-1a2b3c-trial-x/pods/n1", id="a-pod-keeps-its-name"),
        pytest.param("/api/v1/namespaces/kube-system/pods", "/api/v1/namespaces/kube-system/pods", id="system"),
        pytest.param(
            "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
            "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical",
            id="system-priority-class",
        ),
        pytest.param(
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1",
            "/api/v1/pods?fieldSelector=spec.nodeName%3Dst-1a2b3c-n1",
            id="field-selector",
        ),
        pytest.param(
            "/api/v1/nodes", "/api/v1/nodes?labelSelector=seatrial.dev%2Frun%3D1a2b3c", id="only-the-nodes-of-the-run"
        ),
        pytest.param("/version", "/version", id="no-resource"),
    ],
)
def test_path_of_a_read(scope: RunScope, path: str, want: str) -> None:
    assert sent(scope, "GET", path)[0] == want


def test_objects_without_a_namespace_get_prefix_and_label() -> None:
    scope = RunScope("1a2b3c")
    body = {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 5}
    path, result = sent(scope, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
    assert path == "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert result["metadata"] == {"name": "st-1a2b3c-high", "labels": {RUN_LABEL: "1a2b3c"}}
    _, using = sent(scope, "POST", PODS, pod("p", priorityClassName="high"))
    assert using["spec"]["priorityClassName"] == "st-1a2b3c-high"
    assert using["metadata"]["name"] == "p"


def test_slices_and_classes_of_claims_are_the_runs_own(scope: RunScope) -> None:
    """Two runs of one case name them alike; the claim names the run's class, the slice its node."""
    group = "/apis/resource.k8s.io/v1"
    _, made = sent(scope, "POST", f"{group}/deviceclasses", {"kind": "DeviceClass", "metadata": {"name": "c"}})
    assert made["metadata"]["name"] == "st-1a2b3c-c"
    spec = {"driver": "d.io", "nodeName": "n1", "pool": {"name": "p"}}
    body = {"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": spec}
    _, offered = sent(scope, "POST", f"{group}/resourceslices", body)
    assert (offered["metadata"]["name"], offered["spec"]["nodeName"]) == ("st-1a2b3c-s", "st-1a2b3c-n1")
    amounts = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c"}, "spec": amounts}
    _, using = sent(scope, "POST", f"{group}/namespaces/trial-x/resourceclaims", claim)
    assert using["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "st-1a2b3c-c"
    assert using["metadata"]["name"] == "c"


def test_pods_go_to_the_scheduler_and_nodes_of_the_run(scope: RunScope) -> None:
    _, result = sent(scope, "POST", PODS, pod("p", nodeSelector={"a": "b"}))
    assert result["spec"]["schedulerName"] == "st-1a2b3c-default-scheduler"
    assert result["spec"]["nodeSelector"] == {"a": "b", RUN_LABEL: "1a2b3c"}
    (toleration,) = result["spec"]["tolerations"]
    assert toleration == {"key": RUN_LABEL, "operator": "Equal", "value": "1a2b3c", "effect": "NoSchedule"}


def test_a_claim_keeps_its_name_when_a_node_is_called_the_same(scope: RunScope) -> None:
    """The volume refers to it by namespace and name, the pod by name; the pod's node is renamed all the same."""
    reference = {"namespace": "trial-x", "name": "n1"}
    body = {"kind": "PersistentVolume", "metadata": {"name": "v"}, "spec": {"claimRef": reference}}
    _, volume = sent(scope, "POST", "/api/v1/persistentvolumes", body)
    assert volume["spec"]["claimRef"] == reference
    _, result = sent(
        scope, "POST", PODS, pod("p", nodeName="n1", volumes=[{"persistentVolumeClaim": {"claimName": "n1"}}])
    )
    assert result["spec"]["volumes"] == [{"persistentVolumeClaim": {"claimName": "n1"}}]
    assert result["spec"]["nodeName"] == "st-1a2b3c-n1"


@pytest.mark.parametrize("key", [POD_GROUP_LABEL, POD_GROUP_NAME_LABEL, GANG_NAME])
def test_a_gang_keeps_its_name_when_a_node_is_called_the_same(scope: RunScope, key: str) -> None:
    """It is a PodGroup of the pod's namespace; other labels may name the node."""
    changes = {"labels": {key: "n1", "example.com/node": "n1"}, "annotations": {key: "n1"}}
    _, result = sent(scope, "PATCH", f"{PODS}/p", {"metadata": changes})
    assert result["metadata"]["labels"] == {key: "n1", "example.com/node": "st-1a2b3c-n1"}
    assert result["metadata"]["annotations"] == {key: "n1"}


def test_pods_of_a_template_too(scope: RunScope) -> None:
    body = {"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"template": {"spec": {"containers": []}}}}
    _, result = sent(scope, "POST", "/apis/apps/v1/namespaces/trial-x/deployments", body)
    assert result["spec"]["template"]["spec"]["schedulerName"] == "st-1a2b3c-default-scheduler"


def test_a_deployed_scheduler_keeps_its_name() -> None:
    scope = RunScope("1a2b3c", own_schedulers=False)
    _, result = sent(scope, "POST", PODS, pod("p", schedulerName="koord-scheduler"))
    assert result["spec"]["schedulerName"] == "koord-scheduler"


def test_names_inside_of_an_annotation(scope: RunScope) -> None:
    body = pod("p")
    body["metadata"]["annotations"] = {"a": '{"node":"n1","other":"n10"}', "b": "n10", "c": "{not json"}
    _, result = sent(scope, "POST", PODS, body)
    assert json.loads(result["metadata"]["annotations"]["a"]) == {"node": "st-1a2b3c-n1", "other": "n10"}
    assert result["metadata"]["annotations"]["b"] == "n10"
    assert result["metadata"]["annotations"]["c"] == "{not json"


def test_namespace_and_name_in_one_string(scope: RunScope) -> None:
    """As gangs name the other gangs of their group."""
    sent(scope, "POST", "/api/v1/namespaces", {"kind": "Namespace", "metadata": {"name": "trial-x"}})
    body = {"kind": "PodGroup", "metadata": {"name": "g", "annotations": {"groups": '["trial-x/a","trial-y/b"]'}}}
    path = "/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/trial-x/podgroups"
    _, result = sent(scope, "POST", path, body)
    assert json.loads(result["metadata"]["annotations"]["groups"]) == ["st-1a2b3c-trial-x/a", "trial-y/b"]


def test_a_lent_node_has_the_name_that_the_case_gives_it(scope: RunScope) -> None:
    """Its own name may be a part of other names; its owner's taints are tolerated; nothing is written to it."""
    scope.lend("n2", "gpu", [{"key": "dedicated", "effect": "NoSchedule"}])
    assert sent(scope, "GET", "/api/v1/nodes/n2")[0] == "/api/v1/nodes/gpu"
    _, result = sent(scope, "POST", PODS, pod("p", nodeName="n2"))
    assert result["spec"]["nodeName"] == "gpu"
    assert {"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"} in result["spec"]["tolerations"]
    body = b'{"gpu":{"nodeName":"gpu","model":"gpu-a10","said":"bound to gpu, not gpu.b"}}'
    assert scope.incoming(body) == b'{"gpu":{"nodeName":"n2","model":"gpu-a10","said":"bound to n2, not gpu.b"}}'
    for method in ("PATCH", "DELETE"):
        with pytest.raises(ClusterError, match="does not belong to run"):
            sent(scope, method, "/api/v1/nodes/n2")


def test_a_late_event_of_a_pod_keeps_the_name_of_its_node(scope: RunScope) -> None:
    """The watch delivers the end of a pod after its node was given back; to the auditor it has not moved."""
    scope.lend("n2", "gpu")
    scope.unlend("n2")
    late = b'{"type":"DELETED","object":{"spec":{"nodeName":"gpu"}}}'
    assert scope.incoming(late) == late.replace(b"gpu", b"n2")
    scope.lend("n1", "gpu")
    assert scope.incoming(late) == late.replace(b"gpu", b"n1")


def test_objects_of_others_are_not_listed(scope: RunScope) -> None:
    """A list and a watch of all namespaces have the run's objects alone; one of a namespace is not changed."""
    names = ["st-1a2b3c-trial-x", "st-ffffff-trial-x", "kube-system", "st-1a2b3c"]
    items = [{"metadata": {"name": "p", "namespace": name}} for name in names]
    document = json.loads(scope.own_items(json.dumps({"kind": "PodList", "items": items}).encode()))
    assert [item["metadata"]["namespace"] for item in document["items"]] == ["st-1a2b3c-trial-x", "st-1a2b3c"]
    events = [json.dumps({"type": "ADDED", "object": item}).encode() for item in items]
    assert [scope.is_own_event(event) for event in events] == [True, False, False, True]
    assert scope.is_own_event(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}')
    shown = {
        path: scope.shows_others(Request("GET", path))
        for path in (
            "/api/v1/pods?watch=1",
            "/apis/scheduling.koordinator.sh/v1alpha1/devices",
            PODS,
            "/api/v1/nodes",
            "/version",
        )
    }
    assert list(shown.values()) == [True, True, False, False, False]


def test_tests_read_their_own_names(scope: RunScope) -> None:
    body = b'{"spec":{"nodeName":"st-1a2b3c-n1"},"status":{"message":"bound to st-1a2b3c-n1"}}'
    content = scope.response(Response(200, body)).body
    assert content == b'{"spec":{"nodeName":"n1"},"status":{"message":"bound to n1"}}'


def test_a_fleets_entry_keeps_its_labels_and_taints(scope: RunScope) -> None:
    entry = scope.entry({"name": "n", "labels": {"a": "b"}, "taints": [{"key": "k", "effect": "NoExecute"}]})
    assert entry["labels"] == {"a": "b", RUN_LABEL: "1a2b3c", SIMULATED_LABEL: "1a2b3c"}
    assert [taint["key"] for taint in entry["taints"]] == ["k", RUN_LABEL]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        pytest.param("DELETE", "/api/v1/nodes", id="all-nodes"),
        pytest.param("DELETE", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical", id="system-class"),
        pytest.param("DELETE", "/api/v1/namespaces/kube-system/pods/x", id="a-pod-of-the-system"),
        pytest.param("POST", "/api/v1/namespaces/koordinator-system/configmaps", id="configuration-of-others"),
        pytest.param("POST", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", id="a-webhook"),
        pytest.param("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x", id="a-definition"),
        pytest.param("DELETE", "/api/v1/namespaces/default", id="a-namespace-of-others"),
    ],
)
def test_what_belongs_to_others_is_not_changed(scope: RunScope, method: str, path: str) -> None:
    with pytest.raises(ClusterError, match="others use"):
        sent(scope, method, path)


def test_a_node_of_the_same_name_is_another_one(scope: RunScope) -> None:
    """Others have a node `n1` too; the request goes to the run's."""
    assert sent(scope, "DELETE", "/api/v1/nodes/n1")[0] == "/api/v1/nodes/st-1a2b3c-n1"
