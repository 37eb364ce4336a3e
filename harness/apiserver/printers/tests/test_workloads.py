"""Printers of workloads."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import CREATED, made, printed

TEMPLATE = {"spec": {"containers": [{"name": "a", "image": "img:1"}, {"name": "b", "image": "img:2"}]}}
CHOSEN = {
    "matchLabels": {"app": "x"},
    "matchExpressions": [
        {"key": "zone", "operator": "In", "values": ["b", "a"]},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "tier", "operator": "NotIn", "values": ["db"]},
        {"key": "gpu", "operator": "Exists"},
    ],
}
CHOSEN_TEXT = "app=x,gpu,!old,tier notin (db),zone in (a,b)"
SPEC = {"selector": CHOSEN, "template": TEMPLATE}
WRONG = {"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}
PODS = [("[Containers]", "a,b"), ("[Images]", "img:1,img:2")]


@pytest.mark.parametrize(
    ("group", "plural", "values", "want"),
    [
        pytest.param(
            "apps",
            "deployments",
            made(
                spec={**SPEC, "replicas": 3}, status={"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 1}
            ),
            [
                ("Name", "x"),
                ("Ready", "2/3"),
                ("Up-to-date", 3),
                ("Available", 1),
                ("Age", "60s"),
                *PODS,
                ("[Selector]", CHOSEN_TEXT),
            ],
            id="a-deployment",
        ),
        pytest.param(
            "apps",
            "replicasets",
            made(spec={**SPEC, "replicas": 3}, status={"replicas": 2, "readyReplicas": 1}),
            [
                ("Name", "x"),
                ("Desired", 3),
                ("Current", 2),
                ("Ready", 1),
                ("Age", "60s"),
                *PODS,
                ("[Selector]", CHOSEN_TEXT),
            ],
            id="a-replica-set",
        ),
        pytest.param(
            "apps",
            "statefulsets",
            made(spec={**SPEC, "replicas": 3}),
            [("Name", "x"), ("Ready", "0/3"), ("Age", "60s"), *PODS],
            id="a-stateful-set-without-status",
        ),
        pytest.param(
            "apps",
            "daemonsets",
            made(
                spec={"template": {"spec": {"nodeSelector": {"gpu": "yes"}}}},
                status={"desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3},
            ),
            [
                ("Name", "x"),
                ("Desired", 5),
                ("Current", 4),
                ("Ready", 3),
                ("Up-to-date", 0),
                ("Available", 0),
                ("Node Selector", "gpu=yes"),
                ("Age", "60s"),
                ("[Containers]", ""),
                ("[Images]", ""),
                ("[Selector]", "<none>"),
            ],
            id="a-daemon-set",
        ),
        pytest.param(
            "apps",
            "controllerrevisions",
            made(
                metadata={
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": True}]
                },
                revision=4,
            ),
            [("Name", "x"), ("Controller", "daemonset.apps/d"), ("Revision", 4), ("Age", "60s")],
            id="a-revision-of-a-daemon-set",
        ),
        pytest.param(
            "batch",
            "cronjobs",
            made(
                spec={
                    "schedule": "*/5 * * * *",
                    "suspend": False,
                    "timeZone": "Europe/Berlin",
                    "jobTemplate": {"spec": SPEC},
                },
                status={"active": [{}], "lastScheduleTime": "2026-01-01T00:01:40Z"},
            ),
            [
                ("Name", "x"),
                ("Schedule", "*/5 * * * *"),
                ("Timezone", "Europe/Berlin"),
                ("Suspend", "False"),
                ("Active", 1),
                ("Last Schedule", "5m"),
                ("Age", "60s"),
                *PODS,
                ("[Selector]", CHOSEN_TEXT),
            ],
            id="a-cron-job",
        ),
        pytest.param(
            "policy",
            "poddisruptionbudgets",
            made(spec={"minAvailable": "50%"}, status={"disruptionsAllowed": 1}),
            [
                ("Name", "x"),
                ("Min Available", "50%"),
                ("Max Unavailable", "N/A"),
                ("Allowed Disruptions", 1),
                ("Age", "60s"),
            ],
            id="a-disruption-budget",
        ),
        pytest.param(
            "autoscaling",
            "scale",
            made(spec={"replicas": 3}, status={"replicas": 2}),
            [("Name", "x"), ("Desired", 3), ("Available", 2), ("Age", "60s")],
            id="a-scale",
        ),
    ],
)
def test_a_workload(group: str, plural: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed(group, plural, values) == want


@pytest.mark.parametrize(
    ("plural", "want"),
    [
        pytest.param("deployments", "<invalid>", id="a-deployment-says-invalid"),
        pytest.param("replicasets", "<error>", id="a-replica-set-says-error"),
    ],
)
def test_a_selector_that_is_not_valid(plural: str, want: str) -> None:
    assert printed("apps", plural, made(spec={"selector": WRONG}))[-1] == ("[Selector]", want)


def true(*kinds: str) -> list[dict[str, str]]:
    return [{"type": kind, "status": "True"} for kind in kinds]


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param({"completions": 3}, {"succeeded": 1}, ["Running", "1/3", ""], id="not-started"),
        pytest.param({"completions": 1}, {"startTime": CREATED}, ["Running", "0/1", "60s"], id="running"),
        pytest.param({"parallelism": 4}, {}, ["Running", "0/1 of 4", ""], id="a-work-queue"),
        pytest.param({"parallelism": 1}, {"succeeded": 1}, ["Running", "1/1", ""], id="a-queue-of-one"),
        pytest.param(
            {"completions": 1},
            {
                "succeeded": 1,
                "startTime": "2026-01-01T00:01:00Z",
                "completionTime": "2026-01-01T00:01:07Z",
                "conditions": true("SuccessCriteriaMet", "Complete"),
            },
            ["Complete", "1/1", "7s"],
            id="complete",
        ),
        pytest.param({}, {"conditions": true("FailureTarget", "Failed")}, ["Failed", "0/1", ""], id="failed"),
        pytest.param({}, {"conditions": true("FailureTarget")}, ["FailureTarget", "0/1", ""], id="about-to-fail"),
        pytest.param({}, {"conditions": true("Suspended")}, ["Suspended", "0/1", ""], id="suspended"),
    ],
)
def test_a_job(spec: dict[str, Any], status: dict[str, Any], want: list[str]) -> None:
    shown = printed("batch", "jobs", made(spec=spec, status=status))
    assert shown[:5] == list(
        zip(["Name", "Status", "Completions", "Duration", "Age"], ["x", *want, "60s"], strict=True)
    )


def test_a_job_that_is_being_deleted() -> None:
    values = made(metadata={"deletionTimestamp": CREATED}, status={"conditions": true("Suspended")})
    assert printed("batch", "jobs", values)[1] == ("Status", "Terminating")


def resource(target: dict[str, Any], current: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    return metric("Resource", {"name": "cpu", "target": target}, current)


def metric(kind: str, spec: dict[str, Any], current: dict[str, Any] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    field = kind[0].lower() + kind[1:]
    return {"type": kind, field: spec}, {} if current is None else {"type": kind, field: {"current": current}}


@pytest.mark.parametrize(
    ("metrics", "want"),
    [
        pytest.param([], "<none>", id="no-metrics"),
        pytest.param(
            [resource({"averageUtilization": 80}, {"averageUtilization": 35, "averageValue": "350m"})],
            "cpu: 35%/80%",
            id="a-share-of-the-request",
        ),
        pytest.param([resource({"averageUtilization": 80}, None)], "cpu: <unknown>/80%", id="not-measured-yet"),
        pytest.param([resource({}, None)], "cpu: <unknown>/<auto>", id="no-target"),
        pytest.param([resource({"averageValue": "1"}, {"averageValue": "300m"})], "cpu: 300m/1", id="an-amount"),
        pytest.param(
            [metric("Pods", {"target": {"averageValue": "10"}}, {"averageValue": "4"})], "4/10", id="a-metric-of-pods"
        ),
        pytest.param([metric("Object", {"target": {"value": "10"}}, {"value": "4"})], "4/10", id="of-an-object"),
        pytest.param(
            [metric("External", {"target": {"averageValue": "10"}}, {"averageValue": "4"})],
            "4/10 (avg)",
            id="an-outside-average",
        ),
        pytest.param(
            [resource({"averageUtilization": n}, None) for n in (10, 20, 30)],
            "cpu: <unknown>/10%, cpu: <unknown>/20% + 1 more...",
            id="two-are-shown",
        ),
        pytest.param([({"type": "Odd"}, {})], "<unknown type>", id="an-unknown-metric"),
    ],
)
def test_an_autoscaler(metrics: list[tuple[dict[str, Any], dict[str, Any]]], want: str) -> None:
    values = made(
        spec={
            "scaleTargetRef": {"kind": "Deployment", "name": "d"},
            "maxReplicas": 9,
            "metrics": [spec for spec, _ in metrics],
        },
        status={"currentReplicas": 2, "currentMetrics": [status for _, status in metrics]},
    )
    assert printed("autoscaling", "horizontalpodautoscalers", values) == [
        ("Name", "x"),
        ("Reference", "Deployment/d"),
        ("Targets", want),
        ("MinPods", "<unset>"),
        ("MaxPods", 9),
        ("Replicas", 2),
        ("Age", "60s"),
    ]


def test_an_autoscaler_of_the_first_version() -> None:
    values = made(
        spec={"minReplicas": 1, "targetCPUUtilizationPercentage": 80}, status={"currentCPUUtilizationPercentage": 12}
    )
    shown = dict(printed("autoscaling", "horizontalpodautoscalers", values))
    assert (shown["Targets"], shown["MinPods"]) == ("cpu: 12%/80%", "1")
