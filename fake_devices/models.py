"""The catalogue of device and server models, read from `catalog/*.yaml`; each fact has its source.

One model a file, named like the file. Facts are pairs of value and source; a source is a key of the file's `sources`
or the word `typical` (no public figure; such machines typically show this). A file with a mistake is refused whole.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from seatrial.fake_devices.facts import AcceleratorFacts, Facts, NicFacts, Size, size
from seatrial.fake_devices.hardware import Hardware
from seatrial.fake_devices.vendors import HARDWARE

CATALOG = Path(__file__).parent / "catalog"
TYPICAL = "typical"
MAX_BYTES, MAX_DEPTH, MAX_TEXT = 1_000_000, 20, 1_000  # of a file; `MAX_TEXT` is of one value

_BUS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)

T = TypeVar("T")


class CatalogError(ValueError):
    """A catalogue file has a mistake, or a model is unknown."""


class DeviceModel(msgspec.Struct, frozen=True):
    """One device model."""

    model: str
    vendor: str
    facts: Facts

    @property
    def hardware(self) -> Hardware:
        """The descriptor of the vendor's hardware."""
        return HARDWARE[self.vendor]

    @property
    def accelerator(self) -> AcceleratorFacts:
        """The facts of an accelerator.

        Raises:
            CatalogError: the device is a NIC.
        """
        if not isinstance(self.facts, AcceleratorFacts):
            raise CatalogError(f"{self.model} is a network card; expected an accelerator")
        return self.facts

    @property
    def is_nic(self) -> bool:
        return isinstance(self.facts, NicFacts)


class Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where one device sits in a server."""

    model: str
    bus: str
    root: str  # the PCIe root whose name is in the sysfs path
    numa: int
    minor: int
    switch: str = ""  # bus address of the PCIe switch above it; devices below one switch share it
    card: int = -1  # number of the card that carries it, where a vendor counts cards (Ascend)


class Wiring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Links between accelerators: groups of minors, each connected all to all, or each to a switch."""

    kind: str  # the vendor's link kind: nvlink, hccs, mlulink, xgmi
    groups: tuple[tuple[int, ...], ...]
    switched: bool = False


class ServerModel(msgspec.Struct, frozen=True):
    """One server model."""

    server: str
    cpu: int  # hardware threads
    memory: Size
    numa: int  # nodes
    pods: int
    devices: tuple[Place, ...]
    wiring: Wiring | None = None


class _DeviceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    device: str
    vendor: str
    sources: dict[str, str]
    facts: dict[str, tuple[Any, str]]


class _ServerFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server: str
    sources: dict[str, str]
    facts: dict[str, tuple[Any, str]]


class Catalog:
    """The models of one folder; a file is read at its first use."""

    def __init__(self, folder: Path = CATALOG) -> None:
        self._folder = folder
        self._read: dict[str, DeviceModel | ServerModel] = {}

    def device_names(self) -> list[str]:
        return self._names("device:")

    def server_names(self) -> list[str]:
        return self._names("server:")

    def device(self, model: str) -> DeviceModel:
        """The device of that name.

        Raises:
            CatalogError: no such model (the message lists near matches), or its file has a mistake.
        """
        device = self._load(model) if self._has(model) else None
        if isinstance(device, DeviceModel):
            return device
        raise CatalogError(unknown("device model", model, self.device_names()))

    def server(self, model: str) -> ServerModel:
        """The server of that name.

        Raises:
            CatalogError: no such model (the message lists near matches), or its file has a mistake.
        """
        server = self._load(model) if self._has(model) else None
        if isinstance(server, ServerModel):
            return server
        raise CatalogError(unknown("server model", model, self.server_names()))

    def _has(self, name: str) -> bool:
        return (self._folder / f"{name}.yaml").is_file()

    def _names(self, first_key: str) -> list[str]:
        """Names of the files of one kind, by their text: a file with a mistake is still listed."""
        files = self._folder.glob("*.yaml")
        return sorted(
            path.stem
            for path in files
            if any(line.startswith(first_key.encode()) for line in _start_of(path).splitlines())
        )

    def _load(self, name: str) -> DeviceModel | ServerModel:
        if name not in self._read:
            self._read[name] = self._parse(self._folder / f"{name}.yaml")
        return self._read[name]

    def _parse(self, path: Path) -> DeviceModel | ServerModel:
        data = _start_of(path)
        if len(data) > MAX_BYTES:
            raise CatalogError(f"{path}: expected at most {MAX_BYTES} bytes, found more")
        try:
            _check_limits(path, data)
            content = yaml.load(data, Loader=_Loader)  # noqa: S506 a safe loader, in C where there is one
        except CatalogError:
            raise
        except (yaml.YAMLError, ValueError, TypeError) as error:
            raise CatalogError(f"{path}: not YAML: {error}") from error
        if not isinstance(content, dict) or ("device" in content) == ("server" in content):
            raise CatalogError(
                f"{path}: expected one of the keys `device` and `server` at the top, found {_shape(content)}"
            )
        model = _device(path, content) if "device" in content else self._server(path, content)
        name = model.model if isinstance(model, DeviceModel) else model.server
        if name != path.stem:
            raise CatalogError(f"{path}: names {name!r}; expected the file's own name, {path.stem!r}")
        return model

    def _server(self, path: Path, content: dict[str, Any]) -> ServerModel:
        file = _convert(path, "", content, _ServerFile)
        server = _convert(
            path, "facts", {"server": file.server, **_values(path, file.sources, file.facts)}, ServerModel
        )
        check_places(path, server, self)
        return server


