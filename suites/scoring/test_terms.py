"""Node selector terms and image names as the API defines them, where the obvious reading is another one."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod

pytestmark = [pytest.mark.needs(Capability.NODES)]

HOST = "kubernetes.io/hostname"


def requiring(name: str, *terms: object) -> PodBuilder:
    builder = pod(name)
    builder.manifest["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    }
    return builder


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-170", severity="normal")
def test_an_empty_term_selects_no_node(trial: Trial, expect: Expect) -> None:
    """A pod whose only term is empty waits; with a second term that holds it is placed."""
    trial.add(node("n1").label("disk", "fast"))
    holds = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["fast"]}]}
    trial.submit(requiring("nothing", {}), requiring("either", {}, holds))
    expect.bound("either")
    expect.pending("nothing")
    expect.stable(seconds=3)


@pytest.mark.feature("SCORE-4.selectors")
@pytest.mark.case("SC-171", severity="critical")
@pytest.mark.parametrize("expected", ["n1", "n2", "n3"])
def test_a_field_names_the_node(trial: Trial, expect: Expect, expected: str) -> None:
    """matchFields with metadata.name, In and NotIn, choose the named node, though it is the fullest."""
    trial.add(*(node(name).cpu(8) for name in ("n1", "n2", "n3")))
    trial.submit(pod("crowd").request(cpu=6).select({HOST: expected}))
    expect.bound("crowd")
    fields = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [expected]}]}
    large = requiring("large", fields).request(cpu=4)
    trial.submit(requiring("small", fields).request(cpu=1), large)
    assert expect.bound("small").spec.node_name == expected
    expect.pending("large")
    others = [name for name in ("n1", "n2", "n3") if name != expected]
    not_in = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [name]} for name in others]}
    trial.submit(requiring("neither", not_in).request(cpu=1), requiring("too-large", not_in).request(cpu=4))
    assert expect.bound("neither").spec.node_name == expected
    expect.pending("too-large")


@pytest.mark.feature("SCORE-4.images")
@pytest.mark.case("SC-172", severity="normal")
@pytest.mark.parametrize("holder", ["n1", "n2"])
def test_an_image_without_a_tag_is_the_latest(trial: Trial, expect: Expect, holder: str) -> None:
    """A node reports `…/model:latest`; a pod that names the image without a tag goes there, though it is fuller."""
    trial.add(*(node(name).cpu(100).memory("100Gi") for name in ("n1", "n2")))
    trial.submit(pod("crowd").request(cpu=10, memory="10Gi").select({HOST: holder}))
    expect.bound("crowd")
    image = {"names": ["registry.example:5000/model:latest"], "sizeBytes": 1800 << 20}
    assert trial.call("PATCH", f"/api/v1/nodes/{holder}/status", {"status": {"images": [image]}}).ok
    builder = pod("a").request(cpu=1, memory="1Gi")
    builder.manifest["spec"]["containers"][0]["image"] = "registry.example:5000/model"
    trial.submit(builder)
    assert expect.bound("a").spec.node_name == holder
    expect.refusal()


@pytest.mark.feature("SCORE-4.balance")
@pytest.mark.case("SC-173", severity="normal")
@pytest.mark.parametrize(("better", "worse"), [("n1", "n2"), ("n2", "n1")])
def test_balance_counts_the_pod_itself(trial: Trial, expect: Expect, better: str, worse: str) -> None:
    """Before the pod comes the worse node is the balanced one; with its CPUs counted, the other one is."""
    trial.add(*(node(name).cpu(100).memory("100Gi") for name in ("n1", "n2")))
    trial.submit(
        pod("on-better").request(cpu=40, memory="60Gi").select({HOST: better}),
        pod("on-worse").request(cpu=50, memory="50Gi").select({HOST: worse}),
    )
    expect.bound("on-better", "on-worse")
    trial.submit(pod("a").request(cpu=20, memory="1Mi"))
    assert expect.bound("a").spec.node_name == better
    expect.refusal()
