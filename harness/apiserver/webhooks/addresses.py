"""Addresses of webhooks: the URL, and for a Service, one of its endpoints."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any, NamedTuple

from seatrial.harness.apiserver.storage.store import Object, Store
from seatrial.harness.apiserver.webhooks.admission_responses import WebhookFailure

_SERVICES, _ENDPOINTS = ("", "services"), ("", "endpoints")
_HTTPS = 443


class Address(NamedTuple):
    """The URL used in messages, and the host and port to connect to if they differ from the URL's."""

    url: str
    host: str = ""
    port: int = 0


def url_of(client: Mapping[str, Any]) -> str:
    """The URL of a clientConfig, without the query that the server adds."""
    if client.get("url"):
        return str(client["url"])
    service = client.get("service") or {}
    path = str(service.get("path") or "").lstrip("/")
    return f"https://{service.get('name')}.{service.get('namespace')}.svc:{service.get('port') or _HTTPS}/{path}"


def find_address(client: Mapping[str, Any], store: Store) -> Address:
    """The address to send a review to. There is no cluster network: endpoint addresses must be reachable from here.

    Raises:
        WebhookFailure: the Service does not exist, lacks the port, or has no ready endpoints.
    """
    url = url_of(client)
    if client.get("url"):
        return Address(url)
    named = client.get("service") or {}
    key = (str(named.get("namespace")), str(named.get("name")))
    service = store.collection(_SERVICES).get(key)
    if service is None:
        raise WebhookFailure(f'failed to call webhook: Post "{url}": service "{key[1]}" not found')
    spec, record = service.obj.get("spec") or {}, named.get("port") or _HTTPS
    port = next((entry for entry in spec.get("ports") or () if entry.get("port") == record), None)
    if port is None:
        raise WebhookFailure(
            f'failed to call webhook: Post "{url}": no service port {record} found for service "{key[1]}"'
        )
    if spec.get("type") == "ExternalName":
        return Address(url, str(spec.get("externalName")), record)
    endpoints = store.collection(_ENDPOINTS).get(key)
    results = _ready(endpoints.obj, port.get("name") or "") if endpoints is not None else None
    if results is None:
        raise WebhookFailure(f'failed to call webhook: Post "{url}": no endpoints available for service "{key[1]}"')
    return Address(url, *results)


def _ready(endpoints: Object, port_name: str) -> tuple[str, int] | None:
    for subset in endpoints.get("subsets") or ():
        for port in subset.get("ports") or ():
            if (port.get("name") or "") == port_name:
                for address in subset.get("addresses") or ():
                    return str(address["ip"]), int(port["port"])
    return None


def authorities(client: Mapping[str, Any]) -> str:
    """The CA bundle for the webhook's certificate, PEM; empty: the system's authorities.

    Raises:
        WebhookFailure: caBundle is not base64-encoded PEM.
    """
    bundle = client.get("caBundle")
    if not bundle:
        return ""
    try:
        return base64.b64decode(bundle, validate=True).decode("ascii")
    except (binascii.Error, ValueError) as error:
        raise WebhookFailure(f"failed to call webhook: clientConfig.caBundle is no PEM in base64: {error}") from error