@cache
def catalog() -> Catalog:
    """The catalogue that comes with the program."""
    return Catalog()


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """The message for a name that is not in the catalogue; it lists near matches, or all names."""
    all_names = sorted(names)
    near = difflib.get_close_matches(name, all_names, n=3, cutoff=0.4)
    known = f"near: {', '.join(near)}" if near else f"known: {', '.join(all_names)}"
    return f"no {what} {name!r} in the catalogue; {known}"


def check_places(path: Path | str, server: ServerModel, models: Catalog) -> None:
    """Check that the devices of a server can be in one machine.

    Raises:
        CatalogError: two at one bus address, a malformed address, or a NUMA node or minor that does not exist.
    """
    taken: dict[str, str] = {}
    minors: dict[str, set[int]] = {}
    for number, place in enumerate(server.devices):
        at = f"{path}: facts.devices[{number}]"
        if not _BUS.fullmatch(place.bus):
            raise CatalogError(f"{at}.bus: expected an address like 0000:1b:00.0 in lower case, found {place.bus!r}")
        if not _ROOT.fullmatch(place.root):
            raise CatalogError(f"{at}.root: expected a PCIe root like pci0000:15, found {place.root!r}")
        if place.bus in taken:
            raise CatalogError(
                f"{at}.bus: expected an address of its own, found {place.bus}, taken by {taken[place.bus]}"
            )
        if not -1 <= place.numa < server.numa:
            raise CatalogError(f"{at}.numa: expected -1 to {server.numa - 1}, found {place.numa}")
        try:
            device = models.device(place.model)
        except CatalogError as error:
            raise CatalogError(f"{at}.model: {error}") from error
        taken[place.bus] = place.model
        kind = "rdma" if device.is_nic else "gpu"
        if place.minor in minors.setdefault(kind, set()):
            raise CatalogError(f"{at}.minor: expected a minor of its own, found {place.minor}, taken by another {kind}")
        minors[kind].add(place.minor)
    for group in server.wiring.groups if server.wiring else ():
        strangers = set(group) - minors.get("gpu", set())
        if strangers:
            raise CatalogError(f"{path}: facts.wiring: expected minors of accelerators, found {sorted(strangers)}")


def _device(path: Path, content: dict[str, Any]) -> DeviceModel:
    file = _convert(path, "", content, _DeviceFile)
    hardware = HARDWARE.get(file.vendor)
    if hardware is None:
        raise CatalogError(f"{path}: vendor: expected one of {', '.join(HARDWARE)}, found {file.vendor!r}")
    values = _values(path, file.sources, file.facts)
    return DeviceModel(file.device, file.vendor, _convert(path, "facts", values, hardware.facts))


def _values(path: Path, sources: Mapping[str, str], facts: Mapping[str, tuple[Any, str]]) -> dict[str, Any]:
    for key, (_, source) in facts.items():
        if source != TYPICAL and source not in sources:
            known = ", ".join([*sources, TYPICAL])
            raise CatalogError(f"{path}: facts.{key}: expected a source out of {known}, found {source!r}")
    return {key: value for key, (value, _) in facts.items()}


def _start_of(path: Path) -> bytes:
    """A file's content; of one that is too large, little more than the limit."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1)


def _check_limits(path: Path, data: bytes) -> None:
    """Check a file by the parser's events, before objects are built: aliases let a small file describe gigabytes.

    Raises:
        CatalogError: it has aliases, is nested too deeply, or has an endless number.
    """
    depth = 0
    for event in yaml.parse(data, Loader=_Loader):
        at = f"{path}, line {event.start_mark.line + 1}" if event.start_mark is not None else f"{path}"
        if isinstance(event, yaml.AliasEvent):
            raise CatalogError(f"{at}: expected no aliases, found *{event.anchor}")
        if isinstance(event, yaml.ScalarEvent) and len(event.value) > MAX_TEXT:
            raise CatalogError(f"{at}: expected a value of at most {MAX_TEXT} characters, found {len(event.value)}")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise CatalogError(f"{at}: expected at most {MAX_DEPTH} levels, found more")


def _convert(path: Path, at: str, value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind, dec_hook=_decode)
    except msgspec.ValidationError as error:
        where = f" {at}:" if at else ""
        raise CatalogError(f"{path}:{where} {error}") from error


def _decode(kind: type, value: Any) -> Any:
    return size(value) if kind is Size else value


def _shape(content: object) -> str:
    return f"the keys {', '.join(map(str, content))}" if isinstance(content, dict) else f"a {type(content).__name__}"


_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
