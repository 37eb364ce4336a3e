"""The Service `kubernetes` of the namespace `default`, and its endpoints: the address of the API server itself.

Follows upstream's `kubernetesservice` controller. Loopback addresses are published too, which upstream refuses.
"""

from ipaddress import ip_address
from typing import Final

from seatrial.harness.apiserver.bootstrap.objects import put_object
from seatrial.harness.apiserver.storage.store import Object, Store

_NAME, _NAMESPACE = "kubernetes", "default"
_ADDRESS: Final = "10.96.0.1"  # the first of the range of cluster IPs
_PORT, _DEFAULT_TARGET = 443, 6443


def store_service(store: Store, now: str, target: int = _DEFAULT_TARGET) -> None:
    """Store the Service with creation time `now` (RFC 3339); `target` is the port that the server listens on."""
    spec: Object = {
        "type": "ClusterIP",
        "clusterIP": _ADDRESS,
        "clusterIPs": [_ADDRESS],
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
        "internalTrafficPolicy": "Cluster",
        "sessionAffinity": "None",
        "ports": [{"name": "https", "protocol": "TCP", "port": _PORT, "targetPort": target}],
    }
    metadata = {**_metadata(), "labels": {"component": "apiserver", "provider": "kubernetes"}}
    body = {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec, "status": {"loadBalancer": {}}}
    put_object(store, ("", "services"), body, now)


def publish_endpoint(store: Store, host: str, port: int) -> None:
    """Publish the address on which the server listens. A host name, or an address of all interfaces, is left out."""
    service = store.collection(("", "services")).get((_NAMESPACE, _NAME))
    if service is None:
        return
    now = service.obj["metadata"]["creationTimestamp"]
    store_service(store, now, port)
    try:
        address = ip_address(host)
    except ValueError:
        return
    if address.is_unspecified:
        return
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    put_object(
        store,
        ("", "endpoints"),
        {
            "apiVersion": "v1",
            "kind": "Endpoints",
            "metadata": {**_metadata(), "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
            "subsets": [{"addresses": [{"ip": str(address)}], "ports": ports}],
        },
        now,
    )
    put_object(
        store,
        ("discovery.k8s.io", "endpointslices"),
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {**_metadata(), "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": f"IPv{address.version}",
            "endpoints": [{"addresses": [str(address)], "conditions": {"ready": True}}],
            "ports": ports,
        },
        now,
    )


def _metadata() -> Object:
    return {"name": _NAME, "namespace": _NAMESPACE}
