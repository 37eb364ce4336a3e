"""Access to the API server from a pod: the service account that kubelet mounts, whose token is renewed every hour."""

import os
import ssl
from pathlib import Path

from seatrial.harness.clusters.kubeconfig import Access, load_access
from seatrial.harness.errors import UsageError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
HOST, PORT = "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"


def access(kubeconfig: Path | None, account: Path = ACCOUNT) -> Access:
    """By a kubeconfig, or as the pod that this process runs in.

    Raises:
        UsageError: neither is there.
    """
    if kubeconfig is not None:
        return load_access(kubeconfig)
    host, port = os.environ.get(HOST), os.environ.get(PORT, "443")
    if not host:
        raise UsageError(f"--kubeconfig: expected a file, or a pod with a service account; ${HOST} is not set")
    result = Access(f"https://{f'[{host}]' if ':' in host else host}:{port}", _trust(account), {})
    renew_token(result, account)
    return result


def renew_token(result: Access, account: Path = ACCOUNT) -> None:
    """Read the token again.

    Raises:
        UsageError: there is none.
    """
    try:
        token = (account / "token").read_text(encoding="ascii").strip()
    except OSError as error:
        raise UsageError(f"{account / 'token'}: {error.strerror}; is the service account mounted?") from error
    result.headers["authorization"] = f"Bearer {token}"


def _trust(account: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(account / "ca.crt"))
    except OSError as error:
        raise UsageError(f"{account / 'ca.crt'}: {error.strerror}; is the service account mounted?") from error
