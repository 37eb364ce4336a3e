"""Drivers of claims over gRPC, as kubelet calls them: registration, claims, restarts, health, and what goes wrong."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc
import msgspec
import pytest

from seatrial.fake_devices import mailbox, slices
from seatrial.fake_devices.faults import apply
from seatrial.harness.clusters.kubeconfig import Access
from seatrial.harness.deviceplugin.claim_messages import (
    CLAIMS,
    HEALTH,
    HEALTHY,
    REGISTRATION,
    UNHEALTHY,
    ClaimRef,
    ClaimsRequest,
    HealthResponse,
    PluginInfo,
    PreparedClaim,
    PrepareResponse,
    RegistrationStatus,
    UnprepareResponse,
)
from seatrial.harness.deviceplugin.daemon import Options, serve
from seatrial.harness.deviceplugin.dra import Claims, DraPlugin, Place
from seatrial.harness.deviceplugin.kubelet import KubeletFolder
from seatrial.harness.deviceplugin.messages import Empty
from seatrial.harness.devices.stand_in import StandIn, stand_in
from seatrial.harness.errors import ApiRefused, UsageError
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.slices import Way
from seatrial.harness.nodes.slices import slices as published
from seatrial.scheduler.api.private_files import private_folder
from seatrial.scheduler.api.protobuf import decode, encode
from seatrial.scheduler.api.resourceclaims import ResourceClaim

GPU = "gpu.nvidia.com"
Answer = TypeVar("Answer")


class Rig:
    """The drivers of a stand-in's devices, and the claims that the API server has."""

    def __init__(self, folder: Path, cards: StandIn, hardware: LocalHardware, way: Way) -> None:
        self.way = way
        self.folder, self.cdi, self.cards, self.hardware = folder, folder / "cdi", cards, hardware
        self.claims: dict[str, ResourceClaim] = {}
        self.registered = 0
        self.plugin = self.new()

    def new(self) -> DraPlugin:
        place = Place(
            "n1", KubeletFolder(self.folder), self.cdi, self.hardware, beside, self.folder / "root", True, self.way
        )
        return DraPlugin(self.hardware.devices, place, Claims(self._read, self._every), self._count)

    def put(
        self, name: str, *devices: str, driver: str = GPU, uid: str = "", users: Sequence[str] = ("p",), **result: Any
    ) -> ClaimRef:
        """A claim with these devices of the node n1, reserved for pods."""
        results = [{"request": "r", "driver": driver, "pool": "n1", "device": device, **result} for device in devices]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": user} for user in users]}
        metadata = {"name": name, "namespace": "default", "uid": uid or name}
        self.claims[name] = msgspec.convert({"metadata": metadata, "status": status}, ResourceClaim)
        return ClaimRef("default", name, name)

    def files(self) -> dict[str, dict[str, Any]]:
        return {path.name: json.loads(path.read_bytes()) for path in self.cdi.glob("*.json")}

    def paths(self) -> set[str]:
        """The paths that the files add to containers."""
        devices = [device for content in self.files().values() for device in content["devices"]]
        return {mount["containerPath"] for device in devices for mount in device["containerEdits"]["mounts"]}

    async def up(self) -> None:
        """Start the drivers, and take them as kubelet does."""
        await self.plugin.tick()
        for socket in sorted((self.folder / "plugins_registry").iterdir()):
            await self.call(
                socket, REGISTRATION, "NotifyRegistrationStatus", RegistrationStatus(plugin_registered=True)
            )

    async def restart(self) -> None:
        """As a new process."""
        await self.plugin.stop()
        self.plugin = self.new()
        await self.up()

    async def prepare(self, *refs: ClaimRef, driver: str = GPU) -> dict[str, PreparedClaim]:
        request = ClaimsRequest(refs)
        answer = await self.call(self._socket(driver), CLAIMS, "NodePrepareResources", request, PrepareResponse)
        return dict(answer.claims)

    async def refused(self, ref: ClaimRef, driver: str = GPU) -> str:
        """Why a claim is not prepared."""
        answer = (await self.prepare(ref, driver=driver))[ref.uid]
        assert answer.devices == ()
        return answer.error

    async def release(self, ref: ClaimRef, driver: str = GPU) -> str:
        """The error of NodeUnprepareResources."""
        request = ClaimsRequest((ref,))
        answer = await self.call(self._socket(driver), CLAIMS, "NodeUnprepareResources", request, UnprepareResponse)
        return answer.claims[ref.uid].error

    async def call(
        self,
        socket: Path,
        service: str,
        method: str,
        request: object,
        kind: type[Answer] = Empty,  # type: ignore[assignment]
    ) -> Answer:
        async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
            call = channel.unary_unary(f"/{service}/{method}", encode, lambda data: decode(data, kind))
            answer: Answer = await call(request, timeout=60.0)
            return answer

    def _socket(self, driver: str) -> Path:
        return self.folder / "plugins" / driver / "dra.sock"

    def _count(self) -> None:
        self.registered += 1

    async def _read(self, _namespace: str, name: str) -> ResourceClaim | None:
        return self.claims.get(name)

    async def _every(self) -> Sequence[ResourceClaim]:
        return list(self.claims.values())


