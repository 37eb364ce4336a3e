"""Gangs whose members have claims that wait for their first consumer."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import gang, node
from seatrial.suites.gang.members import names, workers
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, on_host, storage

__all__ = ["storage"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]


@pytest.mark.feature("GANG-1.all-or-nothing")
@pytest.mark.case("GA-131", severity="critical")
def test_a_gang_gets_all_its_volumes_or_none(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """Two members and one volume: no member is bound, and no claim; with a second volume both are."""
    storage.of_class()
    trial.add(node("n1").cards(2), node("n2").cards(2))
    trial.apply(gang("train", 2))
    first = storage.volume("first", "n1")
    pods, claims = workers("train", 2), ["claim-0", "claim-1"]
    for member, claim in zip(pods, claims, strict=True):
        storage.claim(claim)
        member.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    trial.submit(*pods)
    expect.stable(seconds=5)
    assert not [pod.metadata.name for pod in trial.pods() if pod.spec.node_name]
    assert [storage.seen(claim)["status"]["phase"] for claim in claims] == ["Pending", "Pending"]

    second = storage.volume("second", "n2")

    expect.bound(*names("train", 2), within=60)
    assert {storage.volume_of(claim) for claim in claims} == {first, second}


@pytest.mark.feature("GANG-1.all-or-nothing", "SCORE-4.volumes")
@pytest.mark.case(
    "GA-132",
    severity="critical",
    source="kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go@v1.34: AssumePodVolumes",
)
@pytest.mark.parametrize("made", [True, False], ids=["made", "found"])
def test_members_of_a_gang_share_a_claim(trial: Trial, expect: Expect, storage: StorageOfCase, made: bool) -> None:
    """What was chosen for the claim with the first member holds for the others before it is written: all members are
    on one node, though others are emptier and have a volume, too."""
    storage.of_class(PROVISIONER if made else "kubernetes.io/no-provisioner")
    homes = [f"n{number}" for number in range(3)]
    trial.add(*(node(name).cards(2).cpu(32) for name in homes))
    if not made:
        for home in homes:
            storage.volume(home, home)
    trial.apply(gang("train", 2))
    storage.claim("c")
    trial.settle()
    pods = workers("train", 2)
    for member in pods:
        member.manifest["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": "c"}}]
    trial.submit(*pods)
    if made:
        home = storage.selected_node("c")
        storage.made("c", nodeAffinity=on_host(home))  # a member whose write of the claim was refused follows later
    first, second = expect.bound(*names("train", 2), within=60)
    assert first.spec.node_name == second.spec.node_name
    if not made:
        assert storage.volume_of("c") == f"{trial.name}-{first.spec.node_name}"
