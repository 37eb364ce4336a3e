"""Claims of PodGroups: the members of a native gang share them, by one reservation (DRA-R124).

The gates GenericWorkload and DRAWorkloadResourceClaims are off by default: where a group's claims are dropped, the
cases are skipped.
"""

from typing import Any

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import PodBuilder, claim, claim_template, native_gang, node, pod
from seatrial.suites.dra.offers import NVIDIA, Offers, device, offers, served

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE), pytest.mark.gate("GenericWorkload", "DRAWorkloadResourceClaims")]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
CONTROLLER = "kubernetes 1.37 pkg/controller/resourceclaim"
VALIDATION = "kubernetes 1.37 staging/src/k8s.io/api/scheduling/v1beta1/types.go"


def path(trial: Trial, name: str = "") -> str:
    return f"/apis/scheduling.k8s.io/v1beta1/namespaces/{trial.name}/podgroups{name and f'/{name}'}"


def group(trial: Trial, size: int, *claims: dict[str, str]) -> str:
    """Create the group `train` with these claims; returns its uid."""
    response = trial.call("POST", path(trial), native_gang("train", size, resourceClaims=list(claims)))
    if response.code == 404:
        pytest.skip("the cluster does not serve scheduling.k8s.io/v1beta1 podgroups (feature gate GenericWorkload)")
    assert response.code == 201, response.body
    created: dict[str, Any] = orjson.loads(response.body)
    if "resourceClaims" not in created["spec"]:
        pytest.skip("the API server dropped resourceClaims of a PodGroup (feature gate DRAWorkloadResourceClaims)")
    return str(created["metadata"]["uid"])


def members(count: int, **source: str) -> list[PodBuilder]:
    return [pod(f"train-{n}").request(cpu=1).in_native_gang("train").claim("gpu", **source) for n in range(count)]


