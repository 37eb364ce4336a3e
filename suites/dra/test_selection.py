"""Which devices a request means: selectors, taints and rules that taint, constraints, amounts, and whole pools."""

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import claim, node, pod
from seatrial.scheduler.api.resourceclaims import TAINT_RULES_PATH
from seatrial.suites.dra.offers import Offers, device, offers, served

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"
CEL = "kubernetes 1.37 dynamic-resource-allocation/cel/compile.go"
EXTENDED = "kubernetes 1.37 pkg/scheduler/framework/plugins/dynamicresources/extendeddynamicresources.go"
TAINT = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-093", severity="critical", source=ALLOCATOR)
@pytest.mark.parametrize("where", ["class", "claim"])
@pytest.mark.parametrize("order", [1, -1], ids=["kind-first", "size-first"])
def test_each_selector_counts(trial: Trial, expect: Expect, offers: Offers, where: str, order: int) -> None:
    """Of three devices one is of the kind and of the size that two selectors of the class, or of the claim, ask for."""
    trial.add(node("n1"))
    kinds = {"d0": ("a", 2), "d1": ("b", 1), "d2": ("b", 2)}
    offers.publish("n1", *[device(name, attributes={"kind": k, "size": s}) for name, (k, s) in kinds.items()])
    driver = f"device.driver == '{offers.driver}' && "
    selectors = [f"{driver}{offers.attribute('kind')} == 'b'", f"{driver}{offers.attribute('size')} == 2"][::order]
    if where == "class":
        offers.select(*selectors)
    trial.apply(claim("one").asks("d", offers.of_class, *(selectors if where == "claim" else ())))
    trial.submit(pod("a").claim("d", name="one"))

    expect.bound("a")

    assert offers.devices_of("one") == ["d=d2"]


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-202", severity="normal", source=f"{CEL}; spec DRA-R87 to DRA-R89")
@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("'example.org' in device.attributes", id="domain"),
        pytest.param("'example.org' in device.capacity", id="domain-of-capacity"),
        pytest.param("device.attributes['example.org'].exists(name, name == 'x')", id="loop"),
        pytest.param("size(device.attributes['example.org']) == 1", id="size"),
        pytest.param("device.capacity['example.org'].?x.hasValue()", id="optional"),
    ],
)
def test_devices_differ_in_what_they_have(trial: Trial, expect: Expect, offers: Offers, expression: str) -> None:
    """Of three devices with the same values the second alone has some of another domain: it is the one of which the
    expression holds, and the others are those of which it does not."""
    trial.add(node("n1"))
    extra: Manifest = {"capacity": {"example.org/x": {"value": "1"}}}
    same = {"kind": "a"}
    offers.publish(
        "n1",
        device("d0", attributes=same),
        device("d1", attributes=same | {"example.org/x": 1}, **extra),
        device("d2", attributes=same),
    )
    driver = f"device.driver == '{offers.driver}'"
    for name, text in (("others", f"!({expression})"), ("one", expression)):
        count = 2 if name == "others" else 1
        trial.apply(claim(name).asks("d", offers.of_class, f"{driver} && {text}", count=count))
        trial.submit(pod(name).claim("d", name=name))

    expect.bound("others", "one")

    assert offers.devices_of("others") == ["d=d0", "d=d2"]
    assert offers.devices_of("one") == ["d=d1"]


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-094", severity="critical", source="spec DRA-R95")
@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        pytest.param({"key": TAINT["key"], "operator": "Exists", "effect": "NoSchedule"}, True, id="effect"),
        pytest.param({"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}, False, id="other-effect"),
        pytest.param({"key": TAINT["key"], "operator": "Equal", "value": "yes"}, True, id="value"),
        pytest.param({"key": TAINT["key"], "operator": "Equal", "value": "no"}, False, id="other-value"),
        pytest.param({"operator": "Exists"}, True, id="any-key"),
        pytest.param({"key": "example.com/other", "operator": "Exists"}, False, id="other-key"),
    ],
)
def test_what_a_toleration_tolerates(
    trial: Trial, expect: Expect, offers: Offers, toleration: dict[str, str], fits: bool
) -> None:
    """The only device has a taint: key, value and effect of a toleration are compared where they are set."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0", taints=[TAINT]))
    trial.apply(claim("one").asks("d", offers.of_class, tolerations=[toleration]))
    trial.submit(pod("a").claim("d", name="one"))
    if fits:
        expect.bound("a")
        assert offers.devices_of("one") == ["d=d0"]
    else:
        expect.pending("a", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-095", severity="critical", source="spec DRA-R76")
def test_a_rule_taints_one_pool_while_it_is_there(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The rule names the pool of n1: the first pod goes to n2, the second waits until the rule is deleted."""
    trial.add(node("n1"), node("n2"))
    for name in ("n1", "n2"):
        offers.publish(name, device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class), claim("two").asks("d", offers.of_class))
    offers.taint("NoSchedule", pool=f"{trial.name}-n1")
    trial.settle()
    trial.submit(pod("a").claim("d", name="one"))
    assert expect.bound("a").spec.node_name == "n2"
    trial.submit(pod("b").claim("d", name="two"))
    expect.pending("b", saying="cannot allocate all claims")

    assert trial.call("DELETE", f"{TAINT_RULES_PATH}/{trial.name}").ok

    assert expect.bound("b").spec.node_name == "n1"


