"""Why a run cannot use the cluster of a kubeconfig: no answer, refused credentials, or missing rights."""

import base64
import binascii
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from cryptography import x509

from seatrial.harness.clusters.kubeconfig import content_of, entry_named
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.transport import Request

Right = tuple[str, str, str]  # API group, resource, verb
ROLE = "docs/cluster-role.yaml"
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO_AM_I = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_HINTS = {  # part of an error of TLS or of the socket → what to do
    "CERTIFICATE_VERIFY_FAILED": "expected a server certificate of the authority in the kubeconfig"
    " (certificate-authority-data); if the cluster was made anew, fetch its kubeconfig again",
    "Connection refused": "expected an API server there, found a closed port; start the cluster, or correct `server`",
    "resolve": "expected a host that this machine can resolve; correct `server`",
    "timed out": "expected an answer in time; is the network between here and the cluster open?",
}


def why_unusable(cluster: Cluster, url: str, kubeconfig: Path, now: float, rights: Iterable[Right]) -> str | None:
    """The reason in words, with what to do; None if the API server answers and the user has the rights.

    `kubeconfig` has the context to use as its current one. A server that knows no reviews of access is trusted.
    """
    try:
        answer = cluster.call(Request("GET", "/version"))
    except ClusterError as error:
        return "; ".join([str(error), *(hint for part, hint in _HINTS.items() if part in str(error))][:2])
    if answer.code == 401:
        return f"{url}: GET /version: HTTP 401: {_refused_credentials(kubeconfig, now)}"
    if not answer.ok:
        return f"{url}: GET /version: expected 200, found HTTP {answer.code}; is `server` that of a Kubernetes API?"
    missing = [f"{verb} {resource}" for group, resource, verb in rights if not _may(cluster, group, resource, verb)]
    if not missing:
        return None
    return (
        f"{url}: expected a user who may {', '.join(missing)}; found {_user(cluster)}, who may not;"
        f" {ROLE} has the rights that a run needs, and how to bind them"
    )


def _may(cluster: Cluster, group: str, resource: str, verb: str) -> bool:
    spec = {"resourceAttributes": {"group": group, "resource": resource, "verb": verb}}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = cluster.call(Request("POST", _REVIEWS, orjson.dumps(body)))
    if answer.code == 403:
        return False  # users without credentials may not even ask
    return not answer.ok or bool(orjson.loads(answer.body)["status"]["allowed"])


def _user(cluster: Cluster) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = cluster.call(Request("POST", _WHO_AM_I, orjson.dumps(body)))
    if not answer.ok:
        return "a user without credentials" if answer.code == 403 else "the kubeconfig's user"
    return repr(orjson.loads(answer.body)["status"]["userInfo"]["username"])


def _refused_credentials(kubeconfig: Path, now: float) -> str:
    """What is wrong with the credentials, as far as the kubeconfig shows it."""
    content = content_of(kubeconfig)
    context = entry_named(content, "contexts", content.get("current-context"))
    name = str(context.get("user"))
    user = entry_named(content, "users", name)
    ends = _end_of_certificate(user)
    if ends is not None and ends.timestamp() < now:
        return f"the client certificate of user {name!r} expired on {ends:%Y-%m-%d}; fetch the kubeconfig again"
    kinds = [kind for kind in ("token", "tokenFile", "exec", "client-certificate-data") if user.get(kind)]
    text = " and ".join(kinds) or "no credentials"
    return f"expected credentials that the API server knows, found {text} of user {name!r}; fetch the kubeconfig again"


def _end_of_certificate(user: dict[str, Any]) -> datetime | None:
    """The end of validity of a user's client certificate; None without one, or if it cannot be read."""
    try:
        if user.get("client-certificate-data"):
            data = base64.b64decode(user["client-certificate-data"])
        else:
            data = Path(user["client-certificate"]).read_bytes()
        return x509.load_pem_x509_certificate(data).not_valid_after_utc.astimezone(UTC)
    except (KeyError, TypeError, OSError, ValueError, binascii.Error):
        return None
