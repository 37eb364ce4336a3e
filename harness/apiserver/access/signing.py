"""CertificateSigningRequests: what a request must say, who may approve it, and what each of Kubernetes' signers takes.

Follows `pkg/apis/certificates` (validation and `ValidateKubeletServingCSR`) and `pkg/controller/certificates/signer`.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.x509.oid import NameOID

from harness.apiserver import errors
from harness.apiserver.access.authority import alternatives
from harness.apiserver.access.identity import CONTROLLERS, Identity
from harness.apiserver.access.rbac import MASTERS, Access, Act
from harness.apiserver.discovery.resources import Resource
from harness.apiserver.field_errors import Causes, forbidden, invalid, required
from harness.apiserver.storage.store import Object

GROUP: Final = "certificates.k8s.io"
API_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
_BEGIN, _END = "-----BEGIN CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST-----"
_SIGNER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?(\.[a-z0-9-]+)+/[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")
_SHORTEST = 600  # seconds
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})
_SERVER_USAGES = frozenset({"digital signature", "key encipherment", "server auth"})
_RSA_ONLY = "key encipherment"  # other keys cannot be used for it, so a request may leave it out
_KEPT = ("Approved", "Denied", "Failed")
_USAGES = frozenset({
    "signing", "digital signature", "content commitment", "key encipherment", "key agreement", "data encipherment",
    "cert sign", "crl sign", "encipher only", "decipher only", "any", "server auth", "client auth", "code signing",
    "email protection", "s/mime", "ipsec end system", "ipsec tunnel", "ipsec user", "timestamping", "ocsp signing",
    "microsoft sgc", "netscape sgc",
})  # fmt: skip


class NotSigned(Exception):
    """Why a signer does not take a request."""


def read_request(text: Any) -> x509.CertificateSigningRequest:
    """The request in `spec.request`, PEM in base64.

    Raises:
        ValueError: it is none.
    """
    try:
        pem = base64.b64decode(str(text or ""), validate=True)
    except binascii.Error as error:
        raise ValueError(f"expected base64: {error}") from error
    if _BEGIN.encode() not in pem or _END.encode() not in pem:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    try:
        return x509.load_pem_x509_csr(pem)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"expected a PKCS #10 request: {error}") from error


def check_signing_request(obj: Object, old: Object | None, causes: Causes) -> None:
    """A new request; of one that is there nothing but its metadata can change."""
    if old is not None:
        return
    spec = obj.get("spec") or {}
    try:
        request = read_request(spec.get("request"))
        if not request.is_signature_valid:
            raise ValueError("x509: the signature of the request is not by its key")
    except (ValueError, UnsupportedAlgorithm) as error:
        causes.append(invalid("spec.request", spec.get("request"), str(error)))
    usages = spec.get("usages") or []
    if not usages:
        causes.append(required("spec.usages"))
    for number, one in enumerate(usages):
        if one not in _USAGES:
            causes.append(invalid(f"spec.usages[{number}]", one, "unknown usage"))
        if one in usages[:number]:
            causes.append(invalid(f"spec.usages[{number}]", one, "duplicate usage"))
    signer = spec.get("signerName") or ""
    if not signer:
        causes.append(required("spec.signerName"))
    elif _SIGNER.fullmatch(signer) is None:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        causes.append(invalid("spec.signerName", signer, why))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _SHORTEST:
        why = f"may not specify a duration less than {_SHORTEST} seconds (10 minutes)"
        causes.append(invalid("spec.expirationSeconds", seconds, why))


def check_conditions(obj: Object, old: Object, causes: Causes) -> None:
    """A request is approved or denied once and for all."""
    before, now = _types(old), _types(obj)
    causes.extend(
        forbidden("status.conditions", f'updates may not remove a condition of type "{one}"')
        for one in _KEPT
        if one in before and one not in now
    )
    if "Approved" in now and "Denied" in now:
        why = "Approved and Denied conditions are mutually exclusive"
        causes.append(invalid("status.conditions", "Denied", why))


def vouch_for(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """Write down who asks, and see to it that only those decide who may.

    Raises:
        ApiStatusError: 403, the writer may not approve, or sign, for this signer; or nobody gets what is asked for.
    """
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    if old is None:
        for mine in ("username", "uid", "groups", "extra"):
            spec.pop(mine, None)
        spec["username"] = by.name
        if by.groups:
            spec["groups"] = list(by.groups)
        _no_masters(resource, body, spec)
        return
    body["spec"] = old["spec"]
    if MASTERS in by.groups or by is CONTROLLERS:
        return
    if (_types(body) ^ _types(old)) & {"Approved", "Denied"} and not _may(access, by, "approve", old):
        raise _not_permitted(resource, old, "approve requests")
    if (body.get("status") or {}).get("certificate") != (old.get("status") or {}).get("certificate") and not _may(
        access, by, "sign", old
    ):
        raise _not_permitted(resource, old, "sign requests")


def _no_masters(resource: Resource, body: Object, spec: Mapping[str, Any]) -> None:
    """The admission plugin CertificateSubjectRestriction."""
    if spec.get("signerName") != API_CLIENT:
        return
    try:
        groups = _organizations(read_request(spec.get("request")))
    except ValueError:
        return  # for validation, which has the words
    if MASTERS in groups:
        why = f"use of {API_CLIENT} signer with {MASTERS} group is not allowed"
        raise errors.forbidden(resource.plural, resource.group, str(body["metadata"].get("name", "")), why)


def _may(access: Access, by: Identity, verb: str, request: Object) -> bool:
    signer = str(request["spec"].get("signerName", ""))
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(access.allows(by, Act(verb, GROUP, "signers", name=name)) for name in names)


def _not_permitted(resource: Resource, request: Object, what: str) -> errors.ApiStatusError:
    why = f'user not permitted to {what} with signerName "{request["spec"].get("signerName", "")}"'
    return errors.forbidden(resource.plural, resource.group, request["metadata"]["name"], why)


def check_signer(signer: str, request: x509.CertificateSigningRequest, usages: frozenset[str]) -> None:
    """
    Raises:
        NotSigned: the signer does not sign this.
    """
    if signer == API_CLIENT:
        if not usages <= _CLIENT_USAGES or "client auth" not in usages:
            raise NotSigned("usages did not match")
        return
    names = alternatives(request)
    hosts = [one for one in names if isinstance(one, (x509.DNSName, x509.IPAddress))]
    common = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if _organizations(request) != ["system:nodes"]:
        raise NotSigned("subject organization is not system:nodes")
    if signer == KUBELET_SERVING and not hosts:
        raise NotSigned("DNS or IP subjectAltName is required")
    if signer == KUBELET_CLIENT and any(isinstance(one, x509.DNSName) for one in names):
        raise NotSigned("DNS subjectAltNames are not allowed")
    if any(isinstance(one, x509.RFC822Name) for one in names):
        raise NotSigned("email subjectAltNames are not allowed")
    if signer == KUBELET_CLIENT and hosts:
        raise NotSigned("IP subjectAltNames are not allowed")
    if any(isinstance(one, x509.UniformResourceIdentifier) for one in names):
        raise NotSigned("URI subjectAltNames are not allowed")
    wanted = _SERVER_USAGES if signer == KUBELET_SERVING else _CLIENT_USAGES
    if usages not in {wanted, wanted - {_RSA_ONLY}}:
        raise NotSigned(f"usages did not match [{' '.join(sorted(wanted))}]")
    if not common or not str(common[0].value).startswith("system:node:"):
        raise NotSigned("subject common name does not begin with system:node:")


def _organizations(request: x509.CertificateSigningRequest) -> list[str]:
    return [str(one.value) for one in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def _types(obj: Object) -> set[str]:
    return {str(one.get("type")) for one in (obj.get("status") or {}).get("conditions") or ()}
