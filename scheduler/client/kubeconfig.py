"""Address and credentials of the API server, by the official client's rules (files, exec plugins, in-cluster)."""

import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from yaml import YAMLError


class KubeconfigError(ValueError):
    """No usable kubeconfig or service account. The message has what was tried."""


@dataclass(frozen=True, slots=True)
class Server:
    """Address, TLS and credentials of one API server."""

    host: str
    port: int
    base: str  # path prefix, usually ""
    tls: ssl.SSLContext | None
    authorization: str  # value of the Authorization header, "" if none


def load_server(path: Path | None) -> Server:
    """From a kubeconfig; without one, from $KUBECONFIG or ~/.kube/config, else the service account of our pod.

    Raises:
        KubeconfigError: nothing usable was found.
    """
    from kubernetes import config  # imported late: it takes 0.25 s
    from kubernetes.client import Configuration

    found = Configuration()
    try:
        if path is not None:
            if not path.is_file():
                raise KubeconfigError(f"kubeconfig {path}: no such file")
            config.load_kube_config(config_file=str(path), client_configuration=found)
        else:
            config.load_config(client_configuration=found)
        return _server(found)
    except KubeconfigError:
        raise
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # the official client lets through whatever a file of a wrong shape makes of it
        where = (
            f"kubeconfig {path}" if path else "no kubeconfig given; $KUBECONFIG and the service account do not serve"
        )
        raise KubeconfigError(f"{where}: {error}") from error


def _server(found: "object") -> Server:
    host: str = found.host  # type: ignore[attr-defined]
    url = urlsplit(host)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise KubeconfigError(f"server {host!r}: expected http:// or https:// with a host")
    tls = None
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=found.ssl_ca_cert)  # type: ignore[attr-defined]
        if not found.verify_ssl:  # type: ignore[attr-defined]
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if found.cert_file:  # type: ignore[attr-defined]
            tls.load_cert_chain(found.cert_file, found.key_file)  # type: ignore[attr-defined]
    authorization: str = found.get_api_key_with_prefix("authorization") or ""  # type: ignore[attr-defined]
    port = url.port or (443 if tls else 80)
    return Server(url.hostname, port, url.path.rstrip("/"), tls, authorization)
