"""Keys of QueueSort that have no place in an order, and keys of different length.

A key that cannot be compared is refused when the pod arrives: in the queue it would stop the decisions for all pods,
and NaN would put other pods into the wrong order.
"""

import math
from typing import Any, ClassVar

import numpy as np
import pytest

from seatrial.scheduler.api.builders import pod
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.app import build_core
from seatrial.scheduler.config import Configuration
from seatrial.scheduler.framework.decisions import SCHEDULER_ERROR, Bind
from seatrial.scheduler.framework.extension_points import QueueSort, Scope
from seatrial.scheduler.framework.handle import Handle
from seatrial.scheduler.plugins.registry import Registry
from seatrial.scheduler.shell.loop import Shell
from seatrial.scheduler.tests.rig import Rig, profile
from seatrial.scheduler.tests.scripted import Scripted, ok

LONGEST_PAUSE = 10.0  # seconds: longer than the first pauses after which an object is read again


class GivenKeys(QueueSort):
    """Orders the queue by the key that `keys` has for a pod's name; by arrival without one."""

    name = "GivenKeys"
    scope = Scope.NODE
    keys: ClassVar[dict[str, Any]] = {}

    def __init__(self, handle: Handle) -> None: ...

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[float, ...]:
        key: tuple[float, ...] = self.keys.get(pod.metadata.name, (queued_at,))
        return key


def configuration() -> Configuration:
    return profile(plugins={"queueSort": {"enabled": [{"name": "GivenKeys"}], "disabled": [{"name": "PrioritySort"}]}})


class OwnOrder:
    """An object that can be compared with its like, and not with numbers."""

    def __lt__(self, other: "OwnOrder") -> bool:
        return True

    def __repr__(self) -> str:
        return "OwnOrder()"


class NoText:
    def __repr__(self) -> str:
        raise IndexError("no text")


@pytest.mark.parametrize(
    ("key", "error"),
    [
        pytest.param(None, "TypeError: sort_key returned None", id="none"),
        pytest.param(1.0, "TypeError: sort_key returned 1.0", id="number"),
        pytest.param([1.0], "TypeError: sort_key returned [1.0]", id="list"),
        pytest.param("first", "TypeError: sort_key returned 'first'", id="text"),
        pytest.param((0, "first"), "TypeError: sort_key returned (0, 'first')", id="text-in-tuple"),
        pytest.param((0, None), "TypeError: sort_key returned (0, None)", id="none-in-tuple"),
        pytest.param(((0.0,), 1.0), "TypeError: sort_key returned ((0.0,), 1.0)", id="tuple-in-tuple"),
        pytest.param((1j,), "TypeError: sort_key returned (1j,)", id="complex"),
        pytest.param((OwnOrder(),), "TypeError: sort_key returned (OwnOrder(),)", id="own-order"),
        pytest.param((NoText(),), "TypeError: sort_key returned (<NoText instance at", id="no-text"),
        pytest.param(("x" * 5000,), "TypeError: sort_key returned ('xxxxxxxxxxxx...xxxxxxxxxxxxx',)", id="long"),
        pytest.param((1, math.nan), "ValueError: sort_key returned (1, nan)", id="nan"),
        pytest.param((np.float64("nan"),), "ValueError: sort_key returned (np.float64(nan),)", id="nan-of-numpy"),
    ],
)
@pytest.mark.parametrize("first", [True, False], ids=["before-others", "after-others"])
def test_a_pod_without_a_usable_key_is_told_and_others_go_on(
    key: object, error: str, monkeypatch: pytest.MonkeyPatch, *, first: bool
) -> None:
    """The plugin returns the key for one of four pods. Later it returns another, when the pod is read again."""
    monkeypatch.setattr(GivenKeys, "keys", {"bad": key, "late": (9.0,), "early": (-9.0,)})
    others = ["late", "plain", "early"]
    listed: dict[str, list[dict[str, Any]]] = {
        "/api/v1/nodes": [
            {"metadata": {"name": "n", "uid": "n"}, "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": 9}}}
        ],
        "/api/v1/pods": [
            {
                "metadata": {"name": name, "namespace": "d", "uid": name},
                "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "main"}]},
            }
            for name in (["bad", *others] if first else [*others, "bad"])
        ],
    }
    objects = {f"/api/v1/namespaces/d/pods/{pod['metadata']['name']}": pod for pod in listed["/api/v1/pods"]}
    clock = SimClock()
    api = Scripted(clock)
    api.answer = lambda request: ok(
        objects.get(request.path)
        or {"metadata": {"resourceVersion": "1"}, "items": listed.get(request.path.partition("?")[0], [])}
    )
    core = build_core(configuration(), clock, registry=Registry([GivenKeys]))
    shell = Shell(core, api, clock)
    shell.start()
    clock.settle()

    def bound() -> list[str]:
        return [request.path.split("/")[-2] for request in api.sent if request.path.endswith("/binding")]

    assert bound() == ["early", "plain", "late"]
    assert core.handle.plugin_errors.counts == {("GivenKeys", "QueueSort"): 1}
    (condition,) = api.bodies("PATCH", "pods/bad/status")[0]["status"]["conditions"]
    assert condition["reason"] == SCHEDULER_ERROR
    assert condition["message"].startswith(f'running QueueSort plugin "GivenKeys": {error}')
    assert condition["message"].endswith("; return a tuple of numbers that are not NaN, such as (-priority, queued_at)")

    monkeypatch.setattr(GivenKeys, "keys", {})
    clock.advance(LONGEST_PAUSE)
    assert bound() == ["early", "plain", "late", "bad"]


def test_keys_of_any_numbers_and_lengths_order_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods arrive in reverse order of their keys, so that all but the first get into the heap, and some have equal keys
    in their common part. A key that begins another one comes before it, as with tuples."""
    keys: list[Any] = [
        (),
        (-math.inf,),
        (-math.inf, -math.inf),
        (-(1 << 70), 3),
        (np.int64(-2), 0.5),
        (False,),
        (np.float32(0.5),),
        (1,),
        (1.0, -math.inf),
        (1, 0, 7),
        (1, 2),
        (math.inf,),
        (math.inf, 0),
    ]
    monkeypatch.setattr(GivenKeys, "keys", {f"p{number:02}": key for number, key in enumerate(keys)})
    rig = Rig(configuration(), plugins=[GivenKeys])
    rig.node("n")
    rig.submit(*(pod(f"p{number:02}").request(cpu=1) for number in reversed(range(len(keys)))))
    rig.run()
    order = [decision.info.pod.metadata.name for decision in rig.decisions if isinstance(decision, Bind)]
    assert order == [f"p{number:02}" for number in range(len(keys))]
