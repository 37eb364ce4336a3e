"""What a scheduler needs of a machine besides kubelet's counts: its Device object, labels, bytes of memory.

koordlet and koord-manager write these on a cluster with Koordinator's agents.
"""

import logging
from collections.abc import Callable, Mapping

import msgspec

from seatrial.harness.apiserver.quantities import amount, quantities
from seatrial.harness.deviceplugin.resources import IN_BYTES
from seatrial.harness.nodes.capacity import koordinator_amounts
from seatrial.harness.nodes.devices import reported
from seatrial.harness.nodes.follow import Follower, HeadMeta
from seatrial.harness.nodes.publisher import Hardware, Publisher
from seatrial.harness.nodes.slices import SLICES, Way
from seatrial.harness.nodes.writer import NODES, Writer
from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.transport import Transport
from seatrial.scheduler.api.wire import Wire, decoder

log = logging.getLogger(__name__)

_SLICES_AGAIN_AFTER = 0.5  # seconds: kubelet deletes all slices of the node one after the other

OnAnnotations = Callable[[Mapping[str, str]], None]


class _Meta(Wire, frozen=True):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Status(Wire, frozen=True):
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)


class _Node(Wire, frozen=True):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


_decode = decoder(_Node)


class NodeReport:
    """Follows the Node that kubelet made, and writes our part of it and the Device object."""

    def __init__(
        self,
        transport: Transport,
        clock: Clock,
        node: str,
        hardware: Hardware,
        *,
        on_annotations: OnAnnotations = lambda _: None,
        writes: bool = True,
        dra: Way | None = None,
    ) -> None:
        """`on_annotations` gets the Node's annotations whenever it has changed. Without `writes` that is all.
        With `dra` the devices are in ResourceSlices, which are written again when someone has deleted them: kubelet
        does so when it starts, and 30 s after a driver has gone (DRA-R151).
        """
        self._writes, self._dra, self._again = writes, dra, False
        self._node, self._hardware, self._clock = node, hardware, clock
        self._writer = Writer(transport, clock)
        self._on_annotations = on_annotations
        self._uid = ""
        self._publisher: Publisher | None = None
        self._follower = Follower(
            transport,
            clock,
            NODES,
            {"fieldSelector": f"metadata.name={node}"},
            on_set=self._node_set,
            on_gone=self._node_gone,
        )

        self._slices = Follower(
            transport,
            clock,
            SLICES,
            {"fieldSelector": f"spec.nodeName={node}"},
            on_set=lambda _head, _raw: None,
            on_gone=self._slice_gone,
        )

    def start(self) -> None:
        """Begin; nothing is written before the Node exists."""
        self._follower.start()
        if self._dra:
            self._slices.start()

    def stop(self) -> None:
        """End; the objects stay as they are."""
        self._follower.stop()
        self._slices.stop()
        self._writer.close()

    def refresh(self) -> None:
        """The devices have changed: write everything anew."""
        if self._publisher is None or not self._writes:
            return
        self._publisher.look()
        self._publisher.publish()
        if not self._dra:
            self._publisher.mark(self._publisher.device_labels())
            self._write_bytes({})

    def _node_set(self, head: HeadMeta, raw: msgspec.Raw) -> None:
        node = _decode(raw)
        if head.uid != self._uid:
            self._uid = head.uid
            self._publisher = Publisher(
                self._node,
                head.uid,
                self._hardware,
                writer=self._writer,
                clock=self._clock,
                host_ip="",
                runtime="",
                facts={},
                xpu_folder=None,
                topology=None,
                port=0,
                dra=self._dra,
            )
            log.info("node found node=%s", self._node)
            self.refresh()
        elif not self._dra:
            self._write_bytes(node.status.allocatable)
        self._on_annotations(node.metadata.annotations)

    def _node_gone(self, head: HeadMeta) -> None:
        if head.uid == self._uid:
            self._uid, self._publisher = "", None

    def _slice_gone(self, head: HeadMeta) -> None:
        if self._publisher is None or not self._publisher.has_slice(head.name) or self._again:
            return

        def again() -> None:
            self._again = False
            self.refresh()

        self._again = True
        self._clock.call_later(_SLICES_AGAIN_AFTER, again)

    def _write_bytes(self, allocatable: Mapping[str, str]) -> None:
        """Write the resources that are counted in bytes; kubelet sets them to 0 when it registers the node anew."""
        amounts = koordinator_amounts(reported(self._hardware.devices()))
        own = {name: amounts.get(name, 0) for name in IN_BYTES if name in amounts or name in allocatable}
        if self._writes and any(
            name not in allocatable or amount(name, allocatable[name]) != value for name, value in own.items()
        ):
            targets = quantities(own)
            patch = {"status": {"capacity": targets, "allocatable": targets}}
            self._writer.strategic(f"{NODES}/{self._node}/status", patch)
