"""Printers of RBAC, certificates and admission kinds."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import CREATED, made, printed

RBAC, ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
API, FLOW = "apiregistration.k8s.io", "flowcontrol.apiserver.k8s.io"
BINDING = made(
    roleRef={"kind": "ClusterRole", "name": "edit"},
    subjects=[
        {"kind": "User", "name": "ann"},
        {"kind": "ServiceAccount", "namespace": "ns", "name": "sa"},
        {"kind": "Group", "name": "g"},
        {"kind": "User", "name": "bob"},
    ],
)
BINDING_ROW = [
    ("Name", "x"),
    ("Role", "ClusterRole/edit"),
    ("Age", "60s"),
    ("[Users]", "ann, bob"),
    ("[Groups]", "g"),
    ("[ServiceAccounts]", "ns/sa"),
]
CREATED_AT = [("Name", "x"), ("Created At", CREATED)]
CRD = made(
    spec={
        "group": "x.io",
        "scope": "Namespaced",
        "names": {"kind": "A", "shortNames": ["a", "b"]},
        "versions": [
            {"name": "v2", "served": True},
            {"name": "v1", "served": True, "storage": True},
            {"name": "v0", "served": False},
        ],
    },
    status={"conditions": [{"type": "Established", "status": "True"}]},
)
CRD_ROW = [
    ("Name", "x"),
    ("Scope", "Namespaced"),
    ("Versions", "v1(storage),v2"),
    ("Created At", CREATED),
    ("[Group]", "x.io"),
    ("[Kind]", "A"),
    ("[ShortNames]", "a,b"),
    ("[Established]", True),
]


def api_service(status: str, reason: str = "") -> dict[str, Any]:
    service = {"namespace": "kube-system", "name": "metrics"}
    conditions = [{"type": "Available", "status": status, "reason": reason}]
    return made(spec={"service": service}, status={"conditions": conditions})


@pytest.mark.parametrize(
    ("group", "plural", "values", "want"),
    [
        pytest.param(RBAC, "rolebindings", BINDING, BINDING_ROW, id="a-role-binding"),
        pytest.param(RBAC, "clusterrolebindings", BINDING, BINDING_ROW, id="a-cluster-role-binding"),
        pytest.param(RBAC, "roles", made(), CREATED_AT, id="a-role"),
        pytest.param(RBAC, "clusterroles", made(), CREATED_AT, id="a-cluster-role"),
        pytest.param("apiextensions.k8s.io", "customresourcedefinitions", CRD, CRD_ROW, id="a-crd"),
        pytest.param(
            ADMISSION,
            "mutatingwebhookconfigurations",
            made(webhooks=[{}, {}]),
            [("Name", "x"), ("Webhooks", 2), ("Age", "60s")],
            id="webhooks-that-change",
        ),
        pytest.param(
            ADMISSION,
            "validatingwebhookconfigurations",
            made(),
            [("Name", "x"), ("Webhooks", 0), ("Age", "60s")],
            id="webhooks-that-refuse",
        ),
        pytest.param(
            ADMISSION,
            "validatingadmissionpolicies",
            made(spec={"validations": [{}], "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}),
            [("Name", "x"), ("Validations", 1), ("ParamKind", "v1/ConfigMap"), ("Age", "60s")],
            id="a-policy",
        ),
        pytest.param(
            ADMISSION,
            "validatingadmissionpolicybindings",
            made(spec={"policyName": "p", "paramRef": {"name": "c"}}),
            [("Name", "x"), ("PolicyName", "p"), ("ParamRef", "*/c"), ("Age", "60s")],
            id="a-policy-binding",
        ),
        pytest.param(
            API,
            "apiservices",
            made(spec={"group": "apps"}, status={"conditions": [{"type": "Available", "status": "True"}]}),
            [("Name", "x"), ("Service", "Local"), ("Available", "True"), ("Age", "60s")],
            id="a-group-of-our-own",
        ),
        pytest.param(
            API,
            "apiservices",
            api_service("False", "MissingEndpoints"),
            [
                ("Name", "x"),
                ("Service", "kube-system/metrics"),
                ("Available", "False (MissingEndpoints)"),
                ("Age", "60s"),
            ],
            id="a-group-without-a-server",
        ),
        pytest.param(
            FLOW,
            "flowschemas",
            made(spec={"priorityLevelConfiguration": {"name": "global"}, "matchingPrecedence": 9900}),
            [
                ("Name", "x"),
                ("PriorityLevel", "global"),
                ("MatchingPrecedence", 9900),
                ("DistinguisherMethod", "<none>"),
                ("Age", "60s"),
                ("MissingPL", "?"),
            ],
            id="a-flow-schema",
        ),
        pytest.param(
            FLOW,
            "prioritylevelconfigurations",
            made(spec={"type": "Limited", "limited": {"nominalConcurrencyShares": 20}}),
            [
                ("Name", "x"),
                ("Type", "Limited"),
                ("NominalConcurrencyShares", 20),
                ("Queues", "<none>"),
                ("HandSize", "<none>"),
                ("QueueLengthLimit", "<none>"),
                ("Age", "60s"),
            ],
            id="a-priority-level",
        ),
    ],
)
def test_a_rule(group: str, plural: str, values: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed(group, plural, values) == want


@pytest.mark.parametrize(
    ("conditions", "certificate", "want"),
    [
        pytest.param([], "", "Pending", id="not-decided"),
        pytest.param(["Approved"], "", "Approved", id="approved"),
        pytest.param(["Approved"], "abc", "Approved,Issued", id="issued"),
        pytest.param(["Approved", "Failed"], "", "Approved,Failed", id="approved-but-failed"),
        pytest.param(["Approved", "Denied"], "", "Denied", id="a-denial-is-stronger"),
    ],
)
def test_a_signing_request(conditions: list[str], certificate: str, want: str) -> None:
    values = made(
        spec={"signerName": "kubernetes.io/kubelet-serving", "username": "ann", "expirationSeconds": 3600},
        status={"conditions": [{"type": kind} for kind in conditions], "certificate": certificate},
    )
    assert printed("certificates.k8s.io", "certificatesigningrequests", values) == [
        ("Name", "x"),
        ("Age", "60s"),
        ("SignerName", "kubernetes.io/kubelet-serving"),
        ("Requestor", "ann"),
        ("RequestedDuration", "60m"),
        ("Condition", want),
    ]
