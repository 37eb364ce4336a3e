"""Where a webhook is: its URL, and for a Service, what stands behind it."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from harness.apiserver.storage.store import Object, Store
from harness.apiserver.webhooks.verdicts import Failed

_SERVICES, _ENDPOINTS = ("", "services"), ("", "endpoints")
_HTTPS = 443


class Address(NamedTuple):
    """The URL that messages name, and where to connect if that is another place."""

    url: str
    host: str = ""
    port: int = 0


def url_of(client: Mapping[str, Any]) -> str:
    """The URL of a clientConfig, without a query of ours."""
    if client.get("url"):
        return str(client["url"])
    service = client.get("service") or {}
    path = str(service.get("path") or "").lstrip("/")
    return f"https://{service.get('name')}.{service.get('namespace')}.svc:{service.get('port') or _HTTPS}/{path}"


def find_address(client: Mapping[str, Any], store: Store) -> Address:
    """Where to send a review. This cluster has no network of its own: an endpoint's address must be reachable here.

    Raises:
        Failed: a Service is named that is not there or has nothing behind it.
    """
    url = url_of(client)
    if client.get("url"):
        return Address(url)
    named = client.get("service") or {}
    key = (str(named.get("namespace")), str(named.get("name")))
    service = store.collection(_SERVICES).get(key)
    if service is None:
        raise Failed(f'failed to call webhook: Post "{url}": service "{key[1]}" not found')
    spec, wanted = service.obj.get("spec") or {}, named.get("port") or _HTTPS
    port = next((one for one in spec.get("ports") or () if one.get("port") == wanted), None)
    if port is None:
        raise Failed(f'failed to call webhook: Post "{url}": no service port {wanted} found for service "{key[1]}"')
    if spec.get("type") == "ExternalName":
        return Address(url, str(spec.get("externalName")), wanted)
    endpoints = store.collection(_ENDPOINTS).get(key)
    found = _ready(endpoints.obj, port.get("name") or "") if endpoints is not None else None
    if found is None:
        raise Failed(f'failed to call webhook: Post "{url}": no endpoints available for service "{key[1]}"')
    return Address(url, *found)


def _ready(endpoints: Object, port_name: str) -> tuple[str, int] | None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if (port.get("name") or "") == port_name:
                for address in subset.get("addresses") or ():
                    return str(address["ip"]), int(port["port"])
    return None


def authorities(client: Mapping[str, Any]) -> str:
    """The authorities that the webhook's certificate must come from, PEM; empty: the system's.

    Raises:
        Failed: they are no PEM in base64.
    """
    bundle = client.get("caBundle")
    if not bundle:
        return ""
    try:
        return base64.b64decode(bundle, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise Failed(f"failed to call webhook: clientConfig.caBundle is no PEM in base64: {error}") from error
