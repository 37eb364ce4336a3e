"""A runtime on a real event loop, and the pods that tests give it."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson

from seatrial.harness.devices.provider import ContainerGrant
from seatrial.harness.nodes.pods import decode_pod
from seatrial.harness.nodes.runtimes.lifecycle import LifecycleRuntime
from seatrial.harness.nodes.runtimes.protocol import ContainerState, Runtime, Work

R = TypeVar("R", bound=LifecycleRuntime)

WITHIN = 60.0  # seconds; far more than anything here takes, also on a busy machine


def work(
    command: list[str] | str | None,
    *,
    name: str = "one",
    grant: ContainerGrant | None = None,
    pod: Mapping[str, Any] | None = None,
    resources: Mapping[str, Any] | None = None,
    **container: Any,
) -> Work:
    """A pod of one container; a string is a script for `sh`."""
    words = ["sh", "-c", command] if isinstance(command, str) else command
    main = {"name": "main", "image": "busybox:stable", **({"command": words} if words else {}), **container}
    if resources:
        main["resources"] = resources
    manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
        "spec": {"nodeName": "here", "containers": [main], **(pod or {})},
    }
    decoded = decode_pod(msgspec.Raw(orjson.dumps(manifest)))
    return Work(decoded, "here", "10.0.0.7", {"main": grant} if grant else {})


def closing(make: Callable[[], R], body: Callable[[R], Awaitable[None]]) -> None:
    """Run `body` on a loop of its own, with a runtime made there and closed afterwards."""

    async def run() -> None:
        runtime = make()
        try:
            await body(runtime)
        finally:
            runtime.close()

    asyncio.run(run())


class Reports:
    """What a runtime has said of a pod, and a way to wait for more."""

    def __init__(self) -> None:
        self.seen: list[tuple[ContainerState, ...]] = []
        self._heard = asyncio.Event()

    def __call__(self, states: tuple[ContainerState, ...]) -> None:
        self.seen.append(states)
        self._heard.set()

    @property
    def last(self) -> ContainerState:
        return self.seen[-1][0]

    async def until(self, holds: Callable[[ContainerState], bool]) -> ContainerState:
        """The pod's first container, once `holds` is true of it."""
        async with asyncio.timeout(WITHIN):
            while not self.seen or not holds(self.last):
                self._heard.clear()
                await self._heard.wait()
        return self.last

    async def state(self, state: str) -> ContainerState:
        return await self.until(lambda container: container.state == state)


async def stopped(runtime: Runtime, pod: Work, grace: float = 0.0) -> None:
    """Stop a pod and wait until nothing of it is left."""
    over = asyncio.Event()
    runtime.stop(pod, grace, over.set)
    async with asyncio.timeout(WITHIN):
        await over.wait()


async def eventually(holds: Callable[[], object]) -> None:
    """Wait for something outside this process."""
    async with asyncio.timeout(WITHIN):
        while not holds():  # noqa: ASYNC110 what other processes do raises no event here
            await asyncio.sleep(0.01)


def read(path: str) -> str:
    """A file under /proc."""
    return Path(path).read_text(encoding="utf-8")


def folder_of(pid: int) -> Path:
    """A process's working directory."""
    return Path(f"/proc/{pid}/cwd").readlink()


def with_mark(mark: str) -> list[int]:
    """The processes that have `mark` in their environment."""
    results = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    results.append(int(folder.name))
            except OSError:
                continue
    return results