async def beside(call: Callable[[], object]) -> object:
    """Run a blocking call as the daemon does."""
    return await asyncio.to_thread(call)


def on_rig(scenario: Callable[[Rig], Awaitable[None]], fake: str = "a10:2", way: Way = "whole") -> None:
    """Run a scenario; sockets need a short path."""

    async def run(rig: Rig) -> None:
        try:
            await scenario(rig)
        finally:
            await rig.plugin.stop()

    with private_folder() as folder, stand_in(fake) as cards, LocalHardware(cards.providers()) as hardware:
        asyncio.run(run(Rig(folder, cards, hardware, way)))


def test_each_vendor_has_a_driver_that_kubelet_finds() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        assert rig.registered == 2
        for driver in (GPU, "dra.net"):
            socket = rig.folder / "plugins_registry" / f"{driver}-reg.sock"
            info = await rig.call(socket, REGISTRATION, "GetInfo", Empty(), PluginInfo)
            endpoint = str(rig.folder / "plugins" / driver / "dra.sock")
            assert info == PluginInfo("DRAPlugin", driver, endpoint, ("v1.DRAPlugin", "v1.DRAResourceHealth"))
        await rig.plugin.stop()
        assert not list((rig.folder / "plugins_registry").iterdir()), "kubelet takes a socket for a driver"

    on_rig(scenario, "dgx-h100")


