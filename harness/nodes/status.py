"""Pod status as kubelet would write it: phase, conditions and container statuses, from the states a runtime reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from seatrial.harness.nodes.pods import BoundPod, ContainerSeen, ResourceStatus
from seatrial.harness.nodes.runtimes.protocol import ContainerState, Work
from seatrial.scheduler.api.clock import from_rfc3339, rfc3339
from seatrial.scheduler.api.core import ResourceRequirements
from seatrial.scheduler.api.wire import ResourceList

Manifest = dict[str, Any]


def phase_of(states: Sequence[ContainerState], restart_policy: str) -> str:
    """The pod's phase by kubelet's rule (`getPhase`), from containers that have ended and do not restart."""
    if not states:
        return "Running"
    if all(state.state == "waiting" and not state.restarts for state in states):
        return "Pending"
    if any(state.state == "running" for state in states) or restart_policy == "Always":
        return "Running"
    ended = [state for state in states if state.state == "terminated"]
    if len(ended) < len(states):
        return "Running"  # a container waits for its restart
    if all(state.exit_code == 0 for state in ended):
        return "Succeeded"
    return "Failed" if restart_policy == "Never" else "Running"


def running_status(
    work: Work,
    states: Sequence[ContainerState],
    *,
    host_ip: str,
    start: str,
    now: str,
    well: Mapping[str, bool] | None = None,
    closed_gates: Sequence[str] = (),
    explained: bool = False,
    resize_pending: str | None = None,
) -> Manifest:
    """The status of an admitted pod, as a strategic merge patch.

    `well`: the health of the node's devices by device ID; for an ID that is not listed it is unknown. `closed_gates`:
    why its readiness gates keep the pod from being ready. `resize_pending`: why a resize was not carried out, "" for
    one that was, None if there was none. `explained`: an earlier status gave reasons; those that do not hold any more
    are removed, because a strategic merge patch leaves them otherwise.
    """
    inits = [state for state in states if state.init]
    states = [state for state in states if not state.init]
    phase = phase_of(states, work.pod.spec.restart_policy)
    ended = phase in {"Succeeded", "Failed"}
    ready = bool(states) and all(state.state == "running" and state.ready for state in states)
    begun = phase != "Pending"
    sandbox = "True" if begun and not ended else "False"
    conditions = [
        {"type": "PodReadyToStartContainers", "status": sandbox, "lastTransitionTime": now},
        {"type": "Initialized", "status": "True" if _initialised(work, inits) else "False", "lastTransitionTime": now},
        *_ready_conditions(ready, closed_gates, now=now, completed=phase == "Succeeded", explained=explained),
    ]
    if resize_pending is not None:
        pending: Manifest = {"status": "True", "reason": resize_pending, "lastTransitionTime": now}
        conditions.append({"type": "PodResizePending", **(pending if resize_pending else {"$patch": "delete"})})
    status: Manifest = {
        "phase": phase,
        "startTime": start,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "conditions": conditions,
        "containerStatuses": [container_status(work, state, well) for state in states],
    }
    if inits:
        status["initContainerStatuses"] = [container_status(work, init, well) for init in inits]
    if begun:
        status["podIP"] = work.ip
        status["podIPs"] = [{"ip": work.ip}]
    return status


def _ready_conditions(
    ready: bool, closed_gates: Sequence[str], *, now: str, completed: bool, explained: bool
) -> tuple[Manifest, Manifest]:
    """The conditions Ready and ContainersReady."""
    why: Manifest = {"reason": None} if explained else {}
    if not ready:
        why = {"reason": "PodCompleted" if completed else "ContainersNotReady"}
    gated = {"message": None, **why} if explained else why
    if ready and closed_gates:
        gated = {"reason": "ReadinessGatesNotReady", "message": ", ".join(closed_gates)}
    truth = ("False", "True")
    return (
        {"type": "Ready", "status": truth[ready and not closed_gates], "lastTransitionTime": now, **gated},
        {"type": "ContainersReady", "status": truth[ready], "lastTransitionTime": now, **why},
    )


def is_ready(status: Manifest) -> bool:
    """Whether a status that was made here has the condition Ready."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status["conditions"])


