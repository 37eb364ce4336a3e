"""What the mix `dra` needs beside pods: a class, templates of claims, and slices of nodes instead of Device objects."""

from collections.abc import Iterator
from typing import Any

from seatrial.harness.bench.mixes import CLAIM, GPU_GIB, NODE_GPUS, template_name
from seatrial.scheduler.api.builders import ClaimBuilder, claim, claim_template
from seatrial.scheduler.api.resourceclaims import CLASSES_PATH, GROUP_PATH, SLICES_PATH

Manifest = dict[str, Any]

API = "resource.k8s.io/v1"
DRIVER = "gpu.bench.seatrial.dev"
NAMESPACE = "default"
_MEMORY = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"
_MODEL = f"device.attributes['{DRIVER}'].model == 'H100'"
_REQUESTS: tuple[tuple[int, tuple[str, ...]], ...] = ((1, ()), (1, (_MEMORY,)), (2, ()), (1, (_MODEL,)))
"""What claims ask for, with selectors: one device, one that a quantity or a text selects, two."""


def _asks(builder: ClaimBuilder, number: int) -> Manifest:
    """The claims of a shape."""
    count, selectors = _REQUESTS[number % len(_REQUESTS)]
    return builder.asks(CLAIM, DRIVER, *selectors, allocationMode="ExactCount", count=count).manifest


def before_nodes(shapes: int) -> Iterator[tuple[str, Manifest]]:
    """The class and the templates, each with the path of its collection."""
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    yield CLASSES_PATH, _object("DeviceClass", DRIVER, {"selectors": selectors})
    for number in range(shapes):
        path = f"{GROUP_PATH}/namespaces/{NAMESPACE}/resourceclaimtemplates"
        yield path, _asks(claim_template(template_name(number)), number)


def slice_of(node: str) -> tuple[str, Manifest]:
    """The slice of a node with NODE_GPUS devices, and the path of its collection."""
    attributes = {"model": {"string": "H100"}}
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {**attributes, "index": {"int": number}},
            "capacity": {"memory": {"value": f"{GPU_GIB}Gi"}},
        }
        for number in range(NODE_GPUS)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return SLICES_PATH, _object(
        "ResourceSlice", f"{node}-gpus", {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    )


def claim_of(pod: str, number: int, namespace: str) -> Manifest:
    """The claim that the API server makes for a pod of a shape."""
    manifest = _asks(claim(f"{pod}-{CLAIM}"), number)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
    more = {"namespace": namespace, "uid": f"claim-{pod}", "resourceVersion": "1"}
    manifest["metadata"] |= {**more, "ownerReferences": [owner]}
    return manifest


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name}, "spec": spec}
