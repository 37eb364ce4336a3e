"""How devices are searched for: what a search gives up is free again, and equal values count as equal."""

from typing import Any

import pytest

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.trial import Manifest, Trial
from seatrial.harness.clusters.protocol import Capability
from seatrial.scheduler.api.builders import ClaimBuilder, alternative, claim, node, pod
from seatrial.suites.dra.offers import Offers, device, offers, served

__all__ = ["offers", "served"]

pytestmark = [pytest.mark.needs(Capability.HARDWARE)]
ALLOCATOR = "kubernetes 1.37 dynamic-resource-allocation/structured"
CEL = "kubernetes 1.37 dynamic-resource-allocation/cel/compile.go"


def _taking(amount: int) -> Manifest:
    return {"consumesCounters": [{"counterSet": "card", "counters": {"slices": {"value": str(amount)}}}]}


def _shared(amount: int) -> Manifest:
    return {"allowMultipleAllocations": True, "capacity": {"slots": {"value": str(amount)}}}


SIX = {"capacity": {"requests": {"slots": "6"}}}


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-110", severity="critical", source=f"{ALLOCATOR}: a device that does not lead on is deallocated")
@pytest.mark.parametrize(
    ("devices", "amounts", "constraints", "chosen"),
    [
        pytest.param(
            [("any", _taking(3)), ("any", _taking(2)), ("last", _taking(2))], {}, {}, ["x=d1", "y=d2"], id="counters"
        ),
        pytest.param([("last", _shared(10)), ("any", _shared(10))], SIX, {}, ["x=d1", "y=d0"], id="shares"),
        pytest.param(
            [("any", {"root": 0}), ("any", {"root": 1}), ("last", {"root": 1})],
            {},
            {"matchAttribute": "root"},
            ["x=d1", "y=d2"],
            id="match",
        ),
        pytest.param(
            [("any", {"port": 1}), ("any", {"port": 2}), ("last", {"port": 1})],
            {},
            {"distinctAttribute": "port"},
            ["x=d1", "y=d2"],
            id="distinct",
        ),
    ],
)
def test_what_a_search_gives_up_is_free_again(  # noqa: PLR0917 a case and its row
    trial: Trial,
    expect: Expect,
    offers: Offers,
    devices: list[tuple[str, Manifest]],
    amounts: Manifest,
    constraints: dict[str, str],
    chosen: list[str],
) -> None:
    """The first device for the first request leaves none for the second: it is given up for the next one."""
    trial.add(node("n1"))
    made = []
    for number, (kind, fields) in enumerate(devices):
        plain = {name: value for name, value in fields.items() if name in {"root", "port"}}
        rest = {name: value for name, value in fields.items() if name not in plain}
        made.append(device(f"d{number}", attributes={"kind": kind, **plain}, **rest))
    two = {"resourceSliceCount": 2}
    card = [{"name": "card", "counters": {"slices": {"value": "4"}}}]
    offers.publish("n1", *made, part="devices", pool=two)
    offers.publish("n1", part="counters", pool=two, sharedCounters=card)
    pair = claim("pair").asks("x", offers.of_class, **amounts)
    pair.asks("y", offers.of_class, f"{offers.attribute('kind')} == 'last'", **amounts)
    for kind, name in constraints.items():
        (pair.matching if kind == "matchAttribute" else pair.distinct)(f"{offers.driver}/{name}")
    trial.apply(pair)
    trial.submit(pod("a").claim("d", name="pair"))

    expect.bound("a")

    assert offers.devices_of("pair") == chosen


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-111", severity="critical", source=f"{ALLOCATOR}: constraints before a violated one are undone")
@pytest.mark.parametrize("order", [1, -1], ids=["distinct-first", "match-first"])
def test_a_device_that_one_constraint_refuses_counts_for_none(
    trial: Trial, expect: Expect, offers: Offers, order: int
) -> None:
    """The second device has a port of its own under another root: the third, which has the same port, is taken."""
    trial.add(node("n1"))
    places = [(0, 0), (1, 1), (1, 0)]
    offers.publish("n1", *[device(f"d{n}", attributes={"port": p, "root": r}) for n, (p, r) in enumerate(places)])
    pair = claim("pair").asks("d", offers.of_class, count=2)
    for kind in ("distinct", "match")[::order]:
        name = f"{offers.driver}/{'port' if kind == 'distinct' else 'root'}"
        (pair.distinct if kind == "distinct" else pair.matching)(name)
    trial.apply(pair)
    trial.submit(pod("a").claim("d", name="pair"))

    expect.bound("a")

    assert offers.devices_of("pair") == ["d=d0", "d=d2"]


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-112", severity="critical", source="spec DRA-R71, DRA-R72, DRA-R73")
@pytest.mark.parametrize(
    ("values", "match", "distinct"),
    [
        pytest.param(({"bool": False}, {"bool": False}), True, False, id="false"),
        pytest.param(({"int": 0}, {"int": 0}), True, False, id="zero"),
        pytest.param(({"string": "1.0.0"}, {"version": "1.0.0"}), False, True, id="text-and-version"),
        pytest.param(({"bool": True}, {"int": 1}), False, True, id="truth-and-number"),
        pytest.param(({"string": "1"}, {"int": 1}), False, True, id="text-and-number"),
        pytest.param(({"version": "1.0.0"}, {"version": "1.0.1"}), False, True, id="versions"),
        pytest.param(({"version": "1.0.0+a"}, {"version": "1.0.0+b"}), False, True, id="builds"),
        pytest.param(({"int": 1}, None), False, False, id="missing"),
    ],
)
def test_values_are_equal_if_their_types_are(  # noqa: PLR0917 a case and its row
    trial: Trial, expect: Expect, offers: Offers, values: tuple[Any, Any], match: bool, distinct: bool
) -> None:
    """Two devices with these values serve a request for both of them that want equal, or different, values."""
    trial.add(node("n1"))
    named = [{"attributes": {"value": value}} if value is not None else {} for value in values]
    offers.publish("n1", *[device(f"d{number}", **fields) for number, fields in enumerate(named)])
    full = f"{offers.driver}/value"
    for name, builder in (("match", claim("match").matching(full)), ("distinct", claim("distinct").distinct(full))):
        trial.apply(builder.asks("d", offers.of_class, count=2))
        trial.submit(pod(name).claim("d", name=name))
        if match if name == "match" else distinct:
            expect.bound(name)
        else:
            expect.pending(name, saying="cannot allocate all claims")
        trial.delete(name)


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-113", severity="critical", source="spec DRA-R71, DRA-R73")
@pytest.mark.parametrize(
    ("of", "chosen"),
    [
        pytest.param(["x", "z"], ["x=d0", "y/only=d1", "z=d3"], id="two-of-three"),
        pytest.param(["x", "y"], ["x=d0", "y/only=d3", "z=d1"], id="request-of-an-alternative"),
        pytest.param(["x", "y/only"], ["x=d0", "y/only=d3", "z=d1"], id="alternative"),
        pytest.param(["x", "y/other"], ["x=d0", "y/only=d1", "z=d2"], id="other-alternative"),
    ],
)
def test_a_constraint_is_for_the_requests_that_it_names(
    trial: Trial, expect: Expect, offers: Offers, of: list[str], chosen: list[str]
) -> None:
    """The first and the last of four devices are under one root; the constraint is for two of three requests."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{n}", attributes={"root": root}) for n, root in enumerate((0, 1, 2, 0))])
    ways = [alternative("other", offers.of_class, "false"), alternative("only", offers.of_class)]
    three = claim("three").asks("x", offers.of_class).asks_first("y", *ways).asks("z", offers.of_class)
    trial.apply(three.matching(f"{offers.driver}/root", *of))
    trial.submit(pod("a").claim("d", name="three"))

    expect.bound("a")

    assert offers.devices_of("three") == chosen


@pytest.mark.feature("DRA-2.constraints")
@pytest.mark.case("DR-114", severity="critical", source=ALLOCATOR)
@pytest.mark.parametrize("kind", ["match", "distinct", "capacity", "counters"])
def test_nodes_that_differ_in_what_a_claim_reads(trial: Trial, expect: Expect, offers: Offers, kind: str) -> None:
    """Of four nodes with two devices each, two have devices for a claim: two pods go there, and the third waits."""
    names = [f"n{number}" for number in range(4)]
    trial.add(*[node(name) for name in names])
    for number, name in enumerate(names):
        good = number % 2
        first: Manifest = {"attributes": {"port": 0}, "capacity": {"slots": {"value": "4"}}}
        port = {"match": 1 - good, "distinct": good}.get(kind, 0)
        second: Manifest = {"attributes": {"port": port}, "capacity": {"slots": {"value": str(4 + good)}}}
        pool = {"resourceSliceCount": 2} if kind == "counters" else {}
        taking = _taking(2) if kind == "counters" else {}
        offers.publish(name, device("d0", **first, **taking), device("d1", **second, **taking), pool=pool)
        if kind == "counters":
            card = {"name": "card", "counters": {"slices": {"value": str(3 + good)}}}
            offers.publish(name, part="counters", pool=pool, sharedCounters=[card])
    for number in range(3):
        trial.apply(_wish(kind, f"c{number}", offers))
        trial.submit(pod(f"p{number}").claim("d", name=f"c{number}"))
    placed = {pod.metadata.name: pod.spec.node_name for pod in expect.bound("p0", "p1")}

    assert sorted(placed.values()) == ["n1", "n3"]
    expect.pending("p2", saying="cannot allocate all claims")


def _wish(kind: str, name: str, offers: Offers) -> ClaimBuilder:
    full = f"{offers.driver}/port"
    if kind == "capacity":
        return claim(name).asks("d", offers.of_class, capacity={"requests": {"slots": "5"}})
    pair = claim(name).asks("d", offers.of_class, count=2)
    return pair.matching(full) if kind == "match" else pair.distinct(full) if kind == "distinct" else pair


TRUE = [
    "semver('1.0.0').isGreaterThan(semver('1.0.0-rc.1'))",
    "semver('1.0.0-rc.10').isGreaterThan(semver('1.0.0-rc.9'))",
    "semver('1.0.0-rc.1').isLessThan(semver('1.0.0-rc.a'))",
    "semver('1.0.0-rc').isLessThan(semver('1.0.0-rc.1'))",
    "semver('1.2.3').isLessThan(semver('1.2.10'))",
    "semver('1.2.3+a').compareTo(semver('1.2.3+b')) == 0",
    "semver('4.5.6').major() == 4 && semver('4.5.6').minor() == 5 && semver('4.5.6').patch() == 6",
    "!isSemver('1.2') && isSemver('1.2.3-rc.1')",
    "quantity('1Gi').isGreaterThan(quantity('1000M')) && quantity('1500m').isLessThan(quantity('2'))",
    "quantity('1Gi').compareTo(quantity('1024Mi')) == 0 && quantity('1').compareTo(quantity('2')) == -1",
    "quantity('2').add(quantity('1')).sub(3).asInteger() == 0",
    "quantity('2k').asInteger() == 2000 && isQuantity('1Gi') && !isQuantity('1Zz')",
    "'Abc'.lowerAscii() == 'abc' && 'Abc'.upperAscii() == 'ABC' && ' a '.trim() == 'a'",
    "DEVICE.?none.orValue('x') == 'x' && DEVICE.?text.orValue('x') == 'card' && !DEVICE.?none.hasValue()",
    "has(DEVICE.text) && !has(DEVICE.none) && DEVICE.no == false && DEVICE.zero == 0",
    "!('other.example.com' in device.attributes) && DRIVER in device.attributes && 'text' in DEVICE",
    "device.attributes['other.example.com'].?x.orValue(1) == 1",
    "cel.bind(own, DEVICE, has(own.text) && own.text == 'card' && !has(own.none)) && cel.bind(x, DEVICE.none, true)",
    "'GPU-H100'.split('-')[1] == 'H100' && 'a-b-c'.split('-', 2) == ['a', 'b-c'] && 'a-b'.replace('-', '') == 'ab'",
    "'card'.substring(1, 3) == 'ar' && 'card'.substring(2) == 'rd' && 'card'.indexOf('d') == 3",
    "!DEVICE.?no.orValue(true) && DEVICE.?zero.orValue(1) == 0",
    "device.allowMultipleAllocations == false",
    "device.capacity[DRIVER].memory.compareTo(quantity('8Gi')) == 0",
    "DEVICE.level.isLessThan(semver('1.0.0')) && DEVICE.level == semver('1.0.0-rc.1')",
    "DEVICE.none == 1 || DEVICE.zero == 0",
    "DEVICE.text.startsWith('ca') && DEVICE.text.endsWith('rd') && DEVICE.text.matches('a[a-r]') && 'B' < 'a'",
    "'pci0000:1f'.find('[0-9]+') == '0000' && 'abc'.charAt(1) == 'b'",
    "'abca'.lastIndexOf('a') == 3 && size('h\u00e9') == 2",
    "sets.contains([1, 2], [1]) && !sets.contains([1], [1, 2]) && sets.intersects([1, 3], [1, 2])",
    "sets.equivalent([1, 2], [2, 1, 1]) && !sets.intersects([1], [2])",
    "[1, 2, 3].sum() == 6 && [1, 3, 2].max() == 3 && [2, 1].min() == 1 && [1, 1].isSorted() && ![2, 1].isSorted()",
    "[1, 2].indexOf(2) == 1 && [1, 2, 1].lastIndexOf(1) == 2 && -7 / 2 == -3 && -7 % 2 == -1",
    "ip('10.0.0.1').family() == 4 && ip('::1').isLoopback() && isIP('10.0.0.1') && !isIP('10.0.0')",
    "cidr('10.0.0.0/8').containsIP('10.1.0.0') && !cidr('10.0.0.0/8').containsIP('11.0.0.0')",
    "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
    "!quantity('1500m').isInteger() && sign(quantity('-1')) == -1 && sign(quantity('1').sub(quantity('1'))) == 0",
    "DEVICE.exists(name, name == 'text') && DEVICE.all(name, name != 'none') && [1, 2].exists_one(x, x == 2)",
    "[1, 2, 3].filter(x, x > 1).map(x, x * 2) == [4, 6] && (DEVICE.no ? 1 : 2) == 2 && 2 in [1, 2]",
]
FALSE = [
    "DEVICE.none == 1 && DEVICE.zero == 1",
    "semver('2.0.0-rc.1').isGreaterThan(semver('2.0.0'))",
    "quantity('1').isGreaterThan(quantity('1')) || quantity('1').isLessThan(quantity('1'))",
    "DEVICE.no",
]


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-115", severity="critical", source=f"{CEL}; apiserver/pkg/cel/library; spec DRA-R89")
def test_what_an_expression_says_of_a_device(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One claim for each expression, over devices that are all alike: those that hold get one, the others none."""
    trial.add(node("n1").pods(100))
    attributes = {"text": "card", "no": False, "zero": 0, "level": {"version": "1.0.0-rc.1"}}
    shown: Manifest = {"attributes": attributes, "capacity": {"memory": {"value": "8Gi"}}}
    offers.publish("n1", *[device(f"d{number}", **shown) for number in range(len(TRUE) + len(FALSE))])
    own = f"device.attributes['{offers.driver}']"
    for number, text in enumerate((*TRUE, *FALSE)):
        guarded = f"device.driver == '{offers.driver}' && ({text})"
        expression = guarded.replace("DEVICE", own).replace("DRIVER", f"'{offers.driver}'")
        trial.apply(claim(f"c{number}").asks("d", offers.of_class, expression))
        trial.submit(pod(f"p{number}").claim("d", name=f"c{number}"))

    expect.bound(*[f"p{number}" for number in range(len(TRUE))])

    for number in range(len(TRUE), len(TRUE) + len(FALSE)):
        expect.pending(f"p{number}", saying="cannot allocate all claims")


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-160", severity="normal", source=f"{CEL}; spec DRA-R89")
def test_an_expression_says_whether_a_device_is_shared(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of two devices the second alone may be allocated several times: one claim is for such devices, and one for the
    others."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0"), device("d1", allowMultipleAllocations=True))
    shared = "device.allowMultipleAllocations"
    for name, expression, chosen in (("many", shared, "d1"), ("again", shared, "d1"), ("once", f"!{shared}", "d0")):
        trial.apply(claim(name).asks("d", offers.of_class, expression))
        trial.submit(pod(name).claim("d", name=name))
        expect.bound(name)
        assert offers.devices_of(name) == [f"d={chosen}"]


