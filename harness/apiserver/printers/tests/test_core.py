"""Printers of nodes, events and smaller core kinds."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import CREATED, made, printed

EARLIER = "2026-01-01T00:01:40Z"  # 5m before now


def node(*, ready: str | None = "True", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    conditions = [{"type": "MemoryPressure", "status": "False"}]
    if ready is not None:
        conditions.append({"type": "Ready", "status": ready})
    info = {"kubeletVersion": "v1.33.1"}
    return made("n1", metadata={"labels": labels}, spec=spec, status={"conditions": conditions, "nodeInfo": info})


@pytest.mark.parametrize(
    ("values", "status", "roles"),
    [
        pytest.param(node(), "Ready", "<none>", id="ready"),
        pytest.param(node(ready="False"), "NotReady", "<none>", id="not-ready"),
        pytest.param(node(ready="Unknown"), "NotReady", "<none>", id="not-heard-of"),
        pytest.param(node(ready=None), "Unknown", "<none>", id="never-heard-of"),
        pytest.param(node(unschedulable=True), "Ready,SchedulingDisabled", "<none>", id="cordoned"),
        pytest.param(
            node(labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu", "a": "b"}),
            "Ready",
            "gpu,worker",
            id="two-roles",
        ),
    ],
)
def test_status_and_roles_of_a_node(values: dict[str, Any], status: str, roles: str) -> None:
    assert printed("", "nodes", values) == [
        ("Name", "n1"),
        ("Status", status),
        ("Roles", roles),
        ("Age", "60s"),
        ("Version", "v1.33.1"),
        ("[Internal-IP]", "<none>"),
        ("[External-IP]", "<none>"),
        ("[OS-Image]", "<unknown>"),
        ("[Kernel-Version]", "<unknown>"),
        ("[Container-Runtime]", "<unknown>"),
    ]


def test_a_node_shows_its_addresses_and_software() -> None:
    values = node()
    values["status"]["addresses"] = [
        {"type": "Hostname", "address": "n1"},
        {"type": "InternalIP", "address": "10.0.0.1"},
        {"type": "ExternalIP", "address": "192.0.2.1"},
    ]
    values["status"]["nodeInfo"] |= {
        "osImage": "Debian 13",
        "kernelVersion": "6.12.1",
        "containerRuntimeVersion": "containerd://2.1.0",
    }
    assert [cell for _, cell in printed("", "nodes", values)[5:]] == [
        "10.0.0.1",
        "192.0.2.1",
        "Debian 13",
        "6.12.1",
        "containerd://2.1.0",
    ]


OLD_EVENT = made(
    "p.1",
    involvedObject={"kind": "Pod", "name": "p", "fieldPath": "spec.containers{a}"},
    reason="BackOff",
    type="Warning",
    message="Back-off restarting\n",
    source={"component": "kubelet", "host": "n1"},
    firstTimestamp=EARLIER,
    lastTimestamp=CREATED,
    count=3,
)
NEW_EVENT = made(
    "p.2",
    regarding={"kind": "Pod", "name": "p"},
    reason="Scheduled",
    type="Normal",
    note="Bound",
    reportingController="default-scheduler",
    eventTime="2026-01-01T00:01:40.000000Z",
)
SERIES = {**NEW_EVENT, "series": {"count": 7, "lastObservedTime": "2026-01-01T00:06:30.000000Z"}}


@pytest.mark.parametrize(
    ("group", "values", "want"),
    [
        pytest.param(
            "",
            OLD_EVENT,
            [
                ("Last Seen", "60s"),
                ("Type", "Warning"),
                ("Reason", "BackOff"),
                ("Object", "pod/p"),
                ("[Subobject]", "spec.containers{a}"),
                ("[Source]", "kubelet, n1"),
                ("Message", "Back-off restarting"),
                ("[First Seen]", "5m"),
                ("[Count]", 3),
                ("[Name]", "p.1"),
            ],
            id="an-event-with-a-count",
        ),
        pytest.param(
            "events.k8s.io",
            NEW_EVENT,
            [
                ("Last Seen", "5m"),
                ("Type", "Normal"),
                ("Reason", "Scheduled"),
                ("Object", "pod/p"),
                ("[Subobject]", ""),
                ("[Source]", "default-scheduler"),
                ("Message", "Bound"),
                ("[First Seen]", "5m"),
                ("[Count]", 1),
                ("[Name]", "p.2"),
            ],
            id="an-event-of-the-new-group",
        ),
        pytest.param(
            "events.k8s.io",
            SERIES,
            [
                ("Last Seen", "10s"),
                ("Type", "Normal"),
                ("Reason", "Scheduled"),
                ("Object", "pod/p"),
                ("[Subobject]", ""),
                ("[Source]", "default-scheduler"),
                ("Message", "Bound"),
                ("[First Seen]", "5m"),
                ("[Count]", 7),
                ("[Name]", "p.2"),
            ],
            id="a-series-of-events",
        ),
    ],
)
def test_an_event(group: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed(group, "events", values) == want


@pytest.mark.parametrize(
    ("plural", "values", "want"),
    [
        pytest.param(
            "namespaces",
            made(status={"phase": "Active"}),
            [("Name", "x"), ("Status", "Active"), ("Age", "60s")],
            id="a-namespace",
        ),
        pytest.param(
            "configmaps",
            made(data={"a": "1", "b": "2"}, binaryData={"c": ""}),
            [("Name", "x"), ("Data", 3), ("Age", "60s")],
            id="a-config-map-counts-both-kinds-of-data",
        ),
        pytest.param(
            "secrets",
            made(type="kubernetes.io/tls", data={"a": ""}),
            [("Name", "x"), ("Type", "kubernetes.io/tls"), ("Data", 1), ("Age", "60s")],
            id="a-secret",
        ),
        pytest.param("serviceaccounts", made(), [("Name", "x"), ("Secrets", 0), ("Age", "60s")], id="an-account"),
        pytest.param(
            "resourcequotas",
            made(
                status={
                    "hard": {"requests.cpu": "4", "limits.cpu": "8", "pods": "10", "limits.memory": "1Gi"},
                    "used": {"requests.cpu": "500m", "pods": "2"},
                }
            ),
            [
                ("Name", "x"),
                ("Request", "pods: 2/10, requests.cpu: 500m/4"),
                ("Limit", "limits.cpu: 0/8, limits.memory: 0/1Gi"),
                ("Age", "60s"),
            ],
            id="a-quota",
        ),
        pytest.param("limitranges", made(), [("Name", "x"), ("Created At", CREATED)], id="a-limit-range"),
        pytest.param(
            "podtemplates",
            made(
                template={
                    "metadata": {"labels": {"b": "2", "a": "1"}},
                    "spec": {"containers": [{"name": "c", "image": "i"}]},
                }
            ),
            [("Name", "x"), ("Containers", "c"), ("Images", "i"), ("Pod Labels", "a=1,b=2")],
            id="a-pod-template",
        ),
        pytest.param(
            "replicationcontrollers",
            made(spec={"replicas": 2, "selector": {"app": "x"}}, status={"replicas": 1}),
            [
                ("Name", "x"),
                ("Desired", 2),
                ("Current", 1),
                ("Ready", 0),
                ("Age", "60s"),
                ("[Containers]", ""),
                ("[Images]", ""),
                ("[Selector]", "app=x"),
            ],
            id="a-replication-controller",
        ),
        pytest.param(
            "componentstatuses",
            made(conditions=[{"type": "Healthy", "status": "False", "message": "m", "error": "e"}]),
            [("Name", "x"), ("Status", "Unhealthy"), ("Message", "m"), ("Error", "e")],
            id="a-sick-component",
        ),
    ],
)
def test_a_smaller_kind(plural: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed("", plural, values) == want
