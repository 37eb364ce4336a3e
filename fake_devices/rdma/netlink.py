"""The kernel's side of RDMA netlink, over a socket pair: requests in, messages out, read from the table.

No Python call of the reader is replaced: what crosses the socket are netlink messages. A thread answers, since the
reader blocks on its own end.
"""

import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

from seatrial.fake_devices.layout import KIND_NIC, PRESENT
from seatrial.fake_devices.table import DeviceTable

RDMA_NL_NLDEV = 5
GET, PORT_GET, SYS_GET = 1, 5, 6
NLMSG_ERROR, NLMSG_DONE = 2, 3
MULTI, DUMP = 0x2, 0x300
NETNS_SHARED = 1
NODE_TYPE_CA = 1
EOPNOTSUPP = 95

_HEADER = struct.Struct("=IHHII")


class RdmaPeer:
    """`reader` is the socket to hand to the reader; `close` ends the thread."""

    def __init__(self, table: DeviceTable) -> None:
        self._table = table
        self.reader, self._own = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._thread = threading.Thread(target=self._serve, name="rdma-netlink", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering. May be called twice."""
        if self._own.fileno() >= 0:
            self._own.shutdown(socket.SHUT_RDWR)
            self._thread.join()
            self._own.close()
            self.reader.close()

    def _serve(self) -> None:
        while True:
            try:
                request = self._own.recv(65536)
                if not request:
                    return
                for answer in self.answers(request):
                    self._own.send(answer)
            except OSError:
                return  # the reader has closed its end

    def answers(self, request: bytes) -> Iterator[bytes]:
        """The datagrams of the answer to a request."""
        _, kind, flags, sequence, _ = _HEADER.unpack_from(request)
        command = kind & 0x3FF
        attributes = dict(_attributes(request[_HEADER.size :]))
        if kind >> 10 != RDMA_NL_NLDEV or command not in {GET, PORT_GET, SYS_GET}:
            yield _message(NLMSG_ERROR, 0, sequence, struct.pack("=i", -EOPNOTSUPP) + request[: _HEADER.size])
            return
        if command == SYS_GET:
            yield _message(kind, 0, sequence, _u8(66, NETNS_SHARED))
            return
        target = struct.unpack("=I", attributes[1])[0] if 1 in attributes else None
        bodies = [
            body
            for index, body in (self._devices() if command == GET else self._ports())
            if target is None or index == target
        ]
        if flags & DUMP:
            yield b"".join(_message(kind, MULTI, sequence, body) for body in bodies) + _message(
                NLMSG_DONE, MULTI, sequence, struct.pack("=i", 0)
            )
        else:
            yield from (_message(kind, 0, sequence, body) for body in bodies[:1])

    def _devices(self) -> Iterator[tuple[int, bytes]]:
        for index, record in self._nics():
            guid = int(record.guid)
            yield (
                index,
                b"".join(
                    (
                        _u32(1, index),
                        _text(2, record.ibdev),
                        _u32(3, 1),
                        _u64(4, 0),
                        _text(5, record.firmware),
                        _u64(6, guid),
                        _u64(7, guid),
                        _u8(14, NODE_TYPE_CA),
                        _text(67, b"ib"),
                    )
                ),
            )

    def _ports(self) -> Iterator[tuple[int, bytes]]:
        for index, record in self._nics():
            yield (
                index,
                b"".join(
                    (
                        _u32(1, index),
                        _text(2, record.ibdev),
                        _u32(3, 1),
                        _u32(9, record.minor + 1),
                        _u32(10, 1),
                        _u8(12, record.port_state),
                        _u8(13, record.port_phys_state),
                        _u32(50, record.ifindex),
                        _text(51, record.netdev),
                    )
                ),
            )

    def _nics(self) -> Iterator[tuple[int, Any]]:
        index = 0
        for record in self._table.devices:
            if record.kind == KIND_NIC:
                if record.present == PRESENT:
                    yield index, record
                index += 1


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body


def _attributes(body: bytes) -> Iterator[tuple[int, bytes]]:
    while len(body) >= 4:
        length, kind = struct.unpack_from("=HH", body)
        if length < 4:
            return
        yield kind, body[4:length]
        body = body[(length + 3) & ~3 :]


def _attribute(kind: int, content: bytes) -> bytes:
    length = 4 + len(content)
    return struct.pack("=HH", length, kind) + content + bytes(-length % 4)


def _u8(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=B", value))


def _u32(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=I", value))


def _u64(kind: int, value: int) -> bytes:
    return _attribute(kind, struct.pack("=Q", value))


def _text(kind: int, value: bytes) -> bytes:
    return _attribute(kind, value + b"\0")