def container_status(work: Work, state: ContainerState, well: Mapping[str, bool] | None = None) -> Manifest:
    """The status of one container. Its device IDs are in `allocatedResourcesStatus`, where a new agent finds them."""
    plan = work.container(state.name)
    image = plan.image if plan else ""
    status: Manifest = {
        "name": state.name,
        "image": image,
        "imageID": "",
        "ready": (state.state == "running" and state.ready) or (state.init and _ended_well(state)),
        "started": state.state == "running" and state.up,
        "restartCount": state.restarts,
        "state": _state(state),
    }
    if state.id:
        status["containerID"] = state.id
    if state.state == "running" and plan is not None:
        # kube-apiserver refuses to resize a pod whose running containers have no such entry.
        status["resources"] = {part: amounts for part, amounts in _parts(plan.resources) if amounts}
        if plan.resources.requests:
            status["allocatedResources"] = plan.resources.requests
    granted = work.granted_ids.get(state.name)
    if granted:
        status["allocatedResourcesStatus"] = [
            {
                "name": name,
                "resources": [{"resourceID": identifier, "health": _health(identifier, well)} for identifier in ids],
            }
            for name, ids in granted.items()
        ]
    return status


def _parts(resources: ResourceRequirements) -> tuple[tuple[str, ResourceList], ...]:
    return ("requests", resources.requests), ("limits", resources.limits)


def _ended_well(state: ContainerState) -> bool:
    return state.state == "terminated" and state.exit_code == 0


def _initialised(work: Work, inits: Sequence[ContainerState]) -> bool:
    """Every init container has succeeded, and every sidecar has started."""
    sidecars = {container.name for container in work.pod.spec.init_containers if container.restart_policy == "Always"}
    return all((init.state == "running" and init.up) if init.name in sidecars else _ended_well(init) for init in inits)


def _health(name: str, well: Mapping[str, bool] | None) -> str:
    if well is None:
        return "Healthy"
    return {True: "Healthy", False: "Unhealthy", None: "Unknown"}[well.get(name)]


def refused_status(reason: str, message: str, *, now: str) -> Manifest:
    """The status of a pod that the node rejects."""
    return {"phase": "Failed", "reason": reason, "message": message, "startTime": now}


def seen_states(pod: BoundPod) -> tuple[ContainerState, ...]:
    """The container states that an earlier agent wrote."""
    inits = (replace(_seen(status), init=True) for status in pod.status.init_container_statuses)
    return (*(_seen(status) for status in pod.status.container_statuses), *inits)


def granted_before(pod: BoundPod) -> dict[str, Mapping[str, tuple[str, ...]]]:
    """The device IDs that plugins gave the containers, as written by an earlier agent."""
    return {
        status.name: {each.name: _ids(each) for each in status.allocated_resources_status}
        for status in pod.status.container_statuses
        if status.allocated_resources_status
    }


def _ids(status: ResourceStatus) -> tuple[str, ...]:
    return tuple(resource.resource_id for resource in status.resources)


def _state(state: ContainerState) -> Manifest:
    if state.state == "running":
        return {"running": {"startedAt": rfc3339(state.started)}}
    if state.state == "terminated":
        ended: Manifest = {
            "exitCode": state.exit_code,
            "reason": state.reason,
            "startedAt": rfc3339(state.started),
            "finishedAt": rfc3339(state.finished),
        }
        if state.id:
            ended["containerID"] = state.id
        if state.message:
            ended["message"] = state.message
        return {"terminated": ended}
    waiting: Manifest = {"reason": state.reason or "ContainerCreating"}
    if state.message:
        waiting["message"] = state.message
    return {"waiting": waiting}


def _seen(status: ContainerSeen) -> ContainerState:
    if status.state.running is not None:
        started = from_rfc3339(status.state.running.started_at) if status.state.running.started_at else 0.0
        return ContainerState(status.name, "running", started=started, restarts=status.restart_count)
    if status.state.terminated is not None:
        ended = status.state.terminated
        return ContainerState(
            status.name, "terminated", reason=ended.reason, exit_code=ended.exit_code, restarts=status.restart_count
        )
    return ContainerState(status.name, restarts=status.restart_count)
