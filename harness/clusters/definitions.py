"""Custom resource definitions of a cluster."""

from typing import Any

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Cluster
from seatrial.harness.errors import ClusterError
from seatrial.scheduler.api.transport import Request

DEFINITIONS_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def create_definition(cluster: Cluster, body: dict[str, Any]) -> None:
    """Create a definition, unless another run or an earlier scheduler has created it meanwhile."""
    response = cluster.call(Request("POST", DEFINITIONS_PATH, orjson.dumps(body)))
    if response.code != 409:
        accepted(response, f"create definition {body['metadata']['name']!r}")


def served_path(body: dict[str, Any]) -> str:
    """The path of the objects of a definition, in the first version that it serves."""
    spec = body["spec"]
    version = next(entry["name"] for entry in spec["versions"] if entry["served"])
    return f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"


def wait_served(cluster: Cluster, body: dict[str, Any], *, within: float) -> None:
    """
    Raises:
        ClusterError: the kind of the definition is not served after `within` seconds.
    """
    request = Request("GET", f"{served_path(body)}?limit=1")
    if not cluster.wait(lambda: cluster.call(request).ok, within=within):
        raise ClusterError(f"definition {body['metadata']['name']!r}: not served after {within:.0f} s")