@pytest.mark.feature("DRA-3.taints")
@pytest.mark.case("DR-133", severity="critical", source="spec DRA-R95, DRA-R76")
def test_a_rule_adds_to_the_taints_of_a_slice(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The device has a taint, and a rule gives it another: both are to be tolerated, until the rule changes."""
    trial.add(node("n1"))
    own = {**TAINT, "key": "example.com/own"}
    offers.publish("n1", device("d0", taints=[own]))
    offers.taint("NoSchedule")
    both, first, second = (
        [{"key": key, "operator": "Exists"} for key in keys]
        for keys in ((own["key"], TAINT["key"]), (own["key"],), (TAINT["key"],))
    )
    for name, tolerations in (("second", second), ("first", first), ("both", both)):
        trial.apply(claim(name).asks("d", offers.of_class, tolerations=tolerations))
        trial.submit(pod(name).claim("d", name=name))
    expect.bound("both")
    expect.pending("first", "second")
    trial.delete("both", "second")
    expect.stable(seconds=3)
    assert not trial.pod("first").spec.node_name

    rule = {"spec": {"taint": {"key": TAINT["key"], "value": "yes", "effect": "None"}}}
    assert trial.call("PATCH", f"{TAINT_RULES_PATH}/{trial.name}", rule).ok

    expect.bound("first")


@pytest.mark.feature("DRA-2.limit")
@pytest.mark.case("DR-134", severity="normal", source="spec DRA-R81, DRA-M43")
@pytest.mark.parametrize(("counts", "fits"), [((16, 16), True), ((16, 17), False), ((31, 1), True), ((1, 32), False)])
def test_the_limit_is_for_all_requests_of_a_claim(
    trial: Trial, expect: Expect, offers: Offers, counts: tuple[int, int], fits: bool
) -> None:
    """There are forty devices; the requests of a claim may have 32 of them together, and another claim the rest."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(40)])
    two = claim("two")
    for name, count in zip("xy", counts, strict=True):
        two.asks(name, offers.of_class, count=count)
    trial.apply(two, claim("other").asks("d", offers.of_class, count=8))
    trial.submit(pod("a").claim("d", name="two").claim("e", name="other"))
    if fits:
        expect.bound("a")
        assert len(offers.devices_of("two")) == sum(counts)
    else:
        expect.pending("a", saying="exceeds the claim limit of 32")


@pytest.mark.feature("DRA-3.partitions", "DRA-3.shares")
@pytest.mark.case("DR-136", severity="critical", source="spec DRA-R97, DRA-R104")
@pytest.mark.parametrize(
    ("together", "at_once"), [(True, False), (False, False), (True, True)], ids=["together", "apart", "at-once"]
)
def test_shares_of_a_device_take_its_counters_once(
    trial: Trial, expect: Expect, offers: Offers, *, together: bool, at_once: bool
) -> None:
    """The shared device takes two of three counters, for two shares and one more: one is left for another device, of
    another claim or of the same one. A claim for a share and a device that takes two is never served."""
    trial.add(node("n1"))
    two = {"resourceSliceCount": 2}

    def taking(count: int) -> Manifest:
        return {"consumesCounters": [{"counterSet": "card", "counters": {"parts": {"value": str(count)}}}]}

    shared = {"allowMultipleAllocations": True, "capacity": {"slots": {"value": "4"}}}
    offers.publish(
        "n1",
        device("shared", attributes={"kind": "shared"}, **shared, **taking(2)),
        device("small", attributes={"kind": "small"}, **taking(1)),
        device("large", attributes={"kind": "large"}, **taking(2)),
        part="devices",
        pool=two,
    )
    card = [{"name": "card", "counters": {"parts": {"value": "3"}}}]
    offers.publish("n1", part="counters", pool=two, sharedCounters=card)
    one = {"capacity": {"requests": {"slots": "1"}}}
    of_kind = {kind: f"{offers.attribute('kind')} == '{kind}'" for kind in ("shared", "small", "large")}
    builders = [claim("first"), claim("first" if together else "second")]
    shares = [builders[0]] * 2 if together else builders
    for number, builder in enumerate(shares):
        builder.asks(f"s{number}", offers.of_class, of_kind["shared"], **one)
    if at_once:
        builders[0].asks("d", offers.of_class, of_kind["small"])
    small, large = claim("small").asks("s", offers.of_class, of_kind["shared"], **one), claim("large")
    for builder in (small, large):
        builder.asks("d", offers.of_class, of_kind[builder.name])
    both = claim("both").asks("s", offers.of_class, of_kind["shared"], **one)
    both.asks("d", offers.of_class, of_kind["large"])
    trial.apply(*([builders[0]] if together else builders), small, large, both)
    trial.submit(pod("both").claim("d", name="both"))
    expect.pending("both", saying="cannot allocate all claims")
    trial.delete("both")
    for builder in [builders[0]] if together else builders:
        trial.submit(pod(builder.name).claim("d", name=builder.name))
        expect.bound(builder.name)
    trial.submit(pod("large").claim("d", name="large"))
    expect.pending("large", saying="cannot allocate all claims")
    if not at_once:
        trial.submit(pod("small").claim("d", name="small"))
        expect.bound("small")
        trial.delete("small")
    trial.delete("first")
    if not together:
        expect.stable(seconds=3)
        assert not trial.pod("large").spec.node_name
        trial.delete("second")

    expect.bound("large")


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-096", severity="critical", source=ALLOCATOR)
def test_each_of_several_values_is_distinct(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Three devices with different ports: the third device in order has the port of the first."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{n}", attributes={"port": port}) for n, port in enumerate((1, 2, 1, 3))])
    trial.apply(claim("apart").asks("d", offers.of_class, count=3).distinct(f"{offers.driver}/port"))
    trial.submit(pod("a").claim("d", name="apart"))

    expect.bound("a")

    assert offers.devices_of("apart") == ["d=d0", "d=d1", "d=d3"]


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-260", severity="critical", source=ALLOCATOR)
def test_each_of_several_values_is_the_same(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of three devices of one rail that are asked for the third is of another: the claim waits until it is replaced."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{n}", attributes={"rail": rail}) for n, rail in enumerate((1, 1, 2))])
    trial.apply(claim("together").asks("d", offers.of_class, count=3).matching(f"{offers.driver}/rail"))
    trial.submit(pod("a").claim("d", name="together"))
    expect.pending("a", saying="cannot allocate all claims")

    offers.change("n1", {"devices": [device(f"d{n}", attributes={"rail": 1}) for n in range(3)]})

    expect.bound("a")
    assert offers.devices_of("together") == ["d=d0", "d=d1", "d=d2"]


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-261", severity="critical", source="spec DRA-R100")
def test_a_device_has_all_amounts_that_are_asked_for(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of three devices that are not shared, one has too little memory, one too few slots, and one enough of both."""
    trial.add(node("n1"))
    sizes = (("20Gi", "8"), ("80Gi", "2"), ("40Gi", "4"))
    capacities = [{"memory": {"value": memory}, "slots": {"value": slots}} for memory, slots in sizes]
    offers.publish("n1", *[device(f"d{n}", capacity=capacity) for n, capacity in enumerate(capacities)])
    amounts = {"requests": {"memory": "40Gi", "slots": "4"}}
    trial.apply(*[claim(name).asks("d", offers.of_class, capacity=amounts) for name in ("one", "two")])
    trial.submit(pod("a").claim("d", name="one"))

    expect.bound("a")

    assert offers.devices_of("one") == ["d=d2"]
    trial.submit(pod("b").claim("d", name="two"))
    expect.pending("b", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-097", severity="critical", source="spec DRA-R100")
@pytest.mark.parametrize(
    ("policy", "amounts"),
    [
        pytest.param(
            {"default": "2", "validRange": {"min": "2", "step": "3", "max": "8"}},
            {"1": "2", "4": "5", "6": "8"},
            id="steps-from-the-minimum",
        ),
        pytest.param({"default": "2", "validValues": ["2", "4", "8"]}, {"1": "2", "3": "4", "5": "8"}, id="values"),
        pytest.param(
            {"default": "2", "validRange": {"min": "2", "max": "8"}}, {"1": "2", "3": "3", "8": "8"}, id="no-steps"
        ),
    ],
)
def test_the_next_amount_of_the_policy_is_taken(
    trial: Trial, expect: Expect, offers: Offers, policy: Manifest, amounts: dict[str, str]
) -> None:
    """Each share takes the smallest amount that the device's policy has and that is enough; for 9 there is none."""
    trial.add(node("n1"))
    slots = {"slots": {"value": "40", "requestPolicy": policy}}
    offers.publish("n1", device("d0", allowMultipleAllocations=True, capacity=slots))
    for amount in (*amounts, "9"):
        trial.apply(claim(f"c{amount}").asks("d", offers.of_class, capacity={"requests": {"slots": amount}}))
        trial.submit(pod(f"p{amount}").claim("d", name=f"c{amount}"))

    expect.bound(*[f"p{amount}" for amount in amounts])

    expect.pending("p9", saying="cannot allocate all claims")
    for amount, taken in amounts.items():
        allocation = offers.claim(f"c{amount}").status.allocation
        assert allocation is not None
        assert allocation.devices.results[0].consumed_capacity == {"slots": taken}


@pytest.mark.feature("DRA-1.allocated")
@pytest.mark.case("DR-098", severity="normal", source="spec DRA-R85")
def test_the_requests_of_a_class_have_its_configuration(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two of three requests are of a class with a configuration: the allocation names both, for the driver."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{number}") for number in range(3)])
    config = [{"opaque": {"driver": offers.driver, "parameters": {"kind": "Mode"}}}]
    assert trial.call("PATCH", trial.path("DeviceClass", offers.of_class), {"spec": {"config": config}}).ok
    other = offers.another("plain", f"device.driver == '{offers.driver}'", f"{offers.driver}/plain")
    trial.apply(claim("three").asks("x", offers.of_class).asks("y", offers.of_class).asks("z", other))
    trial.submit(pod("a").claim("d", name="three"))

    expect.bound("a")

    allocation = offers.claim("three").status.allocation
    assert allocation is not None
    assert [(one.source, list(one.requests)) for one in allocation.devices.config] == [("FromClass", ["x", "y"])]


