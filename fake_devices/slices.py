"""Slices in the table: MIG devices, vNPUs, sMLU profiles and instances. This module decides what fits on a card.

A part takes cores and memory of its card; the catalogue has the sizes of a model's templates, for sMLUs the
caller does. Identities come from the card's, so that the same part has the same name each time.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

from seatrial.fake_devices.facts import SlicedFacts, SliceProfile
from seatrial.fake_devices.table import DeviceTable

INSTANCE, COMPUTE, VNPU, SMLU = 0, 1, 2, 3  # kinds, as the C stand-ins number them
FIRST_VNPU, VNPUS_PER_CARD = 100, 16
WHOLE = 100  # percent of an MLU
MIG_SLICES, MIG_PLACES = 7, 8  # of a card's cores, and of its memory


class SliceError(ValueError):
    """A slice cannot be created or removed; `reason` is unknown, full or busy."""

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)


def parts(table: DeviceTable, at: int, kind: int) -> Iterator[Any]:
    """The records of one kind on the device at that position."""
    for record in table.slices:
        if record.id and record.device == at and record.kind == kind:
            yield record


def set_mig_mode(table: DeviceTable, at: int, *, on: bool) -> None:
    """Switch MIG mode; this removes all instances."""
    for kind in (COMPUTE, INSTANCE):
        for record in list(parts(table, at, kind)):
            _free(table, record)
    with table.writing(table.devices[at]) as device:
        device.slice_mode = int(on)


def cut_mig(table: DeviceTable, at: int, template: str) -> str:
    """Create a GPU instance with one compute instance of the same size. Returns the MIG device's UUID.

    Raises:
        SliceError: MIG is off, the model has no such profile, or there is no room for another.
    """
    if not table.devices[at].slice_mode:
        raise SliceError("unknown", f"device {at}: expected MIG mode on, found off")
    profile = _profile(table, at, template)
    there = list(parts(table, at, INSTANCE))
    size = mig_places(profile, table.devices[at].memory_total)
    taken = {place for part in there for place in range(part.start, part.start + part.size)}
    places = (place for place in range(0, profile.count * size, size) if taken.isdisjoint(range(place, place + size)))
    start = max(places, default=None)  # the last one that is free, as NVIDIA's driver takes
    if start is None:
        raise SliceError("full", f"device {at}: no room for {template} beside {len(there)} others")
    number = _lowest({part.id for part in there}, 1)
    engines = int.from_bytes(bytes(profile.engines), "little")
    whole = _take(table)
    _fill(
        table,
        whole,
        id=number,
        device=at,
        kind=INSTANCE,
        profile=profile.profile,
        size=size,
        start=start,
        memory=profile.memory,
        name=template.encode(),
    )
    text = hashlib.sha256(f"{table.devices[at].uuid.decode()}/{number}/0".encode()).hexdigest()
    uuid = f"MIG-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
    cores = table.devices[at].cores * profile.cores // MIG_SLICES
    _fill(
        table,
        _take(table),
        id=number,
        device=at,
        kind=COMPUTE,
        parent=number,
        profile=profile.profile,
        size=profile.cores,
        start=start,
        memory=profile.memory,
        cores=cores,
        engines=engines,
        name=template.encode(),
        uuid=uuid.encode(),
    )
    return uuid


def mig_places(profile: SliceProfile, memory: int) -> int:
    """How many eighths of a card's `memory`, in bytes, an instance takes. It begins at a multiple of that number."""
    return round(profile.memory * MIG_PLACES / memory)


def cut_vnpu(table: DeviceTable, at: int, template: str, amount: int | None = None) -> int:
    """Create a virtual NPU, with the number `amount` if given. Returns its number.

    Raises:
        SliceError: no such template, no room, or the number is taken.
    """
    profile = _profile(table, at, template)
    there = list(parts(table, at, VNPU))
    device = table.devices[at]
    if (
        sum(part.cores for part in there) + profile.cores > device.cores
        or sum(part.cpus for part in there) + profile.cpus > device.cpus
        or sum(part.memory for part in there) + profile.memory > device.memory_total
        or len(there) >= VNPUS_PER_CARD
    ):
        raise SliceError("full", f"device {at}: no room for {template} beside {len(there)} others")
    taken = {part.id for part in there}
    number = amount if amount is not None else _lowest(taken, FIRST_VNPU + device.minor * VNPUS_PER_CARD)
    if number in taken or not number:
        raise SliceError("busy", f"device {at}: vNPU {number} is there already")
    _fill(
        table,
        _take(table),
        id=number,
        device=at,
        kind=VNPU,
        memory=profile.memory,
        cores=profile.cores,
        cpus=profile.cpus,
        start=len(there) + 1,
        name=template.encode(),
    )
    return number