@pytest.mark.feature("DRA-2.alternatives")
@pytest.mark.case("DR-116", severity="critical", source="spec DRA-R66: 8 less the place of each chosen alternative")
@pytest.mark.parametrize("claims", [1, 2], ids=["one-claim", "two-claims"])
@pytest.mark.parametrize("better", ["n1", "n2"])
def test_nodes_with_earlier_alternatives_are_preferred(
    trial: Trial, expect: Expect, offers: Offers, claims: int, better: str
) -> None:
    """One node serves two requests by the first and the fourth alternative, the other both by the second."""
    trial.add(node("n1"), node("n2"))
    other = "n2" if better == "n1" else "n1"
    offers.publish(better, *[device(f"d{kind}", attributes={"kind": kind}) for kind in ("x1", "y1")])
    offers.publish(other, *[device(f"d{kind}", attributes={"kind": kind}) for kind in ("x0", "y3")])
    claims_made = [claim("c0"), claim("c1")][:claims]
    for number, request in enumerate(("x", "y")):
        selectors = [f"{offers.attribute('kind')} == '{request}{place}'" for place in range(4)]
        ways = [alternative(f"w{place}", offers.of_class, text) for place, text in enumerate(selectors)]
        claims_made[number % claims].asks_first(request, *ways)
    trial.apply(*claims_made)
    builder = pod("a")
    for number in range(claims):
        builder.claim(f"d{number}", name=f"c{number}")
    trial.submit(builder)

    assert expect.bound("a").spec.node_name == better
    assert offers.devices_of("c0")


