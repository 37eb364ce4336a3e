"""Devices that a case offers by ResourceSlices of its own, under a driver that only this case has."""

from typing import Any

import msgspec
import orjson
import pytest

from seatrial.fixtures.trial import Manifest, Trial
from seatrial.scheduler.api.resourceclaims import (
    CLASSES_PATH,
    EXTENDED_CLAIM,
    GROUP_PATH,
    TAINT_RULES_PATH,
    ResourceClaim,
)
from seatrial.scheduler.api.wire import Wire, decoder

NVIDIA = "gpu.nvidia.com"  # driver and class of simulated NVIDIA cards
ROOT = "resource.kubernetes.io/pcieRoot"

_MOMENT = "2026-01-01T00:00:00Z"
_DRIVER = 40  # of the trial's name; a driver's name has at most 63 characters


class _Claims(Wire, frozen=True):
    items: tuple[ResourceClaim, ...] = ()


_decode = decoder(ResourceClaim)
_decode_list = decoder(_Claims)


class Offers:
    """The value of the fixture `offers`. `driver` and `of_class` are the case's own."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.driver, self.of_class = f"{trial.name[-_DRIVER:].strip('-')}.example.com", trial.name
        chosen = {"selectors": [{"cel": {"expression": f"device.driver == '{self.driver}'"}}]}
        trial.apply(_object("DeviceClass", self.of_class, chosen))

    def attribute(self, name: str) -> str:
        """An attribute of the driver's own domain, in an expression."""
        return f"device.attributes['{self.driver}'].{name}"

    def serve(self, resource: str = "gpu") -> str:
        """Have the class serve an extended resource of the driver's domain; returns its full name."""
        name = f"{self.driver}/{resource}"
        path = self._trial.path("DeviceClass", self.of_class)
        response = self._trial.call("PATCH", path, {"spec": {"extendedResourceName": name}})
        assert response.ok, response.body
        if "extendedResourceName" not in orjson.loads(response.body)["spec"]:
            pytest.skip("the API server dropped extendedResourceName: its release, or a feature gate, lacks it")
        return name

    def select(self, *expressions: str) -> None:
        """Have the class choose other devices, for which all of these hold."""
        selectors = [{"cel": {"expression": expression}} for expression in expressions]
        path = self._trial.path("DeviceClass", self.of_class)
        response = self._trial.call("PATCH", path, {"spec": {"selectors": selectors}})
        assert response.ok, response.body

    def another(self, name: str, expression: str, resource: str, *, settled: bool = True) -> str:
        """Another class that serves the resource; returns its full name. `settled`: the scheduler has seen it then."""
        full = f"{name}-{self.of_class}"
        spec = {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": resource}
        self._trial.apply(_object("DeviceClass", full, spec))
        if settled:
            self._trial.settle()
        return full

    def publish(
        self,
        node: str,
        *devices: Manifest,
        part: str = "",
        pool: Manifest | None = None,
        driver: str = "",
        **fields: Any,
    ) -> None:
        """Publish a slice of the node's pool. `part`: its name, where the pool has several; `pool`: fields of it;
        `driver`: another one than the case's. Where `fields` say which nodes reach it, `node` is only a name."""
        shown = {"name": f"{self._trial.name}-{node}", "generation": 1, "resourceSliceCount": 1, **(pool or {})}
        places = {"nodeSelector", "allNodes", "perDeviceNodeSelection"}
        where = {} if places & fields.keys() else {"nodeName": node}
        spec = {"driver": driver or self.driver, "pool": shown, **where, **fields}
        if devices:
            spec["devices"] = list(devices)
        name = self._slice(node, part)
        self._trial.apply(_object("ResourceSlice", name, spec))
        kept = orjson.loads(self._trial.call("GET", self._trial.path("ResourceSlice", name)).body)["spec"]
        if dropped := _dropped(spec, kept):
            pytest.skip(
                f"the API server dropped {dropped} of a ResourceSlice: its release, or a feature gate, lacks it"
            )

    def taint(self, effect: str, **selector: str) -> None:
        """Taint devices of the case's driver by a DeviceTaintRule."""
        spec = {
            "deviceSelector": {"driver": self.driver, **selector},
            "taint": {"key": "example.com/broken", "value": "yes", "effect": effect},
        }
        if not self._trial.call("GET", TAINT_RULES_PATH).ok:
            pytest.skip(
                "the cluster does not serve DeviceTaintRules of resource.k8s.io/v1, as Kubernetes does since 1.37"
            )
        self._trial.apply(_object("DeviceTaintRule", self._trial.name, spec))

    def change(self, node: str, spec: Manifest, *, part: str = "") -> None:
        """Change fields of a slice."""
        response = self._trial.call("PATCH", self._trial.path("ResourceSlice", self._slice(node, part)), {"spec": spec})
        assert response.ok, response.body

    def claim(self, name: str) -> ResourceClaim:
        """A claim as the API server returns it."""
        return _decode(self._trial.call("GET", self._trial.path("ResourceClaim", name)).body)

    def devices_of(self, name: str) -> list[str]:
        """The devices of a claim, as `request=device`; none if it has no allocation."""
        allocation = self.claim(name).status.allocation
        results = allocation.devices.results if allocation is not None else ()
        return [f"{result.request}={result.device}" for result in results]

    def claim_of(self, pod: str, entry: str = "gpu") -> str:
        """The name of the claim that was made for the pod's entry; "" if there is none yet."""
        results = self._trial.find(pod)
        statuses = results.status.resource_claim_statuses if results is not None else ()
        return next((status.resource_claim_name or "" for status in statuses if status.name == entry), "")

    def extended(self, pod: str) -> list[ResourceClaim]:
        """The claims that a scheduler has made for extended resources of the pod."""
        items = _decode_list(
            self._trial.call("GET", f"{GROUP_PATH}/namespaces/{self._trial.name}/resourceclaims").body
        ).items
        return [
            claim
            for claim in items
            if claim.metadata.annotations.get(EXTENDED_CLAIM) == "true"
            and any(owner.controller and owner.name == pod for owner in claim.metadata.owner_references)
        ]

    def made(self, pod: str) -> ResourceClaim:
        """The only claim that a scheduler has made for extended resources of the pod."""
        claims = self.extended(pod)
        assert len(claims) == 1, f"expected one claim for extended resources of {pod}, found {len(claims)}"
        return claims[0]

    def say(self, name: str, device: str = "", **conditions: bool) -> None:
        """The driver says conditions of a device of the claim, its only one by default; it keeps those of others."""
        claim = self.claim(name)
        assert claim.status.allocation is not None
        results = claim.status.allocation.devices.results
        (result,) = (result for result in results if device in {"", result.device})
        shown = [
            {"type": kind, "status": str(value), "reason": "Said", "message": "", "lastTransitionTime": _MOMENT}
            for kind, value in conditions.items()
        ]
        entry = {"driver": result.driver, "pool": result.pool, "device": result.device, "conditions": shown}
        others = [other for other in msgspec.to_builtins(claim.status.devices) if other["device"] != result.device]
        path = f"{self._trial.path('ResourceClaim', name)}/status"
        response = self._trial.call("PATCH", path, {"status": {"devices": [*others, entry]}})
        assert response.ok, response.body

    def _slice(self, node: str, part: str) -> str:
        return f"{self._trial.name}-{node}{part and '-'}{part}"


def _object(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _dropped(sent: Any, kept: Any) -> str:
    """The first field that was sent and not kept, as API servers do with fields behind a closed gate (DRA-R18)."""
    if isinstance(sent, dict):
        gone = next((name for name in sent if name not in kept), "")
        return gone or next((text for name, value in sent.items() if (text := _dropped(value, kept[name]))), "")
    if isinstance(sent, list):
        return next((text for pair in zip(sent, kept, strict=True) if (text := _dropped(*pair))), "")
    return ""


def device(name: str, *, attributes: dict[str, Any] | None = None, **fields: Any) -> Manifest:
    """A device; attributes are text, numbers, truth values, or as the API spells them: `{"version": "1.0.0"}`."""
    kinds = {bool: "bool", int: "int", str: "string"}
    shown = {
        key: value if isinstance(value, dict) else {kinds[type(value)]: value}
        for key, value in (attributes or {}).items()
    }
    return {"name": name, **({"attributes": shown} if shown else {}), **fields}


@pytest.fixture(autouse=True)
def served(trial: Trial) -> None:
    """Skip on clusters that do not have claims of this version."""
    if not trial.call("GET", CLASSES_PATH).ok:
        pytest.skip("the cluster does not serve resource.k8s.io/v1, as Kubernetes does since 1.34")


@pytest.fixture
def offers(trial: Trial) -> Offers:
    """A driver and a class of the case's own."""
    return Offers(trial)
