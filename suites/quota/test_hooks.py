"""Hook plugins of quotas: `podCount` of the released configuration bounds the number of pods of a quota.

All profiles of a scheduler share its quotas and hooks, so that these cases need a configuration, not a profile. Other
cases run without hooks, as most users have it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.profiles import SHIPPED
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import node, quota
from seatrial.suites.quota.quotas import counted, make, named, path_of, read, settle

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

RELEASED = Path(__file__).parents[1] / "manifests/v1.7/config/quota-hook.config.yaml"
MAX_PODS, PODS = "seatrial.dev/max-pods", "seatrial.dev/pods"


def hook_plugins(config: Path) -> list[dict[str, Any]]:
    """The hook plugins of the first profile."""
    profile = yaml.safe_load(config.read_bytes())["profiles"][0]
    named = {entry["name"]: entry["args"] for entry in profile.get("pluginConfig", ())}
    hook_plugins: list[dict[str, Any]] = named.get("ElasticQuota", {}).get("hookPlugins", [])
    return hook_plugins


@pytest.fixture(autouse=True)
def configured(seatrial_scheduler_config: Path | None, subject: Subject | None) -> Iterator[None]:
    """The scheduler under test has the hook plugins of RELEASED: ours is started anew with that file."""
    path = seatrial_scheduler_config
    if path is not None and hook_plugins(path) == hook_plugins(RELEASED):
        yield
    elif subject is None or path != suites_folder() / SHIPPED:
        pytest.skip(f"needs a scheduler with the hook plugins of {RELEASED.name}; give --scheduler-config with them")
    else:
        with subject.configured(RELEASED):
            yield


@pytest.mark.feature("QUOTA-13.validation-hook", "QUOTA-13.configuration-quota-hook")
@pytest.mark.case("QU-060", severity="normal")
@pytest.mark.long(seconds=4)
def test_a_hook_refuses_a_pod_that_the_quota_has_room_for(trial: Trial, expect: Expect) -> None:
    """The third pod of a quota for two pods waits, and starts when one of them ends or the bound is raised."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=16).annotation(MAX_PODS, "2"))
    trial.submit(counted(trial, "first", "a", cpu=1), counted(trial, "second", "a", cpu=2))
    expect.bound("first", "second")

    trial.submit(counted(trial, "third", "a", cpu=1))
    expect.stable(seconds=1)  # the third has waited longer
    trial.submit(counted(trial, "fourth", "a", cpu=2))

    why = f"quota {named(trial, 'a')} has 2 pods on nodes, expected less than 2"
    expect.pending("third", "fourth", saying=f"CheckPod failed for hook plugin pod-count, err: {why}")
    trial.delete("first")
    expect.bound("third")
    change = {"metadata": {"annotations": {MAX_PODS: "3"}}}
    trial.call("PATCH", path_of(trial, named(trial, "a")), change)
    expect.bound("fourth")


@pytest.mark.feature("QUOTA-13.pod-hook")
@pytest.mark.case("QU-061", severity="normal")
@pytest.mark.long(seconds=42)
def test_a_hook_hears_of_each_pod(trial: Trial, expect: Expect) -> None:
    """The number of pods on nodes that the hook adds to the status follows pods that start, end and change quota."""
    trial.add(node("n1").cpu(32))
    make(trial, quota(named(trial, "a")).max(cpu=16), quota(named(trial, "b")).max(cpu=16))
    trial.submit(*(counted(trial, f"p-{number}", "a", cpu=1) for number in range(3)))
    trial.submit(counted(trial, "too-large", "a", cpu=17))
    expect.bound("p-0", "p-1", "p-2")
    expect.pending("too-large")
    assert pods_told(trial) == ("3", "0")

    trial.delete("p-0")
    move = {"metadata": {"labels": {"quota.scheduling.koordinator.sh/name": named(trial, "b")}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}/pods/p-1", move).ok

    assert pods_told(trial) == ("1", "1")


def pods_told(trial: Trial) -> tuple[str, ...]:
    settle(trial)
    return tuple(read(trial, named(trial, own))["metadata"]["annotations"].get(PODS, "") for own in "ab")