def make_profile(table: DeviceTable, at: int, quota: int, memory: int) -> int:
    """Create an sMLU profile (percent of the cores, bytes), or find the one with the same amounts. Returns its number.

    Raises:
        SliceError: the card is not that large.
    """
    if not 0 < quota <= WHOLE or not 0 < memory <= table.devices[at].memory_total:
        raise SliceError("full", f"device {at}: no profile of {quota} % and {memory} bytes")
    profiles = [part for part in parts(table, at, SMLU) if not part.parent]
    for profile in profiles:
        if (profile.cores, profile.memory) == (quota, memory):
            return int(profile.profile)
    number = _lowest({record.profile for record in profiles}, 1)
    name = f"{quota}.smlu.{max(1, memory >> 30)}gb"
    _fill(
        table,
        _take(table),
        id=number,
        device=at,
        kind=SMLU,
        profile=number,
        cores=quota,
        memory=memory,
        name=name.encode(),
    )
    return number


def cut_smlu(table: DeviceTable, at: int, profile: int, label: str) -> int:
    """Create an instance of a profile. Returns its number.

    Raises:
        SliceError: no such profile, or the card's cores or memory are given away.
    """
    every = list(parts(table, at, SMLU))
    match = next((part for part in every if not part.parent and part.profile == profile), None)
    if match is None:
        raise SliceError("unknown", f"device {at}: no profile {profile}")
    there = [part for part in every if part.parent]
    cores, memory = sum(part.cores for part in there), sum(part.memory for part in there)
    if cores + match.cores > WHOLE or memory + match.memory > table.devices[at].memory_total:
        raise SliceError("full", f"device {at}: no room for profile {profile} beside {len(there)} others")
    number = _lowest({part.id for part in there}, 1)
    _fill(
        table,
        _take(table),
        id=number,
        device=at,
        kind=SMLU,
        parent=1,
        profile=profile,
        cores=match.cores,
        memory=match.memory,
        name=match.name,
        label=label.encode()[:63],
        uuid=hashlib.sha256(f"{table.devices[at].uuid.decode()}/{number}".encode()).hexdigest()[:36].encode(),
    )
    return number


def remove(table: DeviceTable, at: int, kind: int, number: int) -> None:
    """Remove a vNPU or an sMLU instance.

    Raises:
        SliceError: it is not there, or something uses it.
    """
    for part in list(parts(table, at, kind)):
        if part.id == number and (kind != SMLU or part.parent):
            if part.memory_used:
                raise SliceError("busy", f"device {at}: slice {number} is in use")
            _free(table, part)
            return
    raise SliceError("unknown", f"device {at}: no slice {number}")


def remove_profile(table: DeviceTable, at: int, number: int) -> None:
    """Remove an sMLU profile.

    Raises:
        SliceError: it is not there, or an instance is of it.
    """
    of_it = [part for part in parts(table, at, SMLU) if part.profile == number]
    if any(part.parent for part in of_it):
        raise SliceError("busy", f"device {at}: profile {number} has instances")
    if not of_it:
        raise SliceError("unknown", f"device {at}: no profile {number}")
    _free(table, of_it[0])


def _profile(table: DeviceTable, at: int, template: str) -> SliceProfile:
    facts = table.machine.slots[at].model.facts
    known = facts.slices if isinstance(facts, SlicedFacts) else {}
    if template not in known:
        raise SliceError("unknown", f"device {at}: expected one of {', '.join(known) or 'none'}, found {template!r}")
    return known[template]


def _take(table: DeviceTable) -> Any:
    free = next((part for part in table.slices if not part.id), None)
    if free is None:
        raise SliceError("full", f"the table has room for {len(table.slices)} slices, and all are in use")
    return free


def _fill(table: DeviceTable, record: Any, **values: Any) -> None:
    with table.writing(record):
        for name, _ in ((name, kind) for name, kind, *_ in record._fields_ if name != "lock"):
            setattr(record, name, values.get(name, type(getattr(record, name))()))


def _free(table: DeviceTable, record: Any) -> None:
    with table.writing(record):
        record.id = 0


def _lowest(taken: set[int], first: int) -> int:
    return next(number for number in range(first, first + len(taken) + 1) if number not in taken)
