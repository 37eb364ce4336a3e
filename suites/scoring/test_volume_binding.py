"""Claims that wait for their first consumer: the scheduler chooses the volume, or the node where one is made."""

from pathlib import Path

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.fault_injection.transport import Link, nothing, volume_writes
from seatrial.harness.clusters.protocol import Capability, ClusterBackend
from seatrial.scheduler.api.builders import node, pod
from seatrial.suites.faults.schedulers import link, pause, running, with_arguments, witnessed
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, storage
from seatrial.suites.scoring.rules import HOST, ZONE, patch, pod_with

__all__ = ["link", "running", "storage"]

pytestmark = [pytest.mark.needs(Capability.NODES)]


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-270", severity="critical")
@pytest.mark.parametrize(("home", "key"), [("n1", HOST), ("n2", ZONE)])
def test_a_pod_gets_the_volume_of_its_node(
    trial: Trial, expect: Expect, storage: StorageOfCase, home: str, key: str
) -> None:
    """A pod with an unbound claim goes to the fuller node, which has the volume, and the claim is bound to that."""
    storage.of_class()
    zones = {"n1": "zone-1", "n2": "zone-2"}  # no names of nodes: a volume of a zone is not one of a node
    trial.add(*(node(name).cpu(32).label(ZONE, zone) for name, zone in zones.items()))
    trial.submit(pod("crowd").request(cpu=16, memory="1Gi").select({HOST: home}))
    expect.bound("crowd")
    volume = storage.volume("v", zones[home] if key == ZONE else home, key=key)
    storage.claim("c")
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == home
    assert storage.volume_of("c") == volume
    storage.claim("d")
    storage.submit("q", "d", nodeSelector={HOST: "n2" if home == "n1" else "n1"})
    expect.pending("q", saying="available persistent volumes to bind")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-271", severity="critical")
