"""What a pod's claim for extended resources asks for: requests by container and resource, and the class of each."""

import orjson
import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, node, pod
from seatrial.suites.dra.offers import Offers, device, offers, served
from seatrial.suites.preemption.nominations import freeze

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go"
RESOLVER = "kubernetes 1.37 dynamic-resource-allocation/deviceclass/extendedresourcecache"

INIT, SIDECAR, MAIN = "i", "s", "m"


@pytest.mark.feature("DRA-4.containers")
@pytest.mark.case("DR-130", severity="critical", source=f"{PLUGIN}: createRequestsAndMappings; spec DRA-R107, DRA-R108")
@pytest.mark.parametrize(
    ("containers", "requests", "mappings"),
    [
        pytest.param([(MAIN, 1), (MAIN, 2)], {"0": 1, "1": 2}, {"m0": ["0"], "m1": ["1"]}, id="mains"),
        pytest.param(
            [(INIT, 2), (SIDECAR, 1), (MAIN, 1)],
            {"1": 1, "2": 1},
            {"i0": ["1", "2"], "s1": ["1"], "m2": ["2"]},
            id="sidecar-after",
        ),
        pytest.param(
            [(SIDECAR, 1), (INIT, 2), (MAIN, 1)],
            {"0": 1, "1": 1, "2": 1},
            {"s0": ["0"], "i1": ["1", "2"], "m2": ["2"]},
            id="sidecar-before",
        ),
        pytest.param(
            [(INIT, 1), (INIT, 4), (INIT, 3), (MAIN, 2)],
            {"1": 2, "3": 2},
            {"i0": ["3"], "i1": ["1", "3"], "i2": ["1", "3"], "m3": ["3"]},
            id="largest-lack",
        ),
        pytest.param([(INIT, 1), (MAIN, 2), (MAIN, 1)], {"1": 2, "2": 1}, {"i0": ["1"], "m1": ["1"], "m2": ["2"]}),
        pytest.param([(INIT, 2), (MAIN, 0)], {"0": 2}, {"i0": ["0"]}, id="init-alone"),
    ],
)
def test_what_containers_ask_for(  # noqa: PLR0917 a case and its row
    trial: Trial,
    expect: Expect,
    offers: Offers,
    containers: list[tuple[str, int]],
    requests: dict[str, int],
    mappings: dict[str, list[str]],
) -> None:
    """A request for each container that lasts; init containers use those that start after them, and share the rest."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", *[device(f"d{number}") for number in range(8)])
    builder = pod("a")
    main = builder.manifest["spec"]["containers"][0]
    shown: dict[str, list[Manifest]] = {"initContainers": [], "containers": []}
    for at, (kind, count) in enumerate(containers):
        made = {**main, "name": f"{kind}{at}", "resources": {"limits": {resource: str(count)} if count else {}}}
        if kind == INIT:
            made["command"] = ["true"]
            made.pop("args", None)
        elif kind == SIDECAR:
            made["restartPolicy"] = "Always"
        shown["containers" if kind == MAIN else "initContainers"].append(made)
    builder.manifest["spec"] |= shown
    trial.submit(builder)

    bound = expect.bound("a")

    made_claim = offers.made("a")
    requested = {one.name: one.exactly.count for one in made_claim.spec.devices.requests if one.exactly is not None}
    assert requested == {f"container-{at}-request-0": count for at, count in requests.items()}
    status = bound.status.extended_resource_claim_status
    assert status is not None
    used: dict[str, list[str]] = {}
    for one in status.request_mappings:
        used.setdefault(one.container_name, []).append(one.request_name)
    assert {name: sorted(names) for name, names in used.items()} == {
        name: [f"container-{at}-request-0" for at in places] for name, places in mappings.items()
    }


@pytest.mark.feature("DRA-4.classes")
@pytest.mark.case(
    "DR-131", severity="normal", source="ours: the next class serves at once; kube-scheduler keeps one of each resource"
)
def test_of_classes_of_one_age_the_first_by_name_serves(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Several classes name a resource; when the one that serves it is gone, or names it no more, the next one does."""
    trial.add(node("n1"))
    resource = f"{offers.driver}/gpu"
    model = f"device.driver == '{offers.driver}' && {offers.attribute('model')}"
    offers.publish("n1", *[device(f"d{n}", attributes={"model": name}) for n, name in enumerate("abc")])
    offers.serve("other")  # skips where classes serve no resources
    names = {offers.another(name, f"{model} == '{name}'", resource, settled=False): name for name in "bac"}
    trial.settle()
    created = {name: trial.call("GET", trial.path("DeviceClass", name)).body for name in names}
    by_age = sorted(sorted(names), key=lambda name: _created(created[name]), reverse=True)

    for number, name in enumerate(by_age):
        trial.submit(pod(f"p{number}").resources({resource: 1}))
        expect.bound(f"p{number}")
        assert [_model(offers, f"p{number}")] == [f"d{'abc'.index(names[name])}"]
        if number:
            assert trial.call("DELETE", trial.path("DeviceClass", name)).ok
        else:
            spec = {"spec": {"extendedResourceName": f"{offers.driver}/else"}}
            assert trial.call("PATCH", trial.path("DeviceClass", name), spec).ok
        trial.settle()