@pytest.mark.feature("DRA-2.all")
@pytest.mark.case("DR-117", severity="critical", source="spec DRA-R82, DRA-R94")
def test_all_devices_that_a_request_means(trial: Trial, expect: Expect, offers: Offers) -> None:
    """All of one kind and size: others in use do not matter; one of them that is tainted or in use refuses the node."""
    trial.add(*[node(f"n{number}") for number in range(1, 5)])
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
    for name in ("n1", "n2", "n3", "n4"):
        kinds = {"n4": ["b", "b", "b"]}.get(name, ["b", "a", "a"])
        devices = [device(f"d{n}", attributes={"kind": kind}) for n, kind in enumerate(kinds)]
        if name == "n2":
            devices[2]["taints"] = [taint]
        offers.publish(name, *devices)
    of_kind = f"{offers.attribute('kind')} == "
    for name, at in (("b", "n1"), ("a", "n3")):
        trial.apply(claim(f"one-{name}").asks("d", offers.of_class, f"{of_kind}'{name}'"))
        builder = pod(f"one-{name}").claim("d", name=f"one-{name}")
        builder.manifest["spec"]["nodeSelector"] = {"kubernetes.io/hostname": at}
        trial.submit(builder)
        expect.bound(f"one-{name}")
    for name in ("first", "second"):
        trial.apply(claim(name).asks("d", offers.of_class, f"{of_kind}'a'", allocationMode="All"))
        trial.submit(pod(name).claim("d", name=name))
        if name == "first":
            assert expect.bound("first").spec.node_name == "n1"
            assert offers.devices_of("first") == ["d=d1", "d=d2"]
    expect.pending("second", saying="cannot allocate all claims")

    trial.delete("one-a")

    assert expect.bound("second").spec.node_name == "n3"


