"""LimitRanges: defaults of pods, and upstream's messages on violations."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running


def limit_range(bench: Bench, kind: str = "Container", **limits: Any) -> None:
    bench.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [{"type": kind, **limits}]}})


def pod(requests: dict[str, Any] | None = None, limits: dict[str, Any] | None = None) -> dict[str, Any]:
    resources = {name: value for name, value in (("requests", requests), ("limits", limits)) if value}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img", "resources": resources}]}}


def test_containers_without_resources_get_defaults_and_an_annotation() -> None:
    with running(nodes=0) as bench:
        limit_range(bench, default={"cpu": "1", "memory": "1Gi"}, defaultRequest={"cpu": "500m", "memory": "1Gi"})
        made = bench.create("pods", pod())
        assert made["spec"]["containers"][0]["resources"] == {
            "requests": {"cpu": "500m", "memory": "1Gi"},
            "limits": {"cpu": "1", "memory": "1Gi"},
        }
        assert made["status"]["qosClass"] == "Burstable"
        assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
            "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c"
        )


def test_explicit_resources_are_kept() -> None:
    with running(nodes=0) as bench:
        limit_range(bench, default={"cpu": "1"}, defaultRequest={"cpu": "500m"})
        made = bench.create("pods", pod({"cpu": "100m"}, {"cpu": "200m"}))
        assert made["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "100m"}, "limits": {"cpu": "200m"}}
        assert "annotations" not in made["metadata"]


@pytest.mark.parametrize(
    ("rule", "requests", "limits", "why"),
    [
        pytest.param(
            {"min": {"cpu": "200m"}},
            {"cpu": "100m"},
            {"cpu": "1"},
            "minimum cpu usage per Container is 200m, but request is 100m",
            id="too-little",
        ),
        pytest.param(
            {"min": {"cpu": "200m"}, "defaultRequest": {"memory": "1Mi"}},
            {"cpu": "100m"},
            None,
            "minimum cpu usage per Container is 200m, but request is 100m",
            id="too-little-without-a-limit",
        ),
        pytest.param(
            {"max": {"memory": "1Gi"}},
            None,
            {"memory": "2Gi"},
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
            id="too-much",
        ),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": 2}},
            {"cpu": "100m"},
            {"cpu": "500m"},
            "cpu max limit to request ratio per Container is 2, but provided ratio is 5.000000",
            id="too-uneven",
        ),
        pytest.param(
            {"maxLimitRequestRatio": {"cpu": 2}},
            None,
            None,
            "cpu max limit to request ratio per Container is 2, but no request is specified or request is 0",
            id="nothing-to-compare",
        ),
    ],
)
def test_refusals(rule: dict[str, Any], requests: dict[str, Any], limits: dict[str, Any], why: str) -> None:
    with running(nodes=0) as bench:
        limit_range(bench, **rule)
        refused = bench.create("pods", pod(requests, limits), code=403)
        assert refused["message"] == f'pods "p" is forbidden: {why}'


def test_limits_per_pod() -> None:
    with running(nodes=0) as bench:
        limit_range(bench, "Pod", max={"cpu": "1"})
        body = pod({"cpu": "600m"}, {"cpu": "600m"})
        body["spec"]["containers"].append({**body["spec"]["containers"][0], "name": "d"})
        refused = bench.create("pods", body, code=403)
        assert refused["message"] == 'pods "p" is forbidden: maximum cpu usage per Pod is 1, but limit is 1200m'


def test_a_volume_claim() -> None:
    with running(nodes=0) as bench:
        limit_range(bench, "PersistentVolumeClaim", max={"storage": "2Gi"})
        claim = {
            "metadata": {"name": "v"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
        }
        refused = bench.create("persistentvolumeclaims", claim, code=403)
        assert refused["message"].endswith(
            "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 10Gi"
        )
