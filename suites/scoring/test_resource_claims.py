"""Pods with claims of dynamic resource allocation."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.scoring.rules import pod_with

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("SCORE-4.resource-claims")
@pytest.mark.case("SC-294", severity="critical", source="kubernetes 1.34 plugins/dynamicresources: PreEnqueue")
def test_a_pod_without_its_resource_claim_is_not_bound(trial: Trial, expect: Expect) -> None:
    """Pods whose claim does not exist are not bound, nor is a lesser pod evicted for them; a plain pod is bound."""
    trial.apply(priority_class("trial-high", 1000))
    trial.add(node("n1").cpu(8))
    trial.submit(pod("low").request(cpu=5))
    expect.bound("low")
    for name, source in (
        ("by-name", {"resourceClaimName": "no"}),
        ("by-template", {"resourceClaimTemplateName": "no"}),
    ):
        trial.submit(
            pod_with(name, resourceClaims=[{"name": "gpu", **source}]).request(cpu=5).priority_class("trial-high")
        )
    trial.submit(pod_with("small", resourceClaims=[{"name": "gpu", "resourceClaimName": "no"}]).request(cpu=1))
    trial.submit(pod("plain").request(cpu=1))
    expect.bound("plain")
    expect.stable(seconds=5)
    unbound = [pod.metadata.name for pod in trial.pods() if not pod.spec.node_name]
    assert unbound == ["by-name", "by-template", "small"]
