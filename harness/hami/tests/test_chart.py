"""The chart's manifests are valid for Kubernetes, and put the library where containers look for it."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from seatrial.harness.devices.hami_core import VGPU_FOLDER, VGPU_LOCK
from seatrial.harness.devices.hami_release import SHIPPED, HamiHost, incompatible
from seatrial.harness.errors import UsageError
from seatrial.harness.hami.chart import CHART, manifests


def by_name(name: str, **values: Any) -> dict[str, Any]:
    return next(manifest for manifest in manifests("gpu", values) if manifest["metadata"]["name"] == name)


@pytest.mark.parametrize("manifest", manifests("gpu"), ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_it_is_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.35", strict=True)


def test_the_library_goes_where_containers_look_for_it() -> None:
    spec = by_name("hami-daemon")["spec"]["template"]["spec"]
    hosts = {item["name"]: item["hostPath"]["path"] for item in spec["volumes"]}
    inside = {item["name"]: item["mountPath"] for item in spec["containers"][0]["volumeMounts"]}
    script = spec["containers"][0]["command"][2]
    assert set(hosts.values()) == {VGPU_FOLDER, VGPU_LOCK}
    assert f"mv -f {inside['vgpu']}/.libvgpu.so.new {inside['vgpu']}/libvgpu.so" in script
    assert f" {inside['vgpu']}/libvgpu.so" not in script.replace(
        f"mv -f {inside['vgpu']}/.libvgpu.so.new {inside['vgpu']}/libvgpu.so", ""
    ), "a library in use must be replaced by a rename"


def test_it_brings_a_release_that_works_with_new_drivers() -> None:
    image = by_name("hami-daemon")["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.rpartition(":")[2] == SHIPPED == yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    assert incompatible(HamiHost("570.124.06", SHIPPED)) is None


def test_the_monitor_reads_where_containers_write() -> None:
    spec = by_name("hami-vgpu-monitor", hostFolder="/srv/vgpu")["spec"]["template"]["spec"]
    assert spec["volumes"][0]["hostPath"]["path"] == "/srv/vgpu/containers"
    assert {"name": "HOOK_PATH", "value": "/srv/vgpu"} in spec["containers"][0]["env"]
    assert spec["containers"][0]["ports"] == [{"name": "metrics", "containerPort": 9394}]


def test_without_the_monitor_only_the_library_is_left() -> None:
    assert [manifest["metadata"]["name"] for manifest in manifests("gpu", {"monitor": {"enabled": False}})] == [
        "hami-daemon"
    ]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        pytest.param({"images": "x"}, "values: expected one of image, ", id="at-the-top"),
        pytest.param({"monitor": {"prot": 1}}, "values.monitor: expected one of enabled, ", id="inside"),
    ],
)
def test_unknown_values_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        manifests("gpu", values)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("a: {{ .Values.b }}\n", "found '.Values.b'", id="an-unknown-name"),
        pytest.param("a: {{ .Values.a | quote }}\n", "found 'a: {{ .Values.a | quote }}'", id="more-than-a-name"),
    ],
)
def test_templates_beyond_what_is_followed_are_refused(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "values.yaml").write_text("a: 1\n")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "one.yaml").write_text(text)
    with pytest.raises(UsageError) as caught:
        manifests("gpu", chart=tmp_path)
    assert says in str(caught.value)