@pytest.mark.feature("DRA-6.shared")
@pytest.mark.case("DR-060", severity="critical", source=PLUGIN)
def test_members_share_the_claim_of_their_group(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One claim from the template for three members, with one reservation; all have its device, and pods with an
    entry that differs, in its name or in its template, have claims of their own."""
    trial.add(node("n1").cards(2).dra(), node("n2").cards(2).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA), claim_template("two").asks("gpu", NVIDIA))
    uid = group(trial, 3, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(3, template="one"))

    bound = expect.running("train-0", "train-1", "train-2")

    names = {offers.claim_of(one.metadata.name) for one in bound}
    assert len(names) == 1, names
    claim = offers.claim(names.pop())
    assert claim.metadata.name.startswith("train-gpu-")
    assert [(owner.kind, owner.uid) for owner in claim.metadata.owner_references] == [("PodGroup", uid)]
    assert [(user.api_group, user.resource, user.uid) for user in claim.status.reserved_for] == [
        ("scheduling.k8s.io", "podgroups", uid)
    ]
    assert len({(one.spec.node_name, *trial.visible_devices(one)) for one in bound}) == 1
    status = orjson.loads(trial.call("GET", path(trial, "train")).body)["status"]
    assert status["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": claim.metadata.name}]
    for name, entry, template in (("alone", "other", "one"), ("odd", "gpu", "two")):
        trial.submit(pod(name).in_native_gang("train").claim(entry, template=template))
        user = expect.running(name)
        made = offers.claim_of(name, entry)
        assert made.startswith(f"{name}-{entry}-")
        assert [consumer.uid for consumer in offers.claim(made).status.reserved_for] == [user.metadata.uid]


@pytest.mark.feature("DRA-6.shared")
@pytest.mark.case("DR-061", severity="normal", source=PLUGIN)
def test_a_group_shares_a_claim_by_its_name(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The group and its pods name a claim that is there: the group alone is its user."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim("shared").asks("gpu", NVIDIA))
    uid = group(trial, 2, {"name": "gpu", "resourceClaimName": "shared"})
    trial.submit(*members(2, name="shared"))

    expect.running("train-0", "train-1")

    assert [user.uid for user in offers.claim("shared").status.reserved_for] == [uid]


@pytest.mark.feature("DRA-6.lasts")
@pytest.mark.case("DR-062", severity="critical", source=CONTROLLER)
def test_the_claim_of_a_group_lives_as_long_as_the_group(trial: Trial, expect: Expect, offers: Offers) -> None:
    """When the members are gone the device stays the group's; when the group is gone another pod gets it."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    group(trial, 2, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(2, template="one"))
    expect.running("train-0", "train-1")
    name = offers.claim_of("train-0")
    trial.delete("train-0", "train-1")
    trial.submit(pod("next").claim("gpu", template="one"))
    expect.pending("next", saying="cannot allocate all claims")
    assert len(offers.devices_of(name)) == 1

    assert trial.call("DELETE", path(trial, "train")).ok

    expect.running("next", within=60)
    assert trial.call("GET", trial.path("ResourceClaim", name)).code == 404


@pytest.mark.feature("DRA-6.waits")
@pytest.mark.case("DR-063", severity="normal", source=CONTROLLER)
def test_members_wait_for_the_claim_of_their_group(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The template comes last: no member gets a claim of its own meanwhile."""
    trial.add(node("n1").cards(2).dra())
    group(trial, 2, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(2, template="one"))
    expect.stable(seconds=5)
    assert not offers.claim_of("train-0")

    trial.apply(claim_template("one").asks("gpu", NVIDIA))

    expect.running("train-0", "train-1", within=60)
    assert offers.claim_of("train-0") == offers.claim_of("train-1")


@pytest.mark.feature("DRA-6.validated")
@pytest.mark.case("DR-064", severity="normal", source=VALIDATION)
def test_bad_claims_of_a_group_are_refused(trial: Trial) -> None:
    """More than four, two with one name, one without a source and one with two."""
    entry = {"name": "gpu", "resourceClaimName": "a"}
    group(trial, 1, entry)
    wrong = [
        [{"name": f"c{number}", "resourceClaimName": "a"} for number in range(5)],
        [entry, entry],
        [{"name": "gpu"}],
        [{**entry, "resourceClaimTemplateName": "b"}],
        [{**entry, "name": "Not A Label"}],
    ]
    for claims in wrong:
        response = trial.call("POST", path(trial), native_gang("wrong", 1, resourceClaims=claims))
        assert (response.code, "spec.resourceClaims" in str(response.body)) == (422, True), response.body
    changed = {"spec": {"resourceClaims": [{**entry, "resourceClaimName": "other"}]}}
    assert trial.call("PATCH", path(trial, "train"), changed).code == 422


@pytest.mark.feature("DRA-6.lasts")
@pytest.mark.case("DR-065", severity="normal", source=PLUGIN)
@pytest.mark.parametrize("restarted", [False, True], ids=["running", "restarted"])
def test_a_group_gives_devices_back_where_its_members_have_no_room(
    trial: Trial, expect: Expect, offers: Offers, subject: Subject | None, *, restarted: bool
) -> None:
    """The members of a group are gone, and their place is taken; their claim still has a device there. New members
    run on the other node, with a device there; so too after a restart of the scheduler."""
    trial.add(*[node(name).cpu(2).cards(1).dra().label("host", name) for name in ("n1", "n2")])
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    group(trial, 2, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(2, template="one"))
    before, _ = expect.running("train-0", "train-1")
    trial.delete("train-0", "train-1")
    expect.gone("train-0", "train-1")
    trial.submit(pod("other").request(cpu=2).on(host=before.spec.node_name))
    expect.running("other")

    if restarted:
        if subject is None:
            pytest.skip("needs a scheduler that the harness started; this one runs elsewhere")
        subject.kill()
        subject.start_again()

    trial.submit(*members(2, template="one"))

    after, _ = expect.running("train-0", "train-1", within=60)
    assert after.spec.node_name != before.spec.node_name
    assert len(offers.devices_of(offers.claim_of("train-0"))) == 1


@pytest.mark.feature("DRA-6.lasts")
@pytest.mark.case("DR-066", severity="critical", source=PLUGIN)
def test_a_group_keeps_devices_that_a_member_uses(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two members run with the claim of their group. A third one, for which there is room on another node only, waits,
    and the claim keeps its device."""
    trial.add(*[node(name).cpu(2).cards(1).dra() for name in ("n1", "n2")])
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    group(trial, 2, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(2, template="one"))
    expect.running("train-0", "train-1")
    devices = offers.devices_of(offers.claim_of("train-0"))

    trial.submit(members(3, template="one")[2])

    expect.pending("train-2")
    expect.stable(seconds=5)
    assert offers.devices_of(offers.claim_of("train-0")) == devices


@pytest.mark.feature("DRA-6.shared", "DRA-3.evicts")
@pytest.mark.case(
    "DR-209", severity="normal", source="kubernetes 1.37 pkg/controller/devicetainteviction; spec DRA-R120"
)
def test_all_members_leave_a_device_that_fails(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The device of a group's claim has to be left: both members are evicted, a pod with a claim of its own is not."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    trial.apply(claim_template("one").asks("gpu", offers.of_class))
    group(trial, 2, {"name": "gpu", "resourceClaimTemplateName": "one"})
    trial.submit(*members(2, template="one"))
    expect.running("train-0", "train-1")
    trial.submit(pod("other").claim("gpu", template="one"))
    expect.running("other")
    (used,) = offers.devices_of(offers.claim_of("train-0"))

    offers.taint("NoExecute", device=used.partition("=")[2])

    expect.gone("train-0", "train-1")
    expect.running("other")