@pytest.mark.long(seconds=4)
def test_two_pods_do_not_get_one_volume(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """Of two pods one gets the only free volume; the other waits, and goes when there is a second one."""
    storage.of_class()
    trial.add(node("n1"), node("n2"))
    trial.settle()
    names = {"a": "claim-a", "b": "claim-b"}
    first = storage.volume("first", "n1")
    for name, claim in names.items():
        storage.claim(claim)
        storage.submit(name, claim)

    def placed() -> list[str]:
        return [name for name in names if trial.pod(name).spec.node_name]

    assert trial.reaches(lambda: bool(placed()), within=30), "expected one of both pods to be bound, found none"
    lines = placed()
    assert len(lines) == 1, f"expected one pod to get the volume, found {', '.join(lines)}"
    lucky, (waiting,) = lines[0], names.keys() - set(lines)
    expect.pending(waiting, saying="available persistent volumes to bind")
    expect.stable(seconds=3)
    assert storage.volume_of(names[lucky]) == first
    second = storage.volume("second", "n2")
    assert expect.bound(waiting).spec.node_name == "n2"
    assert storage.volume_of(names[waiting]) == second


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-272", severity="critical")
def test_the_smallest_volume_that_suffices(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """Of volumes of 8, 1, 3 and 5 Gi a claim of 2 Gi gets that of 3, and one of 4 Gi that of 5; one of 9 Gi waits."""
    storage.of_class()
    trial.add(node("n1"))
    volumes = {size: storage.volume(name, "n1", f"{size}Gi") for name, size in zip("abcd", (8, 1, 3, 5), strict=True)}
    trial.settle()
    for target, size in ((2, 3), (4, 5)):
        storage.claim(f"c-{target}", f"{target}Gi")
        storage.submit(f"p-{target}", f"c-{target}")
        expect.bound(f"p-{target}")
        assert storage.volume_of(f"c-{target}") == volumes[size]
    storage.claim("c-9", "9Gi")
    storage.submit("p-9", "c-9")
    expect.pending("p-9", saying="available persistent volumes to bind")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-273", severity="normal")
def test_a_claim_selects_its_volume(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """A claim with a label selector gets the larger volume on the second node, which alone has the label."""
    storage.of_class()
    trial.add(node("n1").cpu(32), node("n2").cpu(32))
    trial.submit(pod("crowd").request(cpu=16, memory="1Gi").select({HOST: "n2"}))
    expect.bound("crowd")
    storage.volume("slow", "n1", "1Gi", speed="slow")
    fast = storage.volume("fast", "n2", "9Gi", speed="fast")
    storage.claim("c", selector={"matchLabels": {"speed": "fast"}})
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == "n2"
    assert storage.volume_of("c") == fast


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-274", severity="critical")
@pytest.mark.parametrize("home", ["n1", "n2"])
def test_a_provisioner_is_told_the_node(trial: Trial, expect: Expect, storage: StorageOfCase, home: str) -> None:
    """The claim is marked with the node of the allowed zone; the pod is bound once a volume for the claim is made."""
    storage.of_class(PROVISIONER, allowedTopologies=[{"matchLabelExpressions": [{"key": ZONE, "values": [home]}]}])
    trial.add(*(node(name).cpu(32).label(ZONE, name) for name in ("n1", "n2")))
    trial.submit(pod("crowd").request(cpu=16, memory="1Gi").select({HOST: home}))
    expect.bound("crowd")
    storage.claim("c")
    storage.submit("p", "c")
    assert storage.selected_node("c") == home
    trial.settle(3)
    assert not trial.pod("p").spec.node_name, "bound before its claim"
    volume = storage.made("c")
    assert expect.bound("p").spec.node_name == home
    assert storage.volume_of("c") == volume


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-280", severity="critical")
@pytest.mark.needs(Capability.VIRTUAL_TIME)
def test_a_provisioner_that_makes_nothing(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """No volume is made in ten minutes, the time that VolumeBinding waits: another pod gets the room on the node."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1").cpu(8))
    storage.claim("c")
    claim = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
    trial.submit(pod_with("p", volumes=[claim]).request(cpu=6))
    assert storage.selected_node("c") == "n1"
    trial.submit(pod("next").request(cpu=6))
    expect.pending("next")
    trial.pass_time(500)
    assert not trial.pod("next").spec.node_name, "bound before the ten minutes were over"

    expect.bound("next", within=400)
    expect.pending("p")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case(
    "SC-529", severity="normal", source="kubernetes v1.28: volumebinding/volume_binding.go, BindTimeoutSeconds"
)
@pytest.mark.needs(Capability.VIRTUAL_TIME)  # a scheduler of its own
def test_the_time_that_a_provisioner_has_is_an_argument(
    seatrial_backend: ClusterBackend, pytestconfig: pytest.Config, tmp_path: Path
) -> None:
    """With bindTimeoutSeconds of 60 another pod gets the room on the node after one minute."""
    subject = pytestconfig.getoption("--seatrial-subject")
    arguments = {"bindTimeoutSeconds": 60}
    profile = "default-scheduler"
    with with_arguments(seatrial_backend, subject, tmp_path, "VolumeBinding", arguments, profile=profile) as trial:
        expect, storage = Expect(trial), StorageOfCase(trial)
        storage.of_class(PROVISIONER)
        trial.add(node("n1").cpu(8))
        storage.claim("c")
        claim = {"name": "c", "persistentVolumeClaim": {"claimName": "c"}}
        trial.submit(pod_with("p", volumes=[claim]).request(cpu=6))
        assert storage.selected_node("c") == "n1"
        trial.submit(pod("next").request(cpu=6))
        expect.pending("next")
        trial.pass_time(30)
        assert not trial.pod("next").spec.node_name, "bound before the minute was over"
        expect.bound("next", within=60)


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-290", severity="critical")
@pytest.mark.parametrize("home", ["n1", "n2"])
def test_a_provisioner_is_told_the_node_of_an_ephemeral_volume(
    trial: Trial, expect: Expect, storage: StorageOfCase, home: str
) -> None:
    """The claim of a generic ephemeral volume is marked with the pod's node, and the pod waits until it is bound.

    Source: kubernetes VolumeBinding; a generic ephemeral volume is the claim POD-VOLUME.
    """
    storage.of_class(PROVISIONER)
    trial.add(node("n1"), node("n2"))
    trial.submit(pod_with("p", volumes=[storage.ephemeral("scratch")], nodeSelector={HOST: home}))
    assert storage.selected_node("p-scratch") == home
    trial.settle(3)
    assert not trial.pod("p").spec.node_name, "bound before its claim"
    volume = storage.made("p-scratch")
    assert expect.bound("p").spec.node_name == home
    assert storage.volume_of("p-scratch") == volume


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case("SC-291", severity="critical")
def test_a_pod_does_not_use_another_claim_for_its_ephemeral_volume(
    trial: Trial, expect: Expect, storage: StorageOfCase
) -> None:
    """A claim with the name POD-VOLUME that nobody made for the pod keeps the pod waiting; another pod is bound.

    Source: kubernetes VolumeBinding, "PVC ... was not created for pod ... (pod is not owner)".
    """
    storage.of_class()
    trial.add(node("n1"))
    trial.settle()
    for name in ("for-p", "for-q"):
        storage.volume(name, "n1")
    storage.claim("p-scratch")
    volumes = [storage.ephemeral("scratch")]
    trial.submit(pod_with("p", volumes=volumes), pod_with("q", volumes=volumes))
    expect.bound("q")
    expect.pending("p", saying="was not created for pod")


@pytest.mark.feature("SCORE-4.volumes")
@pytest.mark.case(
    "SC-429",
    severity="critical",
    source="kubernetes staging/src/k8s.io/component-helpers/storage/ephemeral/ephemeral.go@v1.34: VolumeIsForPod",
)
@pytest.mark.parametrize("owner", ["another-pod", "no-controller"])
def test_who_controls_the_claim_of_an_ephemeral_volume(
    trial: Trial, expect: Expect, storage: StorageOfCase, owner: str
) -> None:
    """Another pod controls the claim of the pod's ephemeral volume, or the pod owns it without controlling it."""
    storage.of_class()
    trial.add(node("n1"))
    storage.volume("v", "n1")
    trial.submit(pod_with("p", volumes=[storage.ephemeral("scratch")], schedulingGates=[{"name": "example.com/later"}]))
    path = trial.path("PersistentVolumeClaim", "p-scratch")
    assert trial.reaches(lambda: trial.call("GET", path).ok, within=30)
    (reference,) = storage.seen("p-scratch")["metadata"]["ownerReferences"]
    trial.submit(pod("other"))
    changed = (
        {"name": "other", "uid": trial.pod("other").metadata.uid} if owner == "another-pod" else {"controller": False}
    )
    patch(trial, path, {"metadata": {"ownerReferences": [{**reference, **changed}]}})
    trial.settle()
    patch(trial, trial.path("Pod", "p"), {"spec": {"schedulingGates": []}})
    expect.pending("p", saying="was not created for pod")


@pytest.mark.feature("HIL-4.api-errors", "SCORE-4.volumes")
@pytest.mark.case(
    "SC-528",
    severity="normal",
    source="kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go@v1.34: checkBindings, resource versions",
)
@pytest.mark.parametrize("way", ["volume", "provisioner"])
@pytest.mark.long(seconds=10)
def test_events_that_come_after_the_answer(
    trial: Trial, expect: Expect, link: Link, storage: StorageOfCase, way: str
) -> None:
    """The scheduler writes what it has chosen, at the second try, and learns that by the answer alone for a while: it
    does not take the state before for a choice that was undone."""
    storage.of_class(*([PROVISIONER] if way == "provisioner" else []))
    trial.add(node("n1"))
    witnessed(trial, expect)
    if way == "volume":
        storage.volume("v", "n1")
    storage.claim("c")
    trial.settle()
    link.refuse(500, volume_writes)
    storage.submit("p", "c")
    assert trial.wait(lambda: link.refused >= 1, within=60), "expected a try to write what was chosen"
    link.hold_streams()
    link.refuse(500, nothing)
    pause(trial, 10, real=10)
    link.heal()
    if way == "provisioner":
        storage.made("c")
    expect.bound("p", within=60)
    assert not [event for event in trial.events("p") if "binding volumes" in event.message]


@pytest.mark.feature("HIL-4.api-errors", "SCORE-4.volumes")
@pytest.mark.case(
    "SC-600",
    severity="critical",
    source="kubernetes pkg/scheduler/framework/plugins/volumebinding/binder.go@v1.34: RevertAssumedPodVolumes",
)
@pytest.mark.long(seconds=10)
def test_a_volume_that_was_not_given_to_a_claim(
    trial: Trial, expect: Expect, link: Link, storage: StorageOfCase
) -> None:
    """Writing the only volume of a claim is refused, and the pod goes: a pod of another claim gets the volume."""
    storage.of_class()
    trial.add(node("n1"))
    witnessed(trial, expect)
    only = storage.volume("only", "n1")
    storage.claim("refused")
    storage.claim("c")
    trial.settle()
    link.refuse(403, volume_writes)
    storage.submit("gone", "refused")
    assert trial.wait(lambda: link.refused >= 1, within=60), "expected a try to write what was chosen"
    trial.delete("gone")
    link.heal()

    storage.submit("p", "c")

    expect.bound("p", within=60)
    assert storage.volume_of("c") == only
