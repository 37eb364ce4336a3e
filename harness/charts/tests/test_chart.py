"""The chart's manifests are valid for Kubernetes, complete, and their containers' arguments are understood."""

import json
import os
import subprocess
import sys
from typing import Any

import kubernetes_validate
import pytest
import yaml

from seatrial.harness.apiserver import shipped
from seatrial.harness.apiserver.tests.asking import PODS, Api, pod
from seatrial.harness.charts import SEATRIAL, definitions, seatrial_manifests
from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.embedded import EmbeddedBackend
from seatrial.harness.clusters.envtest import EnvtestBackend
from seatrial.harness.clusters.protocol import Cluster, ClusterBackend
from seatrial.harness.errors import UsageError
from seatrial.scheduler.api.transport import APPLY_PATCH, Request
from seatrial.scheduler.api.wire import to_json

EVERYTHING = {
    "descheduler": {"enabled": True},
    "draDriver": {"enabled": True},
    "koordlet": {"enabled": True},
    "load": {"enabled": True, "masterHost": "load.example"},
    "webhooks": {"enabled": True, "caBundle": "QQ=="},
}
MANIFESTS = seatrial_manifests("gpu", EVERYTHING)
OWN = [manifest for manifest in MANIFESTS if manifest["kind"] != "CustomResourceDefinition"]


def pods() -> dict[str, dict[str, Any]]:
    """The pod specs of the chart by component."""
    return {
        manifest["metadata"]["labels"]["app.kubernetes.io/component"]: manifest["spec"]["template"]["spec"]
        for manifest in OWN
        if manifest["kind"] in {"Deployment", "DaemonSet"}
    }


@pytest.mark.parametrize("manifest", OWN, ids=lambda item: f"{item['kind']}-{item['metadata']['name']}")
def test_it_is_valid(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.35", strict=True)


def test_it_has_all_parts_and_all_definitions() -> None:
    assert pods().keys() == {
        "scheduler",
        "manager",
        "descheduler",
        "webhooks",
        "koordlet",
        "device-plugin",
        "dra-driver",
        "load",
    }
    assert definitions() == list(shipped())


def test_what_is_off_is_left_out() -> None:
    names = {manifest["metadata"]["name"] for manifest in seatrial_manifests("gpu") if manifest in OWN}
    off = {
        "seatrial-descheduler",
        "seatrial-webhooks",
        "seatrial-pod-webhook",
        "seatrial-koordlet",
        "seatrial-load",
        "seatrial-dra-driver",
    }
    assert not names & off
    assert seatrial_manifests("gpu", {"scheduler": {"enabled": False}, "manager": {"enabled": False}}) != MANIFESTS


def test_every_service_account_has_its_rights() -> None:
    bound = {
        (subject["name"], manifest["roleRef"]["name"])
        for manifest in OWN
        if manifest["kind"] == "ClusterRoleBinding"
        for subject in manifest["subjects"]
    }
    accounts = {spec["serviceAccountName"] for spec in pods().values() if "serviceAccountName" in spec}
    assert bound == {(name, name) for name in accounts}


def test_rights_name_resources_and_leases_have_names() -> None:
    """No rule is for all resources or verbs of a group, and no program may write Leases or ConfigMaps of others."""
    for manifest in OWN:
        for rule in manifest.get("rules", ()) if manifest["kind"] in {"ClusterRole", "Role"} else ():
            assert "*" not in (*rule["apiGroups"], *rule["resources"], *rule["verbs"]), manifest["metadata"]["name"]
            if "leases" in rule["resources"]:
                assert manifest["kind"] == "Role"
                assert rule.get("resourceNames") or rule["verbs"] == ["create"]
            if "configmaps" in rule["resources"]:
                assert rule["resourceNames"]
                assert set(rule["verbs"]) == {"get", "list", "watch"}


@pytest.mark.parametrize("component", sorted(pods()))
def test_the_programs_know_their_arguments(component: str) -> None:
    """Each argument that begins with dashes is in the program's help."""
    args = pods()[component]["containers"][0]["args"]
    shown = subprocess.run(
        [sys.executable, "-m", "seatrial", args[0], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "200"},  # no name is wrapped
    ).stdout
    flags = [word.partition("=")[0] for word in args if word.startswith("--")]
    assert flags
    assert [flag for flag in flags if flag not in shown] == []


def test_the_schedulers_configuration_names_the_profile() -> None:
    statuses = seatrial_manifests("gpu", {"scheduler": {"name": "mine"}})
    config = next(
        item for item in statuses if item["kind"] == "ConfigMap" and item["metadata"]["name"] == "seatrial-scheduler"
    )
    assert yaml.safe_load(config["data"]["config.yaml"])["profiles"] == [{"schedulerName": "mine"}]


def test_the_plugin_sees_kubelets_sockets() -> None:
    """By the same paths inside as on the node, in a folder given by a value."""
    statuses = seatrial_manifests(
        "gpu", {"devicePlugin": {"kubeletFolder": "/srv/kubelet"}, "draDriver": {"enabled": True}}
    )
    for item, names in (
        ("seatrial-device-plugin", {"device-plugins", "pod-resources"}),
        ("seatrial-dra-driver", {"plugins", "plugins_registry"}),
    ):
        daemon = next(each for each in statuses if each["kind"] == "DaemonSet" and each["metadata"]["name"] == item)
        spec = daemon["spec"]["template"]["spec"]
        hosts = {volume["name"]: volume["hostPath"]["path"] for volume in spec["volumes"]}
        inside = {mount["name"]: mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
        assert {f"/srv/kubelet/{name}" for name in names} == {path for path in hosts.values() if "kubelet" in path}
        assert all(inside[name] == path for name, path in hosts.items() if path.startswith("/srv/"))


def test_unknown_values_are_refused() -> None:
    with pytest.raises(UsageError, match=r"values\.scheduler: expected one of enabled, .*, found 'replica'"):
        seatrial_manifests("gpu", {"scheduler": {"replica": 2}})


@pytest.mark.parametrize("backend", [EmbeddedBackend, EnvtestBackend])
def test_an_api_server_takes_it(backend: type[ClusterBackend]) -> None:
    """Applied on the server side twice: the second time finds the same objects."""
    missing = backend().probe()
    if missing is not None:
        pytest.skip(missing)
    with backend().start() as cluster:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "gpu"}}
        accepted(cluster.call(Request("POST", "/api/v1/namespaces", to_json(namespace))), "namespace")
        first, second = applied(cluster), applied(cluster)
    assert len(first) == len(MANIFESTS)
    assert first == second