def _created(body: bytes) -> str:
    return str(orjson.loads(body)["metadata"]["creationTimestamp"])


def _model(offers: Offers, name: str) -> str:
    claim = offers.made(name)
    assert claim.status.allocation is not None
    (result,) = claim.status.allocation.devices.results
    return result.device


@pytest.mark.feature("DRA-4.claim")
@pytest.mark.case(
    "DR-135", severity="normal", source=f"{PLUGIN}: generateName; apiserver/pkg/storage/names/generate.go"
)
def test_the_claim_of_a_pod_with_a_long_name(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Names that are generated have 63 characters at most: the pod's is cut off."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", device("d0"))
    name = f"{'long-' * 12}name"
    trial.submit(pod(name).resources({resource: 1}))

    expect.bound(name)

    made = offers.made(name)
    assert made.metadata.name[:58] == f"{name}-extended-resources-"[:58]
    assert len(made.metadata.name) == 63


@pytest.mark.feature("DRA-4.plugin")
@pytest.mark.case("DR-132", severity="critical", source=f"{PLUGIN}; spec DRA-R106, DRA-R107")
def test_each_resource_of_a_pod_goes_its_own_way(trial: Trial, expect: Expect, offers: Offers) -> None:
    """n1 has one of two resources by a device plugin and the other by devices, n2 both by devices: the claim asks for
    what the pod's node does not offer itself."""
    offers.serve("a")
    first, second = f"{offers.driver}/a", f"{offers.driver}/b"
    offers.another("b", f"device.driver == '{offers.driver}' && {offers.attribute('kind')} == 'b'", second)
    offers.select(f"device.driver == '{offers.driver}' && {offers.attribute('kind')} == 'a'")
    trial.add(node("n1").extended(first, 2), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, *[device(f"d{kind}", attributes={"kind": kind}) for kind in ("a", "b")])
    for number, name in enumerate(("n1", "n2", "n1")):
        builder = pod(f"p{number}").resources({second: 1, first: 1, "cpu": "100m"})
        builder.manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": name}
        trial.submit(builder)
        if number < 2:
            expect.bound(f"p{number}")
    expect.pending("p2", saying="cannot allocate all claims")

    def drivers_of(name: str) -> dict[str, str]:
        claim = offers.made(name)
        assert claim.status.allocation is not None
        return {one.request: one.device for one in claim.status.allocation.devices.results}

    places = {
        kind: f"container-0-request-{sorted(['cpu', first, second]).index(resource)}"
        for kind, resource in (("a", first), ("b", second))
    }
    assert drivers_of("p0") == {places["b"]: "db"}
    assert drivers_of("p1") == {places["a"]: "da", places["b"]: "db"}


@pytest.mark.feature("DRA-4.plugin")
@pytest.mark.case("DR-192", severity="critical", source=f"{PLUGIN}; spec DRA-R106: allocatable 0 or absent")
def test_a_node_whose_device_plugin_offers_none_has_devices_by_claims(
    trial: Trial, expect: Expect, offers: Offers
) -> None:
    """The node says that it has 0 of the resource: its devices serve it by a claim. A node that offers one
    needs none."""
    resource = offers.serve()
    trial.add(node("n1").extended(resource, 0))
    freeze(trial, "n1")  # its kubelet may refuse the pod
    offers.publish("n1", device("d0"))
    trial.submit(pod("a").resources({resource: 1}))

    expect.bound("a")
    assert _model(offers, "a") == "d0"

    trial.add(node("n2").extended(resource, 1))
    trial.submit(pod("b").resources({resource: 1}))
    assert expect.bound("b").spec.node_name == "n2"
    assert not offers.extended("b")


@pytest.mark.feature("DRA-4.claim")
@pytest.mark.case("DR-193", severity="critical", source=f"{PLUGIN}; spec DRA-R62: after the pod's own claims")
def test_a_pod_with_a_claim_and_a_resource(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Both ask for a device of one node: the pod has two devices, that of its own claim first. The next pod waits for
    the second device of two."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", *[device(f"d{number}") for number in range(3)])
    for name in ("a", "b"):
        trial.apply(claim(f"own-{name}").asks("d", offers.of_class))
        trial.submit(pod(name).claim("d", name=f"own-{name}").resources({resource: 1}))
        if name == "a":
            expect.bound("a")
            assert [*offers.devices_of("own-a"), _model(offers, "a")] == ["d=d0", "d1"]
    expect.pending("b", saying="cannot allocate all claims")

    trial.delete("a")

    expect.bound("b")
    assert offers.devices_of("own-b")
    assert _model(offers, "b")
