"""Sources of the monitor: pods of a node from the API server, cards from NVIDIA's library."""

from collections.abc import Callable, Mapping
from urllib.parse import quote

from seatrial.harness.devices.nvidia import NvidiaProvider
from seatrial.harness.devices.provider import ProviderError
from seatrial.harness.errors import ApiRefused
from seatrial.harness.hami.monitor import HostCard, Owner
from seatrial.scheduler.api.transport import Request, Response
from seatrial.scheduler.api.wire import Wire, decoder


class _Meta(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""


class _Pod(Wire, frozen=True):
    metadata: _Meta = _Meta()


class _Pods(Wire, frozen=True):
    items: tuple[_Pod, ...] = ()


_decode = decoder(_Pods)


def pods_of_node(call: Callable[[Request], Response], node: str) -> Mapping[str, Owner]:
    """The pods bound to a node, by uid.

    Raises:
        ApiRefused: the API server refuses the request.
        ClusterError: it does not answer.
    """
    response = call(Request("GET", f"/api/v1/pods?fieldSelector={quote(f'spec.nodeName={node}', safe='')}"))
    if not response.ok:
        text = response.body.decode(errors="replace")[:200]
        raise ApiRefused(f"list pods of node {node!r}", code=response.code, reason="", message=text)
    metas = [item.metadata for item in _decode(response.body).items]
    return {meta.uid: Owner(meta.namespace, meta.name) for meta in metas}


def nvidia_cards(provider: NvidiaProvider) -> tuple[HostCard, ...]:
    """The cards of an open provider; a card that does not answer is left out."""
    host_cards = []
    for device in provider.devices():
        try:
            usage = provider.usage(device.uuid)
        except ProviderError:
            continue
        host_cards.append(HostCard(device.index, device.uuid, usage.memory, usage.core))
    return tuple(host_cards)
