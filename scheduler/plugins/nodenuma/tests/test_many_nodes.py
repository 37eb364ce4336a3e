"""A report with more NUMA nodes than the kubelet supports: it costs other pods nothing."""

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import cast

import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import MAX_NUMA_NODES
from seatrial.scheduler.plugins.deviceshare.numa import numa_nodes
from seatrial.scheduler.plugins.deviceshare.states import Template
from seatrial.scheduler.plugins.nodenuma import hints
from seatrial.scheduler.plugins.nodenuma.tests.numarig import Machines
from seatrial.scheduler.plugins.numahints import Mask


def test_sets_of_too_many_numa_nodes_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of sets doubles with each NUMA node: with 24 of them one pod would stop scheduling for minutes."""
    rig = Machines()
    sizes: list[int] = []
    masks = hints.masks

    def counted(ids: Sequence[int]) -> Iterator[Mask]:
        sizes.append(len(ids))
        return masks(ids[:MAX_NUMA_NODES])

    monkeypatch.setattr(hints, "masks", counted)
    rig.machine("n1", (1, MAX_NUMA_NODES + 1, 2, 2), policy="SingleNUMANodePodLevel")
    rig.machine("n2", (1, 2, 2, 2), policy="SingleNUMANodePodLevel")
    rig.submit(pod("a").request(cpu=1))
    rig.run()
    assert rig.where("a")
    assert max(sizes, default=0) <= MAX_NUMA_NODES
    assert any("expected at most 8 NUMA nodes, found 9" in line for line in rig.complaints())


def test_numa_nodes_of_too_many_devices_are_not_used() -> None:
    """Devices name NUMA nodes as well: beyond what a node can have they count as unknown."""
    slots = [SimpleNamespace(place=SimpleNamespace(numa=number)) for number in range(MAX_NUMA_NODES + 1)]
    assert numa_nodes(cast("Template", SimpleNamespace(slots=slots[:-1]))) == frozenset(range(MAX_NUMA_NODES))
    assert numa_nodes(cast("Template", SimpleNamespace(slots=slots))) == frozenset()
