"""Which volume a claim gets, and where one may be made: of two nodes the fuller one alone is right."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import node, pod, priority_class
from seatrial.suites.scoring.claims import CLASSES, PROVISIONER, SELECTED_NODE, StorageOfCase, storage
from seatrial.suites.scoring.rules import HOST, ZONE, Json, expression, patch

__all__ = ["storage"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("SCORE-4.volumes")]

PLUGINS = "kubernetes pkg/scheduler/framework/plugins"
BINDER = f"{PLUGINS}/volumebinding/binder.go@v1.34"
MATCHING = "kubernetes staging/src/k8s.io/component-helpers/storage/volume/pv_helpers.go@v1.34"
REGION = "topology.kubernetes.io/region"
BOTH_MODES = ["ReadWriteOnce", "ReadOnlyMany"]


@pytest.fixture
def fuller(trial: Trial, expect: Expect) -> str:
    """Node n2, which has a pod of half its size; n1, of the same size, is empty. Zones are named after the nodes."""
    trial.add(*(node(name).cpu(32).label(ZONE, f"zone-{name}") for name in ("n1", "n2")))
    trial.submit(pod("crowd").request(cpu=16, memory="1Gi").select({HOST: "n2"}))
    expect.bound("crowd")
    return "n2"


def near(*terms: Json) -> Json:
    """A volume's node affinity: one of these expressions holds."""
    return {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [each]} for each in terms]}}}


def reserved(namespace: str, uid: str = "") -> Json:
    return {"claimRef": {"kind": "PersistentVolumeClaim", "namespace": namespace, "name": "c", "uid": uid}}


@pytest.mark.case("SC-401", severity="critical", source=f"{MATCHING}: FindMatchingVolume")
@pytest.mark.parametrize(
    "specs",
    [
        ({}, {"volumeMode": "Block"}, {}),
        ({"accessModes": BOTH_MODES}, {}, {"accessModes": BOTH_MODES}),
        ({"resources": {"requests": {"storage": "1100Mi"}}}, {}, {}),
        ({}, reserved("elsewhere"), {}),
    ],
    ids=["mode", "access-modes", "size", "namesake"],
)
def test_a_volume_that_does_not_suit(
    expect: Expect, storage: StorageOfCase, fuller: str, specs: tuple[Json, Json, Json]
) -> None:
    """The smaller volume on the emptier node differs from the claim in one point: it gets the other one."""
    claimed, unsuited, suited = specs
    storage.of_class()
    storage.volume("unsuited", "n1", "1Gi", spec=unsuited)
    volume = storage.volume("suited", fuller, "2Gi", spec=suited)
    storage.claim("c", **claimed)
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == fuller
    assert storage.volume_of("c") == volume


@pytest.mark.case("SC-402", severity="critical", source=f"{MATCHING}: IsVolumeBoundToClaim")
def test_a_volume_of_an_earlier_claim_of_that_name(
    trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str
) -> None:
    """A volume whose claimRef has the claim's name and another uid is not taken: its data are another claim's."""
    storage.of_class()
    storage.volume("kept", "n1", spec=reserved(trial.name, "11111111-1111-1111-1111-111111111111"))
    volume = storage.volume("free", fuller)
    storage.claim("c")
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == fuller
    assert storage.volume_of("c") == volume


