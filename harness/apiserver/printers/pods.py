"""The row of a pod: how many containers are ready, and one word for how it is doing.

The word comes from the containers where they say more than the phase does, as in Kubernetes' `printPod`.
"""

from typing import Any

from harness.apiserver.printers.columns import AGE, NAME, NONE, Cells, Object, Printer, age_of, name_of, text, wide
from harness.apiserver.printers.durations import human_duration, seconds_of

_ENDED = {
    "Succeeded": [
        {
            "type": "Completed",
            "status": "True",
            "reason": "Succeeded",
            "message": "The pod has completed successfully.",
        }
    ],
    "Failed": [{"type": "Completed", "status": "True", "reason": "Failed", "message": "The pod failed."}],
}


class _Tally:
    """Restarts of some containers, and the end of the latest life that a restart followed."""

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
    """What initialization still waits for, None once it is over, and how many sidecars are ready."""
    declared = pod["spec"].get("initContainers") or ()
    restartable = {one["name"] for one in declared if one.get("restartPolicy") == "Always"}
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
