"""What a node keeps for processes outside containers, and that pods do not get it."""

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.numa import NODE_RESERVATION
from seatrial.scheduler.cache.node_reservation import kept_back
from seatrial.scheduler.tests.rig import GIB, Rig


@pytest.mark.parametrize(
    ("written", "want"),
    [
        pytest.param('{"resources":{"cpu":"16","memory":"12Gi"}}', {"cpu": 16000, "memory": 12 * GIB}, id="amounts"),
        pytest.param('{"resources":{"cpu":"16"},"reservedCPUs":"0-3"}', {"cpu": 4000}, id="the-list-decides"),
        pytest.param('{"resources":{"cpu":"2"},"applyPolicy":"Default"}', {"cpu": 2000}, id="default"),
        pytest.param('{"resources":{"cpu":"2"},"applyPolicy":"ReservedCPUsOnly"}', {}, id="cpus-only"),
        pytest.param('{"resources":{"cpu":"-2"}}', {}, id="less-than-nothing"),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_kept_back(written: str, want: dict[str, int]) -> None:
    assert kept_back({NODE_RESERVATION: written}) == want


def test_pods_do_not_get_it() -> None:
    rig = Rig()
    rig.node("n", cpu="96", memory="512Gi", more={"kubernetes.io/batch-cpu": 16})
    node = rig.core.cache.nodes["n"].known
    for text, cpu, fits in (
        ('{"resources":{"cpu":"16","memory":"12Gi"}}', 81, False),
        ('{"resources":{"cpu":"16","memory":"12Gi"}}', 80, True),
    ):
        rig.core.intake.set_node(replace(node, metadata=replace(node.metadata, annotations={NODE_RESERVATION: text})))
        rig.submit(pod(f"p{cpu}").request(cpu=cpu, memory="500Gi"))
        rig.run()
        assert bool(rig.where(f"p{cpu}")) is fits


def test_what_cannot_be_read_is_complained_about_and_keeps_nothing() -> None:
    rig = Rig()
    rig.node("n", cpu="4")
    node = rig.core.cache.nodes["n"].known
    metadata = replace(node.metadata, annotations={NODE_RESERVATION: '{"reservedCPUs":"3-1"}'})
    rig.core.intake.set_node(replace(node, metadata=metadata))
    rig.submit(pod("p").request(cpu=4))
    rig.run()
    assert rig.where("p") == "n"
    assert rig.complaints() == [f"node n: {NODE_RESERVATION}: expected ascending ranges of CPUs, found '3-1'"]
