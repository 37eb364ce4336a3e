"""The printer of pods: each case is the output of `kubectl get pods -o wide` for one pod."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.pods import PODS

NOW = 1_767_226_000.0  # 2026-01-01T00:06:40Z
CREATED = "2026-01-01T00:05:40Z"
RESTARTED = "2026-01-01T00:01:40Z"  # 5m before now
RUNNING: dict[str, Any] = {"running": {"startedAt": CREATED}}
READY = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]


def waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def ended(code: int, reason: str = "", signal: int = 0) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "signal": signal, "finishedAt": RESTARTED}}


def box(name: str, state: dict[str, Any], *, ready: bool = False, restarts: int = 0, **more: Any) -> dict[str, Any]:
    status = {"name": name, "ready": ready, "restartCount": restarts, "state": state, **more}
    return {**status, "lastState": ended(1, "Error")} if restarts else status


def pod(
    phase: str, main: list[dict[str, Any]], *, init: list[dict[str, Any]] | None = None, **more: Any
) -> dict[str, Any]:
    """A pod whose spec has as many containers as it has statuses; `more` are further fields of the status."""
    spec: dict[str, Any] = {"containers": [{"name": container["name"]} for container in main]}
    status: dict[str, Any] = {"phase": phase, "containerStatuses": main, **more}
    if init is not None:
        spec["initContainers"] = [{"name": container["name"], **container.pop("spec", {})} for container in init]
        status["initContainerStatuses"] = init
    return {"metadata": {"name": "p", "creationTimestamp": CREATED}, "spec": spec, "status": status}


SIDECAR: dict[str, Any] = {"spec": {"restartPolicy": "Always"}, "started": True}
MAIN_WAITS = box("a", waiting("PodInitializing"))


@pytest.mark.parametrize(
    ("values", "want"),
    [
        pytest.param(
            {
                "metadata": {"name": "p", "creationTimestamp": CREATED},
                "spec": {"containers": [{"name": "a"}, {"name": "b"}]},
                "status": {"phase": "Pending"},
            },
            ["0/2", "Pending", "0"],
            id="nothing-has-happened-yet",
        ),
        pytest.param(
            pod("Pending", [], conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
            ["0/0", "SchedulingGated", "0"],
            id="held-back-by-a-scheduling-gate",
        ),
        pytest.param(
            pod("Pending", [box("a", waiting("ContainerCreating"))]),
            ["0/1", "ContainerCreating", "0"],
            id="being-created",
        ),
        pytest.param(
            pod("Running", [box("a", RUNNING, ready=True), box("b", RUNNING)]),
            ["1/2", "Running", "0"],
            id="one-of-two-is-ready",
        ),
        pytest.param(
            pod("Running", [box("a", waiting("CrashLoopBackOff"), restarts=3)]),
            ["0/1", "CrashLoopBackOff", "3 (5m ago)"],
            id="crashes-again-and-again",
        ),
        pytest.param(
            pod("Running", [box("a", waiting("ErrImagePull")), box("b", waiting("CrashLoopBackOff"), restarts=1)]),
            ["0/2", "ErrImagePull", "1 (5m ago)"],
            id="the-first-container-in-trouble-is-shown",
        ),
        pytest.param(
            pod("Failed", [box("a", ended(137, "OOMKilled"))]), ["0/1", "OOMKilled", "0"], id="killed-for-memory"
        ),
        pytest.param(pod("Failed", [box("a", ended(2))]), ["0/1", "ExitCode:2", "0"], id="an-exit-code-alone"),
        pytest.param(pod("Failed", [box("a", ended(137, signal=9))]), ["0/1", "Signal:9", "0"], id="a-signal-alone"),
        pytest.param(pod("Failed", [], reason="Evicted"), ["0/0", "Evicted", "0"], id="the-pod-has-a-reason"),
        pytest.param(
            pod("Succeeded", [box("a", ended(0, "Completed"))]), ["0/1", "Completed", "0"], id="ended-as-it-should"
        ),
        pytest.param(
            pod("Running", [box("a", ended(0, "Completed")), box("b", RUNNING, ready=True)], conditions=READY),
            ["1/2", "Running", "0"],
            id="one-completed-and-the-pod-is-ready",
        ),
        pytest.param(
            pod("Running", [box("a", ended(0, "Completed")), box("b", RUNNING, ready=True)]),
            ["1/2", "NotReady", "0"],
            id="one-completed-and-the-pod-is-not-ready",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", RUNNING), box("j", waiting("PodInitializing"))]),
            ["0/1", "Init:0/2", "0"],
            id="the-first-of-two-init-containers-runs",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", ended(0)), box("j", RUNNING)]),
            ["0/1", "Init:1/2", "0"],
            id="the-second-of-two-init-containers-runs",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", waiting("CrashLoopBackOff"), restarts=2)]),
            ["0/1", "Init:CrashLoopBackOff", "2 (5m ago)"],
            id="an-init-container-crashes",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", ended(1, "Error"))]),
            ["0/1", "Init:Error", "0"],
            id="an-init-container-failed",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", ended(3))]),
            ["0/1", "Init:ExitCode:3", "0"],
            id="an-init-container-left-only-a-code",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("i", ended(137, signal=9))]),
            ["0/1", "Init:Signal:9", "0"],
            id="an-init-container-left-only-a-signal",
        ),
        pytest.param(
            pod("Running", [box("a", RUNNING, ready=True)], init=[box("i", ended(0), restarts=4)], conditions=READY),
            ["1/1", "Running", "0"],
            id="restarts-of-init-containers-are-forgotten",
        ),
        pytest.param(
            pod(
                "Running",
                [box("a", RUNNING, ready=True, restarts=1)],
                init=[box("s", RUNNING, ready=True, restarts=2, **SIDECAR)],
                conditions=READY,
            ),
            ["2/2", "Running", "3 (5m ago)"],
            id="a-sidecar-counts-as-a-container",
        ),
        pytest.param(
            pod("Pending", [MAIN_WAITS], init=[box("s", RUNNING, ready=True, **SIDECAR), box("i", RUNNING)]),
            ["1/2", "Init:1/2", "0"],
            id="a-started-sidecar-delays-no-container",
        ),
    ],
)
def test_a_pod_in_one_word(values: dict[str, Any], want: list[str]) -> None:
    assert PODS.cells(values, NOW) == ["p", *want, "60s", "<none>", "<none>", "<none>", "<none>"]


@pytest.mark.parametrize(
    ("phase", "reason", "want"),
    [
        pytest.param("Running", None, "Terminating", id="a-running-pod-is-being-deleted"),
        pytest.param("Running", "NodeLost", "Unknown", id="its-node-is-lost"),
        pytest.param("Succeeded", None, "Succeeded", id="an-ended-pod-keeps-its-word"),
    ],
)
def test_a_pod_that_is_being_deleted(phase: str, reason: str | None, want: str) -> None:
    phase_pod = pod(phase, [], reason=reason)
    phase_pod["metadata"]["deletionTimestamp"] = CREATED
    assert PODS.cells(phase_pod, NOW)[2] == want


def test_wide_columns_show_where_the_pod_is() -> None:
    values = pod(
        "Running",
        [box("a", RUNNING, ready=True)],
        podIPs=[{"ip": "10.0.0.7"}, {"ip": "fd00::7"}],
        nominatedNodeName="n2",
        conditions=[*READY, {"type": "gate/a", "status": "True"}, {"type": "gate/b", "status": "False"}],
    )
    values["spec"] |= {"nodeName": "n1", "readinessGates": [{"conditionType": f"gate/{x}"} for x in "abc"]}
    assert PODS.cells(values, NOW)[5:] == ["10.0.0.7", "n1", "n2", "1/3"]
