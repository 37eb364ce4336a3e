"""Impersonation by headers, and authentication of clients without a certificate."""

from time import gmtime, strftime
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.access.authentication import authenticate
from seatrial.harness.apiserver.access.credentials import make_credentials
from seatrial.harness.apiserver.access.identity import ADMIN, ANONYMOUS, Identity
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.server import ApiServer
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Request, Response

ACCOUNT = "system:serviceaccount:default:default"
_REVIEWS = "/apis/authentication.k8s.io/v1"
_ROLES = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def server() -> ApiServer:
    return build_server(SimClock())


def ask(
    server: ApiServer, method: str, path: str, body: Any, by: Identity = ADMIN, **headers: str
) -> tuple[int, dict[str, Any]]:
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    response = server.handle(Request(method, path, orjson.dumps(body), "application/json", sent), by)
    assert isinstance(response, Response)
    return response.code, orjson.loads(response.body)


@pytest.mark.parametrize(
    ("headers", "user"),
    [
        pytest.param({"impersonate_user": "u"}, {"username": "u", "groups": ["system:authenticated"]}, id="a-user"),
        pytest.param(
            {"impersonate_user": "u", "impersonate_group": "g\nh", "impersonate_uid": "7", "impersonate_extra_s": "t"},
            {"username": "u", "uid": "7", "groups": ["g", "h", "system:authenticated"], "extra": {"s": ["t"]}},
            id="groups-uid-and-extra",
        ),
        pytest.param(
            {"impersonate_user": ACCOUNT},
            {
                "username": ACCOUNT,
                "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
            },
            id="an-account-has-its-groups",
        ),
    ],
)
def test_who_one_becomes(server: ApiServer, headers: dict[str, Any], user: dict[str, Any]) -> None:
    code, body = ask(server, "POST", f"{_REVIEWS}/selfsubjectreviews", {}, **headers)
    assert (code, body["status"]["userInfo"]) == (201, user)


def test_groups_without_a_user_are_refused(server: ApiServer) -> None:
    code, body = ask(server, "POST", f"{_REVIEWS}/selfsubjectreviews", {}, impersonate_group="system:masters")
    assert (code, body["reason"]) == (400, "BadRequest")


def test_an_account_is_impersonated_by_a_right_on_that_account(server: ApiServer) -> None:
    """The right on `serviceaccounts`, not on `users`, counts; upstream checks it in the account's namespace."""
    someone = Identity("someone", ("system:authenticated",))
    for name, resource in (("users", "users"), ("accounts", "serviceaccounts")):
        rule = {"apiGroups": [""], "resources": [resource], "verbs": ["impersonate"]}
        assert ask(server, "POST", f"{_ROLES}/clusterroles", {"metadata": {"name": name}, "rules": [rule]})[0] == 201
    binding = {
        "metadata": {"name": "users"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "users"},
        "subjects": [{"kind": "User", "name": "someone", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    assert ask(server, "POST", f"{_ROLES}/clusterrolebindings", binding)[0] == 201
    path = f"{_REVIEWS}/selfsubjectreviews"
    assert ask(server, "POST", path, {}, someone, impersonate_user="u")[0] == 201
    code, body = ask(server, "POST", path, {}, someone, impersonate_user=ACCOUNT)
    assert (code, body["details"]["kind"]) == (403, "serviceaccounts")
    binding["roleRef"]["name"] = "accounts"  # type: ignore[index]
    assert ask(server, "POST", f"{_ROLES}/namespaces/default/rolebindings", binding)[0] == 201
    assert ask(server, "POST", path, {}, someone, impersonate_user=ACCOUNT)[0] == 201
    other = "system:serviceaccount:kube-system:default"
    assert ask(server, "POST", path, {}, someone, impersonate_user=other)[0] == 403


def test_tokens_and_anonymous_clients(server: ApiServer) -> None:
    credentials = make_credentials(["127.0.0.1"], 0.0)
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = ask(server, "POST", path, {})[1]["status"]["token"]

    def who(header: str, name: str = "") -> str:
        certificate: dict[str, object] | None = {"subject": ((("commonName", name),),)} if name else None
        identity = authenticate(credentials, server.tokens, header, certificate)
        return identity.name if identity is not None else "nobody"

    assert who("") == who("Basic YTpi") == who("Bearer ") == ANONYMOUS.name
    assert who("Bearer wrong") == who(f"Bearer {token}x") == "nobody"
    assert who(f"Bearer {token}") == ACCOUNT
    assert who(f"Bearer {credentials.token}") == ADMIN.name
    assert who("Bearer wrong", "somebody") == "somebody"


def test_a_certificate_that_has_expired_since_the_client_connected_is_refused(server: ApiServer) -> None:
    now = server.clock.now()

    def known(until: float) -> bool:
        subject = ((("commonName", "somebody"),),)
        certificate: dict[str, object] = {
            "subject": subject,
            "notAfter": strftime("%b %d %H:%M:%S %Y GMT", gmtime(until)),
        }
        return authenticate(make_credentials(["127.0.0.1"], 0.0), server.tokens, "", certificate) is not None

    assert known(now + 1)
    assert not known(now)


def test_a_review_of_a_token(server: ApiServer) -> None:
    """A token is valid for its audiences alone, and as long as the pod that it is bound to exists."""
    pods = "/api/v1/namespaces/default/pods"
    assert ask(server, "POST", pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    bound = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    spec = {"audiences": ["a", "b"], "boundObjectRef": bound}
    token = ask(server, "POST", path, {"spec": spec})[1]["status"]["token"]

    def reviewed(audiences: list[str]) -> dict[str, Any]:
        body = {"spec": {"token": token, "audiences": audiences}}
        status: dict[str, Any] = ask(server, "POST", f"{_REVIEWS}/tokenreviews", body)[1]["status"]
        return status

    results = reviewed(["b", "c"])
    assert (results["authenticated"], results["audiences"]) == (True, ["b"])
    assert results["user"]["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    assert reviewed(["c"]) == {"user": {}, "error": "invalid bearer token"}
    ask(server, "DELETE", f"{pods}/p", {})
    assert "authenticated" not in reviewed(["b"])
    assert ask(server, "POST", path, {"spec": spec})[0] == 404


def test_the_key_set_verifies_tokens(server: ApiServer) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec, utils

    from seatrial.harness.apiserver.access.signing_key import decoded

    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    text, _, signature = ask(server, "POST", path, {})[1]["status"]["token"].rpartition(".")
    assert ask(server, "GET", "/.well-known/openid-configuration", None)[1]["jwks_uri"].endswith("/openid/v1/jwks")
    key = ask(server, "GET", "/openid/v1/jwks", None)[1]["keys"][0]
    public = ec.EllipticCurvePublicNumbers(
        int.from_bytes(decoded(key["x"])), int.from_bytes(decoded(key["y"])), ec.SECP256R1()
    ).public_key()
    raw = decoded(signature)
    dss_signature = utils.encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    public.verify(dss_signature, text.encode(), ec.ECDSA(hashes.SHA256()))