@pytest.mark.feature("DRA-3.complete")
@pytest.mark.case("DR-118", severity="normal", source="spec DRA-R45, DRA-R77, E10")
def test_devices_are_tried_in_order(trial: Trial, expect: Expect, offers: Offers) -> None:
    """By pool, then by slice, both by name and not by age, then as the slice lists them. A pool of which one device
    has to be attached is the last."""
    trial.add(node("n1"))
    far: Manifest = {"bindingConditions": ["Attached"], "bindingFailureConditions": ["Broken"]}
    offers.publish("n1", device("m0"), device("m1", **far), part="mixed", pool={"name": f"{trial.name}-0"})
    for pool in ("b", "a"):
        for part in ("z", "y"):
            fields = {"name": f"{trial.name}-{pool}", "resourceSliceCount": 2}
            devices = [device(f"{pool}{part}{number}") for number in (2, 1)]
            offers.publish("n1", *devices, part=f"{pool}-{part}", pool=fields)
            trial.pass_time(2)
    trial.apply(claim("five").asks("d", offers.of_class, count=5))
    trial.submit(pod("a").claim("d", name="five"))

    expect.bound("a")

    assert offers.devices_of("five") == [f"d={name}" for name in ("ay2", "ay1", "az2", "az1", "by2")]


@pytest.mark.feature("DRA-1.selected")
@pytest.mark.case("DR-138", severity="critical", source="spec DRA-R39, DRA-M57; chapter 6: a DeviceClass wakes all")
def test_a_class_comes_and_changes_and_goes(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Pods with equal claims wait for the class, then for its devices, and for the class again when it is gone."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{kind}", attributes={"kind": kind}) for kind in ("a", "b", "c")])
    name = f"late-{offers.of_class}"

    def submit(pod_name: str) -> None:
        trial.apply(claim(pod_name).asks("d", name))
        trial.submit(pod(pod_name).claim("d", name=pod_name))

    def chooses(kind: str) -> str:
        return f"device.driver == '{offers.driver}' && {offers.attribute('kind')} == '{kind}'"

    submit("first")
    expect.pending("first", saying=f"device class {name} does not exist")
    offers.another("late", chooses("a"), f"{offers.driver}/late")
    expect.bound("first")
    submit("second")
    expect.pending("second", saying="cannot allocate all claims")
    changed = {"spec": {"selectors": [{"cel": {"expression": chooses("b")}}]}}
    assert trial.call("PATCH", trial.path("DeviceClass", name), changed).ok
    expect.bound("second")
    assert [offers.devices_of(one) for one in ("first", "second")] == [["d=da"], ["d=db"]]
    assert trial.call("DELETE", trial.path("DeviceClass", name)).ok
    trial.settle()
    submit("third")
    expect.pending("third", saying=f"device class {name} does not exist")

    offers.another("late", chooses("c"), f"{offers.driver}/late")

    expect.bound("third")
    assert offers.devices_of("third") == ["d=dc"]


