"""RDMA devices and ports over netlink (family 20), with pyroute2 for the messages.

pyroute2 has no RDMA family: requests and attributes are listed here. Where the kernel has no InfiniBand, opening the
family fails with EPROTONOSUPPORT and the provider reads sysfs alone.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyroute2.netlink import NLM_F_DUMP, NLM_F_REQUEST, nlmsg
from pyroute2.netlink.nlsocket import NetlinkSocket

from seatrial.harness.devices.provider import FailureKind, ProviderError

NETLINK_RDMA = 20
_NLDEV = 5 << 10
GET_DEVICES, GET_PORTS = _NLDEV + 1, _NLDEV + 5


class RdmaMessage(nlmsg):  # type: ignore[misc]
    """No header of its own: attributes follow the netlink header."""

    prefix = "RDMA_NLDEV_ATTR_"
    fields = ()
    nla_map = (
        (1, "RDMA_NLDEV_ATTR_DEV_INDEX", "uint32"),
        (2, "RDMA_NLDEV_ATTR_DEV_NAME", "asciiz"),
        (3, "RDMA_NLDEV_ATTR_PORT_INDEX", "uint32"),
        (4, "RDMA_NLDEV_ATTR_CAP_FLAGS", "uint64"),
        (5, "RDMA_NLDEV_ATTR_FW_VERSION", "asciiz"),
        (6, "RDMA_NLDEV_ATTR_NODE_GUID", "uint64"),
        (7, "RDMA_NLDEV_ATTR_SYS_IMAGE_GUID", "uint64"),
        (9, "RDMA_NLDEV_ATTR_LID", "uint32"),
        (10, "RDMA_NLDEV_ATTR_SM_LID", "uint32"),
        (12, "RDMA_NLDEV_ATTR_PORT_STATE", "uint8"),
        (13, "RDMA_NLDEV_ATTR_PORT_PHYS_STATE", "uint8"),
        (14, "RDMA_NLDEV_ATTR_DEV_NODE_TYPE", "uint8"),
        (50, "RDMA_NLDEV_ATTR_NDEV_INDEX", "uint32"),
        (51, "RDMA_NLDEV_ATTR_NDEV_NAME", "asciiz"),
        (67, "RDMA_NLDEV_ATTR_DEV_PROTOCOL", "asciiz"),
    )


@dataclass(frozen=True, slots=True)
class Port:
    """One port of one device."""

    device: str
    number: int
    state: int
    physical_state: int
    netdev: str


class RdmaNetlink:
    """An open channel to the kernel, or to a stand-in over a given socket."""

    def __init__(self, client: socket.socket | None = None) -> None:
        """
        Raises:
            ProviderError: this kernel has no RDMA netlink.
        """
        try:
            self._socket: Any = NetlinkSocket(family=NETLINK_RDMA, **({"use_socket": client} if client else {}))
        except OSError as error:
            code, text = error.errno or 0, str(error)
            raise ProviderError(
                FailureKind.UNSUPPORTED, vendor="mellanox", call="socket(NETLINK_RDMA)", code=code, text=text
            ) from error
        for kind in (GET_DEVICES, GET_PORTS):
            self._socket.register_policy(kind, RdmaMessage)

    def close(self) -> None:
        """Close the channel, a given socket included."""
        self._socket.close()

    def devices(self) -> dict[int, str]:
        """Names of the RDMA devices by index."""
        return {int(answer.get("DEV_INDEX")): str(answer.get("DEV_NAME")) for answer in self._dump(GET_DEVICES)}

    def ports(self) -> tuple[Port, ...]:
        """All ports of all devices."""
        return tuple(
            Port(
                name,
                int(answer.get("PORT_INDEX")),
                int(answer.get("PORT_STATE")),
                int(answer.get("PORT_PHYS_STATE")),
                str(answer.get("NDEV_NAME") or ""),
            )
            for index, name in self.devices().items()
            for answer in self._dump(GET_PORTS, index)
        )

    def _dump(self, kind: int, device: int | None = None) -> Iterator[Any]:
        request = RdmaMessage()
        if device is not None:
            request["attrs"] = [["RDMA_NLDEV_ATTR_DEV_INDEX", device]]
        for answer in self._socket.nlm_request(request, msg_type=kind, msg_flags=NLM_F_REQUEST | NLM_F_DUMP):
            yield _Answer(answer)


class _Answer:
    def __init__(self, message: Any) -> None:
        self._message = message

    def get(self, name: str) -> Any:
        return self._message.get_attr(f"RDMA_NLDEV_ATTR_{name}")
