"""One run of one container in Docker: its state in the engine, and how it is ended."""

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from seatrial.harness.nodes.runtimes.lifecycle import Blocked
from seatrial.scheduler.api.clock import Timer, from_rfc3339

if TYPE_CHECKING:
    from seatrial.harness.nodes.runtimes.docker import DockerRuntime


# The engine reports that a container has ended before it reports that memory was the reason; busy, by some seconds.
OOM_REPORTED_WITHIN = 5.0


class DockerStatus(msgspec.Struct, frozen=True):
    """How far a run is; see `RunStatus`."""

    started: float = 0.0
    running: bool = False
    finished: float | None = None
    code: int | None = None
    error: str = ""
    oom: bool = False
    pid: int = 0  # of the first process, as this machine counts


class DockerRun:
    """One container of the engine's. It is created and started beside the loop; `runtime` looks after it then."""

    def __init__(self, runtime: "DockerRuntime", changed: Callable[[], object], id_: str = "") -> None:
        self.id = id_
        self.gone = False
        self.blocked: Blocked | None = None
        self.status = DockerStatus()
        self._runtime, self._changed = runtime, changed
        self._stop_asked: float | None = None
        self._unexplained_since: float | None = None  # when it was first seen to be killed for no known reason
        self._timer: Timer | None = None

    def stop(self, grace: float) -> None:
        """SIGTERM, and SIGKILL after `grace` seconds."""
        self._stop_asked = grace if self._stop_asked is None else min(grace, self._stop_asked)
        if not self.id:
            return  # it is just being created; `created` comes back to this
        if self._timer is not None:
            self._timer.cancel()
        if grace > 0:
            self._runtime.send(self.id, signal.SIGTERM)
            self._timer = self._runtime.clock.call_later(grace, lambda: self._runtime.send(self.id, signal.SIGKILL))
        else:
            self._runtime.send(self.id, signal.SIGKILL)

    def close(self) -> None:
        """Report nothing more; the runtime removes all containers at once."""
        if self._timer is not None:
            self._timer.cancel()
        self.gone = True

    def created(self, answer: str | Blocked) -> None:
        """The engine has created and started the container, or has not."""
        if self.gone:
            return  # closed meanwhile
        if isinstance(answer, Blocked):
            self.gone, self.blocked = True, answer
            self._changed()
            return
        self.id = answer
        self._runtime.watch(self)
        if self._stop_asked is not None:
            self.stop(self._stop_asked)

    def _killed_for_unknown_reason(self, state: dict[str, Any]) -> bool:
        """Whether it was killed, not by us, and the engine gives no reason."""
        return int(state["ExitCode"]) == 137 and not state.get("OOMKilled") and self._stop_asked is None

    def _reason_may_follow(self) -> bool:
        """Whether the engine may still report why it was killed."""
        now = self._runtime.clock.monotonic()
        if self._unexplained_since is None:
            self._unexplained_since = now
        return now - self._unexplained_since < OOM_REPORTED_WITHIN

    def seen(self, state: dict[str, Any] | None) -> None:
        """Set the engine's present state of the container; None if it was removed."""
        if self.gone:
            return
        before = self.status
        if state is None:
            self.status = DockerStatus(before.started, running=False, finished=self._runtime.clock.now(), code=137)
        elif state["Status"] in {"exited", "dead"}:
            if self._killed_for_unknown_reason(state) and self._reason_may_follow():
                return
            self.status = DockerStatus(
                _moment(state["StartedAt"]),
                running=False,
                finished=_moment(state["FinishedAt"]),
                code=int(state["ExitCode"]),
                error=state.get("Error", ""),
                oom=bool(state.get("OOMKilled")),
            )
        elif state["Status"] == "running":
            self.status = DockerStatus(_moment(state["StartedAt"]), running=True, pid=int(state.get("Pid", 0)))
        if self.status.finished is not None:
            self.gone = True
            if self._timer is not None:
                self._timer.cancel()
        if self.status != before:
            self._changed()


def _moment(text: str) -> float:
    """The engine writes nanoseconds, which Python does not read; year 1 stands for never."""
    whole, _, rest = text.rstrip("Z").partition(".")
    return 0.0 if whole.startswith("0001-") else from_rfc3339(f"{whole}Z") + float(f"0.{rest[:6] or 0}")
