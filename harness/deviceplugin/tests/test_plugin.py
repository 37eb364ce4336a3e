"""The plugin over gRPC with a kubelet's device manager: registration, health, allocation, restarts of kubelet."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import grpc
import pytest

from seatrial.fake_devices.faults import apply
from seatrial.harness.deviceplugin.kubelet import KubeletError, KubeletFolder
from seatrial.harness.deviceplugin.messages import HEALTHY, UNHEALTHY
from seatrial.harness.deviceplugin.plugin import DevicePlugin
from seatrial.harness.deviceplugin.resources import owner_of
from seatrial.harness.deviceplugin.tests.fake_kubelet import FakeKubelet
from seatrial.harness.deviceplugin.tests.test_allocation import pod
from seatrial.harness.devices.stand_in import StandIn, stand_in
from seatrial.harness.nodes.local import LocalHardware
from seatrial.harness.nodes.pods import BoundPod
from seatrial.scheduler.api.device import GPU_CORE
from seatrial.scheduler.api.private_files import private_folder

GPU = "nvidia.com/gpu"
POSITION_OF_MINOR_0 = 1  # the library counts the cards of an A10 machine the other way round


class Rig:
    """A plugin of two A10 behind the vendor's library, a kubelet, and the pods that the API server has."""

    def __init__(self, folder: Path, cards: StandIn, hardware: LocalHardware) -> None:
        self.cards, self.hardware = cards, hardware
        self.kubelet = FakeKubelet(folder)
        self.pods: list[BoundPod] = []
        self.plugin = DevicePlugin(
            hardware.devices, KubeletFolder(folder), self._read, root=folder / "root", simulated=True
        )
        self.ids = [device.uuid for device in hardware.devices()]

    async def _read(self) -> Sequence[BoundPod]:
        return self.pods

    async def up(self) -> None:
        """Start kubelet and register all resources."""
        await self.kubelet.start()
        await self.plugin.tick()
        await self.kubelet.until("inventory", lambda: len(self.kubelet.health) == 5)


def on_rig(scenario: Callable[[Rig], Awaitable[None]]) -> None:
    """Run a scenario; sockets need a short path."""

    async def run(rig: Rig) -> None:
        try:
            await scenario(rig)
        finally:
            await rig.plugin.stop()
            await rig.kubelet.stop()

    with private_folder() as folder, stand_in("a10:2") as cards, LocalHardware(cards.providers()) as hardware:
        asyncio.run(run(Rig(folder, cards, hardware)))


def test_all_resources_are_registered_with_healthy_devices() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        assert {entry.resource_name for entry in rig.kubelet.registered} == rig.kubelet.health.keys()
        assert all(entry.version == "v1beta1" for entry in rig.kubelet.registered)
        assert rig.kubelet.health[GPU] == dict.fromkeys(rig.ids, HEALTHY)
        assert len(rig.kubelet.health[GPU_CORE]) == 200

    on_rig(scenario)


def test_a_container_gets_the_card_of_the_annotation() -> None:
    """The card whose IDs come last is promised; kubelet alone takes the first. The next pod gets its other half."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        card = max(rig.hardware.devices(), key=lambda device: device.uuid)
        rig.pods = [pod(name, {GPU_CORE: 50}, {card.minor: 50}) for name in ("a", "b")]
        for name in ("a", "b"):
            answer = await rig.kubelet.admit(name, GPU_CORE, 50)
            assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == str(card.minor)
            assert f"/dev/nvidia{card.minor}" in [mount.container_path for mount in answer.mounts]
            counted = {owner_of(one) for one in rig.kubelet.devices["default", name, "main"][GPU_CORE]}
            assert counted == {card.uuid}

    on_rig(scenario)


def test_two_whole_cards() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        rig.pods = [pod("a", {GPU: 2}, {0: 100, 1: 100})]
        answer = await rig.kubelet.admit("a", GPU, 2)
        assert answer.envs["NVIDIA_VISIBLE_DEVICES"] == "0,1"

    on_rig(scenario)


def test_a_pod_without_promise_is_refused_in_words() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        rig.pods = [pod("a", {GPU: 1}, None)]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.kubelet.admit("a", GPU, 1)
        assert "pod default/a: expected the annotation scheduling.koordinator.sh/device-allocated, found none" in str(
            caught.value.details()
        )

    on_rig(scenario)


def test_a_promised_card_that_failed_meanwhile_is_refused() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        rig.pods = [pod("a", {GPU: 1}, {0: 100})]
        apply(rig.cards.table, POSITION_OF_MINOR_0, "critical", {"xid": 79}, 0.0)
        assert rig.hardware.look()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await rig.kubelet.admit("a", GPU, 1)
        assert caught.value.details() == "gpu 0 is unhealthy (Xid79)"

    on_rig(scenario)


def test_a_sick_card_is_reported_and_comes_back() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.up()
        undo = apply(rig.cards.table, POSITION_OF_MINOR_0, "critical", {"xid": 79}, 0.0)
        assert rig.hardware.look()
        await rig.plugin.tick()
        await rig.kubelet.until("sick", lambda: rig.kubelet.health[GPU][rig.ids[0]] == UNHEALTHY)
        await rig.kubelet.until("sick cores", lambda: list(rig.kubelet.health[GPU_CORE].values()).count(HEALTHY) == 100)
        undo(1.0)
        rig.hardware.forget(rig.ids)
        assert rig.hardware.look()
        await rig.plugin.tick()
        await rig.kubelet.until("well", lambda: rig.kubelet.health[GPU][rig.ids[0]] == HEALTHY)

    on_rig(scenario)


def test_it_registers_again_after_a_restart_of_kubelet() -> None:
    """kubelet removes all sockets when it starts; without a restart nothing is registered twice."""

    async def scenario(rig: Rig) -> None:
        await rig.up()
        await rig.plugin.tick()
        assert len(rig.kubelet.registered) == 5
        await rig.kubelet.stop()
        await rig.plugin.tick()  # kubelet is down: nothing happens
        await rig.up()
        rig.pods = [pod("a", {GPU: 1}, {1: 100})]
        assert (await rig.kubelet.admit("a", GPU, 1)).envs["NVIDIA_VISIBLE_DEVICES"] == "1"

    on_rig(scenario)


def test_a_folder_too_deep_for_sockets_is_refused() -> None:
    with pytest.raises(KubeletError, match=r"expected at most \d+ characters, found 120: a socket's path ends at 107"):
        KubeletFolder(Path("/" + "x" * 119))
