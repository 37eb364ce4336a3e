"""The manifests of the release posts, applied with the real kubectl, with the results that the posts describe.

A manifest whose feature is not implemented is applied as well: the API server must accept it. Its case is then
skipped, so that the report counts its rows as not verified.
"""

import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
import yaml

from seatrial.fixtures.allocated_devices import amounts, minors, reservation_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability, Cluster
from seatrial.scheduler.api.builders import NodeBuilder, node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_MEMORY
from seatrial.scheduler.api.extension import KOORD_SCHEDULER
from seatrial.scheduler.api.reservation import Reservation
from seatrial.scheduler.api.transport import Request

HERE = Path(__file__).parent
KUBECTL = shutil.which("kubectl")
WITHIN = 30.0
QUOTA_NAMESPACE = "koordinator-system"

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]


def entries() -> Iterator[Any]:
    """One case for each file that holds API objects. Pods that name Koordinator's scheduler need it as a profile."""
    for row in yaml.safe_load((HERE / "index.yaml").read_bytes()):
        if "/config/" not in row["file"]:
            marks = [pytest.mark.feature(row["promise"])]
            named = f"schedulerName: {KOORD_SCHEDULER}" in (HERE / row["file"]).read_text(encoding="utf-8")
            if named and row.get("expect", {}).get("pods"):
                marks.append(pytest.mark.profile(KOORD_SCHEDULER))
            yield pytest.param(row, marks=marks, id=row["file"].removesuffix(".yaml"))


@pytest.fixture
def kubectl(whole_cluster: Cluster) -> list[str]:
    """The real kubectl, pointed to the cluster."""
    if whole_cluster.endpoint is None:
        pytest.skip(f"needs a cluster that kubectl can reach; {whole_cluster.name} lives in this process")
    if KUBECTL is None:
        pytest.skip("needs kubectl on PATH")
    return [KUBECTL, "--kubeconfig", str(whole_cluster.endpoint.kubeconfig)]


@pytest.mark.case("RM-001", severity="critical")
@pytest.mark.parametrize("row", list(entries()))
def test_a_released_manifest(trial: Trial, expect: Expect, kubectl: list[str], row: dict[str, Any]) -> None:
    """kubectl applies the manifest, and its pods end as the release post describes."""
    path = HERE / row["file"]
    alone = [node(f"cpu-{number}").cpu(cores) for number, cores in enumerate(row.get("alone", ()))]
    trial.add(*(alone or standing()), *map(server, row.get("servers", ())))
    try:
        for name in row.get("before", ()):  # pods that run before the rest of the file is applied
            first = run([*kubectl, "apply", "-f", "-"], manifest=only(path, name))
            assert first.returncode == 0, first.stderr
            check(trial, name, "running")
        applied = apply(trial, kubectl, path, again=row.get("repeat", False))
        assert applied.returncode == 0, f"kubectl apply -f {row['file']}:\n{applied.stderr}"
        if row.get("judged_by"):
            pytest.skip(
                f"accepted by the API server; what the post promises is judged by {', '.join(row['judged_by'])}"
            )
        if row.get("needs"):
            pytest.skip("accepted by the API server; what the post promises of it is not verified yet")
        for name, fate in row["expect"]["pods"].items():
            check(trial, name, fate)
        for name, phase in row["expect"].get("reservations", {}).items():
            expect.reservation(name, partial(in_phase, phase), f"to be {phase}")
        for name, reservation in row["expect"].get("inside", {}).items():
            placed = pod_named(trial, name)
            assert placed is not None
            assert reservation_of(placed) == reservation
    finally:
        command = [*kubectl, "delete", "-f", "-", "--ignore-not-found", "--grace-period=0", "--force"]
        remove(trial, command, manifest=removable(path))
        if "QUOTA-7" in row["features"]:  # the root quota of a tree stays when its profile goes
            remove(trial, [*kubectl, "delete", "elasticquotas", "--all", "-n", "kube-system"])


def apply(trial: Trial, kubectl: list[str], path: Path, *, again: bool) -> "subprocess.CompletedProcess[str]":
    """Apply a file; with `again` until it is accepted whole, because a controller must act before that."""
    applied = run([*kubectl, "apply", "-f", str(path)])

    def accepted() -> bool:
        nonlocal applied
        if applied.returncode:
            applied = run([*kubectl, "apply", "-f", str(path)])
        return applied.returncode == 0

    if again:
        trial.wait(accepted, within=WITHIN)
    return applied