@pytest.mark.feature("DRA-4.containers")
@pytest.mark.case("DR-099", severity="normal", source=EXTENDED)
@pytest.mark.parametrize("counts", [(1, 3), (3, 1)], ids=["last", "first"])
def test_init_containers_have_what_the_largest_asks_for(
    trial: Trial, expect: Expect, offers: Offers, counts: tuple[int, int]
) -> None:
    """Two init containers ask for one and three devices, one after the other: the pod has three."""
    trial.add(node("n1"))
    resource = offers.serve()
    offers.publish("n1", *[device(f"d{number}") for number in range(4)])
    builder = pod("a")
    main = builder.manifest["spec"]["containers"][0]
    builder.manifest["spec"]["initContainers"] = [
        {"name": f"early-{at}", "image": main["image"], "command": ["true"], "resources": {"limits": {resource: count}}}
        for at, count in enumerate(map(str, counts))
    ]
    trial.submit(builder)

    expect.bound("a")

    made = offers.made("a")
    assert made.status.allocation is not None
    assert len(made.status.allocation.devices.results) == 3


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-100", severity="normal", source=ALLOCATOR)
def test_a_pool_with_more_slices_than_it_says_gives_nothing(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Two slices say that the pool has one. When they say two, the pod goes."""
    trial.add(node("n1"))
    for part in ("a", "b"):
        offers.publish("n1", device(f"d-{part}"), part=part)
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.submit(pod("a").claim("d", name="one"))
    expect.pending("a")

    for part in ("a", "b"):
        offers.change("n1", {"pool": {"resourceSliceCount": 2}}, part=part)

    expect.bound("a")
