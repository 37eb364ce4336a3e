"""`seatrial audit`: check the invariants of scheduling on a cluster that runs, without writing to it."""

import json
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from seatrial.harness.audit.auditor import INVARIANTS
from seatrial.harness.audit.existing import auditing
from seatrial.harness.errors import UsageError


def audit(
    *,
    kubeconfig: Path | None = None,
    seconds: Annotated[float, Parameter(name=["--for", "--seconds"], validator=validators.Number(gte=0))] = 30.0,
    namespace: str = "",
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Follow a cluster and report each breach of an invariant, with the events that led to it. Only reads.

    Pods that are bound already are judged by the present state; pods that are bound meanwhile by all invariants.
    Exit status: 0 no violation, 1 violations, 2 the cluster could not be read.

    Args:
        kubeconfig: The cluster.
        seconds: How long to follow it; 0 judges the present state only.
        namespace: Report only violations about pods of this namespace.
        list_: Print the invariants and stop.
        json_: Print violations as JSON.
    """
    if list_:
        results = [{"id": invariant.id, "title": invariant.title} for invariant in INVARIANTS]
        print(
            json.dumps(results, indent=2)
            if json_
            else "\n".join(f"{entry['id']}  {entry['title']}" for entry in results)
        )
        return 0
    if kubeconfig is None:
        raise UsageError("audit: --kubeconfig FILE is needed: the cluster to check; --list shows the invariants")
    with auditing(kubeconfig) as (running, cluster):
        auditor, follower = running.auditor, running.follower
        auditor.check_bound(cluster.clock.monotonic())
        cluster.pass_time(seconds)
        running.settle(cluster.clock.monotonic())
        running.check_state()
    violations = [
        violation for violation in auditor.violations if not namespace or violation.pod.startswith(f"{namespace}/")
    ]
    if json_:
        messages = {"pods": len(auditor.state.pods), "nodes": len(auditor.state.nodes), "notServed": follower.absent}
        print(json.dumps({**messages, "violations": msgspec.to_builtins(violations)}, indent=2))
    else:
        for violation in violations:
            print(violation)
            for line in violation.timeline:
                print(f"    {line}")
        without = f"; not served: {', '.join(follower.absent)}" if follower.absent else ""
        print(
            f"{len(auditor.state.pods)} pods on {len(auditor.state.nodes)} nodes, {len(violations)} violations{without}"
        )
    return 1 if violations else 0
