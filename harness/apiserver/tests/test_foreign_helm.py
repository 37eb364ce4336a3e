"""Helm 3, unchanged: a chart that it makes itself, and the chart of our HAMi daemons."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from seatrial.harness.apiserver.tests.foreign import WITHIN, binary, read
from seatrial.harness.clusters.embedded import EmbeddedCluster
from seatrial.harness.hami.chart import CHART, manifests


class Helm:
    """One binary, one namespace."""

    def __init__(self, program: str, embedded: EmbeddedCluster, namespace: str, home: Path) -> None:
        assert embedded.endpoint is not None
        self._words = [program, "--kubeconfig", str(embedded.endpoint.kubeconfig), "--namespace", namespace]
        self._env = {**os.environ, "HOME": str(home)}

    def __call__(self, *words: str) -> str:
        done = subprocess.run(
            [*self._words, *words], env=self._env, capture_output=True, text=True, timeout=2 * WITHIN, check=False
        )
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    def listed(self) -> list[tuple[str, str, str]]:
        """Name, revision and status of the releases."""
        document: list[dict[str, Any]] = json.loads(self("list", "--output", "json"))
        return [(release["name"], release["revision"], release["status"]) for release in document]


@pytest.fixture
def helm(embedded: EmbeddedCluster, namespace: str, tmp_path: Path) -> Helm:
    return Helm(binary("helm"), embedded, namespace, tmp_path)


def test_the_life_of_a_release(helm: Helm, embedded: EmbeddedCluster, namespace: str, tmp_path: Path) -> None:
    chart = tmp_path / "boat"
    helm("create", str(chart))
    # This cluster has no scheduler: pods get their node from the template.
    template = chart / "templates" / "deployment.yaml"
    template.write_text(
        template.read_text().replace("      containers:", "      nodeName: cpu-0\n      containers:", 1)
    )
    deployment = f"/apis/apps/v1/namespaces/{namespace}/deployments/dory-boat"
    secrets = f"/api/v1/namespaces/{namespace}/secrets"

    helm("install", "dory", str(chart), "--wait", "--timeout", "30s")
    assert helm.listed() == [("dory", "1", "deployed")]
    assert read(embedded, deployment)["status"]["readyReplicas"] == 1

    helm("upgrade", "dory", str(chart), "--set", "replicaCount=3", "--wait", "--timeout", "30s")
    assert read(embedded, deployment)["status"]["readyReplicas"] == 3
    assert helm.listed() == [("dory", "2", "deployed")]

    helm("rollback", "dory", "1", "--wait", "--timeout", "30s")
    assert read(embedded, deployment)["spec"]["replicas"] == 1
    history = json.loads(helm("history", "dory", "--output", "json"))
    assert [release["status"] for release in history] == ["superseded", "superseded", "deployed"]
    assert len(read(embedded, secrets)["items"]) == 3

    helm("uninstall", "dory", "--wait")
    assert helm.listed() == []
    assert not read(embedded, deployment)
    assert not read(embedded, secrets)["items"]


def test_the_chart_of_our_daemons(helm: Helm, embedded: EmbeddedCluster, namespace: str) -> None:
    """Daemon pods need a scheduler to run, so this one does not wait for them."""
    sets = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
    helm("install", "hami", str(CHART), "--dry-run=server")
    assert not read(embedded, sets)["items"]
    helm("install", "hami", str(CHART))
    assert [item["status"]["desiredNumberScheduled"] > 0 for item in read(embedded, sets)["items"]] == [True, True]
    helm("upgrade", "hami", str(CHART), "--reuse-values")
    helm("rollback", "hami", "1")
    assert helm.listed() == [("hami", "3", "deployed")]
    helm("uninstall", "hami")
    assert not read(embedded, sets)["items"]


def test_our_reader_renders_what_helm_renders(helm: Helm, namespace: str) -> None:
    rendered = [document for document in yaml.safe_load_all(helm("template", "hami", str(CHART))) if document]
    expected = manifests(namespace)
    assert len(rendered) == len(expected) > 0
    assert all(document in expected for document in rendered)
