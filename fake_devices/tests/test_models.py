"""The catalogue reads, names its sources, and refuses mistakes by file, key, expected and found."""

from pathlib import Path

import pytest
import yaml

from seatrial.fake_devices.facts import size
from seatrial.fake_devices.models import CATALOG, Catalog, CatalogError, catalog
from seatrial.fake_devices.nvidia.hardware import NvidiaFacts
from seatrial.fake_devices.vendors import HARDWARE

DEVICES = sorted(catalog().device_names())
SERVERS = sorted(catalog().server_names())


@pytest.mark.parametrize("name", DEVICES + SERVERS)
def test_every_fact_names_a_source_that_the_file_explains(name: str) -> None:
    content = yaml.safe_load((CATALOG / f"{name}.yaml").read_text())
    for key, (_, source) in content["facts"].items():
        assert source == "typical" or content["sources"][source], f"{name}: {key}"


def test_all_vendors_are_there() -> None:
    assert {catalog().device(name).vendor for name in DEVICES} == set(HARDWARE)


def test_a_size_is_bytes() -> None:
    facts = catalog().device("h100-80g").facts
    assert isinstance(facts, NvidiaFacts)
    assert facts.memory == 85_520_809_984


@pytest.mark.parametrize(("text", "want"), [("1Ki", 1024), ("3", 3), (7, 7), ("2Ti", 2 << 40)])
def test_sizes(text: str | int, want: int) -> None:
    assert size(text) == want


@pytest.mark.parametrize("text", ["1.5Gi", "-1", "1GB", True, ""])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected bytes"):
        size(text)


def broken(folder: Path, name: str, **changes: object) -> Catalog:
    """The catalogue with one file changed; None takes a fact away."""
    for path in CATALOG.glob("*.yaml"):
        (folder / path.name).write_bytes(path.read_bytes())
    content = yaml.safe_load((folder / f"{name}.yaml").read_text())
    for key, value in changes.items():
        if key in {"device", "server", "vendor"}:
            content[key] = value
        elif value is None:
            del content["facts"][key]
        else:
            content["facts"][key] = value
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    return Catalog(folder)


AT = {"model": "a10", "bus": "0000:17:00.0", "root": "pci0000:16", "numa": 0, "minor": 0}


def places(*devices: dict[str, object]) -> dict[str, object]:
    return {"devices": [list(devices), "typical"]}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        pytest.param("a10", {"cores": ["many", "typical"]}, ["a10.yaml", "$.cores", "`int`", "`str`"], id="wrong-type"),
        pytest.param("a10", {"cores": None}, ["a10.yaml", "missing required field `cores`"], id="missing"),
        pytest.param("a10", {"colour": ["green", "typical"]}, ["a10.yaml", "unknown field `colour`"], id="unknown-key"),
        pytest.param("a10", {"cores": [72, "hearsay"]}, ["facts.cores", "datasheet", "'hearsay'"], id="unknown-source"),
        pytest.param("a10", {"device": "a11"}, ["a10.yaml", "'a11'", "'a10'"], id="other-name-than-the-file"),
        pytest.param("a10", {"vendor": "no-such"}, ["a10.yaml", "'no-such'"], id="unknown-vendor"),
        pytest.param("a10-4", places(AT, AT | {"minor": 1}), ["devices[1].bus", "taken by a10"], id="address-twice"),
        pytest.param("a10-4", places(AT | {"numa": 9}), ["devices[0].numa", "-1 to 1", "9"], id="no-such-numa-node"),
        pytest.param("a10-4", places(AT | {"bus": "17:00.0"}), ["devices[0].bus", "17:00.0"], id="malformed-address"),
        pytest.param("a10-4", places(AT | {"model": "a11"}), ["devices[0].model", "near: a10"], id="unknown-model"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, changes: dict[str, object], words: list[str]) -> None:
    changed = broken(tmp_path, name, **changes)
    look_up = changed.server if "-" in name else changed.device
    with pytest.raises(CatalogError) as caught:
        look_up(name)
    for word in words:
        assert word in str(caught.value)


def test_an_unknown_model_is_answered_with_its_neighbours() -> None:
    with pytest.raises(CatalogError, match=r"no device model 'h100' in the catalogue; near: h100-80g"):
        catalog().device("h100")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: &a [x, x]\nb: &b [*a, *a]\n", r"line 2: expected no aliases, found \*a", id="aliases"),
        pytest.param("[" * 10_000, "line 1: expected at most 20 levels, found more", id="brackets"),
        pytest.param(f"device: {'9' * 1001}", "expected a value of at most 1000 characters, found 1001", id="digits"),
        pytest.param("#" * 1_000_001, "expected at most 1000000 bytes, found more", id="endless"),
        pytest.param("device: 2026-99-99", "not YAML: month must be in", id="no-such-day"),
    ],
)
def test_a_file_beyond_a_limit_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "big.yaml").write_text(text)
    with pytest.raises(CatalogError, match=message):
        Catalog(tmp_path).device("big")
