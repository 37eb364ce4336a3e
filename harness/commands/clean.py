"""`seatrial clean`: remove what killed runs left on a cluster."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from seatrial.harness.clusters.existing import WholeCluster, unusable
from seatrial.harness.clusters.kubeconfig import load_access, with_context
from seatrial.harness.clusters.leftovers import DURATION, remove_dead_runs, runs_on
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.private_files import private_folder

RIGHTS_TO_LIST = (("", "namespaces", "list"), ("", "nodes", "list"))
RIGHTS_TO_CLEAN = (*RIGHTS_TO_LIST, ("", "namespaces", "delete"), ("", "nodes", "delete"))


def clean(*, kubeconfig: Path, context: str = "", dry_run: Annotated[bool, Parameter(negative="")] = False) -> int:
    """Remove the objects of runs that were killed. Runs that live, and objects without seatrial's mark, are left alone.

    Args:
        kubeconfig: Kubeconfig of the cluster.
        context: Context in it, by default its current one.
        dry_run: List all runs that have objects on the cluster, ended or not, and remove nothing.
    """
    why = unusable(kubeconfig, context, RIGHTS_TO_LIST if dry_run else RIGHTS_TO_CLEAN)
    if why is not None:
        raise UsageError(f"clean: {why}")
    with private_folder() as folder:
        path = with_context(kubeconfig, context, folder / "kubeconfig")
        cluster = WholeCluster("existing", load_access(path), path)
        try:
            if dry_run:
                print("\n".join(f"run {run}" for run in runs_on(cluster)) or "no run has objects on this cluster")
                return 0
            lines = [f"run {run}: removed" for run in remove_dead_runs(cluster)]
            lines += [
                f"run {run}: left alone, its Lease was renewed in the last {DURATION:.0f} s" for run in runs_on(cluster)
            ]
        finally:
            cluster.close()
    print("\n".join(lines) or "nothing to remove")
    return 0
