"""Patches before a binding whose answer is lost, refused, or comes when the pod is gone."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.transport import Done, Request, Response, Transport
from seatrial.scheduler.client.rest import Rest, RetryPolicy
from seatrial.scheduler.core.cycle import Core
from seatrial.scheduler.framework.decisions import Bind
from seatrial.scheduler.framework.preparation import ObjectPatch, Preparation
from seatrial.scheduler.shell.preparations import Preparations


class Answers:
    """A transport that answers writes with one code, and a GET with the object."""

    def __init__(self, code: int, shown: bytes) -> None:
        self.code, self.shown = code, shown
        self.requests: list[str] = []
        self.before: Callable[[], None] = lambda: None

    def send(self, request: Request, done: Done) -> None:
        self.before()
        self.requests.append(f"{request.method} {request.path}")
        done(Response(200, self.shown) if request.method == "GET" else Response(self.code, b"patched"))


def carried_out(code: int, shown: bytes = b"", *, gone: bool = False, stopped: bool = False) -> list[str]:
    """What is told of the first of two patches, of the second, and of the pod.

    It may be gone before an answer comes, or the scheduler has stopped.
    """
    messages: list[str] = []
    clock, answers = SimClock(), Answers(code, shown)
    info = SimpleNamespace(uid="u", key="default/p")
    decision = cast("Bind", SimpleNamespace(info=info, pod=Pod()))
    bindings: dict[str, Any] = {"u": decision}
    core = cast("Core", SimpleNamespace(bindings=bindings))
    rest = Rest(cast("Transport", answers), clock, RetryPolicy(1))
    preparations = Preparations(
        core, rest, clock, lambda _: messages.append("ready"), lambda _, why: messages.append(f"failed: {why}")
    )
    if gone:
        answers.before = bindings.clear
    if stopped:
        answers.before = rest.stop

    def patch(name: str) -> ObjectPatch:
        return ObjectPatch(
            name,
            f"/{name}/status",
            {},
            lambda body: messages.append(f"{name} answered {body.decode()}"),
            refused=lambda: messages.append(f"{name} refused"),
            holds=lambda body: body == b"written",
        )

    preparations.begin(decision, Preparation((patch("a"), patch("b"))))
    clock.advance(1)
    return messages


@pytest.mark.parametrize(
    ("code", "shown", "messages"),
    [
        (200, b"", ["a answered patched", "b answered patched", "ready"]),
        (409, b"", ["a refused", "b refused", "failed: failed to patch a: HTTP 409"]),
        (0, b"written", ["a answered written", "b answered written", "ready"]),
        (503, b"as before", ["a refused", "b refused", "failed: failed to patch a: it was not patched"]),
    ],
    ids=["patched", "refused", "lost-and-written", "lost-and-not-written"],
)
def test_each_patch_is_settled(code: int, shown: bytes, messages: list[str]) -> None:
    assert carried_out(code, shown) == messages


def test_the_patches_of_a_pod_that_is_gone_are_settled_too() -> None:
    assert carried_out(200, gone=True) == ["a answered patched", "b refused"]


@pytest.mark.parametrize(
    ("code", "shown", "messages"),
    [
        pytest.param(201, b"", ["patched", "ready"], id="created"),
        pytest.param(0, b"written", ["written", "ready"], id="lost-and-created"),
        pytest.param(409, b"written", ["written", "ready"], id="sent-twice"),
        pytest.param(409, b"of another", ["refused", "failed: create c for p: it was not patched"], id="name-taken"),
        pytest.param(403, b"written", ["refused", "failed: create c for p: HTTP 403"], id="refused"),
    ],
)
def test_an_object_is_created(code: int, shown: bytes, messages: list[str]) -> None:
    """Where the answer is lost the object is read by its name; the message has the words of who creates it."""
    names: list[str] = []
    clock, answers = SimClock(), Answers(code, shown)
    decision = cast("Bind", SimpleNamespace(info=SimpleNamespace(uid="u", key="default/p"), pod=Pod()))
    core, rest = cast("Core", SimpleNamespace(bindings={"u": decision})), Rest(cast("Transport", answers), clock)
    preparations = Preparations(core, rest, clock, lambda _: names.append("ready"), lambda _, why: names.append(why))
    create = ObjectPatch(
        "c",
        "/claims",
        {},
        lambda body: names.append(body.decode()),
        refused=lambda: names.append("refused"),
        holds=lambda body: body == b"written",
        creates="c",
        failure="failed: create c for p",
    )
    preparations.begin(decision, Preparation((create,)))
    clock.advance(30)
    assert names == messages
    assert {"POST /claims"} <= set(answers.requests) <= {"POST /claims", "GET /claims/c"}


@pytest.mark.parametrize("code", [200, 0])
def test_a_scheduler_that_has_stopped_writes_nothing_more(code: int) -> None:
    """Another one leads by then, and may have given the devices away."""
    assert carried_out(code, b"written", stopped=True) == []
