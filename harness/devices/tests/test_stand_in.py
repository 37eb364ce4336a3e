"""Simulated machines: names, parts, and the view of other processes."""

import json
import os
import subprocess
import sys

import pytest

from seatrial.fake_devices import faults
from seatrial.fake_devices.build import NO_COMPILER, compiler
from seatrial.harness.devices.stand_in import LIBRARY_PATH, machine_called, stand_in
from seatrial.harness.devices.survey import survey
from seatrial.harness.errors import UsageError

needs_compiler = pytest.mark.skipif(compiler() is None, reason=NO_COMPILER)

ASK_NVML = """
import json, pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(at) for at in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps([(pynvml.nvmlDeviceGetUUID(card), pynvml.nvmlDeviceGetTemperature(card, 0)) for card in handles]))
"""


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        pytest.param("a10:2", {"nvidia": 2}, id="a-model-and-a-count"),
        pytest.param("a10", {"nvidia": 8}, id="a-model-alone"),
        pytest.param("dgx-h100", {"nvidia": 8, "mellanox": 8}, id="a-server"),
        pytest.param("connectx-7:3", {"mellanox": 3}, id="nics-alone"),
        pytest.param("ascend-910b3:2", {"huawei": 2}, id="npus", marks=needs_compiler),
        pytest.param("mlu370-x8:3", {"cambricon": 3}, id="mlus", marks=needs_compiler),
        pytest.param("mi300x:2", {"amd": 2}, id="amd-gpus", marks=needs_compiler),
        pytest.param("mi250x:4", {"amd": 4}, id="amd-dies", marks=needs_compiler),
    ],
)
def test_a_name_becomes_devices_behind_the_vendors_boundaries(name: str, kinds: dict[str, int]) -> None:
    devices, missing = survey(name)
    vendors = [entry.vendor for entry in devices]
    assert {vendor: vendors.count(vendor) for vendor in vendors} == kinds
    assert missing == {}
    assert {entry.source for entry in devices} == {"fake-abi"}
    assert all(entry.health.ok for entry in devices)


@pytest.mark.parametrize(
    ("name", "saying"),
    [
        pytest.param("abacus", "--fake abacus: no server model 'abacus'", id="nothing-of-that-name"),
        pytest.param("a10:0", "expected MODEL:COUNT with a count of 1 to 64, found '0'", id="none-of-them"),
        pytest.param("a10:many", "expected MODEL:COUNT with a count of 1 to 64, found 'many'", id="a-count-in-words"),
        pytest.param("a10:65", "found '65'", id="too-many"),
        pytest.param("dgx-h100:2", "no device model 'dgx-h100'", id="two-servers"),
    ],
)
def test_mistakes_name_what_was_expected(name: str, saying: str) -> None:
    with pytest.raises(UsageError) as refused:
        machine_called(name)
    assert saying in str(refused.value)


@needs_compiler
def test_another_process_sees_the_same_cards_and_changes() -> None:
    """pynvml in another process, which gets only the library path."""

    def ask() -> dict[str, int]:
        env = {**os.environ, **standing.env()}
        process = subprocess.run([sys.executable, "-c", ASK_NVML], env=env, capture_output=True, text=True, check=True)
        return dict(json.loads(process.stdout))

    with stand_in("a10:2") as standing:
        assert list(standing.env()) == [LIBRARY_PATH]
        (provider,) = standing.providers()
        with provider:
            uuids = [device.uuid for device in provider.devices()]
            before = ask()
            assert list(before) == uuids
            faults.apply(standing.table, 0, "throttle", {"celsius": 99}, now=1.0)
            warm = {device.uuid for device in provider.devices() if provider.usage(device.uuid).temperature == 99.0}
            assert {uuid for uuid, celsius in ask().items() if celsius == 99} == warm
            assert len(warm) == 1
    assert standing.libraries is not None
    assert not standing.libraries.exists()


@pytest.mark.parametrize("verb", ["lost", "remove", "link", "shrink"])
def test_files_follow_the_table_both_ways(verb: str) -> None:
    with stand_in("connectx-7:2") as standing:
        (provider,) = standing.providers()
        with provider:
            first = next(device.uuid for device in provider.devices() if device.uuid == standing.machine.slots[0].bus)
            before = provider.devices()
            undo = faults.apply(standing.table, 0, verb, {}, now=1.0)
            standing.sync()
            assert verb == "shrink" or not provider.health(first).ok
            assert provider.devices() != before
            undo(2.0)
            standing.sync()
            assert provider.health(first).ok
            assert provider.devices() == before
