"""Address and credentials of the API server, by the official client's rules (files, exec plugins, in-cluster)."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from yaml import YAMLError

from seatrial.scheduler.api.private_files import private_folder


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
    token_file: Path | None = None  # of a pod's service account: kubelet writes a new token into it every hour


def load_server(path: Path | None) -> Server:
    """From a kubeconfig; without one, from $KUBECONFIG or ~/.kube/config, else the service account of our pod.

    Raises:
        KubeconfigError: nothing usable was found.
    """
    from kubernetes import config  # imported late: it takes 0.25 s
    from kubernetes.client import Configuration
    from kubernetes.config import incluster_config, kube_config

    configuration = Configuration()
    try:
        if path is not None and not path.is_file():
            raise KubeconfigError(f"kubeconfig {path}: no such file")
        with _no_files_kept() as folder:
            text = str(path) if path is not None else kube_config.KUBE_CONFIG_DEFAULT_LOCATION
            if path is not None or Path(text).expanduser().exists():
                config.load_kube_config(config_file=text, client_configuration=configuration, temp_file_path=folder)
            else:
                config.load_incluster_config(client_configuration=configuration)
                return replace(_server(configuration), token_file=Path(incluster_config.SERVICE_TOKEN_FILENAME))
            return _server(configuration)
    except KubeconfigError:
        raise
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # the official client lets through whatever a file of a wrong shape makes of it
        where = (
            f"kubeconfig {path}" if path else "no kubeconfig given; $KUBECONFIG and the service account do not serve"
        )
        raise KubeconfigError(f"{where}: {error}") from error


@contextmanager
def _no_files_kept() -> Iterator[str]:
    """A folder for the certificates and keys that the official client writes to files; it is removed on exit,
    or by a later process of the user if this one is killed.

    The client keeps a table of these files and would use them again for equal content, so it is made to forget them.
    """
    from kubernetes.config import kube_config

    with private_folder() as folder:
        try:
            yield str(folder)
        finally:
            known = kube_config._temp_files  # noqa: SLF001 there is no public way to clear this cache
            for content in [content for content, name in known.items() if Path(name).parent == folder]:
                del known[content]


def _server(kubeconfig: "object") -> Server:
    host: str = kubeconfig.host  # type: ignore[attr-defined]
    url = urlsplit(host)
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise KubeconfigError(f"server {host!r}: expected http:// or https:// with a host")
    tls = None
    if url.scheme == "https":
        tls = ssl.create_default_context(cafile=kubeconfig.ssl_ca_cert)  # type: ignore[attr-defined]
        if not kubeconfig.verify_ssl:  # type: ignore[attr-defined]
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if kubeconfig.cert_file:  # type: ignore[attr-defined]
            tls.load_cert_chain(kubeconfig.cert_file, kubeconfig.key_file)  # type: ignore[attr-defined]
    # Older versions of the client have the token under the second name.
    api_key = kubeconfig.get_api_key_with_prefix("BearerToken", alias="authorization")  # type: ignore[attr-defined]
    authorization: str = (api_key or "").strip()  # files of tokens often end in a newline
    port = url.port or (443 if tls else 80)
    return Server(url.hostname, port, url.path.rstrip("/"), tls, authorization)
