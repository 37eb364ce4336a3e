"""`seatrial snapshot save` and `restore`: the objects of a cluster in a file, and back."""

from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from cyclopts import Parameter

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.backends import EMBEDDED
from seatrial.harness.clusters.detached import Detached
from seatrial.harness.clusters.kubeconfig import load_access
from seatrial.harness.clusters.remote import PumpedClock, RemoteTransport
from seatrial.harness.clusters.snapshot import Snapshot, check, collect, contents, read, write
from seatrial.harness.commands.output_paths import check_writable
from seatrial.harness.commands.up import up
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.clock import WallClock


def save(
    file: Path,
    *,
    name: str = "",
    kubeconfig: Path | None = None,
    secrets: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write all objects of a cluster to a file (mode 0600): at one revision, with UIDs and status, without Events.

    Args:
        file: The file. One that exists is replaced if it is a snapshot.
        name: Name of a cluster of `seatrial up`.
        kubeconfig: Another cluster, which is only read. What belongs to its own servers is left out: leases,
            certificates, webhooks, API services and flow control.
        secrets: With --kubeconfig: save Secrets, too.
    """
    if kubeconfig is not None and name:
        raise UsageError("snapshot save: expected --name or --kubeconfig, found both")
    if secrets and kubeconfig is None:
        raise UsageError("snapshot save --secrets: expected --kubeconfig; Secrets of clusters of `up` are always saved")
    check_writable("snapshot save", file)
    if file.exists():
        read(file)
    if kubeconfig is None:
        kubeconfig = Path(_of_up(name or detached.DEFAULT_NAME).kubeconfig)
        snapshot = _collected(kubeconfig)
    else:
        snapshot = _collected(kubeconfig, foreign=True, secrets=secrets)
    write(file, snapshot, WallClock())
    for resource, why in snapshot.unread.items():
        print(f"{file}: without {resource}: {why}")
    print(f"{file}: {_counted(snapshot.kinds)}")


def restore(
    file: Path, *, name: str = detached.DEFAULT_NAME, replace: Annotated[bool, Parameter(negative="")] = False
) -> int:
    """Start a cluster of `seatrial up --detach` anew with the objects of a snapshot, at the same address.

    The file is checked before anything is ended. The kubeconfig gets new credentials.

    Args:
        file: A file of `seatrial snapshot save`.
        name: Name of the cluster.
        replace: Replace the objects that the cluster has.
    """
    check(file)
    cluster = _of_up(name)
    if not cluster.options:
        raise UsageError(
            f"snapshot restore: expected a cluster of `seatrial up --detach`, found {name!r} in the foreground of"
            f" process {cluster.processes[0][0]}; end it, and start `seatrial up --snapshot {file}`"
        )
    present = contents(_collected(Path(cluster.kubeconfig)))
    if present and not replace:
        raise UsageError(f"cluster {name!r} is not empty: {_counted(present)}; --replace replaces all its objects")
    url = urlsplit(cluster.url)
    options: dict[str, Any] = {
        flag: Path(str(value)) if flag.endswith("_config") else value for flag, value in cluster.options.items()
    }
    missing = [str(value) for value in options.values() if isinstance(value, Path) and not value.is_file()]
    if missing:
        raise UsageError(f"snapshot restore: cluster {name!r} was started with {', '.join(missing)}, which is gone")
    detached.end(cluster)
    if present:
        print(f"replaced: {_counted(present)}")
    return up(
        name=name,
        snapshot=file,
        kubeconfig=Path(cluster.kubeconfig),
        detach=True,
        host=url.hostname or "",
        port=url.port or 0,
        **options,
    )


def _of_up(name: str) -> Detached:
    """
    Raises:
        UsageError: no embedded cluster of this name is up.
    """
    cluster = detached.find(name)
    if cluster is None:
        raise UsageError(f"no cluster {name!r} is up (up: {', '.join(detached.names()) or 'none'})")
    if cluster.backend != EMBEDDED:
        raise UsageError(
            f"snapshot: expected a cluster of --backend {EMBEDDED}, found {name!r} of --backend {cluster.backend}"
        )
    return cluster


def _collected(kubeconfig: Path, *, foreign: bool = False, secrets: bool = True) -> Snapshot:
    with closing(RemoteTransport(load_access(kubeconfig), PumpedClock())) as transport:
        return collect(transport.call, foreign=foreign, secrets=secrets)


def _counted(kinds: Counter[str]) -> str:
    """Numbers of objects in words; nodes and pods first."""
    ordered = sorted(kinds, key=lambda kind: (kind not in {"Node", "Pod"}, kind))
    return f"{kinds.total()} objects: {', '.join(f'{kinds[kind]} {kind}' for kind in ordered)}"
