"""Pods decoded fast: specs that arrive as the same bytes become the same object, so that a template is read once."""

import msgspec

from scheduler.api.core import Pod, PodSpec, PodStatus
from scheduler.api.wire import ObjectMeta, Wire

_LIMIT = 16384  # specs remembered; each names its node once bound, so they do not repeat for ever


class _RawPod(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: PodStatus = PodStatus()


class PodDecoder:
    """Turns encoded pods into `Pod`s."""

    def __init__(self) -> None:
        self._raw = msgspec.json.Decoder(_RawPod).decode
        self._spec = msgspec.json.Decoder(PodSpec).decode
        self._specs: dict[bytes, PodSpec] = {}

    def __call__(self, data: bytes) -> Pod:
        """Decode one pod.

        Raises:
            msgspec.MsgspecError: the bytes are no pod.
        """
        raw = self._raw(data)
        encoded = bytes(raw.spec)
        spec = self._specs.get(encoded)
        if spec is None:
            if len(self._specs) >= _LIMIT:
                self._specs.clear()
            spec = self._specs[encoded] = self._spec(encoded)
        return Pod(raw.metadata, spec, raw.status)
