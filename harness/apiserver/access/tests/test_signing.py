"""Certificate requests: validation, signing, and authentication with signed certificates."""

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.access.identity import ADMIN, Identity
from seatrial.harness.apiserver.access.signing import API_CLIENT, KUBELET_CLIENT, KUBELET_SERVING
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.tests.asking import Object
from seatrial.harness.apiserver.tests.kubectl import Kubectl
from seatrial.harness.apiserver.tests.serving import Served, served
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import JSON, Request, Response

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
CLIENT = ["digital signature", "key encipherment", "client auth"]
SERVER = ["digital signature", "key encipherment", "server auth"]
KEY = ec.generate_private_key(ec.SECP256R1())
NODE, NODES = "system:node:n1", ("system:nodes",)
HOST = x509.DNSName("n1.example.com")
YEAR, BACKDATED = 365 * 86_400, 300  # seconds


def signing_request(common: str = "ann", groups: tuple[str, ...] = ("sailors",), *names: x509.GeneralName) -> str:
    """`spec.request`: a PKCS #10 request for the tests' key."""
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    builder = x509.CertificateSigningRequestBuilder().subject_name(
        x509.Name([*subject, x509.NameAttribute(NameOID.COMMON_NAME, common)])
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    pem = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return base64.b64encode(pem).decode()


def request(text: str, signer: str = API_CLIENT, usages: list[str] | None = None, **spec: Any) -> Object:
    body = {"signerName": signer, "request": text, "usages": CLIENT if usages is None else usages, **spec}
    return {"metadata": {"name": "r"}, "spec": body}


class Signing:
    """A server with an authority, on simulated time."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.server = build_server(self.clock, authority=Authority.fresh(self.clock.now()))

    def ask(self, method: str, path: str, body: Any = None, by: Identity = ADMIN) -> tuple[int, Any]:
        sent = Request(method, f"{REQUESTS}{path}", orjson.dumps(body) if body else b"", JSON)
        response = self.server.handle(sent, by)
        assert isinstance(response, Response)
        self.clock.settle()
        return response.code, orjson.loads(response.body)

    def approve(self, kind: str = "Approved", by: Identity = ADMIN) -> tuple[int, Any]:
        body = self.ask("GET", "/r")[1]
        body["status"] = {"conditions": [{"type": kind, "status": "True", "reason": "Test", "message": ""}]}
        return self.ask("PUT", "/r/approval", body, by)

    def certificate(self) -> x509.Certificate | None:
        text = self.ask("GET", "/r")[1].get("status", {}).get("certificate")
        return x509.load_pem_x509_certificate(base64.b64decode(text)) if text else None


@pytest.fixture
def signing() -> Signing:
    return Signing()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param({"request": "bm8="}, "spec.request", id="not-pem"),
        pytest.param({"request": "%"}, "spec.request", id="not-base64"),
        pytest.param({"request": signing_request()[:-16] + "A" * 16}, "spec.request", id="cut-off"),
        pytest.param({"usages": []}, "spec.usages", id="no-usage"),
        pytest.param({"usages": ["sailing"]}, "spec.usages[0]", id="unknown-usage"),
        pytest.param({"usages": ["client auth", "client auth"]}, "spec.usages[1]", id="the-same-usage-twice"),
        pytest.param({"signerName": ""}, "spec.signerName", id="no-signer"),
        pytest.param({"signerName": "anybody"}, "spec.signerName", id="signer-without-a-domain"),
        pytest.param({"expirationSeconds": 599}, "spec.expirationSeconds", id="too-short"),
    ],
)
def test_an_invalid_request_is_rejected(signing: Signing, spec: Object, field: str) -> None:
    body = request(signing_request())
    body["spec"].update(spec)
    code, answer = signing.ask("POST", "", body)
    assert code in {400, 422}
    if code == 422:
        assert [cause["field"] for cause in answer["details"]["causes"]] == [field]
    assert signing.ask("GET", "/r")[0] == 404


def test_the_requester_is_recorded_and_the_spec_immutable(signing: Signing) -> None:
    sailor = Identity("bob", ("system:authenticated", "system:masters"), "u-7", (("crew", ("a", "b")),))
    code, body = signing.ask("POST", "", request(signing_request(), username="eve", groups=["system:nodes"]), sailor)
    assert code == 201
    assert (body["spec"]["username"], body["spec"]["groups"]) == ("bob", list(sailor.groups))
    assert (body["spec"]["uid"], body["spec"]["extra"]) == ("u-7", {"crew": ["a", "b"]})
    body["spec"]["username"] = "eve"
    body["spec"]["expirationSeconds"] = 700
    body["metadata"]["labels"] = {"seen": "yes"}
    code, changed = signing.ask("PUT", "/r", body)
    assert (code, changed["spec"]["username"], changed["metadata"]["labels"]) == (200, "bob", {"seen": "yes"})
    assert "expirationSeconds" not in changed["spec"]


@pytest.mark.parametrize(
    ("signer", "usages", "text", "why"),
    [
        pytest.param(API_CLIENT, CLIENT, signing_request(), "", id="client"),
        pytest.param(API_CLIENT, ["client auth"], signing_request(), "", id="client-with-the-least-usages"),
        pytest.param(API_CLIENT, SERVER, signing_request(), "usages did not match", id="client-as-server"),
        pytest.param(
            API_CLIENT, CLIENT[:2], signing_request(), "usages did not match", id="client-without-client-auth"
        ),
        pytest.param(KUBELET_SERVING, SERVER, signing_request(NODE, NODES, HOST), "", id="kubelet-serving"),
        pytest.param(
            KUBELET_SERVING,
            ["server auth", "digital signature"],
            signing_request(NODE, NODES, HOST),
            "",
            id="kubelet-serving-without-rsa",
        ),
        pytest.param(
            KUBELET_SERVING,
            SERVER,
            signing_request(NODE, NODES),
            "DNS or IP subjectAltName is required",
            id="kubelet-serving-nowhere",
        ),
        pytest.param(
            KUBELET_SERVING,
            SERVER,
            signing_request("n1", NODES, HOST),
            "subject common name does not begin with system:node:",
            id="kubelet-serving-under-another-name",
        ),
        pytest.param(
            KUBELET_SERVING,
            CLIENT,
            signing_request(NODE, NODES, HOST),
            "usages did not match [digital signature key encipherment server auth]",
            id="kubelet-serving-as-client",
        ),
        pytest.param(KUBELET_CLIENT, CLIENT, signing_request(NODE, NODES), "", id="kubelet-client"),
        pytest.param(
            KUBELET_CLIENT,
            CLIENT,
            signing_request(NODE, NODES, HOST),
            "DNS subjectAltNames are not allowed",
            id="kubelet-client-with-a-host",
        ),
        pytest.param(
            KUBELET_CLIENT,
            CLIENT,
            signing_request("system:node:n1", ()),
            "subject organization is not system:nodes",
            id="kubelet-client-outside-the-group",
        ),
    ],
)
def test_rules_of_each_signer(signing: Signing, signer: str, usages: list[str], text: str, why: str) -> None:
    assert signing.ask("POST", "", request(text, signer, usages))[0] == 201
    assert signing.certificate() is None
    assert signing.approve()[0] == 200
    certificate = signing.certificate()
    failed = [
        condition for condition in signing.ask("GET", "/r")[1]["status"]["conditions"] if condition["type"] == "Failed"
    ]
    if why:
        assert certificate is None
        assert [(condition["reason"], condition["message"]) for condition in failed] == [
            ("SignerValidationFailure", why)
        ]
        return
    assert certificate is not None
    assert not failed
    purpose = ExtendedKeyUsageOID.SERVER_AUTH if signer == KUBELET_SERVING else ExtendedKeyUsageOID.CLIENT_AUTH
    assert list(certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [purpose]
    assert certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca is False
    query = x509.load_pem_x509_csr(base64.b64decode(text))
    assert (certificate.subject, certificate.public_key()) == (query.subject, KEY.public_key())
    if signer == KUBELET_SERVING:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert list(names) == [HOST]


@pytest.mark.parametrize(
    ("amount", "want"),
    [
        pytest.param(None, YEAR - BACKDATED, id="a-year-unless-asked"),
        pytest.param(600, 600, id="ten-minutes-from-now"),
        pytest.param(86_400, 86_400 - BACKDATED, id="longer-ones-from-five-minutes-ago"),
        pytest.param(10 * YEAR, YEAR - BACKDATED, id="no-more-than-a-year"),
    ],
)
def test_validity(signing: Signing, amount: int | None, want: float) -> None:
    body = request(signing_request())
    body["spec"]["expirationSeconds"] = amount
    signing.ask("POST", "", body)
    signing.approve()
    certificate = signing.certificate()
    assert certificate is not None
    now = datetime.fromtimestamp(signing.clock.now(), UTC)
    assert (now - certificate.not_valid_before_utc).total_seconds() == BACKDATED
    assert (certificate.not_valid_after_utc - now).total_seconds() == want


def test_foreign_signers_and_denied_requests_are_not_signed(signing: Signing) -> None:
    signing.ask("POST", "", request(signing_request(), "sea.example.com/harbour"))
    signing.approve()
    assert signing.certificate() is None
    signing.ask("DELETE", "/r")
    signing.ask("POST", "", request(signing_request()))
    signing.approve("Denied")
    assert signing.certificate() is None
    code, body = signing.approve("Approved")
    assert (code, body["reason"]) == (422, "Invalid")
    assert 'updates may not remove a condition of type "Denied"' in body["message"]


def test_certificates_for_system_masters_are_forbidden(signing: Signing) -> None:
    code, body = signing.ask("POST", "", request(signing_request("ann", ("system:masters",))))
    assert code == 403
    assert f"use of {API_CLIENT} signer with system:masters group is not allowed" in body["message"]


def test_approval_needs_a_permission(signing: Signing) -> None:
    bob = Identity("bob", ("system:authenticated",))
    signing.ask("POST", "", request(signing_request()))
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": ["*"], "verbs": ["get", "update"]}]
    grant = "/apis/rbac.authorization.k8s.io/v1"
    for path, body in (
        ("clusterroles", {"metadata": {"name": "csr"}, "rules": rules}),
        (
            "clusterrolebindings",
            {
                "metadata": {"name": "csr"},
                "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
                "roleRef": {"kind": "ClusterRole", "name": "csr", "apiGroup": "rbac.authorization.k8s.io"},
            },
        ),
    ):
        signing.server.handle(Request("POST", f"{grant}/{path}", orjson.dumps(body), JSON))
    code, answer = signing.approve(by=bob)
    assert code == 403
    assert f'user not permitted to approve requests with signerName "{API_CLIENT}"' in answer["message"]
    more = [
        *rules,
        {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["signers"],
            "verbs": ["approve"],
            "resourceNames": ["kubernetes.io/*"],
        },
    ]
    body = {"metadata": {"name": "csr"}, "rules": more}
    signing.server.handle(Request("PUT", f"{grant}/clusterroles/csr", orjson.dumps(body), JSON))
    assert signing.approve(by=bob)[0] == 200
    assert signing.certificate() is not None


@pytest.mark.parametrize(
    ("decision", "hours"),
    [
        pytest.param("Approved", 1, id="approved"),
        pytest.param("Denied", 1, id="denied"),
        pytest.param("", 24, id="not-decided"),
    ],
)
def test_old_requests_are_deleted(signing: Signing, decision: str, hours: int) -> None:
    signing.ask("POST", "", request(signing_request()))
    if decision:
        signing.approve(decision)
    signing.clock.advance(hours * 3600 - 60)
    assert signing.ask("GET", "/r")[0] == 200
    signing.clock.advance(120)
    assert signing.ask("GET", "/r")[0] == 404


def test_a_signed_certificate_authenticates(tmp_path: Path) -> None:
    with served() as place:
        with place.connect() as wire:
            assert wire.ask("POST", REQUESTS, request(signing_request("ann", ("sailors",))))[0] == 201
            body = wire.ask("GET", f"{REQUESTS}/r")[1]
            body["status"] = {"conditions": [{"type": "Approved", "status": "True", "reason": "Test"}]}
            assert wire.ask("PUT", f"{REQUESTS}/r/approval", body)[0] == 200
            text = wire.ask("GET", f"{REQUESTS}/r")[1]["status"]["certificate"]
        who = _asked_with(place, base64.b64decode(text), tmp_path)
    assert who == {"username": "ann", "groups": ["sailors", "system:authenticated"]}


def _asked_with(place: Served, certificate: bytes, folder: Path) -> Object:
    """The SelfSubjectReview of the holder of a certificate."""
    chain, key = folder / "ann.crt", folder / "ann.key"
    chain.write_bytes(certificate)
    key.write_bytes(_private_key())
    place.context.load_cert_chain(chain, key)
    with place.connect() as wire:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        code, answer = wire.ask("POST", path, body, authorization="")
    assert code == 201, answer
    user: Object = answer["status"]["userInfo"]
    return {name: user[name] for name in ("username", "groups")}


def _private_key() -> bytes:
    return KEY.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def test_kubectl_approves_and_the_certificate_authenticates(
    kubectl: Kubectl, embedded: EmbeddedCluster, tmp_path: Path
) -> None:
    spec = {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        **request(signing_request("kim", ())),
    }
    spec["metadata"] = {"name": "kim"}
    assert kubectl.run(["create", "-f", "-"], stdin=orjson.dumps(spec).decode())[0] == 0
    code, output = kubectl.run(["certificate", "approve", "kim"])
    assert code == 0, output
    wait = ["wait", "--for=jsonpath={.status.certificate}", "csr/kim", "--timeout=5s"]
    assert kubectl.run(wait)[0] == 0
    listed = kubectl.run(["get", "csr", "kim"])[1]
    assert "Approved,Issued" in listed, listed
    text = kubectl.run(["get", "csr", "kim", "-o", "jsonpath={.status.certificate}"])[1]
    chain, key = tmp_path / "kim.crt", tmp_path / "kim.key"
    chain.write_bytes(base64.b64decode(text))
    key.write_bytes(_private_key())
    url = kubectl.run(["config", "view", "-o", "jsonpath={.clusters[0].cluster.server}"])[1]
    raw = kubectl.run(["config", "view", "--raw", "-o", "jsonpath={.clusters[0].cluster.certificate-authority-data}"])
    authority = tmp_path / "ca.crt"
    authority.write_bytes(base64.b64decode(raw[1]))
    stranger = {"KUBECONFIG": str(tmp_path / "none")}
    flags = [
        f"--server={url}",
        f"--certificate-authority={authority}",
        f"--client-certificate={chain}",
        f"--client-key={key}",
    ]
    code, output = kubectl.run([*flags, "auth", "whoami"], env=stranger)
    assert code == 0, output
    assert "kim" in output
    code, output = kubectl.run([*flags, "get", "nodes"], env=stranger)
    assert code != 0
    assert 'User "kim" cannot list resource "nodes"' in output
