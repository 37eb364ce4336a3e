"""The objects that every cluster starts with."""

import orjson
import pytest

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import Act
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.bootstrap.endpoint import publish_endpoint
from seatrial.harness.apiserver.tests.asking import Api
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response

_RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def api() -> Api:
    return Api()


@pytest.mark.parametrize(
    "path",
    [
        f"{_RBAC}/clusterroles/system:auth-delegator",
        f"{_RBAC}/clusterroles/system:aggregate-to-view",
        f"{_RBAC}/clusterroles/system:controller:job-controller",
        f"{_RBAC}/clusterrolebindings/system:public-info-viewer",
        f"{_RBAC}/namespaces/kube-system/roles/extension-apiserver-authentication-reader",
        f"{_RBAC}/namespaces/kube-system/rolebindings/system::leader-locking-kube-scheduler",
        "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication",
        "/apis/apiregistration.k8s.io/v1/apiservices/v1.",
        "/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling",
        "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/catch-all",
        "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations/workload-low",
    ],
)
def test_they_are_there(api: Api, path: str) -> None:
    code, body = api.ask("GET", path)
    assert code == 200
    assert body["metadata"]["uid"]
    assert body["metadata"]["creationTimestamp"]


def test_a_role_that_is_labelled_for_it_extends_view(api: Api) -> None:
    api.do(
        "POST",
        f"{_RBAC}/clusterroles",
        {
            "metadata": {"name": "boats", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
            "rules": [{"apiGroups": ["sea.io"], "resources": ["boats"], "verbs": ["get"]}],
        },
    )
    api.do(
        "POST",
        f"{_RBAC}/namespaces/default/rolebindings",
        {
            "metadata": {"name": "v"},
            "subjects": [{"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        },
    )
    for group, resource, verb, expected in (
        ("sea.io", "boats", "get", True),
        ("apps", "deployments", "list", True),
        ("", "secrets", "get", False),
        ("metrics.k8s.io", "pods", "get", True),
        ("apps", "deployments", "update", False),
    ):
        act = Act(verb, group, resource, namespace="default", name="x")
        assert api.server.access.allows(Identity("u"), act) is expected, act


def test_the_service_of_the_api_gets_the_address_that_the_server_listens_on() -> None:
    api = Api()
    service = "/api/v1/namespaces/default/services/kubernetes"
    assert api.do("GET", service)["spec"]["clusterIP"] == "10.96.0.1"
    publish_endpoint(api.server.store, "127.0.0.1", 7001)
    assert api.do("GET", service)["spec"]["ports"][0]["targetPort"] == 7001
    endpoints = api.do("GET", "/api/v1/namespaces/default/endpoints/kubernetes")
    assert endpoints["subsets"] == [
        {"addresses": [{"ip": "127.0.0.1"}], "ports": [{"name": "https", "port": 7001, "protocol": "TCP"}]}
    ]
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
    assert api.do("GET", path)["endpoints"][0]["addresses"] == ["127.0.0.1"]
    taken = {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 80}]}}
    assert api.ask("POST", "/api/v1/namespaces/default/services", taken)[0] == 422


def test_extension_servers_find_the_authority_of_client_certificates() -> None:
    clock = SimClock()
    authority = Authority.fresh(clock.now())
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    response = build_server(clock, authority=authority).handle(Request("GET", path))
    assert isinstance(response, Response)
    assert orjson.loads(response.body)["data"]["client-ca-file"] == authority.pem.decode()
