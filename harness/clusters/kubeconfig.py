"""Where a kubeconfig leads, and with which credentials; read by the official client's rules."""

import ssl
from dataclasses import dataclass, field
from pathlib import Path

import urllib3

from harness.errors import UsageError


@dataclass(frozen=True, slots=True)
class Access:
    """A way to an API server."""

    url: str
    tls: ssl.SSLContext | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def pool(self, *, connections: int) -> urllib3.PoolManager:
        return urllib3.PoolManager(num_pools=2, maxsize=connections, ssl_context=self.tls)


def load_access(path: Path) -> Access:
    """
    Raises:
        UsageError: no such file, or nothing in it that leads to a server.
    """
    from kubernetes import config  # a quarter of a second: only who connects pays it
    from kubernetes.client import Configuration

    if not path.is_file():
        raise UsageError(f"kubeconfig {path}: no such file")
    found = Configuration()
    try:
        config.load_kube_config(config_file=str(path), client_configuration=found)
    except config.ConfigException as error:
        raise UsageError(f"kubeconfig {path}: {error}") from error
    url: str = found.host.rstrip("/")
    tls = None
    if url.startswith("https:"):
        tls = ssl.create_default_context(cafile=found.ssl_ca_cert)
        if not found.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if found.cert_file:
            tls.load_cert_chain(found.cert_file, found.key_file)
    elif not url.startswith("http:"):
        raise UsageError(f"kubeconfig {path}: server: expected http:// or https://, found {url!r}")
    authorization = found.get_api_key_with_prefix("authorization")
    return Access(url, tls, {"authorization": authorization} if authorization else {})
