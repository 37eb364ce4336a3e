"""Planted breaches of a node agent: each is reported under its ID, and what is no breach is not."""

import json
from typing import Any

import msgspec
import pytest

from seatrial.harness.audit.agent_rules import AGENT_INVARIANTS, AgentView, agent_breaches
from seatrial.scheduler.api.core import Pod

PROD = {"koordinator.sh/priority-class": "koord-prod"}


def pod(labels: dict[str, str] | None = None, *, cpuset: str = "", extended: str = "", priority: int = 0) -> Pod:
    annotations = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": cpuset})} if cpuset else {}
    annotations |= {"node.koordinator.sh/extended-resource-spec": extended} if extended else {}
    metadata = {"name": "p", "namespace": "d", "uid": "p", "labels": labels or {}, "annotations": annotations}
    return msgspec.convert({"metadata": metadata, "spec": {"priority": priority}}, Pod)


EXCLUSIVE = pod({"koordinator.sh/qosClass": "LSE"}, cpuset="0-1")
LENT = pod({"koordinator.sh/qosClass": "LSR"}, cpuset="0-1")
BATCH_LIMITS = {"kubernetes.io/batch-cpu": "2k", "kubernetes.io/batch-memory": "1Gi"}
SPEC = {"containers": {"a": {"requests": BATCH_LIMITS, "limits": BATCH_LIMITS}}}
LIMITED = pod({"koordinator.sh/qosClass": "BE"}, extended=json.dumps(SPEC))
WRITTEN = (2048, 200_000, 1 << 30)
AGREES = {"koordinator.sh/eviction-enabled": "true"}


@pytest.mark.parametrize(
    ("name", "pod", "more"),
    [
        pytest.param("AUD-701", EXCLUSIVE, {"suppressing": True}, id="exclusive-cpus"),
        pytest.param("", EXCLUSIVE, {}, id="nothing-is-suppressed"),
        pytest.param("", LENT, {"suppressing": True}, id="lent-cpus"),
        pytest.param("", EXCLUSIVE, {"suppressing": True, "best_effort_cpus": {"be": "2-7"}}, id="other-cpus"),
        pytest.param("AUD-702", pod(PROD), {"evicted": frozenset({"p"})}, id="prod-by-label"),
        pytest.param("AUD-702", pod(priority=9500), {"evicted": frozenset({"p"})}, id="prod-by-priority"),
        pytest.param("", pod(AGREES, priority=9500), {"evicted": frozenset({"p"})}, id="prod-that-agrees"),
        pytest.param("", pod(priority=5500), {"evicted": frozenset({"p"})}, id="batch"),
        pytest.param("", pod(PROD), {}, id="not-evicted"),
        pytest.param("", LIMITED, {"quotas": {"p": WRITTEN}}, id="as-its-annotation"),
        pytest.param("", LIMITED, {"quotas": {"p": (2048, -1, 1 << 30)}, "lifted": True}, id="suppressed-by-quota"),
        pytest.param("AUD-704", LIMITED, {"quotas": {"p": (2, 200_000, 1 << 30)}}, id="other-shares"),
        pytest.param("AUD-704", LIMITED, {"quotas": {"p": (2048, -1, 1 << 30)}}, id="no-quota"),
        pytest.param("AUD-704", LIMITED, {"quotas": {"p": (2048, 200_000, -1)}}, id="no-limit-of-memory"),
        pytest.param("", pod(extended='{"containers":' * 9999), {"quotas": {"p": WRITTEN}}, id="unreadable-annotation"),
    ],
)
def test_planted_breaches(name: str, pod: Pod, more: dict[str, Any]) -> None:
    view = AgentView(**{"pods": {"p": pod}, "best_effort_cpus": {"kubepods/besteffort": "1-3"}, **more})
    assert [text.partition(" ")[0] for text in agent_breaches(view)] == ([name] if name else [])


def test_ids() -> None:
    assert [each.id for each in AGENT_INVARIANTS] == ["AUD-701", "AUD-702", "AUD-704"]
