"""RBAC, and identities from tokens."""

from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.access.identity import Identity
from seatrial.harness.apiserver.access.rbac import Act
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.server import ApiServer
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROBOT = Identity("system:serviceaccount:default:robot", ("system:serviceaccounts", "system:authenticated"))
SOMEONE = Identity("someone", ("crew", "system:authenticated"))
PODS = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}


def ask(server: ApiServer, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
    data = b"" if body is None else orjson.dumps(body)
    answer = server.handle(Request(method, path, data, "application/json", {}), **more)
    assert isinstance(answer, Response)
    return answer.code, orjson.loads(answer.body)


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
def server(clock: SimClock) -> ApiServer:
    return build_server(clock)


def bind(server: ApiServer, rule: dict[str, Any], subject: dict[str, Any], namespace: str = "") -> None:
    """A role with one rule and its binding; cluster-wide without a namespace."""
    where, kind = (f"{RBAC}/namespaces/{namespace}/", "") if namespace else (f"{RBAC}/", "Cluster")
    code, _ = ask(server, "POST", f"{where}{kind.lower()}roles", {"metadata": {"name": "r"}, "rules": [rule]})
    assert code == 201
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{kind}Role", "name": "r"}
    binding = {"metadata": {"name": "b"}, "roleRef": reference, "subjects": [subject]}
    code, answer = ask(server, "POST", f"{where}{kind.lower()}rolebindings", binding)
    assert code == 201, answer


USER = {"kind": "User", "name": "someone", "apiGroup": "rbac.authorization.k8s.io"}


@pytest.mark.parametrize(
    ("rule", "act", "expected"),
    [
        pytest.param(PODS, Act("get", "", "pods", namespace="default", name="p"), True, id="a-verb-that-is-named"),
        pytest.param(PODS, Act("delete", "", "pods", namespace="default", name="p"), False, id="a-verb-that-is-not"),
        pytest.param(PODS, Act("get", "", "pods", "log", "default", "p"), False, id="a-subresource-needs-its-own-word"),
        pytest.param(
            {**PODS, "resources": ["*/log"]},
            Act("get", "", "pods", "log", "default", "p"),
            True,
            id="one-subresource-of-everything",
        ),
        pytest.param(
            {**PODS, "resources": ["*"]}, Act("get", "", "pods", "log", "default", "p"), True, id="all-resources"
        ),
        pytest.param(PODS, Act("get", "apps", "pods"), False, id="another-group"),
        pytest.param({**PODS, "apiGroups": ["*"], "verbs": ["*"]}, Act("patch", "apps", "pods"), True, id="stars"),
        pytest.param(
            {**PODS, "resourceNames": ["p"]},
            Act("get", "", "pods", namespace="default", name="p"),
            True,
            id="an-object-that-is-named",
        ),
        pytest.param(
            {**PODS, "resourceNames": ["p"]},
            Act("list", "", "pods", namespace="default"),
            False,
            id="a-list-has-no-name",
        ),
        pytest.param(
            {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
            Act("get", path="/logs/a"),
            True,
            id="a-path-below-a-star",
        ),
        pytest.param(
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
            Act("get", path="/metrics/a"),
            False,
            id="a-path-below-another",
        ),
    ],
)
def test_rules(server: ApiServer, rule: dict[str, Any], act: Act, expected: bool) -> None:
    assert not server.access.allows(SOMEONE, act)
    bind(server, rule, USER)
    assert server.access.allows(SOMEONE, act) is expected


@pytest.mark.parametrize(
    ("subject", "identity", "expected"),
    [
        pytest.param(USER, SOMEONE, True, id="by-name"),
        pytest.param({"kind": "Group", "name": "crew"}, SOMEONE, True, id="by-group"),
        pytest.param({"kind": "ServiceAccount", "name": "robot", "namespace": "default"}, ROBOT, True, id="an-account"),
        pytest.param(
            {"kind": "ServiceAccount", "name": "robot", "namespace": "other"}, ROBOT, False, id="an-account-elsewhere"
        ),
        pytest.param({"kind": "User", "name": "crew"}, SOMEONE, False, id="a-group-is-no-user"),
    ],
)
def test_subjects(server: ApiServer, subject: dict[str, Any], identity: Identity, expected: bool) -> None:
    bind(server, PODS, {**subject, "apiGroup": subject.get("apiGroup", "")}, "default")
    act = Act("get", "", "pods", namespace="default", name="p")
    assert server.access.allows(identity, act) is expected
    assert not server.access.allows(identity, Act("get", "", "pods", namespace="kube-system", name="p"))


def test_a_forbidden_message_names_user_verb_resource_and_scope(server: ApiServer) -> None:
    code, answer = ask(server, "GET", "/api/v1/namespaces/default/pods/p", identity=SOMEONE)
    assert code == 403
    assert answer["message"] == (
        'pods "p" is forbidden: User "someone" cannot get resource "pods" in API group "" in the namespace "default"'
    )
    code, answer = ask(server, "GET", "/metrics", identity=Identity("someone"))
    assert (code, answer["message"]) == (403, 'forbidden: User "someone" cannot get path "/metrics"')


def test_everybody_can_review_themselves(server: ApiServer) -> None:
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    code, answer = ask(server, "POST", path, {}, identity=SOMEONE)
    assert (code, answer["status"]["userInfo"]["username"]) == (201, "someone")
    assert ask(server, "GET", "/apis", identity=SOMEONE)[0] == 200


def token_of(server: ApiServer, seconds: int) -> str:
    path = "/api/v1/namespaces/default/serviceaccounts"
    ask(server, "POST", path, {"metadata": {"name": "robot"}})
    code, answer = ask(server, "POST", f"{path}/robot/token", {"spec": {"expirationSeconds": seconds}})
    assert code == 201, answer
    return str(answer["status"]["token"])


def test_a_token_is_valid_until_it_expires(server: ApiServer, clock: SimClock) -> None:
    token = token_of(server, 600)
    identify = server.tokens.identify(token)
    assert identify is not None
    assert (identify.name, identify.groups) == (
        ROBOT.name,
        ("system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"),
    )
    assert identify.uid == ask(server, "GET", "/api/v1/namespaces/default/serviceaccounts/robot")[1]["metadata"]["uid"]
    clock.advance(599)
    assert server.tokens.identify(token) is not None
    clock.advance(2)
    assert server.tokens.identify(token) is None


def test_a_token_is_invalid_without_its_account(server: ApiServer) -> None:
    token = token_of(server, 600)
    ask(server, "DELETE", "/api/v1/namespaces/default/serviceaccounts/robot")
    assert server.tokens.identify(token) is None


def test_a_modified_token_is_invalid(server: ApiServer) -> None:
    head, claims, signature = token_of(server, 600).split(".")
    assert server.tokens.identify(f"{head}.{claims}x.{signature}") is None
    assert server.tokens.identify("nonsense") is None


def test_a_short_expiration_is_rejected(server: ApiServer) -> None:
    ask(server, "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "robot"}})
    path = "/api/v1/namespaces/default/serviceaccounts/robot/token"
    code, answer = ask(server, "POST", path, {"spec": {"expirationSeconds": 10}})
    assert (code, answer["reason"]) == (422, "Invalid")


def test_reviews_of_others(server: ApiServer) -> None:
    bind(server, PODS, USER, "default")
    amounts = {"verb": "get", "resource": "pods", "namespace": "default"}
    for user, expected in (("someone", True), ("stranger", False)):
        body = {"spec": {"user": user, "resourceAttributes": amounts}}
        _, answer = ask(server, "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert answer["status"]["allowed"] is expected
    token = token_of(server, 600)
    _, answer = ask(server, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": token}})
    assert answer["status"]["user"]["username"] == ROBOT.name


@pytest.mark.parametrize(
    ("audiences", "expected"),
    [pytest.param([], True, id="any"), pytest.param(["elsewhere"], False, id="of-another-audience")],
)
def test_a_review_knows_the_token_of_the_kubeconfig(server: ApiServer, audiences: list[str], expected: bool) -> None:
    server.tokens.accept("of-the-kubeconfig", ROBOT)
    body = {"spec": {"token": "of-the-kubeconfig", "audiences": audiences}}
    _, answer = ask(server, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", body)
    assert answer["status"].get("authenticated", False) is expected
    assert (answer["status"]["user"].get("username") == ROBOT.name) is expected


READER: dict[str, Any] = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list"]}
MAKER: dict[str, Any] = {
    "apiGroups": ["rbac.authorization.k8s.io"],
    "resources": ["roles", "rolebindings"],
    "verbs": ["create", "update"],
}


@pytest.mark.parametrize(
    ("expectation", "expected"),
    [
        pytest.param(READER, 201, id="what-he-has"),
        pytest.param({**READER, "resources": ["pods"], "verbs": ["get"]}, 201, id="less-than-he-has"),
        pytest.param({**READER, "verbs": ["get", "delete"]}, 403, id="another-verb"),
        pytest.param({**READER, "resources": ["*"]}, 403, id="every-resource"),
        pytest.param({**READER, "resources": ["secrets"]}, 403, id="another-resource"),
    ],
)
def test_roles_cannot_grant_permissions_the_writer_lacks(
    server: ApiServer, expectation: dict[str, Any], expected: int
) -> None:
    bind(server, READER, USER, "default")
    grants = {"apiGroups": MAKER["apiGroups"], "resources": MAKER["resources"], "verbs": MAKER["verbs"]}
    role = {"metadata": {"name": "maker"}, "rules": [grants]}
    assert ask(server, "POST", f"{RBAC}/clusterroles", role)[0] == 201
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maker"}
    binding = {"metadata": {"name": "maker"}, "roleRef": reference, "subjects": [USER]}
    assert ask(server, "POST", f"{RBAC}/namespaces/default/rolebindings", binding)[0] == 201
    new = {"metadata": {"name": "new"}, "rules": [expectation]}

    code, answer = ask(server, "POST", f"{RBAC}/namespaces/default/roles", new, identity=SOMEONE)

    assert code == expected
    if expected == 403:
        message = 'roles.rbac.authorization.k8s.io "new" is forbidden: user "someone" (groups=["crew"'
        assert answer["message"].startswith(message)
        assert "is attempting to grant RBAC permissions not currently held:\n{APIGroups:" in answer["message"]


@pytest.mark.parametrize(
    ("role", "expected"),
    [pytest.param("view-pods", 201, id="what-he-has"), pytest.param("cluster-admin", 403, id="everything")],
)
def test_bindings_cannot_grant_permissions_the_writer_lacks(server: ApiServer, role: str, expected: int) -> None:
    bind(server, READER, USER, "default")
    for name, rule in (("view-pods", READER), ("maker", MAKER)):
        assert ask(server, "POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})[0] == 201
    path = f"{RBAC}/namespaces/default/rolebindings"

    def binding(name: str, of: str) -> dict[str, Any]:
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": of}
        return {"metadata": {"name": name}, "roleRef": reference, "subjects": [USER]}

    assert ask(server, "POST", path, binding("maker", "maker"))[0] == 201

    assert ask(server, "POST", path, binding("more", role), identity=SOMEONE)[0] == expected


def test_a_binding_to_a_missing_role_is_not_found(server: ApiServer) -> None:
    """Members of system:masters may bind roles that do not exist yet; others get 404, since nothing can be checked."""
    bind(server, MAKER, USER, "default")
    path = f"{RBAC}/namespaces/default/rolebindings"
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "none"}
    body = {"metadata": {"name": "early"}, "roleRef": reference, "subjects": [USER]}
    code, answer = ask(server, "POST", path, body, identity=SOMEONE)
    assert (code, answer["reason"]) == (404, "NotFound")
    assert answer["message"] == 'clusterroles.rbac.authorization.k8s.io "none" not found'
    assert ask(server, "POST", path, body)[0] == 201
