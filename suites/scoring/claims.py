"""Claims of volumes."""

import orjson

from seatrial.fixtures.trial import Trial


def wait_bound(cluster: Trial, name: str) -> None:
    """Wait until the controller has bound a claim to its volume.

    A claim that a test marks as bound before the controller knows the volume would be Lost, and schedulers take a claim
    without the controller's annotation as unbound.
    """
    path = f"/api/v1/namespaces/{cluster.name}/persistentvolumeclaims/{name}"
    phase = ""

    def is_bound() -> bool:
        nonlocal phase
        phase = orjson.loads(cluster.call("GET", path).body)["status"].get("phase", "")
        return phase == "Bound"

    assert cluster.cluster.wait(is_bound, within=30), f"expected claim {name} to be Bound within 30 s, it is {phase!r}"
