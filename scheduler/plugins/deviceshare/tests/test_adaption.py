"""Adaption to vendors' device plugins: annotations and node locks."""

from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Node
from seatrial.scheduler.api.device import (
    DEVICE_ALLOCATED,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    GPU_VENDOR_LABEL,
    Device,
    DeviceSpec,
)
from seatrial.scheduler.api.wire import ObjectMeta
from seatrial.scheduler.plugins.deviceshare.tests.machines import card
from seatrial.scheduler.tests.rig import Rig, profile

LOCK = "cambricon.com/dsmlu.lock"
WRAPPED = 'failed to adapt for GPU device plugin of vendor "cambricon": '
LOCKED = WRAPPED + 'failed to lock node: node "n" has been locked'


def rig(vendor: str = "cambricon", *, cards: int = 2) -> Rig:
    made = Rig(profile(pluginConfig=[{"name": "DeviceShare", "args": {"devicePluginAdaption": True}}]))
    made.node("n", gpus=cards, more={GPU_SHARED: 800})
    infos = tuple(card(minor) for minor in range(cards))
    made.core.intake.set_device("n", Device(ObjectMeta(name="n", labels={GPU_VENDOR_LABEL: vendor}), DeviceSpec(infos)))
    return made


def slice_of(name: str, **more: Any) -> Any:
    return pod(name).resources({GPU_SHARED: 1, GPU_MEMORY: "1Gi", GPU_CORE: 10, **more})


def locked(there: Rig, value: str) -> None:
    """The node as the API server shows it with such a lock."""
    there.core.intake.set_node(node(there, {LOCK: value} if value else {}))


def node(there: Rig, annotations: dict[str, str]) -> Node:
    result = there.core.cache.find("n")
    assert result is not None
    return replace(result.known, metadata=replace(result.known.metadata, annotations=annotations))


def test_a_slice_locks_its_node_until_the_plugin_has_read_it() -> None:
    there = rig()
    there.submit(slice_of("a"))
    there.run()
    first = there.binding("a")
    assert first.annotations["CAMBRICON_DSMLU_PROFILE"] == "0_10_4"
    assert first.annotations["scheduling.koordinator.sh/gpu-minors"] == "0"
    assert first.annotations["scheduling.koordinator.sh/bind-timestamp"] == "1767225600000000000"
    assert DEVICE_ALLOCATED in first.annotations
    assert first.node_annotations == {LOCK: "2026-01-01T00:00:00Z,default,a"}
    there.submit(slice_of("b"))
    there.run()
    assert there.message("b") == LOCKED, "decided is locked, though the node does not show it yet"
    locked(there, first.node_annotations[LOCK])
    there.clock.advance(1)
    there.run()
    assert there.where("b") == ""
    locked(there, "")
    there.clock.advance(10)
    there.run()
    assert there.where("b") == "n"


@pytest.mark.parametrize(
    ("held", "message"),
    [
        pytest.param("2025-12-31T23:59:00Z,default,there", LOCKED, id="a-minute-ago-by-a-pod-that-is-there"),
        pytest.param("2025-12-31T23:54:59Z,default,there", "", id="more-than-five-minutes-ago"),
        pytest.param("2025-12-31T23:59:00Z,default,gone", "", id="by-a-pod-that-is-not"),
        pytest.param("2025-12-31T23:59:00Z,default,p", "", id="by-the-pod-itself-in-an-earlier-attempt"),
        pytest.param(
            "yesterday", WRAPPED + 'failed to lock node: invalid node lock value "yesterday"', id="nobodys-lock"
        ),
        pytest.param(
            "2025-12-31T23:59:00Z,there",
            WRAPPED + 'failed to lock node: invalid node lock value "2025-12-31T23:59:00Z,there"',
            id="half-a-lock",
        ),
    ],
)
def test_existing_locks_of_other_pods(held: str, message: str) -> None:
    there = rig()
    there.running(pod("there"), "n")
    locked(there, held)
    there.submit(slice_of("p"))
    there.run()
    assert there.where("p") == ("" if message else "n")
    if message:
        assert there.rejection("p").reason == "SchedulerError"
        assert there.message("p") == message


def test_a_binding_that_fails_unlocks_the_node() -> None:
    there = rig()
    there.submit(slice_of("a"))
    there.run(bind=False)
    there.core.bind_failed("uid-a", "etcd is on holiday", retry=False)
    there.submit(slice_of("b"))
    there.run()
    assert there.binding("b").annotations["CAMBRICON_DSMLU_PROFILE"] == "0_10_4", "the card is free again, too"


def test_whole_cards_lock_nothing() -> None:
    there = rig()
    there.submit(pod("a").gpus(2))
    there.run()
    assert there.binding("a").node_annotations == {}
    assert "CAMBRICON_DSMLU_PROFILE" not in there.binding("a").annotations


def test_requests_the_plugin_cannot_serve_are_refused_without_an_allocation() -> None:
    there = rig()
    there.submit(pod("a").resources({GPU_SHARED: 2, GPU_MEMORY_RATIO: 20, GPU_CORE: 20}))
    there.run()
    assert there.message("a") == WRAPPED + "multiple gpu share is not supported on device side"
    there.submit(pod("b").gpus(2))
    there.run()
    assert there.where("b") == "n"


def test_hami_finds_its_node_by_label() -> None:
    there = rig("nvidia")
    there.node("n", gpus=2, labels={"koordinator.sh/gpu-isolation-provider": "HAMi-core"})
    there.submit(pod("a").gpu_share(50).isolated())
    there.run()
    assert there.binding("a").labels == {"hami.io/vgpu-node": "n"}


def test_no_annotations_without_the_gate() -> None:
    there = Rig()
    there.node("n", gpus=1)
    there.submit(pod("a").gpu_share(50))
    there.run()
    assert set(there.binding("a").annotations) == {DEVICE_ALLOCATED}
