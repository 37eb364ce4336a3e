"""`seatrial vgpu-monitor`: metrics of containers on shared cards for Prometheus, under HAMi v2.6's names."""

import os
import platform
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from seatrial.harness.errors import UsageError

if TYPE_CHECKING:
    from seatrial.harness.hami.monitor import HostCard, Owner

_ENDS = frozenset({signal.SIGINT, signal.SIGTERM})
Port = Annotated[int, Parameter(validator=validators.Number(gte=0, lte=65535))]


def vgpu_monitor(
    *,
    folder: Path = Path("/usr/local/vgpu/containers"),
    host: str = "127.0.0.1",
    port: Port = 9394,
    kubeconfig: Path | None = None,
    node: str | None = None,
    once: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Serve metrics of containers with HAMi-core until Ctrl-C.

    Args:
        folder: Folder of the containers: <pod uid>_<container>/*.cache.
        host: The address to listen on. Addresses other than loopback can be reached from other machines.
        port: The port to listen on; 0 takes a free one.
        kubeconfig: Kubeconfig of the cluster, for the pods' names; without it, UIDs are used.
        node: This node's name in the cluster; by default the machine's own.
        once: Print the metrics and end.
    """
    from seatrial.harness.hami.monitor import Monitor, serving

    if not folder.is_dir():
        raise UsageError(f"--folder {folder}: expected a folder, found {'a file' if folder.exists() else 'nothing'}")
    if not os.access(folder, os.R_OK | os.X_OK):
        raise UsageError(f"--folder {folder}: expected permission to read it")
    name = node or platform.node()
    with ExitStack() as open_:
        pods = _pods(open_, kubeconfig, name)
        monitor = Monitor(folder, name, now=time.time, pods=pods, cards=_cards(open_))
        if once:
            print(monitor.page(), end="")
            return 0
        # Blocked before there are threads, so that the signals wait for `sigwait` and no thread sees them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDS)
        open_.callback(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        url = open_.enter_context(serving(monitor, host, port))
        print(f"metrics of {folder} at {url}; Ctrl-C ends it.", flush=True)
        signal.sigwait(_ENDS)
    return 0


def _pods(open_: ExitStack, kubeconfig: Path | None, node: str) -> "Callable[[], Mapping[str, Owner]] | None":
    if kubeconfig is None:
        return None
    from seatrial.harness.clusters.kubeconfig import load_access
    from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
    from seatrial.harness.hami.sources import pods_of_node

    transport = RemoteTransport(load_access(kubeconfig), PumpedClock())
    open_.callback(transport.close)
    pods_of_node(transport.call, node)  # reports a wrong address now instead of at the first scrape
    return lambda: pods_of_node(transport.call, node)


def _cards(open_: ExitStack) -> "Callable[[], Sequence[HostCard]]":
    from seatrial.harness.devices.nvidia import NvidiaProvider
    from seatrial.harness.hami.sources import nvidia_cards

    provider = NvidiaProvider()
    if provider.probe() is not None:
        return tuple
    open_.enter_context(provider)
    return lambda: nvidia_cards(provider)
