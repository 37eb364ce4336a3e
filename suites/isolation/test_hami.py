"""HAMi-core with shares: what containers get, which library matches which driver, and the monitor's metrics.

The library itself does not run here. The suite writes the library's shared region as the library would, from what
reached the container.
"""

import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
import yaml

from seatrial.fake_devices.hami.region import CardLimits, ProcessUsage, new_region, write_region
from seatrial.fixtures.allocated_devices import devices_of, first_of
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.trial import TRIAL_LABEL, Container, Trial
from seatrial.harness.apiserver.quantities import units
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.devices.hami_core import MONITOR_ANNOTATION
from seatrial.harness.devices.hami_release import VERSION_LABEL
from seatrial.harness.hami.chart import Manifest, manifests
from seatrial.harness.hami.monitor import Monitor, serving
from seatrial.harness.hami.sources import pods_of_node
from seatrial.scheduler.api.builders import PROBE_COMMAND, PROBE_IMAGE, PodBuilder, node, pod
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.device import GPU_DRIVER_LABEL, GPU_ISOLATION_PROVIDER, GPU_MEMORY
from seatrial.scheduler.api.extension import KOORD_SCHEDULER

pytestmark = [pytest.mark.needs(Capability.NODES)]

PLUGINS = "vendor-plugins"  # the profile that writes what the plugins of vendors read
FOLDER = "/usr/local/vgpu"
LIBRARY = f"{FOLDER}/libvgpu.so"
LOCK = "/tmp/vgpulock"  # noqa: S108 the protocol's own path
CACHE = "CUDA_DEVICE_MEMORY_SHARED_CACHE"
_SAMPLE = re.compile(r"(?P<name>\w+)\{(?P<labels>.*)\} (?P<value>[\d.]+)", re.ASCII)
_COLLECTIONS = {
    "DaemonSet": "/apis/apps/v1/namespaces/{ns}/daemonsets",
    "ServiceAccount": "/api/v1/namespaces/{ns}/serviceaccounts",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


def watched(name: str, percent: int) -> PodBuilder:
    """A pod with a share whose use is monitored."""
    return pod(name).gpu_share(percent).isolated().annotation(MONITOR_ANNOTATION, "true")


def fate(trial: Trial, name: str) -> tuple[str, str]:
    """Phase and message of a pod."""
    status = orjson.loads(trial.call("GET", f"/api/v1/namespaces/{trial.name}/pods/{name}").body)["status"]
    return status.get("phase", ""), status.get("message", "")


# -- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.feature("DEV-8.library-in-container")
@pytest.mark.case("IS-010", severity="blocker")
def test_a_share_in_bytes_is_limited_to_its_bytes(trial: Trial, expect: Expect) -> None:
    """A share requested in bytes is limited to exactly these bytes; library, lock and the allocated card are there."""
    trial.add(node("n1").gpus("a10", 2).isolation())
    trial.submit(pod("a").gpu_memory("5000000000", core=30).isolated())

    a = expect.running("a")

    inside = trial.container("a")
    part = devices_of(a)[0]
    assert units(inside.env["CUDA_DEVICE_MEMORY_LIMIT"]) == units(part.resources[GPU_MEMORY])
    assert inside.env["CUDA_DEVICE_SM_LIMIT"] == "30"
    assert inside.env["NVIDIA_VISIBLE_DEVICES"] == str(part.minor)
    assert inside.env["LD_PRELOAD"] == LIBRARY
    assert {LIBRARY, LOCK} <= set(inside.mounts)
    assert CACHE not in inside.env, "no monitor was requested"


@pytest.mark.profile(PLUGINS)
@pytest.mark.feature("DEV-8.library-in-container")
@pytest.mark.case("IS-042", severity="normal")
def test_the_plugin_finds_its_pods_by_label(trial: Trial, expect: Expect) -> None:
    """With vendors' plugins an isolated share has the label with its node by which HAMi's plugin selects its pods."""
    trial.add(node("n1").gpus("a10", 3).isolation())
    trial.submit(pod("a").gpu_share(50).isolated().scheduler(PLUGINS), pod("b").gpu_share(20).scheduler(PLUGINS))
    trial.submit(pod("whole").gpus(1).isolated().scheduler(PLUGINS))
    a, b, whole = expect.bound("a", "b", "whole")
    assert a.metadata.labels.get("hami.io/vgpu-node") == whole.metadata.labels.get("hami.io/vgpu-node") == "n1"
    assert "hami.io/vgpu-node" not in b.metadata.labels


@pytest.mark.feature("DEV-8.library-in-container")
@pytest.mark.case("IS-011", severity="critical")
def test_without_the_label_there_is_no_library(trial: Trial, expect: Expect) -> None:
    """A share without the isolation label gets no library, also on a node that has it."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(pod("a").gpu_share(50))

    expect.running("a")

    inside = trial.container("a")
    assert inside.cards() == ("/dev/nvidia0",)
    assert not {"LD_PRELOAD", "CUDA_DEVICE_MEMORY_LIMIT", "CUDA_DEVICE_SM_LIMIT"} & set(inside.env)
    assert LIBRARY not in inside.mounts


@pytest.mark.feature("DEV-8.library-in-container")
@pytest.mark.case("IS-012", severity="normal")
def test_the_provider_s_name_is_taken_letter_by_letter(trial: Trial, expect: Expect) -> None:
    """`hami-core` is not `HAMi-core`: no node has that provider."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(pod("a").gpu_share(50).label(GPU_ISOLATION_PROVIDER, "hami-core"))
    expect.pending("a")


# -- releases and drivers ---------------------------------------------------------------------------------------------


@pytest.mark.feature("DEV-9.library-and-driver")
@pytest.mark.case("IS-013", severity="critical")
@pytest.mark.parametrize(
    ("driver", "release"),
    [
        pytest.param("570.124.06", "v2.6.0", id="koordinator-s-own-choice"),
        pytest.param("580.65.06", "v2.6.1", id="a-newer-driver"),
        pytest.param("550.90.07", "v2.4.0", id="old-with-old"),
    ],
)
def test_a_library_that_goes_with_the_driver(trial: Trial, expect: Expect, driver: str, release: str) -> None:
    """An isolated share runs with the library on a node whose driver the library supports."""
    trial.add(node("n1").gpus("a10", 1).isolation().label(GPU_DRIVER_LABEL, driver).label(VERSION_LABEL, release))
    assert trial.node("n1")["metadata"]["labels"][GPU_DRIVER_LABEL] == driver
    trial.submit(pod("a").gpu_share(50).isolated())
    expect.running("a")
    assert trial.container("a").env["LD_PRELOAD"] == LIBRARY


@pytest.mark.feature("DEV-9.library-and-driver")
@pytest.mark.case("IS-014", severity="critical")
def test_a_library_too_old_for_the_driver(trial: Trial, expect: Expect) -> None:
    """Before v2.6 the library hangs with drivers from 570 on: a share is refused for that reason, a whole card runs."""
    trial.add(node("n1").gpus("a10", 2).isolation().label(VERSION_LABEL, "v2.5.3"))
    trial.submit(pod("share").gpu_share(50).isolated(), pod("whole").gpus(1).isolated())

    expect.running("whole")
    assert trial.wait(lambda: fate(trial, "share")[0] == "Failed", within=30), fate(trial, "share")
    message = fate(trial, "share")[1]
    assert "HAMi-core v2.5.3 hangs with driver 570" in message
    assert "expected v2.6 or newer" in message


@pytest.mark.feature("DEV-9.chart")
@pytest.mark.case("IS-015", severity="normal")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # the chart has roles of the cluster
def test_the_chart_is_taken(trial: Trial) -> None:
    """Every object of the chart hami-daemon is accepted; its DaemonSets select the nodes for isolated shares."""
    made = []
    try:
        for manifest in manifests(trial.name):
            path = _COLLECTIONS[manifest["kind"]].format(ns=trial.name)
            made.append((trial.accept(manifest, path), path))
    finally:
        for result, path in made:
            trial.call("DELETE", f"{path}/{result['metadata']['name']}")
    daemons = [outcome for outcome, _ in made if outcome["kind"] == "DaemonSet"]
    assert {daemon["metadata"]["name"] for daemon in daemons} == {"hami-daemon", "hami-vgpu-monitor"}
    assert all(selects(daemon, node("any").isolation().manifest["labels"]) for daemon in daemons)


def selects(daemon: Manifest, labels: dict[str, str]) -> bool:
    """Whether the DaemonSet's pods go to a node with these labels."""
    node_selector: dict[str, str] = daemon["spec"]["template"]["spec"]["nodeSelector"]
    return node_selector.items() <= labels.items()


@pytest.mark.feature("DEV-8.manifest-hami-core-distribute", "DEV-8.distribution")
@pytest.mark.case("IS-019", severity="critical")
@pytest.mark.needs(Capability.OWN_CLUSTER)  # its pods tolerate everything and would go to nodes of others
def test_the_released_daemon_set_reaches_every_gpu_node(trial: Trial, expect: Expect) -> None:
    """A pod of the announced DaemonSet runs on each node labelled node-type=gpu, a tainted one and a later one too, and
    on no other node; each has the host's folder for the library."""
    labelled = {name: node(name).gpus("a10", 1).label("node-type", "gpu") for name in ("g1", "g2", "g3")}
    trial.add(labelled["g1"], labelled["g2"].taint("only", "gpu"), node("c1").cpu(64))
    (released,) = yaml.safe_load_all((suites_folder() / "manifests/v1.6/hami-core-distribute.yaml").read_bytes())
    released["metadata"]["namespace"] = trial.name
    released["spec"]["template"]["spec"]["nodeSelector"] = {TRIAL_LABEL: trial.name}
    path = _COLLECTIONS["DaemonSet"].format(ns=trial.name)
    name = trial.accept(released, path)["metadata"]["name"]

    def reached() -> list[str]:
        return sorted(pod.spec.node_name for pod in trial.pods() if pod.status.phase == "Running")

    try:
        assert trial.wait(lambda: reached() == ["g1", "g2"], within=30), trial.timeline()
        expect.stable(seconds=5)
        trial.add(labelled["g3"])
        assert trial.wait(lambda: reached() == ["g1", "g2", "g3"], within=30), trial.timeline()
        folders = [
            {volume["name"]: volume["hostPath"]["path"] for volume in item["spec"]["volumes"] if "hostPath" in volume}
            for item in orjson.loads(trial.call("GET", f"/api/v1/namespaces/{trial.name}/pods").body)["items"]
        ]
        assert [folder["vgpu-hook"] for folder in folders] == ["/usl/local/vgpu"] * 3, "the announcement's own spelling"
    finally:
        trial.call("DELETE", f"{path}/{name}?propagationPolicy=Foreground")
        assert trial.wait(lambda: trial.call("GET", f"{path}/{name}").code == 404, within=60)


# -- the monitor ------------------------------------------------------------------------------------------------------


def books(host: Path, pod: Pod, inside: Container, *, used: int, core: int) -> None:
    """Write the library's shared region of a container: its limits, and the use of one process."""
    cache = Path(inside.env[CACHE])
    assert str(cache.parent) == FOLDER
    assert FOLDER in inside.mounts, "the container's folder on the host is mounted over the library's"
    limits = CardLimits(
        uuid_of(pod), memory=int(inside.env["CUDA_DEVICE_MEMORY_LIMIT"]), cores=int(inside.env["CUDA_DEVICE_SM_LIMIT"])
    )
    region = new_region("v2.6.1", [limits], [ProcessUsage(1, used=({"data": used},), cores=(core,))])
    (host / cache.stem).mkdir()
    write_region(host / cache.stem / cache.name, region)


def uuid_of(pod: Pod) -> str:
    """A UUID in NVML's format for the card that the pod was allocated."""
    return f"GPU-00000000-0000-0000-0000-{first_of(pod):012}"


@contextmanager
def metrics_of(trial: Trial, host: Path) -> Iterator[str]:
    """The address of a monitor of node n1."""
    monitor = Monitor(host, "n1", now=trial.cluster.clock.now, pods=lambda: pods_of_node(trial.cluster.call, "n1"))
    with serving(monitor, "127.0.0.1", 0) as url:
        yield url


def scrape(url: str) -> dict[tuple[str, str], float]:
    """Values by metric and pod."""
    with urllib.request.urlopen(url) as answer:  # noqa: S310 our own address
        lines = answer.read().decode().splitlines()
    scrape = {}
    for line in lines:
        match = _SAMPLE.fullmatch(line)
        if match is not None:
            labels = dict(re.findall(r'(\w+)="([^"]*)"', match["labels"]))
            scrape[match["name"], labels["podname"]] = float(match["value"])
    return scrape


@pytest.mark.feature("DEV-10.tenants")
@pytest.mark.case("IS-016", severity="critical")
def test_the_monitor_shows_each_tenant_s_part(trial: Trial, expect: Expect, tmp_path: Path) -> None:
    """Two tenants of one card: limits as allocated and use as recorded, under HAMi's metric names."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(watched("a", 40), watched("b", 60))
    pods = expect.running("a", "b")
    caches = set()
    for number, builder in enumerate(pods):
        inside = trial.container(builder.metadata.name)
        caches.add(inside.env[CACHE])
        books(tmp_path, builder, inside, used=(number + 1) << 30, core=10 * (number + 1))
    assert len(caches) == 2, "two containers never write into one file"

    with metrics_of(trial, tmp_path) as url:
        amounts = scrape(url)

    for number, builder in enumerate(pods):
        name = builder.metadata.name
        promised = units(devices_of(builder)[0].resources[GPU_MEMORY])
        assert amounts["vGPU_device_memory_limit_in_bytes", name] == promised
        assert amounts["vGPU_device_memory_usage_in_bytes", name] == (number + 1) << 30
        assert amounts["Device_memory_desc_of_container", name] == (number + 1) << 30
        assert amounts["Device_utilization_desc_of_container", name] == 10 * (number + 1)


@pytest.mark.feature("DEV-10.gone")
@pytest.mark.case("IS-017", severity="normal")
def test_a_pod_that_is_gone_is_not_shown(trial: Trial, expect: Expect, tmp_path: Path) -> None:
    """The monitor does not show deleted pods, although their regions stay on the host."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    trial.submit(watched("a", 40), watched("b", 40))
    for running in expect.running("a", "b"):
        books(tmp_path, running, trial.container(running.metadata.name), used=1, core=1)

    with metrics_of(trial, tmp_path) as url:
        assert {name for _, name in scrape(url)} == {"a", "b"}
        trial.delete("a")
        assert {name for _, name in scrape(url)} == {"b"}


@pytest.mark.feature("DEV-9.manifest-hami-share")
@pytest.mark.case("IS-018", severity="critical")
@pytest.mark.profile(KOORD_SCHEDULER)
def test_the_released_tenants(trial: Trial, expect: Expect, tmp_path: Path) -> None:
    """The two announced tenants share the only card, 40 % each, the monitor shows what each uses, and a third one like
    them finds no room."""
    trial.add(node("n1").gpus("a10", 1).isolation())
    tenants = list(yaml.safe_load_all((suites_folder() / "manifests/v1.7/hami-share.yaml").read_bytes()))
    for tenant in tenants:
        tenant["metadata"]["namespace"] = trial.name
        tenant["metadata"]["annotations"] = {MONITOR_ANNOTATION: "true"}
        tenant["spec"]["nodeSelector"] = {TRIAL_LABEL: trial.name}
        tenant["spec"]["containers"][0] |= {"image": PROBE_IMAGE, "command": [*PROBE_COMMAND]}  # it prints what it got
        trial.apply(tenant)

    for number, placed in enumerate(expect.running("tenant-a", "tenant-b"), 1):
        inside = trial.container(placed.metadata.name)
        assert (inside.cards(), inside.env["CUDA_DEVICE_SM_LIMIT"]) == (("/dev/nvidia0",), "40")
        books(tmp_path, placed, inside, used=number << 30, core=10 * number)
    with metrics_of(trial, tmp_path) as url:
        amounts = scrape(url)
    assert amounts["vGPU_device_memory_usage_in_bytes", "tenant-a"] == 1 << 30
    assert amounts["vGPU_device_memory_usage_in_bytes", "tenant-b"] == 2 << 30
    third = tenants[0]
    third["metadata"]["name"] = "tenant-c"
    trial.apply(third)
    expect.pending("tenant-c")
