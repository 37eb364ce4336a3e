"""How a vendor's driver for dynamic resource allocation names devices (specification `dra.md`, section 14)."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from seatrial.fake_devices.facts import SlicedFacts
from seatrial.fake_devices.models import catalog
from seatrial.harness.devices.provider import Device, Driver, Slice

Attributes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Part:
    """A device that is cut from a card when it is prepared, or `made`: one that is there.

    `counters`: what it takes of the card.
    """

    name: str  # after the card's name
    template: str  # as the provider of the vendor names it
    counters: Mapping[str, int]
    capacity: Mapping[str, int]
    attributes: Attributes
    made: Slice | None = None


@dataclass(frozen=True, slots=True)
class Cut:
    """How a card can be cut: what it has in all, and its parts, more of them than fit at once."""

    counters: Mapping[str, int]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class ClaimDriver:
    """A driver, whose DeviceClass has its name. `kind`: the value of the attribute `type`; "" where it has none."""

    name: str
    kind: str
    device: Callable[[Device], str]
    attributes: Callable[[Device, Driver], Attributes]
    extended: str = ""  # the extended resource that its class serves
    env: Mapping[str, str] = field(default_factory=dict)  # of a container with any of its devices
    cut: Callable[[Device], Cut | None] = field(default=lambda _: None)
    made: Callable[[Device], Sequence[Part]] = field(default=lambda _: ())  # parts of a divided card that are there
    part_kind: str = ""  # the value of the attribute `type` of parts; they have the class `part_class`
    part_class: str = ""
    shared: bool = True  # cards may be offered in shares of cores and memory

    @property
    def classes(self) -> dict[str, str]:
        """Its DeviceClasses: which devices are of each."""
        own = f"device.driver == '{self.name}'"
        kinds = {self.name: self.kind, **({self.part_class: self.part_kind} if self.part_class else {})}
        return {
            name: f"{own} && device.attributes['{self.name}'].type == '{kind}'" if kind else own
            for name, kind in kinds.items()
        }


@cache
def sliced_facts(vendor: str, model: str) -> SlicedFacts | None:
    """The facts of a model that can be cut, by the name that its vendor's library prints; None if none is known."""
    models = map(catalog().device, catalog().device_names())
    facts = next((each.facts for each in models if (each.vendor, each.facts.name) == (vendor, model)), None)
    return facts if isinstance(facts, SlicedFacts) and facts.slices else None


def plain_driver(name: str, kind: str, **more: Any) -> ClaimDriver:
    """The driver of a vendor that publishes none: with the attributes that the others have in common."""

    def attributes(device: Device, driver: Driver) -> Attributes:
        return {
            "type": {"string": kind},
            "uuid": {"string": device.uuid},
            "productName": {"string": device.model},
            "driverVersion": version(driver.driver),
        }

    return ClaimDriver(name, kind, lambda device: f"{kind}-{device.minor}", attributes, **more)


def version(text: str) -> dict[str, str]:
    """The version as semver.org wants it: three numbers without leading zeros; 535.104.05 → 535.104.5."""
    numbers = [str(int(part)) for part in re.findall(r"\d+", text, re.ASCII)[:3]]
    return {"version": ".".join([*numbers, *["0"] * (3 - len(numbers))])}
