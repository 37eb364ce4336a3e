"""Lists the devices of all vendors in this machine, or in a simulated one behind the same boundaries."""

from collections.abc import Sequence

from seatrial.harness.devices.provider import Device, DeviceProvider
from seatrial.harness.devices.stand_in import stand_in
from seatrial.harness.devices.vendors import VENDORS
from seatrial.harness.errors import DeviceError


def survey(fake: str | None = None) -> tuple[list[Device], dict[str, str]]:
    """All devices found, and for each vendor without a device the reason as a sentence.

    Raises:
        UsageError: the catalogue has no machine or model called `fake`.
    """
    if not fake:
        return _query(real_providers())
    with stand_in(fake) as standing:
        return _query(standing.providers())


def real_providers() -> list[DeviceProvider]:
    """The providers of this machine, none of them open."""
    return [vendor.provider()() for vendor in VENDORS.values()]


def _query(providers: Sequence[DeviceProvider]) -> tuple[list[Device], dict[str, str]]:
    devices: list[Device] = []
    missing: dict[str, str] = {}
    for provider in providers:
        absent = provider.probe()
        if absent is not None:
            missing[provider.vendor] = absent.why
            continue
        try:
            with provider:
                devices += provider.devices()
        except DeviceError as error:
            missing[provider.vendor] = str(error)
    return devices, missing
