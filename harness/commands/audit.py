"""`seatrial audit`: check the invariants of scheduling on a cluster that runs, without writing to it."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter, validators

from seatrial.harness.audit.auditor import INVARIANTS
from seatrial.harness.audit.existing import auditing
from seatrial.harness.audit.state import PodRecord
from seatrial.harness.errors import UsageError

# Kubelet's reasons for a pod that it does not admit (pkg/kubelet/lifecycle/predicate.go, cm/admission/errors.go).
REFUSALS = re.compile(
    "UnexpectedAdmissionError|OutOf.+|NodeAffinity|NodePorts|NodeName|TopologyAffinityError|SMTAlignmentError"
)


class Refusal(msgspec.Struct, frozen=True):
    """A pod that its node did not admit."""

    pod: str  # namespace/name
    node: str
    reason: str
    message: str


def audit(
    *,
    kubeconfig: Path | None = None,
    seconds: Annotated[float, Parameter(name=["--for", "--seconds"], validator=validators.Number(gte=0))] = 30.0,
    namespace: str = "",
    list_: Annotated[bool, Parameter(name="--list", negative="")] = False,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Follow a cluster and report each breach of an invariant, with the events that led to it. Only reads.

    Pods that are bound already are judged by the present state; pods that are bound meanwhile by all invariants. A pod
    that its node refused was given to the wrong node, and is reported too.
    Exit status: 0 nothing to report, 1 violations or refused pods, 2 the cluster could not be read.

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
        start = cluster.clock.monotonic()
        auditor.check_bound(start)
        if seconds:
            print(f"following {len(auditor.state.pods)} pods for {seconds:g} s", file=sys.stderr, flush=True)
        cluster.pass_time(seconds)
        running.settle(cluster.clock.monotonic())
        running.check_state()
    violations = [violation for violation in auditor.violations if _within(namespace, violation.pod)]
    refused = [refusal for refusal in _refused(auditor.state.pods.values()) if _within(namespace, refusal.pod)]
    pods, nodes = len(auditor.state.pods), len(auditor.state.nodes)
    if json_:
        counts = {"pods": pods, "nodes": nodes, "notServed": follower.absent}
        print(json.dumps(msgspec.to_builtins({**counts, "violations": violations, "refused": refused}), indent=2))
    else:
        for violation in violations:
            print(violation)
            for line in violation.timeline:
                at, _, event = line.partition(" ")
                print(f"    {float(at) - start:+.3f} s {event}")
        for refusal in refused:
            print(f"pod {refusal.pod} was refused by its node {refusal.node}: {refusal.reason}: {refusal.message}")
        summary = f"{_number(len(violations), 'violation')}, {_number(len(refused), 'pod')} refused by their nodes"
        without = f"; not served: {', '.join(follower.absent)}" if follower.absent else ""
        print(f"{_number(pods, 'pod')} on {_number(nodes, 'node')}: {summary}{without}")
    return 1 if violations or refused else 0


def _within(namespace: str, pod: str) -> bool:
    return not namespace or pod.startswith(f"{namespace}/")


def _refused(records: Iterable[PodRecord]) -> Iterator[Refusal]:
    for record in records:
        status = record.pod.status
        if status.phase == "Failed" and REFUSALS.fullmatch(status.reason):
            yield Refusal(record.key, record.node, status.reason, status.message)


def _number(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"
