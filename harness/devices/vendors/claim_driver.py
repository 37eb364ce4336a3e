"""How a vendor's driver for dynamic resource allocation names devices (specification `dra.md`, section 14)."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seatrial.harness.devices.provider import Device, Driver

Attributes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class ClaimDriver:
    """A driver, whose DeviceClass has its name. `kind`: the value of the attribute `type`; "" where it has none."""

    name: str
    kind: str
    device: Callable[[Device], str]
    attributes: Callable[[Device, Driver], Attributes]
    extended: str = ""  # the extended resource that its class serves
    env: Mapping[str, str] = field(default_factory=dict)  # of a container with any of its devices

    @property
    def expression(self) -> str:
        """Which devices are of its class."""
        own = f"device.driver == '{self.name}'"
        return f"{own} && device.attributes['{self.name}'].type == '{self.kind}'" if self.kind else own


def plain_driver(name: str, kind: str) -> ClaimDriver:
    """The driver of a vendor that publishes none: with the attributes that the others have in common."""

    def attributes(device: Device, driver: Driver) -> Attributes:
        return {
            "type": {"string": kind},
            "uuid": {"string": device.uuid},
            "productName": {"string": device.model},
            "driverVersion": version(driver.driver),
        }

    return ClaimDriver(name, kind, lambda device: f"{kind}-{device.minor}", attributes)


def version(text: str) -> dict[str, str]:
    """The version as semver.org wants it: three numbers without leading zeros; 535.104.05 → 535.104.5."""
    numbers = [str(int(part)) for part in re.findall(r"\d+", text, re.ASCII)[:3]]
    return {"version": ".".join([*numbers, *["0"] * (3 - len(numbers))])}
