"""Claims for devices: who gets which, when they wait, and when devices come back."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.subject.protocol import Subject
from seatrial.scheduler.api.builders import claim, claim_template, node, pod, pods
from seatrial.scheduler.api.resourceclaims import DELETE_PROTECTION
from seatrial.suites.dra.offers import NVIDIA, Offers, device, offers, served
from seatrial.suites.faults.schedulers import running

__all__ = ["offers", "running", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
PLUGIN = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources"
CONTROLLER = "kubernetes 1.37 pkg/controller/resourceclaim"
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-001", severity="blocker", source=PLUGIN)
def test_a_pod_gets_a_card_by_a_template(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The claim that is made for the pod has a card of the node and is for this pod alone; the container sees it."""
    trial.add(node("n1").cards(2).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", template="one"))

    bound = expect.running("a")

    name = offers.claim_of("a")
    assert name.startswith("a-gpu-"), name
    claim = offers.claim(name)
    assert [owner.uid for owner in claim.metadata.owner_references if owner.controller] == [bound.metadata.uid]
    assert DELETE_PROTECTION in claim.metadata.finalizers
    assert [(user.resource, user.uid) for user in claim.status.reserved_for] == [("pods", bound.metadata.uid)]
    assert claim.status.allocation is not None
    (result,) = claim.status.allocation.devices.results
    assert (result.request, result.driver, result.pool) == ("gpu", NVIDIA, bound.spec.node_name)
    assert len(trial.visible_devices(bound)) == 1


@pytest.mark.feature("DRA-1.protected")
@pytest.mark.case("DR-262", severity="normal", source=f"{PLUGIN}/dynamicresources.go: bindClaim")
def test_a_claim_with_a_finalizer_of_its_own_is_protected_as_well(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The claim is created with another program's finalizer: it has both when its pod runs."""
    trial.add(node("n1").cards(1).dra())
    one = claim("one").asks("gpu", NVIDIA)
    one.manifest["metadata"]["finalizers"] = ["seatrial.dev/kept"]
    trial.apply(one)
    trial.submit(pod("a").claim("gpu", name="one"))

    expect.running("a")

    assert set(offers.claim("one").metadata.finalizers) == {"seatrial.dev/kept", DELETE_PROTECTION}


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-208", severity="normal", source=f"{CONTROLLER}; spec DRA-R24 to DRA-R26, example E4")
def test_a_pod_gets_a_claim_by_each_of_its_templates(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two entries of a pod name a template each: two claims, with labels and annotations of their templates, and named
    after pod and entry, of which long ones are cut in proportion."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1"))
    name, entries = "p" * 60, {"e" * 20: "one", "f": "two"}
    for template in entries.values():
        built = claim_template(template).asks("d", offers.of_class)
        built.manifest["spec"]["metadata"] = {"labels": {"of": template}, "annotations": {"example.com/of": template}}
        trial.apply(built)
    user = pod(name)
    for entry, template in entries.items():
        user.claim(entry, template=template)
    trial.submit(user)

    expect.bound(name)

    names = {template: offers.claim_of(name, entry) for entry, template in entries.items()}
    assert len(set(names.values())) == 2
    for template, made in names.items():
        metadata = offers.claim(made).metadata
        assert (metadata.labels["of"], metadata.annotations["example.com/of"]) == (template, template)
    assert [made[:-5] for made in names.values()] == [f"{'p' * 41}-{'e' * 13}", f"{'p' * 54}-"]


@pytest.mark.feature("DRA-1.waits")
@pytest.mark.case("DR-002", severity="blocker", source=PLUGIN)
def test_a_pod_waits_for_a_card_and_gets_it(trial: Trial, expect: Expect) -> None:
    """The only card is taken: the second pod waits, and has it soon after the first pod is gone."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", template="one"))
    expect.running("a")
    trial.submit(pod("b").claim("gpu", template="one"))
    expect.pending("b", saying="cannot allocate all claims")

    trial.delete("a")

    expect.running("b")


@pytest.mark.feature("DRA-1.comes-back")
@pytest.mark.case("DR-003", severity="critical", source=CONTROLLER)
def test_a_pod_that_has_ended_gives_its_card_back(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A completed pod stays as an object, and its claim is deleted."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    short = pod("a").claim("gpu", template="one").annotation("seatrial.dev/runs-for", "5")
    short.manifest["spec"]["restartPolicy"] = "Never"
    trial.submit(short)
    expect.running("a")
    first = offers.claim_of("a")
    trial.submit(pod("b").claim("gpu", template="one"))

    expect.running("b", within=60)

    assert trial.pod("a").status.phase == "Succeeded"
    assert trial.reaches(lambda: trial.call("GET", trial.path("ResourceClaim", first)).code == 404, within=30)


@pytest.mark.feature("DRA-1.comes-back")
@pytest.mark.case("DR-004", severity="critical", source=CONTROLLER)
def test_a_pod_that_is_ending_keeps_its_card(trial: Trial, expect: Expect) -> None:
    """A finalizer keeps the deleted pod: the next one is not bound before it is gone."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    first = pod("a").claim("gpu", template="one")
    first.manifest["metadata"]["finalizers"] = ["seatrial.dev/kept"]
    trial.submit(first)
    expect.running("a")
    trial.submit(pod("b").claim("gpu", template="one"))
    expect.pending("b")
    path = f"/api/v1/namespaces/{trial.name}/pods/a"

    assert trial.call("DELETE", path).ok
    expect.stable(seconds=10)
    assert not trial.pod("b").spec.node_name
    assert trial.call("PATCH", path, {"metadata": {"finalizers": None}}).ok

    expect.running("b")


@pytest.mark.feature("DRA-1.shared")
@pytest.mark.case("DR-005", severity="critical", source=PLUGIN)
def test_pods_share_a_claim_on_its_node(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Three pods name one claim: one card, one node, and each pod is in reservedFor."""
    trial.add(node("n1").cards(1).dra(), node("n2").cards(1).dra())
    trial.apply(claim("shared").asks("gpu", NVIDIA))
    trial.submit(*[one.claim("gpu", name="shared") for one in pods("p", 3)])

    bound = expect.running("p-0", "p-1", "p-2")

    assert len({each.spec.node_name for each in bound}) == 1
    status = offers.claim("shared").status
    assert {user.uid for user in status.reserved_for} == {each.metadata.uid for each in bound}
    assert len(offers.devices_of("shared")) == 1


@pytest.mark.feature("DRA-1.protected")
@pytest.mark.case("DR-006", severity="critical", source=CONTROLLER)
def test_a_claim_in_use_outlives_its_deletion(trial: Trial, expect: Expect) -> None:
    """A deleted claim stays for its pod, takes no new pod, and goes with the last user."""
    trial.add(node("n1").cards(1).dra())
    trial.apply(claim("kept").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", name="kept"))
    expect.running("a")
    path = trial.path("ResourceClaim", "kept")

    assert trial.call("DELETE", path).ok
    trial.submit(pod("b").claim("gpu", name="kept"))
    expect.stable(seconds=5)

    assert trial.call("GET", path).ok
    waiting = trial.pod("b")
    assert not waiting.spec.node_name
    assert all(condition.reason != "SchedulerError" for condition in waiting.status.conditions)
    trial.delete("a")
    assert trial.reaches(lambda: trial.call("GET", path).code == 404, within=30)


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-007", severity="blocker", source=ALLOCATOR)
def test_selectors_choose_the_model(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Cards of two models: a selector on the product name leaves one, and takes all of it that were asked for."""
    trial.add(node("n1").gpus("a100-80g", 2).dra(), node("n2").gpus("h100-80g", 2).dra())
    model = f"device.attributes['{NVIDIA}'].productName.contains('H100')"
    memory = f"device.capacity['{NVIDIA}'].memory.compareTo(quantity('9Gi')) >= 0"
    trial.apply(claim("two").asks("gpu", NVIDIA, memory, model, count=2))
    trial.submit(pod("a").claim("gpu", name="two"))

    bound = expect.running("a")

    assert bound.spec.node_name == "n2"
    assert offers.devices_of("two") == ["gpu=gpu-0", "gpu=gpu-1"]


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-013", severity="critical", source=ALLOCATOR)
def test_a_class_chooses_its_devices(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A device of another driver comes first by name, and is not of the class."""
    trial.add(node("n1"))
    offers.publish("n1", device("wrong"), part="other", driver=f"a-{offers.driver}", pool={"name": f"a-{trial.name}"})
    offers.publish("n1", device("right"))
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))

    expect.bound("a")

    assert offers.devices_of("one") == ["d=right"]


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-008", severity="normal", source=ALLOCATOR)
def test_a_missing_attribute_is_an_error_unless_it_is_guarded(trial: Trial, expect: Expect, offers: Offers) -> None:
    """An expression on an attribute that a device lacks keeps the pod waiting, in a claim and in a class; with `has` it
    is only false. One that is no truth value is an error as well."""
    trial.add(node("n1"))
    offers.publish("n1", device("plain"), *[device(name, attributes={"model": "x"}) for name in ("named", "other")])
    attributes = f"device.attributes['{offers.driver}']"
    trial.apply(
        claim("bare").asks("card", offers.of_class, f"{attributes}.model == 'x'"),
        claim("guarded").asks("card", offers.of_class, f"has({attributes}.model) && {attributes}.model == 'x'"),
    )
    driver = f"device.driver == '{offers.driver}'"
    of_class = offers.another("bare", f"{attributes}.model == 'x'", f"{offers.driver}/bare")
    trial.apply(
        claim("second").asks("card", offers.of_class, driver, f"{attributes}.model == 'x'"),
        claim("classed").asks("card", of_class),
        claim("text").asks("card", offers.of_class, f"has({attributes}.model) ? {attributes}.model : false"),
    )
    trial.submit(pod("a").claim("card", name="bare"), pod("b").claim("card", name="guarded"))
    trial.submit(*[pod(name).claim("card", name=name) for name in ("second", "classed", "text")])

    expect.running("b")

    assert offers.devices_of("guarded") == ["card=named"]
    expect.pending("a", saying="no such key: model")
    lacks = f"device {offers.driver}/{trial.name}-n1/plain: CEL runtime error: no such key: model"
    expect.pending("second", saying=f"claim {trial.name}/second: selector #1 on {lacks}")
    expect.pending("classed", saying=f"class {of_class}: selector #0 on {lacks}")
    expect.pending("text", saying="CEL runtime error")


@pytest.mark.feature("DRA-1.counted")
@pytest.mark.case("DR-009", severity="blocker", source=ALLOCATOR)
def test_no_card_is_given_twice(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Twenty pods that ask for two cards each come at once to eight nodes with four: sixteen get theirs."""
    trial.add(*[node(f"n{number}").cards(4).dra() for number in range(8)])
    trial.apply(claim_template("two").asks("gpu", NVIDIA, count=2))
    trial.submit(*[one.claim("gpu", template="two") for one in pods("p", 20)])

    assert trial.reaches(lambda: sum(each.status.phase == "Running" for each in trial.pods()) == 16, within=60)
    expect.stable(seconds=5)

    running = [each for each in trial.pods() if each.spec.node_name]
    assert len(running) == 16
    cards = [
        (each.spec.node_name, card)
        for each in running
        for card in offers.devices_of(offers.claim_of(each.metadata.name))
    ]
    assert len(cards) == len(set(cards)) == 32


@pytest.mark.feature("DRA-1.containers")
@pytest.mark.case("DR-010", severity="critical", source="kubernetes 1.37 pkg/kubelet/cm/dra/manager.go")
def test_a_container_gets_what_it_names(trial: Trial, expect: Expect) -> None:
    """Two containers name one request each of a claim for three cards: each sees its own; a third sees none."""
    trial.add(node("n1").cards(4).dra())
    trial.apply(claim("three").asks("one", NVIDIA).asks("two", NVIDIA, count=2))
    builder = pod("a").claim("gpu", name="three", request="one")
    main = builder.manifest["spec"]["containers"][0]
    second = {**main, "name": "second", "resources": {"claims": [{"name": "gpu", "request": "two"}]}}
    third = {key: value for key, value in main.items() if key != "resources"} | {"name": "third"}
    builder.manifest["spec"]["containers"] += [second, third]
    trial.submit(builder)

    expect.running("a")

    def seen(container: str) -> set[bytes]:
        path = f"/api/v1/namespaces/{trial.name}/pods/a/log?container={container}"
        lines = trial.call("GET", path).body.splitlines()
        return {line for line in lines if line.startswith(b"device=") and line[-1:].isdigit()}

    assert (len(seen("main")), len(seen("second")), len(seen("third"))) == (1, 2, 0)
    assert not seen("main") & seen("second")


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-014", severity="critical", source="kubernetes 1.37 dynamic-resource-allocation/structured")
@pytest.mark.needs(Capability.DEVICE_FAULTS)
def test_a_card_that_fails_is_given_to_nobody(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One of two cards fails; its driver taints it: the next pod gets the other one, and a third waits."""
    trial.add(node("n1").cards(2).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    trial.inject({"node": "n1", "verb": "critical", "device": 0, "xid": 79})
    trial.settle()
    trial.submit(pod("a").claim("gpu", template="one"))
    expect.running("a")
    assert offers.devices_of(offers.claim_of("a")) == ["gpu=gpu-1"]
    trial.submit(pod("b").claim("gpu", template="one"))
    expect.pending("b", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-1.protected")
@pytest.mark.case("DR-011", severity="critical", source=PLUGIN)
def test_a_pod_waits_for_a_claim_that_is_not_there(trial: Trial, expect: Expect) -> None:
    """The claim is created after the pod, which then goes without another event."""
    trial.add(node("n1").cards(1).dra())
    trial.submit(pod("a").claim("gpu", name="late"))
    expect.stable(seconds=3)
    assert not trial.pod("a").spec.node_name

    trial.apply(claim("late").asks("gpu", NVIDIA))

    assert trial.reaches(lambda: trial.pod("a").status.phase == "Running", within=5)


@pytest.mark.feature("DRA-1.restart")
@pytest.mark.case("DR-012", severity="critical", source=PLUGIN)
def test_cards_of_before_a_restart_are_known(trial: Trial, expect: Expect, offers: Offers, running: Subject) -> None:
    """After a restart of the scheduler a card that a claim has is not given again."""
    trial.add(node("n1").cards(2).dra())
    trial.apply(claim_template("one").asks("gpu", NVIDIA))
    trial.submit(pod("a").claim("gpu", template="one"))
    expect.running("a")
    running.kill()
    trial.submit(pod("b").claim("gpu", template="one"), pod("c").claim("gpu", template="one"))
    running.start_again()

    assert trial.reaches(lambda: sum(bool(each.spec.node_name) for each in trial.pods()) == 2, within=30)

    (other,) = [each.metadata.name for each in trial.pods() if each.spec.node_name and each.metadata.name != "a"]
    expect.running(other)
    assert offers.devices_of(offers.claim_of("a")) != offers.devices_of(offers.claim_of(other))
    expect.pending(*({"b", "c"} - {other}))


@pytest.mark.feature("DRA-1.comes-back")
@pytest.mark.case("SC-475", severity="critical", source=f"{PLUGIN}: EventsToRegister, a ResourceClaim is deleted")
@pytest.mark.long(seconds=12)
def test_a_claim_that_goes_with_its_card_wakes_who_waits(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Another controller allocated the only card to a claim of its own, without a finalizer. The claim is deleted, and
    nothing else happens: the pod that waits has the card."""
    trial.add(node("n1").dra())
    offers.publish("n1", device("card"))
    trial.apply(claim("other").asks("gpu", offers.of_class), claim_template("one").asks("gpu", offers.of_class))
    result = {"request": "gpu", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "card"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"apiGroup": "example.com", "resource": "jobs", "name": "job", "uid": "1"}],
    }
    path = trial.path("ResourceClaim", "other")
    assert trial.call("PATCH", f"{path}/status", {"status": status}).ok
    trial.submit(pod("waits").claim("gpu", template="one"))
    expect.pending("waits")

    assert trial.call("DELETE", path).ok

    expect.bound("waits", within=20)


@pytest.mark.feature("DRA-1.shared")
@pytest.mark.case("DR-220", severity="normal", source="spec DRA-R123: at most 256 reservations of a claim")
@pytest.mark.long(seconds=30)
def test_a_claim_is_reserved_for_256_users(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A claim with a device is reserved for as many users as it may be: a pod waits until one of them leaves."""
    trial.add(node("n1").dra())
    offers.publish("n1", device("card"))
    trial.apply(claim("full").asks("gpu", offers.of_class))
    result = {"request": "gpu", "driver": offers.driver, "pool": f"{trial.name}-n1", "device": "card"}
    allocation = {"devices": {"results": [result]}, "allocationTimestamp": "2026-01-01T00:00:00Z"}
    users = [
        {"apiGroup": "example.com", "resource": "jobs", "name": f"job-{number}", "uid": f"{number}"}
        for number in range(256)
    ]
    path = f"{trial.path('ResourceClaim', 'full')}/status"
    assert trial.call("PATCH", path, {"status": {"allocation": allocation, "reservedFor": users}}).ok
    trial.submit(pod("late").claim("gpu", name="full"))
    expect.stable(seconds=5)
    assert not trial.pod("late").spec.node_name

    assert trial.call("PATCH", path, {"status": {"reservedFor": users[1:]}}).ok

    bound = expect.bound("late", within=60)
    assert bound.metadata.uid in {user.uid for user in offers.claim("full").status.reserved_for}