def test_a_claim_is_prepared_once_and_released() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        ref = rig.put("c", "gpu-0", "gpu-1")
        first = (await rig.prepare(ref))["c"]
        assert [(one.request_names, one.pool_name, one.device_name) for one in first.devices] == [
            (("r",), "n1", "gpu-0"),
            (("r",), "n1", "gpu-1"),
        ]
        assert [one.cdi_device_ids for one in first.devices] == [
            ("k8s.gpu.nvidia.com/claim=c-gpu-0",),
            ("k8s.gpu.nvidia.com/claim=c-gpu-1",),
        ]
        ((name, content),) = rig.files().items()
        assert (rig.cdi / name).stat().st_mode & 0o777 == 0o644
        assert (content["cdiVersion"], content["kind"]) == ("0.5.0", "k8s.gpu.nvidia.com/claim")
        assert [device["name"] for device in content["devices"]] == ["c-gpu-0", "c-gpu-1"]
        assert content["devices"][0]["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
        assert {"/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl"} <= rig.paths()
        rig.claims.clear()  # kubelet may ask again after the claim has gone
        assert (await rig.prepare(ref))["c"] == first
        for _ in range(2):
            assert await rig.release(ref) == ""
            assert not rig.files()

    on_rig(scenario)


def test_what_is_prepared_survives_a_restart() -> None:
    """Also of the machine, which empties the folder of CDI files."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        first = await rig.prepare(rig.put("c", "gpu-0"))
        before = rig.files()
        await rig.restart()
        shutil.rmtree(rig.cdi)
        assert await rig.refused(rig.put("d", "gpu-0")) == (
            "device gpu-0 of driver gpu.nvidia.com is prepared for ResourceClaim default/c"
        )
        assert await rig.prepare(ClaimRef("default", "c", "c")) == first
        assert rig.files() == before
        assert await rig.release(ClaimRef("default", "c", "c")) == ""
        assert (await rig.prepare(rig.put("d", "gpu-0")))["d"].error == ""

    on_rig(scenario)


@pytest.mark.parametrize("damage", [b"", b"[{]", b'[{"uid": 1}]', b"\xff" * 40])
def test_a_damaged_checkpoint_is_made_anew_from_the_api(damage: bytes) -> None:
    """Claims without users, and those of other nodes, are not prepared."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        await rig.prepare(rig.put("c", "gpu-0"))
        rig.put("idle", "gpu-1", users=())
        rig.put("far", "gpu-1", pool="n2")
        file = rig.folder / "plugins" / GPU / "prepared.json"
        file.write_bytes(damage)
        await rig.restart()
        assert "is prepared for ResourceClaim default/c" in await rig.refused(rig.put("d", "gpu-0"))
        assert (await rig.prepare(rig.put("e", "gpu-1")))["e"].error == ""
        assert file.with_suffix(".damaged").read_bytes() == damage
        assert {entry["uid"] for entry in json.loads(file.read_bytes())} == {"c", "e"}

    on_rig(scenario)


def test_without_the_api_a_damaged_checkpoint_waits() -> None:
    """The driver serves nothing until it knows what is prepared."""

    async def scenario(rig: Rig) -> None:
        folder = rig.folder / "plugins" / GPU
        folder.mkdir(parents=True)
        (folder / "prepared.json").write_bytes(b"?")

        async def down() -> Sequence[ResourceClaim]:
            raise ApiRefused("list ResourceClaims", code=503, reason="", message="down")

        every, rig._every = rig._every, down  # type: ignore[method-assign]
        rig.plugin = rig.new()
        await rig.plugin.tick()
        assert not (rig.folder / "plugins_registry").exists()
        rig._every = every  # type: ignore[method-assign]
        rig.plugin = rig.new()
        await rig.up()
        assert rig.registered == 1

    on_rig(scenario)


def test_what_cannot_be_prepared_is_refused_in_words_and_the_rest_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        unknown, well = rig.put("u", "gpu-7"), rig.put("w", "gpu-1")
        answers = await rig.prepare(unknown, well)
        assert answers["u"].error == "device gpu-7 of driver gpu.nvidia.com is not on this node"
        assert answers["w"].error == ""
        assert await rig.refused(ClaimRef("default", "x", "gone")) == "ResourceClaim default/gone not found"
        rig.put("again", "gpu-0", uid="new")
        assert await rig.refused(ClaimRef("default", "old", "again")) == (
            "ResourceClaim default/again: expected UID old, found new"
        )
        assert await rig.refused(rig.put("empty")) == (
            "ResourceClaim default/empty has no device of gpu.nvidia.com on this node"
        )
        assert await rig.refused(rig.put("far", "gpu-0", pool="n2")) == (
            "ResourceClaim default/far has no device of gpu.nvidia.com on this node"
        )
        assert list(rig.files()) == ["k8s.gpu.nvidia.com-claim_w.json"]

    on_rig(scenario)


@pytest.mark.parametrize("way", [{"adminAccess": True}, {"shareID": "1e2d"}])
def test_administrators_and_shares_take_no_device_away(way: dict[str, Any]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        if "shareID" not in way:
            assert (await rig.prepare(rig.put("c", "gpu-0")))["c"].error == ""
        (one,) = (await rig.prepare(rig.put("d", "gpu-0", **way)))["d"].devices
        assert one.share_id == way.get("shareID", "")
        assert (await rig.prepare(rig.put("e", "gpu-0", **way)))["e"].error == ""

    on_rig(scenario)


def test_a_folder_that_cannot_be_written_is_named_and_nothing_stays_taken() -> None:
    """A file is in the way, since no mode of a folder stops root. It works as soon as it is gone."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        rig.cdi.write_bytes(b"")
        ref = rig.put("c", "gpu-0")
        error = await rig.refused(ref)
        assert error.startswith(f"CDI folder {rig.cdi}: expected one that can be written, found: ")
        assert await rig.release(ref) == "", "the pod could not be deleted"
        rig.cdi.unlink()
        assert (await rig.prepare(rig.put("d", "gpu-0")))["d"].error == ""

    on_rig(scenario)


def test_a_checkpoint_that_cannot_be_written_changes_nothing() -> None:
    """A claim whose preparation or release is not noted is prepared or released by kubelet's next call, and a driver
    that starts then knows it."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        file = rig.folder / "plugins" / GPU / "prepared.json"
        ref = rig.put("c", "gpu-0")

        def block() -> None:
            file.unlink(missing_ok=True)
            (file / "in-the-way").mkdir(parents=True)

        block()
        assert "prepared.json: cannot be written" in await rig.refused(ref)
        shutil.rmtree(file)
        assert (await rig.prepare(ref))["c"].error == ""
        assert b'"c"' in file.read_bytes()

        block()
        assert "prepared.json: cannot be written" in await rig.release(ref)
        shutil.rmtree(file)
        assert await rig.release(ref) == ""
        assert b'"c"' not in file.read_bytes()

    on_rig(scenario)


def test_health_is_reported_when_it_changes() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        async with grpc.aio.insecure_channel(f"unix:{rig._socket(GPU)}") as channel:
            stream = channel.unary_stream(
                f"/{HEALTH}/NodeWatchResources", encode, lambda data: decode(data, HealthResponse)
            )
            reports = stream(Empty(), timeout=60.0)
            first = await reports.read()
            assert [entry.health for entry in first.devices] == [HEALTHY, HEALTHY]
            apply(rig.cards.table, 0, "critical", {"xid": 79}, 0.0)
            assert rig.hardware.look()
            await rig.plugin.tick()
            second = await reports.read()
            assert sorted(entry.health for entry in second.devices) == [HEALTHY, UNHEALTHY]
            (sick,) = (entry for entry in second.devices if entry.health == UNHEALTHY)
            assert sick.device is not None
            assert sick.device.pool_name == "n1"
            assert sick.message

    on_rig(scenario)


@asynccontextmanager
async def attended(rig: Rig) -> AsyncIterator[None]:
    """The stand-in answers calls that change its cards."""

    async def attend() -> None:
        while True:
            rig.cards.attend()
            await asyncio.sleep(mailbox.POLL_INTERVAL)

    task = asyncio.create_task(attend())
    try:
        yield
    finally:
        task.cancel()


def slices_of(rig: Rig) -> list[str]:
    """The templates of the slices that the vendor's library has."""
    rig.hardware._read_all()
    return [f"{part.template or part.cores}" for device in rig.hardware.devices() for part in device.slices]


def test_a_part_is_cut_when_it_is_prepared_and_removed_with_the_claim() -> None:
    """It is not cut again by a driver that starts anew. What the card has no room for is refused in words."""
    driver = "npu.huawei.com"

    async def scenario(rig: Rig) -> None:
        await rig.up()
        async with attended(rig):
            quarter = rig.put("c", "npu-0-vir05-1c-16g-0", driver=driver)
            (first,) = (await rig.prepare(quarter, driver=driver))["c"].devices
            assert first.device_name == "npu-0-vir05-1c-16g-0"
            assert slices_of(rig) == ["vir05_1c_16g"]
            (content,) = rig.files().values()
            edits = content["devices"][0]["containerEdits"]
            assert edits["env"] == ["ASCEND_RUNTIME_OPTIONS=VIRTUAL"], "the runtime would cut another one"
            assert "/dev/davinci100" in {mount["containerPath"] for mount in edits["mounts"]}
            await rig.restart()
            assert (await rig.prepare(quarter, driver=driver))["c"].devices == (first,)
            assert slices_of(rig) == ["vir05_1c_16g"]
            halves = [rig.put(f"h{number}", f"npu-0-vir10-3c-32g-{number}", driver=driver) for number in range(2)]
            assert (await rig.prepare(halves[0], driver=driver))["h0"].error == ""
            assert (await rig.refused(halves[1], driver)).startswith("gpu 0: a slice vir10_3c_32g cannot be made: ")
            for ref in (quarter, *halves):
                assert await rig.release(ref, driver) == ""
            assert slices_of(rig) == []

    on_rig(scenario, "ascend-910b3:1", "partitions")


def test_a_share_of_an_mlu_is_an_instance_of_its_size() -> None:
    driver = "mlu.cambricon.com"

    async def scenario(rig: Rig) -> None:
        await rig.up()
        async with attended(rig):
            amounts = {"cores": "30", "memory": "8Gi"}
            more: dict[str, Any] = {"driver": driver, "consumedCapacity": amounts}
            refs = [rig.put(name, "mlu-0", shareID=name, **more) for name in ("c", "d")]
            answers = await rig.prepare(*refs, driver=driver)
            ids = [one.cdi_device_ids for answer in answers.values() for one in answer.devices]
            assert ids == [(f"k8s.mlu.cambricon.com/claim={name}-mlu-0-{name}",) for name in ("c", "d")]
            assert {part.cores for part in rig.hardware.devices()[0].slices} in (set(), {30})
            assert len(slices_of(rig)) == 2
            assert await rig.release(refs[0], driver) == ""
            assert len(slices_of(rig)) == 1

    on_rig(scenario, "mlu370-x8:1", "shares")


@pytest.mark.parametrize("way", ["whole", "shares"])
def test_mig_devices_of_an_administrator_are_offered_and_stay(way: Way) -> None:
    """A container sees the card's device node and those of its own MIG device; releasing the claim removes nothing."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        table, (card,) = rig.cards.table, [device for device in rig.hardware.devices() if device.minor == 0]
        at = table.position(card.uuid)
        assert at is not None
        slices.set_mig_mode(table, at, on=True)
        half, small = slices.cut_mig(table, at, "3g.40gb"), slices.cut_mig(table, at, "1g.10gb")
        assert slices_of(rig) == ["3g.40gb", "1g.10gb"]
        (manifest,) = published("n1", "u", {"nvidia": rig.hardware.devices()}, rig.hardware.driver, 1, way=way)
        first, other, whole = manifest["spec"]["devices"]
        assert [each["name"] for each in (first, other, whole)] == [
            "gpu-0-mig-3g40gb-9-4",
            "gpu-0-mig-1g10gb-19-3",
            "gpu-1",
        ]
        own = {name: whole["attributes"][name] for name in ("productName", "brand", "architecture", "driverVersion")}
        assert first["attributes"].items() >= own.items()
        texts = {name: value.get("string") for name, value in first["attributes"].items()}
        assert texts.items() >= {"type": "mig", "uuid": half, "parentUUID": card.uuid, "profile": "3g.40gb"}.items()
        assert first["capacity"] == {
            name: {"value": value}
            for name, value in {
                "memory": "40448Mi",
                "multiprocessors": "56",
                "copyEngines": "3",
                "decoders": "3",
                "encoders": "0",
                "jpegEngines": "3",
                "ofaEngines": "0",
                **{f"memorySlice{place}": "1" for place in range(4, 8)},
            }.items()
        }
        assert "allowMultipleAllocations" not in first
        ref = rig.put("c", first["name"])
        assert (await rig.prepare(ref))["c"].error == ""
        caps = {path for path in rig.paths() if "nvidia-cap" in path}
        assert caps == {"/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"}
        assert "/dev/nvidia0" in rig.paths()
        assert await rig.refused(rig.put("d", first["name"])) == (
            f"device {first['name']} of driver gpu.nvidia.com is prepared for ResourceClaim default/c"
        )
        assert await rig.refused(rig.put("e", "gpu-0")) == "device gpu-0 of driver gpu.nvidia.com is not on this node"
        assert await rig.release(ref) == ""
        assert {part.id for device in rig.hardware.devices() for part in device.slices} == {half, small}

    on_rig(scenario, "h100-80g:2", way)


def test_cards_that_are_not_cut_here_are_not_offered_in_parts() -> None:
    """MIG devices that nobody makes: a pod would wait for them for ever."""
    reason = r"--dra-offer partitions: expected cards .* found those of nvidia; use"
    with private_folder() as folder, pytest.raises(UsageError, match=reason):
        asyncio.run(serve(Options("n1", folder, fake="h100-80g:1", dra="partitions"), Access("http://127.0.0.1:9")))
