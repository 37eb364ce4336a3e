"""Arguments of plugins in a profile take effect, where the default would give another result."""

import json

import pytest

from seatrial.fixtures.allocated_devices import devices_of, minors
from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.audit.running import RunningAudit
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.device import GPU_CORE, GPU_MEMORY_RATIO
from seatrial.scheduler.api.numa import SINGLE_NUMA_NODE
from seatrial.suites.scoring.claims import PROVISIONER, StorageOfCase, storage
from seatrial.suites.scoring.rules import PREFERRED, REQUIRED, ZONE, Json, pod_with, term

__all__ = ["storage"]

pytestmark = [pytest.mark.needs(Capability.NODES), pytest.mark.feature("SHELL-1.plugin-args")]

HOST = "kubernetes.io/hostname"
ARGS, PACKING, RATIO = "plugin-args", "packing-nodes", "ratio-nodes"
RATIO_BY_MEMORY, BALANCED, OWN_AFFINITY = "ratio-nodes-by-memory", "balanced-dongles", "own-affinity-alone"
OVER_ZONES, NO_DEFAULTS = "spread-over-zones", "no-default-constraints"
DONGLE = "example.com/dongle"
NAMES = pytest.mark.parametrize(("better", "worse"), [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
PACKING_CARDS, DEVICES = "packing", "device-args"
SYSTEM = "koordinator-system"


def fill(trial: Trial, expect: Expect, **cpu: int) -> None:
    """Occupy the given number of CPUs of each node, and the same number of GiB of memory."""
    trial.submit(
        *(pod(f"on-{name}").request(cpu=count, memory=f"{count}Gi").select({HOST: name}) for name, count in cpu.items())
    )
    expect.bound(*(f"on-{name}" for name in cpu))


def serve(trial: Trial) -> None:
    """Create a Service of app a."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s"},
        "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]},
    }
    trial.accept(service, f"/api/v1/namespaces/{trial.name}/services")


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-020", severity="critical")
def test_added_affinity_limits_a_profile(trial: Trial, expect: Expect) -> None:
    """A pod of the profile goes to the small node with the label; one that fits on the large node only waits."""
    trial.add(node("n1").cpu(64), node("n2").cpu(4).label("disk", "fast"))
    trial.submit(pod("small").request(cpu=1).scheduler(ARGS), pod("large").request(cpu=16).scheduler(ARGS))
    assert expect.bound("small").spec.node_name == "n2"
    expect.pending("large", saying="scheduler-enforced node affinity")
    trial.submit(pod("usual").request(cpu=16))
    assert expect.bound("usual").spec.node_name == "n1"


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-028", severity="normal")
@pytest.mark.parametrize(("preferred", "other"), [("n1", "n2"), ("n2", "n1")])
def test_added_preferences_count_for_a_profile(trial: Trial, expect: Expect, preferred: str, other: str) -> None:
    """A pod of the profile goes to the small node that its added affinity prefers; one of the default to the large."""
    trial.add(node(other).cpu(64).memory("256Gi").label("disk", "fast"))
    trial.add(node(preferred).cpu(4).memory("16Gi").label("disk", "fast").label("tier", "gold"))
    trial.submit(pod("p").request(cpu=2, memory="8Gi").scheduler(ARGS), pod("usual").request(cpu=2, memory="8Gi"))
    assert expect.bound("p").spec.node_name == preferred
    assert expect.bound("usual").spec.node_name == other


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-021", severity="critical")
def test_default_constraints_spread_pods_of_a_service(trial: Trial, expect: Expect) -> None:
    """The second pod of a Service waits: one node is full, on the other it makes a skew of 2. A pod alone is placed."""
    serve(trial)
    trial.add(*(node(name).cpu(8).memory("16Gi").label("disk", "fast") for name in ("n1", "n2")))
    fill(trial, expect, n2=8)
    trial.submit(pod("first").label("app", "a").request(cpu=1).scheduler(ARGS))
    assert expect.bound("first").spec.node_name == "n1"
    trial.submit(pod("second").label("app", "a").request(cpu=1).scheduler(ARGS))
    expect.pending("second", saying="topology spread constraints")
    trial.submit(pod("alone").request(cpu=1).scheduler(ARGS), pod("usual").label("app", "a").request(cpu=1))
    expect.bound("alone", "usual")


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-022", severity="normal")
def test_ignored_resources_are_not_counted(trial: Trial, expect: Expect) -> None:
    """Resources that the profile ignores, by name or group, are on no node: pods of the profile that ask for them are
    bound, one of the default waits, and so does one that asks for another resource."""
    trial.add(node("n1").label("disk", "fast"))
    trial.submit(
        pod("ignored").resources({"example.com/dongle": 1}).scheduler(ARGS),
        pod("of-a-group").resources({"example.org/any": 1}).scheduler(ARGS),
        pod("other").resources({"example.com/other": 1}).scheduler(ARGS),
        pod("counted").resources({"example.com/dongle": 1}),
    )
    expect.bound("ignored", "of-a-group")
    expect.pending("counted", saying="Insufficient example.com/dongle")
    expect.pending("other", saying="Insufficient example.com/other")


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-023", severity="normal")
def test_models_that_are_not_shared(trial: Trial, expect: Expect) -> None:
    """Shares of a model that the profile excludes are refused, whole cards are given; the default gives shares."""
    trial.add(node("n1").gpus("a10", 2).label("disk", "fast"))
    model = trial.device("n1")["metadata"]["labels"]["node.koordinator.sh/gpu-model"]
    assert model == "A10", f"the profile excludes model A10, the node has {model}"
    trial.submit(pod("share").gpu_share(50).scheduler(ARGS), pod("whole").gpus(1).scheduler(ARGS))
    expect.bound("whole")
    expect.pending("share", saying="does not support GPU Share")
    trial.submit(pod("usual").gpu_share(50))
    expect.bound("usual")


@pytest.mark.profile(DEVICES)
@pytest.mark.case("DS-278", severity="normal", source="koordinator DeviceShareArgs@v1.7.0; spec DEV-R55")
def test_cards_need_not_be_aligned(trial: Trial, expect: Expect, seatrial_audit: RunningAudit) -> None:
    """On a node that aligns all to one NUMA node of four cards a pod of the profile has five; the default has none."""
    trial.submit(pod("usual").request(cpu=4).gpus(5), pod("a").request(cpu=4).gpus(5).scheduler(DEVICES))
    seatrial_audit.auditor.excuse("AUD-310", trial.pod("a").metadata.uid)
    trial.add(node("n1").server("dgx-h100").numa_policy(SINGLE_NUMA_NODE))
    assert len(minors(expect.bound("a"))) == 5
    expect.pending("usual")


@pytest.mark.profile(DEVICES)
@pytest.mark.needs(Capability.OWN_CLUSTER)
@pytest.mark.case("DS-279", severity="normal", source="koordinator DeviceShareArgs@v1.7.0; spec DEV-R12")
def test_templates_of_a_profile(trial: Trial, expect: Expect) -> None:
    """The profile has templates for shares of GPUs, in a ConfigMap of its own: a quarter of a card is one of them,
    another share is refused. The default has no templates for them."""
    trial.call("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    sizes = {"nvidia-A10": {"quarter": {GPU_CORE: 25, GPU_MEMORY_RATIO: 25}}}
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "trial-templates"}}
    path = f"/api/v1/namespaces/{SYSTEM}/configmaps"
    trial.accept(body | {"data": {"data.yaml": json.dumps(sizes)}}, path)
    try:
        trial.add(node("n1").gpus("a10", 1))
        quarter, third = (pod(f"of-{percent}").gpu_share(percent).scheduler(DEVICES) for percent in (25, 30))
        trial.submit(quarter, third, pod("usual").gpu_share(30))
        expect.bound("usual")
        (part,) = devices_of(expect.bound("of-25"))
        assert part.extension is not None
        assert part.extension.gpu_shared_resource_template == "quarter"
        expect.pending("of-30", saying="no matched GPU shared resource template")
    finally:
        trial.call("DELETE", f"{path}/trial-templates")


@pytest.mark.profile(ARGS)
@pytest.mark.case("SH-034", severity="normal", source="kubernetes kube-scheduler config VolumeBindingArgs@v1.34")
@pytest.mark.long(seconds=12)
def test_volumes_are_waited_for_as_long_as_the_profile_says(
    trial: Trial, expect: Expect, storage: StorageOfCase
) -> None:
    """A claim is not provisioned: after the ten seconds of the profile its pod gives the room on the node back."""
    storage.of_class(PROVISIONER)
    trial.add(node("n1").cpu(8).label("disk", "fast"))
    storage.claim("c")
    volumes = [{"name": "c", "persistentVolumeClaim": {"claimName": "c"}}]
    trial.submit(pod_with("p", volumes=volumes).request(cpu=6).scheduler(ARGS))
    assert storage.selected_node("c") == "n1"
    trial.submit(pod("next").request(cpu=6))
    expect.pending("next", cooled=False)
    expect.bound("next", within=60)
    expect.pending("p")


@pytest.mark.profile(PACKING)
@pytest.mark.case("SH-024", severity="critical")
@pytest.mark.parametrize(("fuller", "emptier"), [("n1", "n2"), ("n2", "n1")])
def test_most_allocated_packs_nodes(trial: Trial, expect: Expect, fuller: str, emptier: str) -> None:
    """Pods of the profile go to the fuller node until it is full; one of the default goes to the emptier one."""
    trial.add(*(node(name).cpu(16).memory("64Gi") for name in ("n1", "n2")))
    fill(trial, expect, **{fuller: 6, emptier: 2})
    for number in range(2):
        trial.submit(pod(f"p{number}").request(cpu=4, memory="4Gi").scheduler(PACKING))
        assert expect.bound(f"p{number}").spec.node_name == fuller
    trial.submit(pod("rest").request(cpu=4, memory="4Gi").scheduler(PACKING))
    assert expect.bound("rest").spec.node_name == emptier


@pytest.mark.profile(RATIO)
@pytest.mark.case("SH-025", severity="critical")
@pytest.mark.parametrize("names", [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
@pytest.mark.parametrize(
    ("better", "worse"),
    [
        pytest.param(9, 1, id="half-before-empty"),
        pytest.param(9, 18, id="half-before-full"),
        pytest.param(15, 3, id="fuller-before-emptier"),
        pytest.param(7, 17, id="rising-before-falling"),  # 80 against 60: each half of the shape has a slope of its own
    ],
)
def test_a_shape_decides(trial: Trial, expect: Expect, names: tuple[str, str], better: int, worse: int) -> None:
    """The shape scores an empty node 0, a half full one 10 and a full one 5."""
    trial.add(*(node(name).cpu(20).memory("64Gi") for name in ("n1", "n2")))
    fill(trial, expect, **dict(zip(names, (better, worse), strict=True)))
    trial.submit(pod("p").request(cpu=1).scheduler(RATIO))
    assert expect.bound("p").spec.node_name == names[0]
    expect.refusal()


@pytest.mark.parametrize(
    ("profile", "cards"),
    [
        pytest.param(PACKING, False, id="cpu", marks=pytest.mark.profile(PACKING)),
        pytest.param(PACKING_CARDS, True, id="cards", marks=pytest.mark.profile(PACKING_CARDS)),
    ],
)
@pytest.mark.parametrize("names", [("n1", "n2"), ("n2", "n1")], ids=["first", "second"])
@pytest.mark.case("SH-032", severity="critical")
def test_a_node_that_fills_up_becomes_the_better_one(
    trial: Trial, expect: Expect, profile: str, names: tuple[str, str], *, cards: bool
) -> None:
    """Pods with a host port are packed. The fuller node is the best for them, until other pods make the second node the
    fuller one. Host ports keep a scheduler from sharing results between pods of different kinds."""

    def asking(name: str, count: int) -> PodBuilder:
        return pod(name).gpus(count) if cards else pod(name).request(cpu=count, memory=f"{count}Gi")

    def ported(name: str) -> PodBuilder:
        built = asking(name, 1).scheduler(profile)
        built.manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 8080, "hostPort": 8080}]
        return built

    first, second = names
    trial.add(*(node(name).cpu(16).memory("16Gi").gpus("a10", 8) for name in names))
    trial.submit(asking("base", 2).select({HOST: first}))
    expect.bound("base")
    trial.submit(ported("before"))
    assert expect.bound("before").spec.node_name == first
    trial.delete("before")
    trial.submit(asking("filler", 5).scheduler(profile).select({HOST: second}))
    expect.bound("filler")
    trial.submit(ported("after"))
    assert expect.bound("after").spec.node_name == second


@pytest.mark.profile(RATIO_BY_MEMORY)
@pytest.mark.case("SH-040", severity="normal", source="kubernetes v1.28: noderesources/requested_to_capacity_ratio.go")
@NAMES
@pytest.mark.parametrize(
    ("used", "others"),
    [
        pytest.param(
            {"cpu": "1", "memory": "40Gi"}, {"cpu": "40", "memory": "1Gi"}, id="memory-has-three-times-the-weight"
        ),
        pytest.param({"cpu": "32"}, {"cpu": "40", "memory": "16Gi"}, id="what-scores-zero-has-no-weight"),
        pytest.param({"cpu": "32"}, {"cpu": "16", DONGLE: "8"}, id="dongles-that-it-does-not-ask-for"),
    ],
)
def test_a_shape_counts_two_resources(  # noqa: PLR0917
    trial: Trial, expect: Expect, better: str, worse: str, used: dict[str, str], others: dict[str, str]
) -> None:
    """The fuller a node, the better, by the weighted mean of CPU and memory, of which it has 64 and 64 Gi. Dongles
    count for pods that ask for them."""
    trial.add(*(node(name).cpu(64).memory("64Gi").extended(DONGLE, 8) for name in ("n1", "n2")))
    for name, amounts in ((better, used), (worse, others)):
        trial.submit(pod(f"on-{name}").resources({"memory": "1Mi", **amounts}).select({HOST: name}))
        expect.bound(f"on-{name}")
    trial.submit(pod("p").request(cpu="10m", memory="1Mi").scheduler(RATIO_BY_MEMORY))
    assert expect.bound("p").spec.node_name == better
    expect.refusal()


@pytest.mark.profile(BALANCED)
@pytest.mark.case("SH-041", severity="normal", source="kubernetes v1.28: noderesources/balanced_allocation.go")
@NAMES
@pytest.mark.parametrize(
    ("dongles", "used", "asks"),
    [
        # Fractions of CPU, memory and dongles with the pod: better 1/4, 1/4, 1/4 against 1/4, 1/4, 1/2.
        pytest.param((8, 4), ({}, {}), 2, id="three-resources"),
        # 1/4, 1/4, 1/2: 88 against 1/4, 1/2, 3/4: 79.
        pytest.param((8, 8), ({DONGLE: 2}, {DONGLE: 4, "memory": "16Gi"}), 2, id="deviation-of-three"),
        # Dongles that others use: 1/4, 1/4 against 1/4, 1/2.
        pytest.param((8, 8), ({DONGLE: 6}, {"memory": "16Gi"}), 0, id="dongles-that-it-does-not-ask-for"),
    ],
)
def test_balance_counts_the_resources_of_the_profile(  # noqa: PLR0917
    trial: Trial,
    expect: Expect,
    better: str,
    worse: str,
    dongles: tuple[int, int],
    used: tuple[dict[str, int | str], dict[str, int | str]],
    asks: int,
) -> None:
    """A pod asks for a quarter of the CPU and memory of a node, and maybe for dongles: its node is used evenly."""
    for name, count, amounts in zip((better, worse), dongles, used, strict=True):
        trial.add(node(name).cpu(16).memory("64Gi").extended(DONGLE, count))
        if amounts:
            trial.submit(pod(f"on-{name}").resources({**amounts}).select({HOST: name}))
            expect.bound(f"on-{name}")
    dongles_too = {DONGLE: asks} if asks else {}
    trial.submit(pod("p").resources({"cpu": 4, "memory": "16Gi", **dongles_too}).scheduler(BALANCED))
    assert expect.bound("p").spec.node_name == better
    expect.refusal()


@pytest.mark.profile(OWN_AFFINITY)
@pytest.mark.case("SH-042", severity="normal", source="kubernetes kube-scheduler config InterPodAffinityArgs@v1.34")
@NAMES
@pytest.mark.parametrize(
    ("of_placed", "own", "follows"),
    [
        pytest.param(
            {PREFERRED: [{"weight": 100, "podAffinityTerm": term("a")}]}, {}, False, id="wish-of-a-placed-pod"
        ),
        pytest.param({REQUIRED: [term("a")]}, {}, False, id="requirement-of-a-placed-pod"),
        pytest.param({}, {PREFERRED: [{"weight": 100, "podAffinityTerm": term("a")}]}, True, id="own-wish"),
    ],
)
def test_affinity_of_placed_pods_is_ignored(  # noqa: PLR0917
    trial: Trial, expect: Expect, better: str, worse: str, of_placed: Json, own: Json, follows: bool
) -> None:
    """By the profile affinity of placed pods has no weight: a pod goes to the emptier node, though one on the fuller
    node attracts it. What it prefers itself counts."""
    trial.add(*(node(name).cpu(16).memory("64Gi") for name in ("n1", "n2")))
    placed = pod_with("placed", affinity={"podAffinity": of_placed} if of_placed else {})
    trial.submit(placed.request(cpu=6).select({HOST: worse}))
    expect.bound("placed")
    trial.submit(pod_with("p", affinity={"podAffinity": own} if own else {}).scheduler(OWN_AFFINITY))
    assert expect.bound("p").spec.node_name == (worse if follows else better)
    expect.refusal()


@pytest.mark.profile(OVER_ZONES)
@pytest.mark.case("SH-043", severity="normal", source="kubernetes v1.28: podtopologyspread/scoring.go")
@NAMES
@pytest.mark.parametrize(("worse_zone", "crowd"), [("", "better"), ("b", "worse")], ids=["no-zone", "crowded-zone"])
def test_default_constraints_score_zones(  # noqa: PLR0917
    trial: Trial, expect: Expect, better: str, worse: str, worse_zone: str, crowd: str
) -> None:
    """Pods of a Service are in one of two zones: the next one goes to the other. A node without a zone comes last, even
    after the only zone, in which all pods are."""
    serve(trial)
    unlabelled = node(worse).cpu(16)
    trial.add(node(better).cpu(16).label(ZONE, "a"), unlabelled.label(ZONE, worse_zone) if worse_zone else unlabelled)
    where = better if crowd == "better" else worse
    trial.submit(*(pod(f"p{number}").label("app", "a").select({HOST: where}) for number in range(2)))
    expect.bound("p0", "p1")
    trial.submit(pod("next").label("app", "a").scheduler(OVER_ZONES))
    assert expect.bound("next").spec.node_name == better
    expect.refusal()


@pytest.mark.profile(NO_DEFAULTS)
@pytest.mark.case(
    "SC-703", severity="normal", source="kubernetes kube-scheduler config PodTopologySpreadArgs@v1.34: defaultingType"
)
def test_no_default_constraints(trial: Trial, expect: Expect) -> None:
    """Three pods of a Service are on the emptier node. By an empty list of default constraints the next one goes there,
    too; one of the default profile goes to the other."""
    serve(trial)
    trial.add(*(node(name).cpu(16).label(ZONE, name) for name in ("n1", "n2")))
    crowd = [pod(f"p{number}").label("app", "a").select({HOST: "n1"}) for number in range(3)]
    trial.submit(*crowd, pod("filler").request(cpu=6).select({HOST: "n2"}))
    expect.bound("filler", *(member.name for member in crowd))
    trial.submit(pod("next").label("app", "a").scheduler(NO_DEFAULTS))
    assert expect.bound("next").spec.node_name == "n1"
    trial.submit(pod("usual").label("app", "a"))
    assert expect.bound("usual").spec.node_name == "n2"
    expect.refusal()


@pytest.mark.profile(RATIO)
@pytest.mark.case("SH-044", severity="normal", source="kubernetes v1.28: noderesources/requested_to_capacity_ratio.go")
@NAMES
def test_a_shape_scores_an_overdrawn_node_as_full(trial: Trial, expect: Expect, better: str, worse: str) -> None:
    """Twelve pods without requests count with 100m each on a node of one core: it scores 5 as a full one, and the other
    one, of which a sixth is used, 3."""
    trial.add(node(better).cpu(1).memory("64Gi"), node(worse).cpu(20).memory("64Gi"))
    fill(trial, expect, **{worse: 3})
    crowd = [pod(f"p{number}").select({HOST: better}) for number in range(12)]
    trial.submit(*crowd)
    expect.bound(*(member.name for member in crowd))
    trial.submit(pod("next").scheduler(RATIO))
    assert expect.bound("next").spec.node_name == better
    expect.refusal()
