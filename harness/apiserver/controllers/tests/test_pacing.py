"""Workloads that order more pods than any cluster holds: the controllers pause, and the server answers in between."""

import pytest

from seatrial.harness.apiserver.controllers import pacing
from seatrial.harness.apiserver.tests.asking import PODS, Api, Object, pod

TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": pod("p")["spec"]}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
ONCE = {"template": {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
HUGE = 2_000_000_000


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        pytest.param("apps/v1/namespaces/default/replicasets", {**SELECTED, "replicas": HUGE}, id="replica-set"),
        pytest.param(
            "apps/v1/namespaces/default/statefulsets",
            {**SELECTED, "replicas": HUGE, "serviceName": "x", "podManagementPolicy": "Parallel"},
            id="stateful-set",
        ),
        pytest.param("batch/v1/namespaces/default/jobs", {**ONCE, "parallelism": HUGE, "completions": HUGE}, id="job"),
    ],
)
def test_two_billion_replicas_do_not_hold_up_the_server(
    path: str, spec: Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a pause, the event loop would not become idle, and this test would not end."""
    monkeypatch.setattr(pacing, "FREE", 0)
    api = Api()
    api.do("POST", f"/apis/{path}", {"metadata": {"name": "huge"}, "spec": spec})
    first = len(api.do("GET", PODS)["items"])
    assert 100 <= first <= 200
    api.clock.advance(1)
    assert first < len(api.do("GET", PODS)["items"]) < 10_000
