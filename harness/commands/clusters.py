"""`seatrial list` and `seatrial logs`: the clusters that `seatrial up` started on this machine."""

import json
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from seatrial.harness.clusters import detached
from seatrial.harness.clusters.cluster_state import state_of
from seatrial.harness.commands.text_table import table_lines
from seatrial.harness.commands.up_beside import names_in
from seatrial.harness.errors import UsageError

COLUMNS = ("name", "backend", "state", "api", "scheduler", "with", "since")


def list_(*, json_: Annotated[bool, Parameter(name="--json", negative="")] = False) -> None:
    """Print the clusters of this machine: name, backend, state, addresses of the API and of our scheduler's services,
    programs beside it, start time. State is `running`, or what has ended or does not answer.

    Args:
        json_: Print them as JSON, with the UID, the kubeconfig and the log files.
    """
    found = [cluster for name in detached.recorded_names() if (cluster := detached.recorded(name)) is not None]
    if json_:
        rows = [
            {
                "name": each.name,
                "backend": each.backend,
                "state": state_of(each),
                "api": each.url,
                "scheduler": each.scheduler,
                "with": names_in(dict(each.logs)),
                "since": each.since,
                "uid": each.uid,
                "kubeconfig": each.kubeconfig,
                "logs": dict(each.logs),
            }
            for each in found
        ]
        print(json.dumps(rows, indent=2))
        return
    if not found:
        print("no cluster is up")
        return
    table = [COLUMNS]
    for each in found:
        programs = ",".join(names_in(dict(each.logs)))
        table.append(
            (each.name, each.backend, state_of(each), each.url, each.scheduler or "-", programs or "-", each.since)
        )
    print("\n".join(table_lines(table)))


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