def remove(trial: Trial, command: list[str], *, manifest: str | None = None) -> None:
    """Run the command until it succeeds: a quota that still has pods or children is not removed."""

    def removed() -> bool:
        return run(command, manifest=manifest).returncode == 0

    assert trial.wait(removed, within=WITHIN), run(command, manifest=manifest).stderr


def removable(path: Path) -> str:
    """The objects of a file, without the namespace of the scheduler's own quotas: admission refuses to delete those."""
    documents = [each for each in yaml.safe_load_all(path.read_bytes()) if each]
    kept = ("Namespace", QUOTA_NAMESPACE)
    return yaml.safe_dump_all([each for each in documents if (each["kind"], each["metadata"]["name"]) != kept])


def standing() -> list[NodeBuilder]:
    """The nodes that exist for every row."""
    return [node("gpu-0").gpus("h100-80g", 8).nics("connectx-7", 2).isolation(), node("cpu-0").cpu(64)]


def server(target: str | dict[str, Any]) -> NodeBuilder:
    """A machine that a row names: by model, or with name and labels."""
    results: dict[str, Any] = {"server": target} if isinstance(target, str) else target
    built = node(results.get("name", f"{results['server']}-0")).server(results["server"])
    for key, value in results.get("labels", {}).items():
        built.label(key, value)
    return built


@pytest.mark.feature("DEV-2.reported", "DEV-2.manifest-device")
@pytest.mark.case("RM-002", severity="critical")
@pytest.mark.profile(KOORD_SCHEDULER)
def test_the_released_device(trial: Trial, expect: Expect, kubectl: list[str]) -> None:
    """Of the two cards in the Device object of v0.7's post the healthy one is allocated once, with the old names."""
    trial.add(server({"name": "node-1", "server": "a10-4"}))
    applied = run([*kubectl, "apply", "-f", str(HERE / "v0.7/device.yaml")])
    assert applied.returncode == 0, applied.stderr
    old = {"kubernetes.io/gpu-core": 100, "kubernetes.io/gpu-memory-ratio": 100}
    first, second = (pod(name).resources(dict(old)).scheduler(KOORD_SCHEDULER) for name in ("first", "second"))

    trial.submit(first)
    pods = expect.running("first")
    trial.submit(second)

    assert minors(pods) == [0]
    assert amounts(pods, GPU_MEMORY) == [16 << 30]
    expect.pending("second")


def check(trial: Trial, name: str, fate: str) -> None:
    """The pod of that name, in any namespace, ends as given."""

    def holds() -> bool:
        pod = pod_named(trial, name)
        if pod is None:
            return False
        refused = any(
            condition.type == "PodScheduled" and condition.status == "False" for condition in pod.status.conditions
        )
        if fate == "running":
            return pod.status.phase == "Running"
        return bool(pod.spec.node_name) if fate == "bound" else refused and not pod.spec.node_name

    held = trial.wait(holds, within=WITHIN)
    assert held, f"expected pod {name!r} to be {fate} within {WITHIN:g} s; it is {pod_named(trial, name)}"


def in_phase(phase: str, reservation: Reservation) -> bool:
    return reservation.status.phase == phase


def pod_named(trial: Trial, name: str) -> Pod | None:
    path = f"/api/v1/pods?fieldSelector=metadata.name%3D{name}"
    rows = orjson.loads(trial.cluster.call(Request("GET", path)).body)["items"]
    return msgspec.convert(rows[0], Pod) if rows else None


def only(path: Path, name: str) -> str:
    """The priority classes of a manifest, and its pod of that name."""
    rows = [row for row in yaml.safe_load_all(path.read_bytes()) if row]
    return yaml.safe_dump_all(
        row for row in rows if row["kind"] == "PriorityClass" or (row["kind"], row["metadata"]["name"]) == ("Pod", name)
    )


def run(command: list[str], *, manifest: str | None = None) -> "subprocess.CompletedProcess[str]":
    """Run a command; `manifest`: its standard input."""
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, input=manifest)
