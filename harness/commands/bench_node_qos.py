"""`seatrial bench node-qos`: what usage reports, the manager and one node agent cost."""

import json
import sys
from typing import Annotated

from cyclopts import Parameter, validators

from seatrial.harness.bench.node_qos import AGENT_BUDGET, AGENT_MEMORY, REPORTS_BUDGET, ROUND_BUDGET, bench_node_qos

Positive = Annotated[int, Parameter(validator=validators.Number(gte=1))]


def node_qos(
    *,
    nodes: Positive = 5000,
    pods: Positive = 30,
    rounds: Positive = 5,
    agent_pods: Positive = 100,
    agent_seconds: Annotated[float, Parameter(validator=validators.Number(gt=0))] = 60.0,
    seed: int = 0,
    json_: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> None:
    """Let simulated nodes report once a minute, give the reports to the manager, and measure an agent of one node.

    Args:
        nodes: Number of nodes that report.
        pods: Number of pods on each.
        rounds: Number of minutes that are measured.
        agent_pods: Number of pods of the agent's node.
        agent_seconds: How long the agent is measured.
        seed: Decides the usage.
        json_: Print figures as JSON.
    """
    figures = bench_node_qos(
        nodes, pods, rounds, agent_pods, agent_seconds, lambda text: print(text, file=sys.stderr), seed=seed
    )
    if json_:
        print(json.dumps(figures, indent=2))
        return
    reports, manager, agent = (figures[key] for key in ("reports_core_percent", "manager_round_seconds", "agent"))
    print(
        f"reports   {reports['median']} % of a core ({reports['low']} to {reports['high']}) for {nodes:,} nodes with"
        f" {pods} pods a minute (budget {REPORTS_BUDGET:g} %)"
    )
    print(
        f"manager   {manager['median']} s ({manager['low']} to {manager['high']}) for the same reports"
        f" (budget {ROUND_BUDGET:g} s)"
    )
    print(
        f"agent     {agent['core_percent']} % of a core, {agent['resident_mib']} MiB with {agent_pods} pods"
        f" (budget {AGENT_BUDGET:g} %, {AGENT_MEMORY:g} MiB)"
    )
