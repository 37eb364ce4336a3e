"""CertificateSigningRequests: validation, permission checks, and the rules of Kubernetes' signers.

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

from seatrial.harness.apiserver import errors
from seatrial.harness.apiserver.access.authority import alternatives
from seatrial.harness.apiserver.access.identity import CONTROLLERS, Identity
from seatrial.harness.apiserver.access.rbac import MASTERS, Access, Act
from seatrial.harness.apiserver.discovery.resources import Resource
from seatrial.harness.apiserver.field_errors import Causes, forbidden, invalid, required
from seatrial.harness.apiserver.storage.store import Object

GROUP: Final = "certificates.k8s.io"
API_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
_BEGIN, _END = "-----BEGIN CERTIFICATE REQUEST-----", "-----END CERTIFICATE REQUEST-----"
_SIGNER = re.compile(r"[a-z0-9][-a-z0-9]*(?:\.[-a-z0-9]+)+/[A-Za-z0-9]([-A-Za-z0-9._]*[A-Za-z0-9])?")
_MIN_SECONDS = 600
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})
_SERVER_USAGES = frozenset({"digital signature", "key encipherment", "server auth"})
_RSA_ONLY = "key encipherment"  # optional, because only RSA keys can be used for it
_PERMANENT = ("Approved", "Denied", "Failed")
_USAGES = frozenset(
    {
        "signing",
        "digital signature",
        "content commitment",
        "key encipherment",
        "key agreement",
        "data encipherment",
        "cert sign",
        "crl sign",
        "encipher only",
        "decipher only",
        "any",
        "server auth",
        "client auth",
        "code signing",
        "email protection",
        "s/mime",
        "ipsec end system",
        "ipsec tunnel",
        "ipsec user",
        "timestamping",
        "ocsp signing",
        "microsoft sgc",
        "netscape sgc",
    }
)


class NotSigned(Exception):
    """A signer rejects a request; the text is the reason."""


def read_request(text: Any) -> x509.CertificateSigningRequest:
    """The parsed `spec.request` (base64-encoded PEM).

    Raises:
        ValueError: it is not a certificate request.
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
    """Check a CertificateSigningRequest; after creation only its metadata can change."""
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
    for number, usage in enumerate(usages):
        if usage not in _USAGES:
            causes.append(invalid(f"spec.usages[{number}]", usage, "unknown usage"))
        if usage in usages[:number]:
            causes.append(invalid(f"spec.usages[{number}]", usage, "duplicate usage"))
    signer = spec.get("signerName") or ""
    if not signer:
        causes.append(required("spec.signerName"))
    elif _SIGNER.fullmatch(signer) is None:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        causes.append(invalid("spec.signerName", signer, why))
    seconds = spec.get("expirationSeconds")
    if seconds is not None and seconds < _MIN_SECONDS:
        why = f"may not specify a duration less than {_MIN_SECONDS} seconds (10 minutes)"
        causes.append(invalid("spec.expirationSeconds", seconds, why))


def check_conditions(obj: Object, old: Object, causes: Causes) -> None:
    """Check that decisions are not removed, and that a request is not both approved and denied."""
    before, now = _types(old), _types(obj)
    causes.extend(
        forbidden("status.conditions", f'updates may not remove a condition of type "{kind}"')
        for kind in _PERMANENT
        if kind in before and kind not in now
    )
    if "Approved" in now and "Denied" in now:
        why = "Approved and Denied conditions are mutually exclusive"
        causes.append(invalid("status.conditions", "Denied", why))


def check_signing_rights(access: Access, by: Identity, resource: Resource, body: Object, old: Object | None) -> None:
    """Set the requester on create; on updates, check the permission to approve or sign.

    Raises:
        ApiStatusError: 403, the writer may not approve or sign for this signer, or the requested subject is forbidden.
    """
    spec = body.get("spec")
    if not isinstance(spec, dict):
        return
    if old is None:
        for mine in ("username", "uid", "groups", "extra"):
            spec.pop(mine, None)
        spec.update((name, value) for name, value in by.user_info.items() if value)
        _check_subject(resource, body, spec)
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


def _check_subject(resource: Resource, body: Object, spec: Mapping[str, Any]) -> None:
    """The admission plugin CertificateSubjectRestriction."""
    if spec.get("signerName") != API_CLIENT:
        return
    try:
        groups = _organizations(read_request(spec.get("request")))
    except ValueError:
        return  # validation reports it
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
    """Check a request against the rules of `signer`.

    Raises:
        NotSigned: it does not meet them.
    """
    if signer == API_CLIENT:
        if not usages <= _CLIENT_USAGES or "client auth" not in usages:
            raise NotSigned("usages did not match")
        return
    names = alternatives(request)
    hosts = [name for name in names if isinstance(name, (x509.DNSName, x509.IPAddress))]
    common = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if _organizations(request) != ["system:nodes"]:
        raise NotSigned("subject organization is not system:nodes")
    if signer == KUBELET_SERVING and not hosts:
        raise NotSigned("DNS or IP subjectAltName is required")
    if signer == KUBELET_CLIENT and any(isinstance(name, x509.DNSName) for name in names):
        raise NotSigned("DNS subjectAltNames are not allowed")
    if any(isinstance(name, x509.RFC822Name) for name in names):
        raise NotSigned("email subjectAltNames are not allowed")
    if signer == KUBELET_CLIENT and hosts:
        raise NotSigned("IP subjectAltNames are not allowed")
    if any(isinstance(name, x509.UniformResourceIdentifier) for name in names):
        raise NotSigned("URI subjectAltNames are not allowed")
    target = _SERVER_USAGES if signer == KUBELET_SERVING else _CLIENT_USAGES
    if usages not in {target, target - {_RSA_ONLY}}:
        raise NotSigned(f"usages did not match [{' '.join(sorted(target))}]")
    if not common or not str(common[0].value).startswith("system:node:"):
        raise NotSigned("subject common name does not begin with system:node:")


def _organizations(request: x509.CertificateSigningRequest) -> list[str]:
    return [str(attribute.value) for attribute in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def _types(obj: Object) -> set[str]:
    return {str(condition.get("type")) for condition in (obj.get("status") or {}).get("conditions") or ()}
