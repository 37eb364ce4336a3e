"""Hot nodes, usage reports and the limits of descheduling rounds."""

from typing import Any

from seatrial.fixtures.trial import Trial
from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.core import Pod
from seatrial.suites.descheduling.workloads import (
    OFF,
    REPORT,
    cordon,
    deployment,
    report_of,
    running,
    wait_running,
    with_nodes,
)

MINUTES = 60.0


PER_POD = {"cpu": "2", "memory": "1Gi"}


SOON = {"timeout": "5m", "consecutiveAbnormalities": 1}  # act in the first round


LOAD: dict[str, Any] = {"lowThresholds": {"cpu": 30}, "highThresholds": {"cpu": 60}, "anomalyCondition": SOON}


TWO_AT_ONCE = {"maxUnavailablePerWorkload": 2, "maxMigratingPerWorkload": 2, "objectLimiters": OFF}


def on(trial: Trial, app: str, name: str) -> list[Pod]:
    return [pod for pod in running(trial, app) if pod.spec.node_name == name]


def hot_node(trial: Trial, *, pods: int = 7, like: Any = None, uses: dict[str, str] | None = None) -> None:
    """n1 has all pods of `web`, each of which requests one core and uses two of 16; n2 and n3 have none."""
    with_nodes(trial, "n1", "n2", "n3", reports=True)
    for name in ("n2", "n3"):
        cordon(trial, name)
    deployment(trial, "web", pods, like=like or pod("x").request(cpu=1, memory="1Gi"), uses=uses or PER_POD)
    wait_running(trial, "web", pods)
    for name in ("n2", "n3"):
        cordon(trial, name, on=False)
    reports(trial)


def reports(trial: Trial, *names: str) -> None:
    """Wait for the next report of each node."""
    before = {name: report_of(trial, name).get("updateTime") for name in names or ("n1", "n2", "n3")}

    def arrived() -> bool:
        return all(report_of(trial, name).get("updateTime") not in {None, old} for name, old in before.items())

    assert trial.reaches(arrived, within=REPORT + 15), before


LEVELS = [
    {"name": "dear", "nodeSelector": {"matchLabels": {"zone": "a"}}},
    {"name": "cheap", "nodeSelector": {"matchLabels": {"zone": "b"}}},
]