def applied(cluster: Cluster) -> list[str]:
    """Apply all objects and return their UIDs.

    Raises:
        ApiRefused: one is refused.
    """
    uids = []
    for manifest in MANIFESTS:
        meta, version = manifest["metadata"], manifest["apiVersion"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        scope = f"/namespaces/{meta['namespace']}" if "namespace" in meta else ""
        path = f"{root}{scope}/{plural(manifest['kind'])}/{meta['name']}?fieldManager=test&force=true"
        answer = cluster.call(Request("PATCH", path, to_json(manifest), APPLY_PATCH))
        uids.append(json.loads(accepted(answer, f"{manifest['kind']} {meta['name']}").body)["metadata"]["uid"])
    return uids


def plural(kind: str) -> str:
    return f"{kind.lower().removesuffix('y')}ies" if kind.endswith("Policy") else f"{kind.lower()}s"


def test_it_ships_with_the_package() -> None:
    assert (SEATRIAL / "Chart.yaml").is_file()
    assert (SEATRIAL.parent / "Dockerfile").is_file()


@pytest.mark.parametrize(
    ("limits", "scheduler", "code"),
    [
        pytest.param({"koordinator.sh/gpu-memory": "4Gi"}, "koord-scheduler", 422, id="bytes-alone"),
        pytest.param({"koordinator.sh/gpu-memory": "4Gi", "cpu": "1"}, "koord-scheduler", 422, id="with-cpu"),
        pytest.param(
            {"koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/rdma": "1"}, "koord-scheduler", 422, id="with-a-nic"
        ),
        pytest.param({"koordinator.sh/gpu-memory": "4Gi"}, "default-scheduler", 201, id="of-another-scheduler"),
        pytest.param(
            {"koordinator.sh/gpu-memory": "4Gi", "koordinator.sh/gpu-core": "50"},
            "koord-scheduler",
            201,
            id="with-cores",
        ),
        pytest.param({"koordinator.sh/gpu-memory-ratio": "50"}, "koord-scheduler", 201, id="in-percent"),
        pytest.param({}, "koord-scheduler", 201, id="no-card"),
    ],
)
@pytest.mark.parametrize("part", ["containers", "initContainers"])
def test_a_container_that_kubelet_would_run_without_its_card_is_refused(
    limits: dict[str, str], scheduler: str, code: int, part: str
) -> None:
    api = Api()
    for manifest in OWN:
        if manifest["kind"].startswith("ValidatingAdmissionPolicy"):
            api.do("POST", f"/apis/{manifest['apiVersion']}/{plural(manifest['kind'])}", manifest)
    spec = pod("p", schedulerName=scheduler)["spec"]
    spec.setdefault(part, [{"name": "init", "image": "i"}])[0]["resources"] = {"limits": limits}
    status, answer = api.ask("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
    assert status == code, answer
    if code == 422:
        assert "a container asks for koordinator.sh/gpu-memory alone" in answer["message"]
