"""Claims of a pod on its node: read, prepared for the pods that may use them, and released after the last one."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from seatrial.harness.nodes.claims import EXTENDED, NodeClaims, PrepareError
from seatrial.harness.nodes.hardware import NodeHardware, machine_of
from seatrial.harness.nodes.pods import BoundPod
from seatrial.harness.nodes.slices import offered
from seatrial.harness.nodes.writer import Writer
from seatrial.scheduler.api.resourceclaims import ResourceClaim
from seatrial.scheduler.api.transport import Done, Response

DEVICES = NodeHardware("n1", machine_of({"name": "n1", "devices": [{"model": "a10", "count": 2}]}), seed=0).devices()
HERE = offered(DEVICES, "whole")


class Stored:
    """Answers reads with what is stored under a path."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = objects

    def read(self, path: str, done: Done) -> None:
        entry = self.objects.get(path.rsplit("/", 1)[1])
        done(Response(404) if entry is None else Response(200, msgspec.json.encode(entry)))


def pod(name: str, made: str | None = "c") -> BoundPod:
    entries = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    containers = [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}, {"name": "other"}]
    body = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"containers": containers, "resourceClaims": entries},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": made}]},
    }
    return msgspec.convert(body, BoundPod)


def claim(name: str, *users: str, device: str = "gpu-0", driver: str = "gpu.nvidia.com") -> ResourceClaim:
    result = {"request": "r", "driver": driver, "pool": "n1", "device": device}
    reserved = [{"resource": "pods", "name": user, "uid": user} for user in users]
    status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": reserved}
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "default", "uid": name}, "status": status}, ResourceClaim
    )


@pytest.mark.parametrize(
    ("made", "objects", "results"),
    [
        pytest.param("c", {"c": {"metadata": {"name": "c"}}}, {"gpu": "c"}, id="there"),
        pytest.param("c", {}, {"gpu": None}, id="not-there"),
        pytest.param(None, {}, {}, id="none-needed"),
    ],
)
def test_all_claims_are_read(made: str | None, objects: dict[str, Any], results: dict[str, str | None]) -> None:
    claims: list[Mapping[str, ResourceClaim | None]] = []
    NodeClaims("n1", cast("Writer", Stored(**objects))).read(pod("p", made), claims.append)
    assert [{entry: one and one.metadata.name for entry, one in each.items()} for each in claims] == [results]


def test_a_container_that_names_no_claim_gets_no_device() -> None:
    granted = NodeClaims("n1", cast("Writer", Stored())).prepare(pod("p"), {"gpu": claim("c", "p")}, HERE)
    assert {name: [card.minor for card in cards["claim:gpu"]] for name, cards in granted.items()} == {"main": [0]}


def test_containers_have_the_devices_of_their_extended_resources() -> None:
    """The scheduler's claim has a request for each container; one container asks for another resource."""
    mappings = [
        {"containerName": name, "resourceName": "nvidia.com/gpu", "requestName": request}
        for name, request in (("main", "r"), ("other", "s"))
    ]
    body = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"containers": [{"name": "main"}, {"name": "other"}]},
        "status": {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}},
    }
    asking = msgspec.convert(body, BoundPod)
    claims, messages = NodeClaims("n1", cast("Writer", Stored(c={"metadata": {"name": "c"}}))), list[Any]()
    claims.read(asking, messages.append)
    assert [list(item) for item in messages] == [[EXTENDED]]
    granted = claims.prepare(asking, {EXTENDED: claim("c", "p")}, HERE)
    assert [card.minor for card in granted["main"]["nvidia.com/gpu"]] == [0]
    assert not any(granted.get("other", {}).values())
    with pytest.raises(PrepareError, match="ResourceClaim of the pod's extended resources not found"):
        claims.prepare(asking, {EXTENDED: None}, HERE)


def test_devices_of_a_driver_that_is_not_the_nodes_are_left_to_it() -> None:
    """A driver of another project may name the pool of a simulated node as the node."""
    results = {"gpu": claim("c", "p", device="long", driver="oars.example.com")}
    granted = NodeClaims("n1", cast("Writer", Stored())).prepare(pod("p"), results, HERE)
    assert all(not any(cards.values()) for cards in granted.values())


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        (None, "not found"),
        (claim("c", "other"), r"pod p \(p\) is not allowed to use ResourceClaim c"),
        (claim("c", "p", device="gpu-7"), "device gpu-7 of driver gpu.nvidia.com is not on this node"),
    ],
    ids=["missing", "for-another-pod", "unknown-device"],
)
def test_what_cannot_be_prepared(claim: ResourceClaim | None, why: str) -> None:
    with pytest.raises(PrepareError, match=why):
        NodeClaims("n1", cast("Writer", Stored())).prepare(pod("p"), {"gpu": claim}, HERE)


def test_a_device_is_prepared_for_one_claim() -> None:
    """Two pods share the first claim; the device is free for another claim after both."""
    claims = NodeClaims("n1", cast("Writer", Stored()))
    for user in ("p", "q"):
        claims.prepare(pod(user), {"gpu": claim("c", "p", "q")}, HERE)
    other = {"gpu": claim("d", "r")}
    for user in ("p", "q"):
        with pytest.raises(PrepareError, match="prepared for ResourceClaim default/c"):
            claims.prepare(pod("r"), other, HERE)
        claims.release(user)
    claims.prepare(pod("r"), other, HERE)
