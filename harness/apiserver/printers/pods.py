"""The printer of pods: ready containers, status, restarts.

The status is a container's reason if that is more specific than the phase, as in Kubernetes' `printPod`.
"""

from typing import Any

from seatrial.harness.apiserver.printers.columns import (
    AGE,
    NAME,
    NONE,
    Cells,
    Object,
    Printer,
    age_of,
    name_of,
    text,
    wide,
)
from seatrial.harness.apiserver.printers.durations import human_duration
from seatrial.harness.apiserver.times import seconds_of

_ENDED = {
    "Succeeded": [
        {"type": "Completed", "status": "True", "reason": "Succeeded", "message": "The pod has completed successfully."}
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


class _Tally:
    """The restarts of some containers, and the time at which the last of them ended before its restart."""

    __slots__ = ("latest", "restarts")

    def __init__(self) -> None:
        self.restarts, self.latest = 0, 0.0

    def add(self, container: Object) -> None:
        self.restarts += container.get("restartCount") or 0
        last = container.get("lastState")
        ended = (last.get("terminated") or {}).get("finishedAt") if last else None
        if ended:
            self.latest = max(self.latest, seconds_of(ended))

    def text(self, now: float) -> str:
        if self.restarts and self.latest:
            return f"{self.restarts} ({human_duration(now - self.latest)} ago)"
        return str(self.restarts)


def _end_reason(terminated: Object) -> str:
    reason = terminated.get("reason")
    if reason:
        return reason
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode') or 0}"


def _init(pod: Object, all_init: _Tally, sidecars: _Tally) -> tuple[str | None, int]:
    """The pending step of initialization (None if complete), and the number of ready sidecars."""
    declared = pod["spec"].get("initContainers") or ()
    restartable = {container["name"] for container in declared if container.get("restartPolicy") == "Always"}
    ready = 0
    for position, container in enumerate(pod["status"].get("initContainerStatuses") or ()):
        sidecar = container.get("name") in restartable
        all_init.add(container)
        if sidecar:
            sidecars.add(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            return f"Init:{_end_reason(terminated)}", ready
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", ready
        return f"Init:{position}/{len(declared)}", ready
    return None, ready


def _main(pod: Object, reason: str, tally: _Tally) -> tuple[str, int]:
    """`reason`, replaced by the first container's more specific one, and the number of ready containers."""
    ready = 0
    # In reverse order, so that the first container's reason is the one kept.
    for container in reversed(pod["status"].get("containerStatuses") or ()):
        tally.add(container)
        state = container.get("state") or {}
        waiting, terminated = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if waiting:
            reason = waiting
        elif terminated is not None:
            reason = _end_reason(terminated)
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:
        reason = "Running" if _is_true(pod, "Ready") else "NotReady"
    return reason, ready


def _is_true(pod: Object, condition_type: str) -> bool:
    for condition in pod["status"].get("conditions") or ():
        if condition.get("type") == condition_type:
            return condition.get("status") == "True"
    return False


def _gates(pod: Object) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return NONE
    return f"{sum(_is_true(pod, gate.get('conditionType', '')) for gate in gates)}/{len(gates)}"


def _cells(values: Object, now: float) -> Cells:
    meta, spec, status = values["metadata"], values.get("spec") or {}, values.get("status") or {}
    pod = {"spec": spec, "status": status}
    phase = status.get("phase") or ""
    reason = status.get("reason") or phase
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"

    total, ready, tally = len(spec.get("containers") or ()), 0, _Tally()
    waits_for: str | None = None
    declared_init = spec.get("initContainers")
    if declared_init or status.get("initContainerStatuses"):
        total += sum(container.get("restartPolicy") == "Always" for container in declared_init or ())
        all_init, sidecars = _Tally(), _Tally()
        waits_for, ready = _init(pod, all_init, sidecars)
        # After initialization, only restarts of sidecars and main containers count.
        tally = all_init if waits_for and not _is_true(pod, "Initialized") else sidecars
    if waits_for:
        reason = waits_for
    if not waits_for or _is_true(pod, "Initialized"):
        reason, main_ready = _main(pod, reason, tally)
        ready += main_ready

    if meta.get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif phase not in _ENDED:
            reason = "Terminating"

    ips = status.get("podIPs") or ()
    return [
        name_of(values),
        f"{ready}/{total}",
        reason,
        tally.text(now),
        age_of(values, now),
        (ips[0].get("ip") if ips else status.get("podIP")) or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(pod),
    ]


def _conditions(pod: Object) -> list[dict[str, Any]] | None:
    return _ENDED.get((pod.get("status") or {}).get("phase", ""))


PODS = Printer(
    (
        NAME,
        text("Ready", "Ready containers / all containers."),
        text("Status", "The state of the pod's containers, in one word."),
        text("Restarts", "How often the pod's containers were restarted, and when last."),
        AGE,
        wide("IP", "The pod's first address."),
        wide("Node", "The node that the pod is bound to."),
        wide("Nominated Node", "The node on which preemption makes room for the pod."),
        wide("Readiness Gates", "True readiness gates / all readiness gates."),
    ),
    _cells,
    _conditions,
)
