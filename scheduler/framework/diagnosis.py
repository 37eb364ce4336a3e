"""What one failed cycle leaves for people and programs to read: Koordinator's `Diagnosis` as JSON (FWK-R35).

Costs a plain pass over all nodes; made only where the debug flag `d` asks for it.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from scheduler.api.clock import Clock
from scheduler.api.wire import to_json
from scheduler.framework.nodeinfo import PodInfo
from scheduler.framework.status import Code, Status

log = logging.getLogger(__name__)

QUEUE_SIZE = 1000  # diagnoses that wait for their turn to be logged, at most


def diagnosis_of(
    info: PodInfo,
    rejected: Mapping[str, Status],
    *,
    now: float,
    pre_filter: Status | None = None,
    nominated: str = "",
    preemption: str | None = None,
) -> dict[str, Any]:
    """One failure as it is written down.

    `rejected`: the verdict on each node, where PreFilter let the search begin; `preemption`: what PostFilter had to
    say, None if nobody asked it; `now`: seconds since 1970.
    """
    found: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "questionedKey": info.key,
    }
    if nominated:
        found["nominatedNode"] = nominated
    if pre_filter is not None:
        found["preFilterMessage"] = pre_filter.message
    found["isRootCausePod"] = True  # one that is scheduled for itself alone
    schedule: dict[str, Any] = {"alreadyWaitForBound": 0}
    details = failed_details({} if pre_filter is not None else rejected)
    if details:
        schedule["nodeFailedDetails"] = details
    found["scheduleDiagnosis"] = schedule
    found["preemptionDiagnosis"] = None
    if preemption is not None:
        failed = {"failedMessage": preemption} if preemption else {}
        found["preemptionDiagnosis"] = {"dryRunFilterDiagnosis": None, "otherDiagnosis": None, **failed}
    return found


def failed_details(rejected: Mapping[str, Status]) -> list[dict[str, Any]]:
    """Nodes by reason, plugin and whether taking pods away might help, in that order's sorting by plugin first."""
    groups: dict[tuple[str, str, bool], list[str]] = defaultdict(list)
    for node, status in rejected.items():
        groups[status.plugin, status.message, status.code is not Code.UNRESOLVABLE].append(node)
    details = []
    for (plugin, reason, might_help), nodes in sorted(groups.items()):
        one: dict[str, Any] = {"failedPlugin": plugin} if plugin else {}
        if reason:
            one["reason"] = reason
        if might_help:
            one["preemptMightHelp"] = True
        details.append({**one, "failedNodes": sorted(nodes)})
    return details


class DiagnosisLog:
    """Logs diagnoses in the clock's next turn, or at once; more than wait in the queue are dropped, which is said."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[PodInfo, dict[str, Any]]] = []

    def say(self, info: PodInfo, diagnosis: dict[str, Any], *, at_once: bool) -> None:
        if at_once:
            _write(info, diagnosis)
        elif len(self._waiting) >= QUEUE_SIZE:
            log.warning("diagnosis dropped why=queue-full pod=%s", info.key)
        else:
            if not self._waiting:
                self._clock.call_soon(self._flush)
            self._waiting.append((info, diagnosis))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for info, diagnosis in waiting:
            _write(info, diagnosis)


def _write(info: PodInfo, diagnosis: dict[str, Any]) -> None:
    log.info(
        "dump diagnosis for %s, targetPod: %s/%s: $%s",
        diagnosis["questionedKey"], info.key, info.uid, to_json(diagnosis).decode(),
    )  # fmt: skip
