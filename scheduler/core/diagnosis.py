"""The JSON diagnosis of a failed cycle: Koordinator's `Diagnosis` (FWK-R35).

It costs a pass over all nodes without kept results, and is made only with the debug flag `d`.
"""

import logging
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from seatrial.scheduler.api.clock import Clock
from seatrial.scheduler.api.wire import to_json
from seatrial.scheduler.cache.nodeinfo import PodInfo
from seatrial.scheduler.framework.status import Code, Status

log = logging.getLogger(__name__)

QUEUE_SIZE = 1000  # maximum of diagnoses that wait to be logged


def diagnosis_of(
    info: PodInfo,
    rejected: Mapping[str, Status],
    *,
    now: float,
    pre_filter: Status | None = None,
    nominated: str = "",
    preemption: str | None = None,
) -> dict[str, Any]:
    """The diagnosis of one failure.

    `rejected`: the status of each node, empty if a PreFilter rejected all; `preemption`: the message of PostFilter,
    None if it did not run; `now`: seconds since 1970.
    """
    messages: dict[str, Any] = {
        "timestamp": datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "questionedKey": info.key,
    }
    if nominated:
        messages["nominatedNode"] = nominated
    if pre_filter is not None:
        messages["preFilterMessage"] = pre_filter.message
    messages["isRootCausePod"] = True  # not part of a gang
    schedule: dict[str, Any] = {"alreadyWaitForBound": 0}
    details = failed_details({} if pre_filter is not None else rejected)
    if details:
        schedule["nodeFailedDetails"] = details
    messages["scheduleDiagnosis"] = schedule
    messages["preemptionDiagnosis"] = None
    if preemption is not None:
        failed = {"failedMessage": preemption} if preemption else {}
        messages["preemptionDiagnosis"] = {"dryRunFilterDiagnosis": None, "otherDiagnosis": None, **failed}
    return messages


def failed_details(rejected: Mapping[str, Status]) -> list[dict[str, Any]]:
    """Node names grouped by plugin, reason and whether preemption might help; sorted in that order."""
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
    """Logs diagnoses in the clock's next turn, or at once. Beyond QUEUE_SIZE they are dropped with a warning."""

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
        diagnosis["questionedKey"],
        info.key,
        info.uid,
        to_json(diagnosis).decode(),
    )
