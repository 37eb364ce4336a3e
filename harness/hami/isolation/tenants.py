"""Starts tenants under a library, sends them requests, and ends them in any state.

A crash of a tenant is a result: TenantEnded has its signal and the end of its log. A tenant that hangs is killed with
its process group after its deadline.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seatrial.harness.errors import DeviceError
from seatrial.harness.hami.isolation.samples import Tick

ANSWER_WITHIN = 30.0
START_WITHIN = 40.0  # the library waits ten seconds at a time for the lock of an ended process
LOG_TAIL = 2000
VGPU_LOCK = Path("/tmp/vgpulock")  # noqa: S108 the library's own path, not to be chosen


class TenantEnded(DeviceError):
    """A tenant died or did not answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a tenant; None: no limit. `cache` is its container's region file."""

    cache: Path
    memory: int | None = None  # bytes
    cores: int | None = None  # percent


@dataclass(frozen=True, slots=True)
class Arrangement:
    """The library under test (None: no library, for baselines) and further environment variables of tenants."""

    library: Path | None
    environment: Mapping[str, str] = field(default_factory=dict)

    def environment_of(self, limits: Limits | None) -> dict[str, str]:
        """A tenant's environment: this process's without HAMi's variables, then those for the library."""
        env = {name: value for name, value in os.environ.items() if not name.startswith(("CUDA_", "LD_PRELOAD"))}
        env |= self.environment
        if limits is None:
            return env
        env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(limits.cache)
        env["GPU_CORE_UTILIZATION_POLICY"] = "force"  # no monitor runs that would switch the limiter on
        if limits.memory is not None:
            env["CUDA_DEVICE_MEMORY_LIMIT"] = str(limits.memory)
        if limits.cores is not None:
            env["CUDA_DEVICE_SM_LIMIT"] = str(limits.cores)
        if self.library is not None:
            env["LD_PRELOAD"] = env["CUDA_REDIRECT"] = str(self.library)
        return env


class TenantProcess:
    """A running tenant."""

    def __init__(self, arrangement: Arrangement, limits: Limits | None) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 closed in `end`
        self._process = subprocess.Popen(
            [sys.executable, "-m", "seatrial.harness.hami.isolation.tenant"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=arrangement.environment_of(limits),
            start_new_session=True,
        )
        self._rest = b""
        self.pid = self._process.pid

    def started(self) -> "TenantProcess":
        """Wait until the tenant has a CUDA context.

        Raises:
            TenantEnded: it did not start.
        """
        self._answer(START_WITHIN)
        return self

    def ask(self, do: str, *, within: float = ANSWER_WITHIN, **arguments: Any) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            TenantEnded: it died, or did not answer in time and was killed.
        """
        self.send(do, **arguments)
        return self._answer(within)

    def send(self, do: str, **arguments: Any) -> None:
        """Send a request; `ticks` fetches the answer."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise self._ended(f"died before it was asked to {do}") from error

    def ticks(self, *, within: float) -> list[Tick]:
        """The answer to a `run`."""
        return [Tick(at, done) for at, done in self._answer(within)["ticks"]]

    def waiting(self, seconds: float) -> bool:
        """Wait for an answer for at most `seconds`. Returns whether there is none yet."""
        assert self._process.stdout is not None
        return not self._rest and not select.select([self._process.stdout], [], [], seconds)[0]

    def kill(self) -> None:
        """Kill the process group, as a node does with a container that does not end."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """End the tenant: close its input, and kill it after ten seconds."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                self._process.wait()
        try:
            self._process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()

    def _answer(self, within: float) -> dict[str, Any]:
        line = self._line(time.monotonic() + within, within)
        try:
            answer: dict[str, Any] = json.loads(line)
        except json.JSONDecodeError as error:
            raise self._ended(f"printed {line[:80]!r}, which is not JSON") from error
        if "error" in answer:
            raise self._ended(f"failed: {answer['error']}")
        return answer

    def _line(self, deadline: float, within: float) -> bytes:
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.kill()
                raise self._ended(f"did not answer within {within:g} s and was killed")
            result = os.read(self._process.stdout.fileno(), 1 << 16)
            if not result:
                self._process.wait()
                raise self._ended("died")
            self._rest += result
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _ended(self, what: str) -> TenantEnded:
        code = self._process.poll()
        how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit {code})"
        self._log.seek(0)
        tail = self._log.read()[-LOG_TAIL:].decode(errors="replace").strip()
        return TenantEnded(f"tenant {self.pid} {what}{how}{f'; end of its log: {tail}' if tail else ''}")


@contextmanager
def tenants(arrangement: Arrangement, *limits: Limits | None) -> Iterator[tuple[TenantProcess, ...]]:
    """Start one tenant for each of `limits`, one after the other; the end of the block ends them.

    Raises:
        TenantEnded: a tenant did not start.
    """
    with ExitStack() as all_:
        tenant_processes = []
        for limit in limits:
            running = TenantProcess(arrangement, limit)
            all_.callback(running.end)
            tenant_processes.append(running.started())
        yield tuple(tenant_processes)


def clear_lock(folder: Path = VGPU_LOCK) -> bool:
    """Remove the start-up lock that a killed tenant of v2.6 leaves. Returns whether there was one."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = folder / "lock"
    there = lock.exists()
    lock.unlink(missing_ok=True)
    return there
