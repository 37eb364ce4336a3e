"""Containers with real processes: processes find what the pod was allocated, also with real cards."""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.allocations import device_allocations
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.devices.survey import survey
from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_VENDOR_LABEL

pytestmark = [pytest.mark.needs(Capability.CONTAINERS)]


def script(name: str, text: str, *, restart: str = "Never") -> PodBuilder:
    """A pod with one container that runs a script."""
    built = pod(name)
    built.manifest["spec"]["containers"][0]["command"] = ["sh", "-c", text]
    built.manifest["spec"]["restartPolicy"] = restart
    return built


def status(trial: Trial, name: str) -> dict[str, Any]:
    """The status of the pod's container; empty before there is one."""
    body = orjson.loads(trial.call("GET", f"/api/v1/namespaces/{trial.name}/pods/{name}").body)
    statuses = body["status"].get("containerStatuses") or [{}]
    return dict(statuses[0])


def comes_to(trial: Trial, name: str, *, restarts: int = 0, within: float = 30.0) -> dict[str, Any]:
    """Wait for the end of the container, or for the given number of restarts; returns its status."""

    def there() -> bool:
        now = status(trial, name)
        return now.get("restartCount", 0) >= restarts and (restarts > 0 or "terminated" in now.get("state", {}))

    assert trial.wait(there, within=within), trial.timeline()
    return status(trial, name)


def promised(pod: Pod) -> set[int]:
    """The minors of the cards that the pod was allocated."""
    return {part.minor for part in device_allocations(pod).get("gpu", [])}


@pytest.mark.feature("HIL-1.embedded")
@pytest.mark.case("IS-030", severity="blocker")
@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        pytest.param("echo well", 0, "well", id="one-that-ends-well"),
        pytest.param("echo ill; exit 9", 9, "ill", id="one-that-fails"),
    ],
)
def test_a_command_runs_and_its_end_is_told(trial: Trial, text: str, code: int, printed: str) -> None:
    """Bound by the scheduler, run by the node: exit code and output are in the API."""
    trial.submit(script("a", text))

    assert comes_to(trial, "a")["state"]["terminated"]["exitCode"] == code
    log = trial.call("GET", f"/api/v1/namespaces/{trial.name}/pods/a/log")
    assert log.body.decode().strip() == printed


@pytest.mark.feature("HIL-1.embedded")
@pytest.mark.case("IS-031", severity="critical")
def test_what_fails_is_started_again(trial: Trial) -> None:
    """A failed container is restarted by the pod's policy, and its restarts are counted."""
    trial.submit(script("a", "exit 1", restart="OnFailure"))

    assert comes_to(trial, "a", restarts=1)["restartCount"] >= 1


@pytest.mark.feature("HIL-1.embedded")
@pytest.mark.case("IS-032", severity="critical")
def test_the_pods_own_words_reach_its_process(trial: Trial) -> None:
    """Literal variables, field references and substitutions are in the environment of the process."""
    built = script("a", "env")
    built.manifest["spec"]["containers"][0]["env"] = [
        {"name": "HOME_NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "GREETING", "value": "from $(HOME_NODE)"},
    ]
    trial.submit(built)

    comes_to(trial, "a")
    env = trial.container("a").env
    assert env["HOME_NODE"] == trial.pod("a").spec.node_name
    assert env["GREETING"] == f"from {env['HOME_NODE']}"


@pytest.mark.feature("HIL-1.embedded")
@pytest.mark.case("IS-033", severity="critical")
def test_a_deleted_pod_goes_however_stubborn_it_is(trial: Trial, expect: Expect) -> None:
    """A process that ignores SIGTERM is killed after the grace period, and the pod is removed."""
    trial.submit(script("a", "trap '' TERM; while :; do sleep 0.1; done", restart="Always"))
    expect.running("a")

    trial.delete("a")

    assert trial.find("a") is None


@pytest.mark.feature("DEV-1.once-on-machine", "HIL-1.stand-in-machine", "HIL-1.kubelet", "HIL-3.nvidia")
@pytest.mark.case("IS-035", severity="blocker")
def test_cards_of_this_machine_are_given_once(trial: Trial, expect: Expect) -> None:
    """With stand-ins or real cards: each pod finds its own allocated card in its environment."""
    node = trial.machine()
    if node["metadata"]["labels"].get(GPU_VENDOR_LABEL) != "nvidia":
        pytest.skip("needs NVIDIA cards; this machine has none, and --fake stands in for none")
    cards = [device for device in trial.device(node["metadata"]["name"])["spec"]["devices"] if device["type"] == "gpu"]
    uuids = {device["minor"]: device["id"] for device in cards if device["health"]}
    names = [f"a{minor}" for minor in uuids]
    trial.submit(*(pod(name).gpus(1) for name in names))

    def card(name: str) -> str:
        """The card in the environment: CUDA's variable has UUIDs for processes, NVIDIA's has minors for containers."""
        env = trial.container(name).env
        if "CUDA_VISIBLE_DEVICES" in env:
            return env["CUDA_VISIBLE_DEVICES"]
        listed = env.get("NVIDIA_VISIBLE_DEVICES", "")
        return uuids[int(listed)] if listed.isdigit() else ""

    by_minor: dict[int, str] = {}
    for name in names:
        (minor,) = promised(expect.running(name))
        trial.wait(lambda name=name: bool(card(name)), within=10.0)  # type: ignore[misc]
        by_minor[minor] = card(name)
    assert by_minor == uuids
    trial.submit(pod("late").gpus(1))
    expect.pending("late", saying="Insufficient")


@pytest.mark.feature("DEV-1.once-on-machine", "HIL-1.bare-machine", "HIL-5.nvidia")
@pytest.mark.case("IS-034", severity="blocker")
@pytest.mark.needs(Capability.REAL_DEVICES)
def test_real_cards_are_given_once(trial: Trial, expect: Expect) -> None:
    """As many pods as there are cards find different cards; one more pod waits."""
    cards = [device for device in survey()[0] if device.vendor == "nvidia" and device.health.ok]
    if not cards:
        pytest.skip("needs healthy NVIDIA cards; this machine has none")
    names = [f"a{number}" for number in range(len(cards))]
    trial.submit(*(pod(name).gpus(1) for name in names))

    seen: list[str] = []
    for name in names:
        one = expect.running(name)
        trial.wait(lambda name=name: "NVIDIA_VISIBLE_DEVICES" in trial.container(name).env, within=10.0)  # type: ignore[misc]
        listed = trial.container(name).env["NVIDIA_VISIBLE_DEVICES"].split(",")
        assert {int(minor) for minor in listed} == promised(one)
        seen += listed
    assert sorted(map(int, seen)) == sorted(device.minor for device in cards)
    trial.submit(pod("late").gpus(1))
    expect.pending("late", saying="Insufficient")
