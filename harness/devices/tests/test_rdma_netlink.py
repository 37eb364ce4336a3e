"""RDMA over netlink, spoken by pyroute2 against a stand-in for the kernel: devices, ports, and who is believed."""

import shutil
from pathlib import Path

from seatrial.fake_devices import faults
from seatrial.fake_devices.machine import from_server
from seatrial.fake_devices.models import catalog
from seatrial.fake_devices.rdma.netlink import RdmaPeer
from seatrial.fake_devices.table import FULL, DeviceTable
from seatrial.harness.devices.rdma import RdmaProvider
from seatrial.harness.devices.rdma_netlink import RdmaNetlink
from seatrial.harness.devices.tests.boundaries import rdma_tree, rdma_tree_and_netlink

ACTIVE, DOWN, POLLING = 4, 1, 2


def test_every_port_is_told_with_its_states_and_its_net_device() -> None:
    table = DeviceTable.create(from_server("dgx-h100", catalog()), "n1", room=FULL)
    nics = [record for slot, record in table if slot.model.is_nic]
    peer = RdmaPeer(table)
    channel = RdmaNetlink(peer.reader)
    try:
        assert sorted(channel.devices().values()) == sorted(nic.ibdev.decode() for nic in nics)
        before = {port.device: port for port in channel.ports()}
        assert {device.state for device in before.values()} == {ACTIVE}
        assert {device.device: device.netdev for device in before.values()} == {
            nic.ibdev.decode(): nic.netdev.decode() for nic in nics
        }
        first = next(at for at, slot in enumerate(table.machine.slots) if slot.model.is_nic)
        name = table.devices[first].ibdev.decode()
        undo = faults.apply(table, first, "link", {}, now=1.0)
        after = {port.device: port for port in channel.ports()}
        assert (after[name].state, after[name].physical_state) == (DOWN, POLLING)
        assert {key: value for key, value in after.items() if key != name} == {
            key: value for key, value in before.items() if key != name
        }
        undo(2.0)
        assert {port.device: port for port in channel.ports()} == before
        faults.apply(table, first, "remove", {}, now=3.0)
        assert name not in channel.devices().values()
    finally:
        channel.close()
        peer.close()


def test_netlink_has_precedence_over_files(tmp_path: Path) -> None:
    """Files that were not brought up to date do not make a port well that the kernel calls down."""
    with rdma_tree_and_netlink(tmp_path) as boundary, boundary.provider() as provider:
        device = provider.devices()[0]
        at = boundary.table.position(device.uuid)
        assert at is not None
        faults.apply(boundary.table, at, "link", {}, now=1.0)
        health = provider.health(device.uuid)
        assert (health.ok, health.code, health.message) == (False, "PortDown", "port state is DOWN")


def test_files_are_used_without_netlink(tmp_path: Path) -> None:
    with rdma_tree(tmp_path) as boundary:
        provider = RdmaProvider(root=boundary.root)
        with provider:
            device = provider.devices()[0]
            name = device.kernel_name
            home = tmp_path / "sys/bus/pci/devices" / device.bus_id / "infiniband" / name
            (home / "ports/1/state").write_text("2: INIT\n")
            by_kernel_name = {other.kernel_name: other.health.ok for other in provider.devices()}
            assert [key for key, ok in by_kernel_name.items() if not ok] == [name]
            assert device.source == "real"


def test_a_tree_that_disappears_leaves_no_port_healthy(tmp_path: Path) -> None:
    with rdma_tree(tmp_path) as boundary, boundary.provider() as provider:
        device = provider.devices()[0]
        shutil.rmtree(tmp_path / "sys/bus")
        assert not provider.health(device.uuid).ok