@pytest.mark.case("SC-403", severity="critical", source=f"{MATCHING}: FindMatchingVolume, DeletionTimestamp")
def test_a_volume_that_is_being_deleted(trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """A finalizer keeps the smaller volume on the emptier node though it is deleted: the claim gets the other."""
    storage.of_class()
    path = f"/api/v1/persistentvolumes/{storage.volume('leaving', 'n1')}"
    patch(trial, path, {"metadata": {"finalizers": ["example.com/kept"]}})
    try:
        assert trial.call("DELETE", path).ok
        trial.settle()
        volume = storage.volume("staying", fuller, "2Gi")
        storage.claim("c")
        storage.submit("p", "c")
        assert expect.bound("p").spec.node_name == fuller
        assert storage.volume_of("c") == volume
    finally:
        patch(trial, path, {"metadata": {"finalizers": None}})


@pytest.mark.case("SC-404", severity="critical", source=f"{MATCHING}: FindMatchingVolume, spec.selector")
def test_a_claim_selects_its_volume_by_expression(expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """matchExpressions of a claim's selector count as its matchLabels do."""
    storage.of_class()
    storage.volume("slow", "n1", "1Gi", speed="slow")
    volume = storage.volume("fast", fuller, "2Gi", speed="fast")
    storage.claim("c", selector={"matchExpressions": [expression("speed", "NotIn", "slow")]})
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == fuller
    assert storage.volume_of("c") == volume


@pytest.mark.case("SC-405", severity="critical", source=f"{MATCHING}: FindMatchingVolume, CheckNodeAffinity")
@pytest.mark.parametrize(
    "affinity",
    [
        near(expression(ZONE, "In", "zone-n9"), expression(ZONE, "In", "zone-n2")),
        near(expression(HOST, "In", "n9", "n2")),
        near(expression(HOST, "In", "n9"), expression(HOST, "In", "n2")),
        near(expression(HOST, "NotIn", "n1")),
    ],
    ids=["second-term", "second-value", "second-host", "not-in"],
)
def test_a_volume_reaches_its_nodes(expect: Expect, storage: StorageOfCase, fuller: str, affinity: Json) -> None:
    """Terms are alternatives, as the values of a requirement are, and a requirement may exclude: n2 has the volume."""
    storage.of_class()
    volume = storage.volume("v", "", spec=affinity)
    storage.claim("c")
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == fuller
    assert storage.volume_of("c") == volume


@pytest.mark.case("SC-406", severity="critical", source=f"{BINDER}: checkVolumeProvisions")
@pytest.mark.parametrize(
    "terms",
    [
        [[{"key": ZONE, "values": ["zone-n9"]}], [{"key": ZONE, "values": ["zone-n2"]}]],
        [[{"key": ZONE, "values": ["zone-n1", "zone-n2"]}, {"key": HOST, "values": ["n2"]}]],
    ],
    ids=["second-term", "second-requirement"],
)
def test_allowed_topologies(expect: Expect, storage: StorageOfCase, fuller: str, terms: list[list[Json]]) -> None:
    """Allowed topologies are alternatives, of which each needs all its requirements: the provisioner is told n2."""
    storage.of_class(PROVISIONER, allowedTopologies=[{"matchLabelExpressions": each} for each in terms])
    storage.claim("c")
    storage.submit("p", "c")
    assert storage.selected_node("c") == fuller
    storage.made("c")
    assert expect.bound("p").spec.node_name == fuller


@pytest.mark.case("SC-407", severity="normal", source=f"{MATCHING}: FindMatchingVolume, smallestVolume")
@pytest.mark.parametrize("sizes", [("3Gi", "2Gi"), ("2Gi", "3Gi")], ids=["of-the-zone", "of-the-host"])
def test_the_smallest_of_a_host_and_a_zone(
    trial: Trial, expect: Expect, storage: StorageOfCase, sizes: tuple[str, str]
) -> None:
    """A volume of the node and one of its zone: the claim gets the smaller, whichever that is."""
    storage.of_class()
    trial.add(node("n1").label(ZONE, "zone-n1"))
    of_host = storage.volume("a", "n1", sizes[0])
    of_zone = storage.volume("b", "zone-n1", sizes[1], key=ZONE)
    storage.claim("c")
    storage.submit("p", "c")
    expect.bound("p")
    assert storage.volume_of("c") == min((sizes[0], of_host), (sizes[1], of_zone))[1]


@pytest.mark.case("SC-408", severity="critical", source=f"{BINDER}: findMatchingVolumes, chosenPVs")
def test_two_claims_of_a_pod_get_a_volume_each(expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """The emptier node has one volume, the fuller has two: a pod with two claims goes there, and the smaller is first.

    The claim of 2 Gi comes first in the pod; were it to choose first, it would take the volume of 3 Gi.
    """
    storage.of_class()
    storage.volume("lone", "n1", "3Gi")
    volumes = [storage.volume(name, fuller, size) for name, size in (("three", "3Gi"), ("four", "4Gi"))]
    storage.claim("large", "2Gi")
    storage.claim("small", "1Gi")
    storage.submit("p", "large", "small")
    assert expect.bound("p").spec.node_name == fuller
    assert [storage.volume_of(claim) for claim in ("small", "large")] == volumes


@pytest.mark.case("SC-409", severity="critical", source=f"{BINDER}: FindPodVolumes, AnnSelectedNode")
def test_the_node_that_was_selected_before(trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """A pod is gone after its claim's node was selected: the next pod with the claim goes to that node."""
    storage.of_class(PROVISIONER)
    storage.claim("c")
    storage.submit("gone", "c", nodeSelector={HOST: fuller})
    assert storage.selected_node("c") == fuller
    trial.delete("gone")
    storage.submit("p", "c")
    trial.settle(3)
    assert storage.selected_node("c") == fuller
    storage.made("c")
    assert expect.bound("p").spec.node_name == fuller


@pytest.mark.case("SC-410", severity="critical", source="ours: upstream may provision until the claim is bound")
def test_pods_of_one_claim_go_to_its_volume(trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """Two pods that are tried at once share a claim, whose class could provision: both go to the node of its volume at
    the first try."""
    storage.of_class(PROVISIONER)
    volume = storage.volume("v", fuller)
    both_at_once(expect, storage, fuller)
    assert [each.spec.node_name for each in (expect.bound("p"), expect.bound("q"))] == [fuller, fuller]
    assert storage.volume_of("c") == volume
    assert SELECTED_NODE not in (storage.seen("c")["metadata"].get("annotations") or {})
    assert not [event for event in trial.events("q") if "binding volumes" in event.message]


def both_at_once(expect: Expect, storage: StorageOfCase, home: str) -> None:
    """Pod p, for the node `home`, and pod q wait for their claim c, which comes."""
    storage.submit("p", "c", nodeSelector={HOST: home})
    storage.submit("q", "c")
    expect.pending("p", "q", saying="not found")
    storage.claim("c")


@pytest.mark.case("SC-520", severity="critical", source="ours: upstream may try the second pod when the claim is bound")
def test_pods_of_one_claim_go_where_it_is_provisioned(
    trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str
) -> None:
    """Two pods that are tried at once share a claim to be provisioned: the second goes to the node of the first, also
    if the volume that is made reaches all nodes."""
    storage.of_class(PROVISIONER)
    both_at_once(expect, storage, fuller)
    assert storage.selected_node("c") == fuller
    trial.settle()
    storage.made("c")
    assert [each.spec.node_name for each in (expect.bound("p"), expect.bound("q"))] == [fuller, fuller]


@pytest.mark.case("SC-411", severity="critical", source=f"{BINDER}: AssumePodVolumes, GetBindVolumeToClaim")
def test_what_is_written_to_a_chosen_volume(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """The claimRef names this claim by its uid, and the volume is marked as chosen by a controller, not by a user."""
    storage.of_class()
    trial.add(node("n1"))
    volume = storage.volume("v", "n1")
    storage.claim("c")
    storage.submit("p", "c")
    expect.bound("p")
    seen = orjson.loads(trial.call("GET", f"/api/v1/persistentvolumes/{volume}").body)
    assert (seen["spec"].get("claimRef") or {}).get("uid") == storage.seen("c")["metadata"]["uid"]
    assert (seen["metadata"].get("annotations") or {}).get("pv.kubernetes.io/bound-by-controller") == "yes"


@pytest.mark.case("SC-412", severity="critical", source=f"{BINDER}: checkBindings, CheckNodeAffinity")
def test_a_volume_that_is_made_elsewhere(expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """The provisioner is told n1 and makes a volume for n2: the pod is bound to n2, which reaches it."""
    storage.of_class(PROVISIONER)
    storage.claim("c")
    storage.submit("p", "c")
    assert storage.selected_node("c") == "n1"
    storage.made("c", **near(expression(HOST, "In", fuller)))
    assert expect.bound("p", within=120).spec.node_name == fuller


@pytest.mark.case("SC-413", severity="critical", source=f"{BINDER}: checkBindings, provisioning failed for PVC")
def test_a_provisioner_that_gives_the_node_back(
    trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str
) -> None:
    """The provisioner takes its node off the claim, and n1 is closed: the pod is given n2 without the ten minutes."""
    storage.of_class(PROVISIONER)
    storage.claim("c")
    storage.submit("p", "c")
    assert storage.selected_node("c") == "n1"
    patch(trial, "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    trial.settle()
    path = f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims/c"
    patch(trial, path, {"metadata": {"annotations": {SELECTED_NODE: None}}})
    assert storage.selected_node("c") == fuller
    storage.made("c")
    assert expect.bound("p").spec.node_name == fuller


@pytest.mark.case("SC-437", severity="critical", source=f"{BINDER}: RevertAssumedPodVolumes, DeletePodBindings")
def test_a_pod_that_is_gone_has_chosen_nothing(
    trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str
) -> None:
    """A pod is deleted while it waits for its claim to be provisioned for n1. Then the provisioner takes that node off
    the claim, and n1 is closed: the next pod of the claim is given n2."""
    storage.of_class(PROVISIONER)
    storage.claim("c")
    storage.submit("gone", "c")
    assert storage.selected_node("c") == "n1"
    trial.delete("gone")
    patch(trial, "/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    path = f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims/c"
    patch(trial, path, {"metadata": {"annotations": {SELECTED_NODE: None}}})
    trial.settle()
    storage.submit("p", "c")
    assert storage.selected_node("c") == fuller
    storage.made("c")
    assert expect.bound("p").spec.node_name == fuller


@pytest.mark.case(
    "SC-414", severity="critical", source=f"{PLUGINS}/volumebinding/volume_binding.go@v1.34: podHasPVCs, PreFilter"
)
@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        ("leaving", 'persistentvolumeclaim "leaving" is being deleted'),
        ("wish", "pod has unbound immediate PersistentVolumeClaims"),
        ("at-once", "pod has unbound immediate PersistentVolumeClaims"),
        ("gone", 'persistentvolumeclaim "gone" not found'),
    ],
)
def test_a_claim_that_cannot_be_used(
    trial: Trial, expect: Expect, storage: StorageOfCase, claim: str, reason: str
) -> None:
    """Being deleted, of a volume that is another's, to be bound before its pod comes, or gone: the pod waits, and knows
    which."""
    storage.of_class(volumeBindingMode="Immediate" if claim == "at-once" else "WaitForFirstConsumer")
    trial.add(node("n1"))
    path = f"/api/v1/namespaces/{trial.name}/persistentvolumeclaims/{claim}"
    taken = storage.volume("v", "n1", spec=reserved("elsewhere"))
    storage.volume("w", "n1")
    storage.claim(claim, "9Gi" if claim == "at-once" else "1Gi", **({"volumeName": taken} if claim == "wish" else {}))
    if claim == "leaving":
        patch(trial, path, {"metadata": {"finalizers": ["example.com/kept"]}})
    if claim in {"leaving", "gone"}:
        trial.settle()  # the scheduler knows the claim
        assert trial.call("DELETE", path).ok
    try:
        trial.settle()
        storage.submit("p", claim)
        expect.pending("p", saying=reason)
    finally:
        if claim == "leaving":
            patch(trial, path, {"metadata": {"finalizers": None}})


@pytest.mark.case("SC-415", severity="critical", source=f"{BINDER}: findMatchingVolumes of the volumes there are")
def test_a_volume_that_is_gone(trial: Trial, expect: Expect, storage: StorageOfCase, fuller: str) -> None:
    """The smaller volume, on the emptier node, is deleted before the pod comes: the claim gets the one on n2."""
    storage.of_class()
    gone = storage.volume("gone", "n1")
    volume = storage.volume("there", fuller, "2Gi")
    trial.settle()
    path = f"/api/v1/persistentvolumes/{gone}"
    assert trial.call("DELETE", path).ok
    assert trial.reaches(lambda: trial.call("GET", path).code == 404, within=30)
    storage.claim("c")
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == fuller
    assert storage.volume_of("c") == volume


@pytest.mark.case("SC-416", severity="critical", source=f"{BINDER}: BindPodVolumes of pods that share a claim")
def test_a_pod_is_bound_though_the_other_of_its_claim_is_gone(
    trial: Trial, expect: Expect, storage: StorageOfCase
) -> None:
    """Two pods wait for one claim to be provisioned, and the first is deleted: the second is bound, and a third."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1"))
    storage.claim("c")
    storage.submit("first", "c")
    assert storage.selected_node("c") == "n1"
    storage.submit("second", "c")
    trial.settle(3)
    trial.delete("first")
    storage.made("c")
    expect.bound("second")
    storage.submit("third", "c")
    expect.bound("third")


@pytest.mark.case("SC-417", severity="critical", source="kubernetes 1.34 volumezone/volume_zone.go: Filter")
@pytest.mark.parametrize(
    ("of_volume", "of_nodes"),
    [
        ({ZONE: "a__b"}, ({ZONE: "c"}, {ZONE: "b"})),
        ({REGION: "b"}, ({REGION: "a"}, {REGION: "b"})),
        ({ZONE: "b"}, ({ZONE: "a"}, {})),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, ({ZONE: "a"}, {ZONE: "b"})),
    ],
    ids=["second-zone", "region", "node-without", "deprecated"],
)
def test_zones_of_a_bound_volume(
    trial: Trial,
    expect: Expect,
    storage: StorageOfCase,
    of_volume: dict[str, str],
    of_nodes: tuple[dict[str, str], ...],
) -> None:
    """Labels of a bound volume keep its pod off n1, the emptier node, and let it go to n2."""
    storage.of_class()
    for name, labels in zip(("n1", "n2"), of_nodes, strict=True):
        builder = node(name).cpu(32)
        for key, value in labels.items():
            builder.label(key, value)
        trial.add(builder)
    trial.submit(pod("crowd").request(cpu=16, memory="1Gi").select({HOST: "n2"}))
    expect.bound("crowd")
    storage.claim("c")
    source = {"local": None, "nodeAffinity": None, "csi": {"driver": PROVISIONER, "volumeHandle": trial.name}}
    storage.volume("v", "", spec={**source, **reserved(trial.name)}, **of_volume)
    storage.volume_of("c")
    storage.submit("p", "c")
    assert expect.bound("p").spec.node_name == "n2"
    storage.submit("q", "c", nodeSelector={HOST: "n1"})
    expect.pending("q", saying="no available volume zone")


@pytest.mark.case(
    "SC-418", severity="critical", source=f"{PLUGINS}/volumerestrictions/volume_restrictions.go@v1.34: RemovePod"
)
def test_preemption_frees_a_claim_of_one_pod(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """A pod of higher priority preempts the one that has its ReadWriteOncePod claim; one of the same waits."""
    storage.of_class()
    trial.apply(priority_class("trial-high", 9000))
    trial.add(node("n1"))
    storage.volume("v", "n1", spec={"accessModes": ["ReadWriteOncePod"]})
    storage.claim("c", accessModes=["ReadWriteOncePod"])
    storage.submit("low", "c")
    expect.bound("low")
    storage.submit("equal", "c")
    expect.pending("equal", saying="ReadWriteOncePod")
    storage.submit("high", "c", priorityClassName="trial-high")
    expect.bound("high", within=120)
    assert trial.find("low") is None


@pytest.mark.case("SC-421", severity="critical", source=f"{PLUGINS}/volumebinding/volume_binding.go@v1.34: podHasPVCs")
def test_a_bound_claim_whose_volume_is_gone(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """The volume is deleted and its finalizer taken off by hand: no node can have the claim's pod."""
    storage.of_class()
    trial.add(node("n1"))
    storage.claim("c")
    path = f"/api/v1/persistentvolumes/{storage.volume('v', 'n1', spec=reserved(trial.name))}"
    storage.volume_of("c")
    assert trial.call("DELETE", path).ok
    patch(trial, path, {"metadata": {"finalizers": None}})
    assert trial.reaches(lambda: storage.seen("c")["status"]["phase"] == "Lost", within=30)
    trial.settle()
    storage.submit("p", "c")
    expect.pending("p", saying='persistentvolumeclaim "c" bound to non-existent persistentvolume')


@pytest.mark.case("SC-424", severity="critical", source=f"{BINDER}: checkBoundClaims; {PLUGINS}/volumezone@v1.34")
@pytest.mark.parametrize("way", ["affinity", "zone"])
@pytest.mark.parametrize("limiting", ["first", "last"])
def test_all_volumes_of_a_pod_count(  # noqa: PLR0917
    expect: Expect, storage: StorageOfCase, trial: Trial, fuller: str, way: str, limiting: str
) -> None:
    """Of two bound volumes one can be used from n2 alone, by its affinity or by the zone in its labels; the other one
    everywhere. The pod goes to n2."""
    storage.of_class()
    source = {"local": None, "nodeAffinity": None, "csi": {"driver": PROVISIONER, "volumeHandle": trial.name}}
    for name in ("first", "last"):
        reference = reserved(trial.name)
        reference["claimRef"]["name"] = name
        limits = way == "affinity" and name == limiting
        labels = {ZONE: f"zone-{fuller}"} if way == "zone" and name == limiting else {REGION: "r"}
        affinity = near(expression(HOST, "In", fuller)) if limits else {}
        storage.claim(name)
        storage.volume(name, "", spec={**source, **affinity, **reference}, **labels)
        storage.volume_of(name)
    for name in ("n1", "n2"):
        patch(trial, f"/api/v1/nodes/{name}", {"metadata": {"labels": {REGION: "r"}}})
    trial.settle()
    storage.submit("p", "first", "last")
    assert expect.bound("p").spec.node_name == fuller
    expect.refusal()


@pytest.mark.case(
    "SC-425", severity="critical", source=f"{PLUGINS}/volumebinding/volume_binding.go@v1.34: StorageClass"
)
def test_a_class_goes_and_comes_back(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """The class of a claim is deleted: its pod waits, until there is a class of that name again."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1"))
    trial.settle()
    assert trial.call("DELETE", f"{CLASSES}/{trial.name}").ok
    trial.settle()
    storage.claim("c")
    storage.submit("p", "c")
    expect.pending("p", saying="unbound immediate")
    storage.of_class(PROVISIONER)
    assert storage.selected_node("c") == "n1"
    storage.made("c")
    expect.bound("p")


@pytest.mark.case("SC-427", severity="critical", source=f"{BINDER}: checkBindings")
@pytest.mark.parametrize("event", ["volume-gone", "claim-gone", "node-elsewhere"])
def test_what_was_chosen_goes_while_the_pod_waits(
    trial: Trial, expect: Expect, storage: StorageOfCase, event: str
) -> None:
    """A pod waits for one of its claims to be provisioned. The volume of its other claim goes meanwhile, or that claim,
    or the node is no longer in reach of the volume: the pod is refused without the ten minutes."""
    trial.add(node("n1").label(ZONE, "a"))
    half_bound(trial, storage)
    if event == "node-elsewhere":
        patch(trial, "/api/v1/nodes/n1", {"metadata": {"labels": {ZONE: "b"}}})
    else:
        kind = ("PersistentVolume", f"{trial.name}-v") if event == "volume-gone" else ("PersistentVolumeClaim", "found")
        path = trial.path(*kind)
        assert trial.call("DELETE", path).ok
        trial.call("PATCH", path, {"metadata": {"finalizers": None}})  # it may be gone already
    expect.pending("p")


@pytest.mark.case("SC-428", severity="normal", source="ours: a volume that is another claim's is not the pod's")
def test_a_chosen_volume_is_given_to_another_claim(trial: Trial, expect: Expect, storage: StorageOfCase) -> None:
    """The same with a volume whose claimRef comes to name another claim."""
    trial.add(node("n1").label(ZONE, "a"))
    half_bound(trial, storage)
    reference = {"name": "another", "uid": "11111111-1111-1111-1111-111111111111"}
    patch(trial, f"/api/v1/persistentvolumes/{trial.name}-v", {"spec": {"claimRef": reference}})
    expect.pending("p")


def half_bound(trial: Trial, storage: StorageOfCase) -> None:
    """Pod p has a volume of zone a for its claim `found`; its claim `made` is still to be provisioned."""
    storage.of_class(PROVISIONER)
    storage.volume("v", "a", key=ZONE, spec={"storageClassName": trial.name}, kind="found")
    storage.claim("found", selector={"matchLabels": {"kind": "found"}})
    storage.claim("made", selector={"matchLabels": {"kind": "made"}})
    storage.submit("p", "found", "made")
    storage.volume_of("found")
    assert storage.selected_node("made") == "n1"
    trial.settle()
    assert not trial.pod("p").spec.node_name
