"""PodDecoder: decodes pods, and shares one spec object between pods with equal spec bytes.

When a pod is bound, its spec differs from a known one in the node's name only: it is copied from the known one and not
decoded.
"""

import msgspec
from msgspec.structs import replace

from seatrial.scheduler.api.core import Pod, PodSpec, PodStatus
from seatrial.scheduler.api.wire import ObjectMeta, Wire, without_nulls

_LIMIT = 16384  # maximum of specs kept; specs with a node name do not repeat
_NODE = b'"nodeName":"'


class _RawPod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = PodStatus()


class _Named(Wire, frozen=True):
    node_name: str = ""


class PodDecoder:
    """Decodes pods from JSON."""

    def __init__(self) -> None:
        self._raw = msgspec.json.Decoder(_RawPod).decode
        self._spec = msgspec.json.Decoder(PodSpec).decode
        self._named = msgspec.json.Decoder(_Named).decode
        self._specs: dict[bytes, PodSpec] = {}

    def __call__(self, data: bytes) -> Pod:
        """Decode one pod; null stands for an empty list or map, as in `wire.decoder`.

        Raises:
            msgspec.MsgspecError: the bytes are no pod.
        """
        try:
            return self._decode(data)
        except (msgspec.ValidationError, RecursionError):
            return self._decode(without_nulls(data))

    def _decode(self, data: bytes) -> Pod:
        raw = self._raw(data)
        encoded = bytes(raw.spec)
        spec = self._specs.get(encoded)
        if spec is None:
            spec = self._bound(encoded)
        if spec is None:
            if len(self._specs) >= _LIMIT:
                self._specs.clear()
            spec = self._specs[encoded] = self._spec(encoded)
        return Pod(raw.metadata, spec, raw.status)

    def _bound(self, encoded: bytes) -> PodSpec | None:
        """The spec, if it equals a known one but for its node name."""
        start = encoded.rfind(_NODE)
        if start < 0:
            return None
        first = start + len(_NODE)
        last = encoded.find(b'"', first)
        name = encoded[first:last].decode()
        if encoded[start - 1 : start] == b",":
            bare = encoded[: start - 1] + encoded[last + 1 :]
        else:
            bare = encoded[:start] + encoded[last + 1 :].removeprefix(b",")
        template = self._specs.get(bare)
        # The removed text may have been another field of that name, as in a node selector.
        if template is None or template.node_name or self._named(encoded).node_name != name:
            return None
        return replace(template, node_name=name)
