"""`seatrial list` and `seatrial logs`: the clusters that `seatrial up` started on this machine."""

import json
import sys
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.cluster_state import state_of
from seatrial.harness.commands.live_page import WEB
from seatrial.harness.commands.text_table import table_lines
from seatrial.harness.commands.up_beside import names_in
from seatrial.harness.errors import UsageError

COLUMNS = ("name", "backend", "state", "api", "scheduler", "web", "with", "since")


def list_(*, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Print the clusters of this machine: name, backend, state, addresses, programs beside the scheduler, start time.

    State is `running`, or what has ended or does not answer. Addresses are those of the API, of our scheduler's
    services, and of the live page without the token that opens it.

    Args:
        json_: Print them as JSON, with the UID, the kubeconfig, the log files, and the file with the live page's whole
            address.
    """
    clusters = [cluster for name in detached.recorded_names() if (cluster := detached.recorded(name)) is not None]
    if json_:
        rows = [
            {
                "name": each.name,
                "backend": each.backend,
                "state": state_of(each),
                "api": each.url,
                "scheduler": each.scheduler,
                "livePage": _live_page(each),
                "livePageFile": str(detached.web_file(each.name)) if WEB in dict(each.logs) else "",
                "with": names_in(dict(each.logs)),
                "since": each.since,
                "uid": each.uid,
                "kubeconfig": each.kubeconfig,
                "logs": dict(each.logs),
            }
            for each in clusters
        ]
        print(json.dumps(rows, indent=2))
        return
    if not clusters:
        print("no cluster is up")
        return
    table = [COLUMNS]
    for each in clusters:
        programs = ",".join(names_in(dict(each.logs)))
        addresses = (each.url, each.scheduler or "-", _live_page(each) or "-")
        table.append((each.name, each.backend, state_of(each), *addresses, programs or "-", each.since))
    print("\n".join(table_lines(table)))


def _live_page(cluster: detached.Detached) -> str:
    """The address of a cluster's live page, without the token that opens it; "" if it has none."""
    if WEB not in dict(cluster.logs):
        return ""
    return "{0.scheme}://{0.netloc}/".format(urlsplit(detached.web_file(cluster.name).read_text()))


def logs(name: str = detached.DEFAULT_NAME, *, component: str = "") -> None:
    """Print the log files of a cluster's components, each after a line with its name and path.

    Args:
        name: Name of the cluster.
        component: Print only the log of this component, without such a line.
    """
    cluster = detached.recorded(name)
    if cluster is None:
        raise UsageError(f"no cluster {name!r} is up (up: {', '.join(detached.names()) or 'none'})")
    files = dict(cluster.logs)
    if component and component not in files:
        raise UsageError(f"logs --component {component}: cluster {name!r} has logs of: {', '.join(files) or 'none'}")
    for part, path in files.items():
        if component in {"", part}:
            if not component:
                print(f"==> {part}: {path}", flush=True)
            sys.stdout.write(Path(path).read_text(errors="replace"))