@pytest.mark.feature("DRA-2.admin", "DRA-2.all")
@pytest.mark.case("DR-139", severity="critical", source="spec DRA-R82, DRA-R94")
def test_what_an_administrator_gets(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Devices in use, each once for a claim, and none that is tainted; whoever had them still has them, and no more."""
    trial.add(node("n1"))
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}", label).ok
    taint = {"key": "example.com/broken", "value": "yes", "effect": "NoSchedule"}
    offers.publish("n1", device("d0"), device("d1"), device("sick", taints=[taint]))
    healthy = f"device.driver == '{offers.driver}'"
    trial.apply(claim("user").asks("d", offers.of_class), claim("next").asks("d", offers.of_class, count=2))
    trial.submit(pod("user").claim("d", name="user"))
    expect.bound("user")
    two = claim("two").asks("x", offers.of_class, healthy, adminAccess=True)
    trial.apply(
        two.asks("y", offers.of_class, healthy, adminAccess=True),
        claim("three").asks("d", offers.of_class, adminAccess=True, count=3),
        claim("all").asks(
            "d", offers.of_class, adminAccess=True, allocationMode="All", tolerations=[{"operator": "Exists"}]
        ),
    )
    for name in ("two", "three", "all"):
        trial.submit(pod(name).claim("d", name=name))
    expect.bound("two", "all")
    expect.pending("three", saying="cannot allocate all claims")
    assert offers.devices_of("two") == ["x=d0", "y=d1"]
    assert offers.devices_of("all") == ["d=d0", "d=d1", "d=sick"]
    trial.delete("two", "all")
    trial.submit(pod("next").claim("d", name="next"))
    expect.pending("next", saying="cannot allocate all claims")

    trial.delete("user")

    expect.bound("next")
    assert offers.devices_of("next") == ["d=d0", "d=d1"]


@pytest.mark.feature("DRA-2.all", "DRA-3.complete")
@pytest.mark.case("DR-140", severity="critical", source="spec DRA-R43, DRA-R82, DRA-M40, E6")
def test_all_devices_of_a_pool_that_is_half_there(trial: Trial, expect: Expect, offers: Offers) -> None:
    """One of two slices is there: a request for one device takes another pool's, one for all waits for the rest."""
    trial.add(node("n1"))
    two = {"name": f"{trial.name}-two", "resourceSliceCount": 2}
    offers.publish("n1", device("d0"), part="a", pool=two)
    offers.publish("n1", device("d9"), part="z", pool={"name": f"{trial.name}-one"})
    trial.apply(claim("one").asks("d", offers.of_class))
    trial.apply(claim("all").asks("d", offers.of_class, allocationMode="All"))
    trial.submit(pod("all").claim("d", name="all"))
    expect.pending("all", saying="currently being updated")
    trial.submit(pod("one").claim("d", name="one"))
    expect.bound("one")
    assert offers.devices_of("one") == ["d=d9"]
    trial.delete("one")

    offers.publish("n1", device("d1"), part="b", pool=two)

    expect.bound("all", within=90)
    assert offers.devices_of("all") == ["d=d9", "d=d0", "d=d1"]


@pytest.mark.feature("DRA-2.alternatives")
@pytest.mark.case("DR-189", severity="critical", source=f"{ALLOCATOR}; spec DRA-R92: a full solution of all claims")
@pytest.mark.parametrize("claims", [1, 2], ids=["one-claim", "two-claims"])
def test_an_alternative_leaves_what_other_requests_need(
    trial: Trial, expect: Expect, offers: Offers, claims: int
) -> None:
    """The first alternative would take the only two devices that a later request can have: the second is taken."""
    trial.add(node("n1"))
    offers.publish("n1", *[device(f"d{n}", attributes={"kind": kind}) for n, kind in enumerate(("a", "a", "b"))])
    of_kind = {kind: f"{offers.attribute('kind')} == '{kind}'" for kind in "ab"}
    made = [claim("c0"), claim("c1")][:claims]
    ways = [alternative(kind, offers.of_class, of_kind[kind], count=count) for kind, count in (("a", 2), ("b", 1))]
    made[0].asks_first("x", *ways)
    made[-1].asks("y", offers.of_class, of_kind["a"], count=2)
    trial.apply(*made)
    builder = pod("a")
    for number in range(claims):
        builder.claim(f"d{number}", name=f"c{number}")
    trial.submit(builder)

    expect.bound("a")

    assert [item for built in made for item in offers.devices_of(built.name)] == ["x/b=d2", "y=d0", "y=d1"]


@pytest.mark.feature("DRA-2.admin")
@pytest.mark.case("DR-185", severity="normal", source="spec DRA-R79, DRA-R94: each device once for a claim")
def test_an_administrator_gets_a_device_of_the_same_pod(trial: Trial, expect: Expect, offers: Offers) -> None:
    """Of two claims of a pod one has the only device, and the other, with access for administrators, has it too."""
    trial.add(node("n1"))
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    assert trial.call("PATCH", f"/api/v1/namespaces/{trial.name}", label).ok
    offers.publish("n1", device("d0"))
    trial.apply(claim("one").asks("d", offers.of_class), claim("admin").asks("d", offers.of_class, adminAccess=True))
    trial.submit(pod("a").claim("one", name="one").claim("admin", name="admin"))

    expect.bound("a")

    assert offers.devices_of("one") == offers.devices_of("admin") == ["d=d0"]


@pytest.mark.feature("DRA-2.all", "DRA-2.limit")
@pytest.mark.case("DR-186", severity="normal", source="spec DRA-R81, DRA-R82, DRA-M43")
def test_all_devices_are_at_most_32(trial: Trial, expect: Expect, offers: Offers) -> None:
    """A request for all 33 devices of the node is refused. One device less: they are given."""
    trial.add(node("n1"))
    devices = [device(f"d{number}") for number in range(33)]
    offers.publish("n1", *devices)
    trial.apply(claim("all").asks("d", offers.of_class, allocationMode="All"))
    trial.submit(pod("a").claim("d", name="all"))
    expect.pending("a", saying="exceeds the claim limit of 32")

    offers.change("n1", {"devices": devices[:32]})

    expect.bound("a", within=60)
    assert len(offers.devices_of("all")) == 32


@pytest.mark.feature("DRA-2.all")
@pytest.mark.case("DR-187", severity="critical", source=f"{ALLOCATOR}; spec DRA-R82, DRA-M44")
def test_all_devices_with_a_capacity_and_a_constraint(trial: Trial, expect: Expect, offers: Offers) -> None:
    """All devices of six slots or more: a smaller one is not meant. They are under two roots, so that one root for all
    is refused, with the device that is under the other."""
    trial.add(node("n1"))
    places = ((4, 0), (6, 0), (8, 1))
    shown: list[Manifest] = [
        {"capacity": {"slots": {"value": str(slots)}}, "attributes": {"root": root}} for slots, root in places
    ]
    offers.publish("n1", *[device(f"d{number}", **fields) for number, fields in enumerate(shown)])
    fields = {"allocationMode": "All", "capacity": {"requests": {"slots": "6"}}}
    one = claim("one").asks("d", offers.of_class, **fields).matching(f"{offers.driver}/root")
    trial.apply(one, claim("any").asks("d", offers.of_class, **fields))
    trial.submit(pod("one").claim("d", name="one"))
    expect.pending("one", saying="/d2 because a claim constraint would not be satisfied")

    trial.submit(pod("any").claim("d", name="any"))

    expect.bound("any")
    assert offers.devices_of("any") == ["d=d1", "d=d2"]


@pytest.mark.feature("DRA-3.partitions")
@pytest.mark.case("DR-190", severity="critical", source="spec DRA-R97: all of its counters at once")
@pytest.mark.parametrize("scarce", [0, 1, 2])
def test_each_counter_of_a_device_counts(trial: Trial, expect: Expect, offers: Offers, scarce: int) -> None:
    """Two devices take three counters of two sets, of which one is enough for one device: the second pod waits."""
    trial.add(node("n1"))
    two = {"resourceSliceCount": 2}
    places = [("memory", "first"), ("memory", "second"), ("links", "first")]

    def sets(amounts: list[int], key: str) -> list[Manifest]:
        shown: dict[str, Manifest] = {}
        for (name, counter), amount in zip(places, amounts, strict=True):
            shown.setdefault(name, {})[counter] = {"value": str(amount)}
        return [{key: name, "counters": counters} for name, counters in shown.items()]

    takes: Manifest = {"consumesCounters": sets([1, 1, 1], "counterSet")}
    offers.publish("n1", device("d0", **takes), device("d1", **takes), part="devices", pool=two)
    there = [1 if number == scarce else 2 for number in range(3)]
    offers.publish("n1", part="counters", pool=two, sharedCounters=sets(there, "name"))
    for name in ("a", "b"):
        trial.apply(claim(name).asks("d", offers.of_class))
        trial.submit(pod(name).claim("d", name=name))
        if name == "a":
            expect.bound("a")
    expect.pending("b", saying="cannot allocate all claims")

    trial.delete("a")

    expect.bound("b")


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case("DR-191", severity="critical", source="spec DRA-R99 to DRA-R101")
@pytest.mark.parametrize("shared", [False, True], ids=["whole", "shared"])
def test_each_capacity_that_is_asked_for_counts(trial: Trial, expect: Expect, offers: Offers, *, shared: bool) -> None:
    """One of two devices has a capacity of another domain. A claim that names it gets that device, and a share of it if
    it may be shared; one for more than is left of it, or of what no device has, waits."""
    trial.add(node("n1"))
    links = "example.org/links"
    both: Manifest = {"allowMultipleAllocations": True} if shared else {}
    capacity = {"slots": {"value": "8"}}
    offers.publish(
        "n1", device("d0", capacity=capacity, **both), device("d1", capacity=capacity | {links: {"value": "4"}}, **both)
    )
    amounts = {
        "a": {"slots": "6", links: "2"},
        "much": {"slots": "1", links: "3"},
        "none": {"example.org/slots": "1"},
        "b": {"slots": "2", links: "2"},
    }
    for name, requests in amounts.items():
        trial.apply(claim(name).asks("d", offers.of_class, capacity={"requests": requests}))
        trial.submit(pod(name).claim("d", name=name))
        if name == "a" or (shared and name == "b"):
            expect.bound(name)
            assert offers.devices_of(name) == ["d=d1"]
        else:
            expect.pending(name, saying="cannot allocate all claims")
    allocation = offers.claim("a").status.allocation
    assert allocation is not None
    (result,) = allocation.devices.results
    assert result.consumed_capacity == ({"slots": "6", links: "2"} if shared else {})
    assert bool(result.share_id) == shared


@pytest.mark.feature("DRA-3.shares")
@pytest.mark.case(
    "DR-198", severity="normal", source="kubernetes 1.36 DRAConsumableCapacity; DRA chapter 2.5: qualified names"
)
def test_a_capacity_is_known_by_its_full_name(trial: Trial, expect: Expect, offers: Offers) -> None:
    """The name of a capacity without a domain has the driver's: a claim may write it."""
    trial.add(node("n1"))
    offers.publish("n1", device("d0", capacity={"slots": {"value": "8"}}))
    full = {"requests": {f"{offers.driver}/slots": "6"}}
    trial.apply(claim("a").asks("d", offers.of_class, capacity=full))
    trial.submit(pod("a").claim("d", name="a"))
    expect.bound("a")
