"""Pods with resource claims wait, with a message that says why; nobody is evicted for them."""

from seatrial.scheduler.api.builders import PodBuilder, pod
from seatrial.scheduler.tests.rig import Rig


def claiming(name: str, claim: str = "gpu") -> PodBuilder:
    builder = pod(name).request(cpu=4)
    builder.manifest["spec"]["resourceClaims"] = [{"name": claim, "resourceClaimTemplateName": "t"}]
    return builder


def test_a_pod_with_resource_claims_waits_and_evicts_nobody() -> None:
    """The node has one pod of low priority. A pod of the same requests without claims takes its place."""
    rig = Rig()
    rig.node("n", cpu="4")
    rig.running(pod("low").request(cpu=4), "n")
    rig.submit(claiming("p").priority(100), claiming("q", "nic").priority(100))
    rig.run()
    for name, claim in (("p", "gpu"), ("q", "nic")):
        assert rig.message(name).startswith(
            "0/1 nodes are available: resource claims are not supported by this scheduler,"
            f" found {claim}; request extended resources."
        )
    assert rig.victims() == []
    rig.delete("low")
    rig.clock.advance(400)
    rig.run()
    assert (rig.where("p"), rig.where("q")) == ("", "")
    rig.submit(pod("plain").request(cpu=4))
    rig.run()
    assert rig.where("plain") == "n"
