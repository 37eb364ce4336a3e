"""The IPAddresses of Services and the ServiceCIDR of their range, and the rules for both and for attribute classes."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import condition, running
from seatrial.harness.apiserver.validation.kinds import validate

SERVICE: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}
ONE_EACH = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64"
PARENT = {"group": "", "resource": "services", "namespace": "default", "name": "a"}


def test_an_address_lives_as_long_as_its_service() -> None:
    with running(nodes=0) as bench:
        assert bench.get("servicecidrs", "kubernetes")["spec"] == {"cidrs": ["10.96.0.0/12"]}
        address = bench.create("services", SERVICE)["spec"]["clusterIP"]
        bench.settle()
        ip_address = bench.get("ipaddresses", address)
        assert ip_address["spec"]["parentRef"] == PARENT
        assert ip_address["metadata"]["labels"]["ipaddress.kubernetes.io/managed-by"] == "ipallocator.k8s.io"
        bench.delete("services", "a")
        bench.settle()
        assert bench.names("ipaddresses") == ["10.96.0.1"]


def test_an_address_that_a_user_reserved_is_not_allocated() -> None:
    with running(nodes=0) as bench:
        bench.create(
            "ipaddresses", {"metadata": {"name": "10.96.1.0"}, "spec": {"parentRef": {**PARENT, "name": "other"}}}
        )
        assert bench.create("services", SERVICE)["spec"]["clusterIP"] == "10.96.1.1"


def test_a_further_range_serves_services_and_stays_while_it_is_needed() -> None:
    amounts = {**SERVICE, "spec": {**SERVICE["spec"], "clusterIP": "10.200.0.7"}}
    with running(nodes=0) as bench:
        assert "The range of valid IPs is 10.96.0.0/12" in bench.create("services", amounts, code=422)["message"]
        bench.create("servicecidrs", {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/28"]}})
        bench.settle()
        assert condition(bench.get("servicecidrs", "more"), "Ready")["status"] == "True"
        assert bench.create("services", amounts)["spec"]["clusterIP"] == "10.200.0.7"
        bench.settle()

        bench.delete("servicecidrs", "more")
        bench.settle(30)
        kept = condition(bench.get("servicecidrs", "more"), "Ready")
        assert (kept["status"], kept["reason"]) == ("False", "Terminating")
        other = {"metadata": {"name": "b"}, "spec": {**SERVICE["spec"], "clusterIP": "10.200.0.8"}}
        bench.create("services", other, code=422)
        bench.delete("services", "a")
        bench.settle(30)
        assert bench.names("servicecidrs") == ["kubernetes"]


@pytest.mark.parametrize(
    ("group", "kind", "name", "fields", "want"),
    [
        pytest.param(
            "networking.k8s.io",
            "IPAddress",
            "x",
            {"spec": {}},
            [
                'metadata.name: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)',
                "spec.parentRef: Required value",
            ],
            id="no-address",
        ),
        pytest.param(
            "networking.k8s.io",
            "IPAddress",
            "fd00:0::1",
            {"spec": {"parentRef": {"name": "a/b"}}},
            [
                'metadata.name: Invalid value: "fd00:0::1": must be in canonical form ("fd00::1")',
                "spec.parentRef.resource: Required value",
                "spec.parentRef.name: Invalid value: \"a/b\": may not contain '/'",
            ],
            id="not-canonical",
        ),
        pytest.param(
            "networking.k8s.io",
            "ServiceCIDR",
            "x",
            {"spec": {}},
            ["spec.cidrs: Required value: at least one CIDR required"],
            id="no-range",
        ),
        pytest.param(
            "networking.k8s.io",
            "ServiceCIDR",
            "x",
            {"spec": {"cidrs": ["10.0.0.1/8", "10.0.0.0"]}},
            [
                'spec.cidrs[0]: Invalid value: "10.0.0.1/8": must be in canonical form ("10.0.0.0/8")',
                (
                    'spec.cidrs[1]: Invalid value: "10.0.0.0": '
                    "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
                ),
            ],
            id="malformed-ranges",
        ),
        pytest.param(
            "networking.k8s.io",
            "ServiceCIDR",
            "x",
            {"spec": {"cidrs": ["10.0.0.0/8", "11.0.0.0/8"]}},
            [f'spec.cidrs: Invalid value: ["10.0.0.0/8","11.0.0.0/8"]: {ONE_EACH}'],
            id="one-family-twice",
        ),
        pytest.param(
            "storage.k8s.io",
            "VolumeAttributesClass",
            "x",
            {},
            ["driverName: Required value", "parameters: Required value: must contain at least one key/value pair"],
            id="no-driver",
        ),
    ],
)
def test_refused(group: str, kind: str, name: str, fields: dict[str, Any], want: list[str]) -> None:
    causes = validate(group, kind, {"metadata": {"name": name, "uid": "u"}, **fields})
    assert [f"{cause.field}: {cause.message}" for cause in causes] == want


def test_what_cannot_change() -> None:
    """A range can become dual-stack; parameters and parents stay."""

    def problems(group: str, kind: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
        metadata = {"metadata": {"name": "x", "uid": "u", "resourceVersion": "1"}}
        return [cause.field for cause in validate(group, kind, {**metadata, **new}, {**metadata, **old})]

    net, both = "networking.k8s.io", ["10.0.0.0/8", "fd00::/112"]
    one: dict[str, Any] = {"spec": {"cidrs": both[:1]}}
    assert problems(net, "ServiceCIDR", one, {"spec": {"cidrs": both}}) == []
    assert problems(net, "ServiceCIDR", one, {"spec": {"cidrs": both[1:]}}) == ["spec.cidrs[0]"]
    assert problems(net, "ServiceCIDR", {"spec": {"cidrs": both}}, one) == ["spec.cidrs"]
    parent = {"spec": {"parentRef": PARENT}}
    assert problems(net, "IPAddress", parent, {"spec": {"parentRef": {**PARENT, "name": "b"}}}) == ["spec.parentRef"]
    old = {"driverName": "d", "parameters": {"iops": "1"}}
    new = {"driverName": "e", "parameters": {"iops": "2"}}
    assert problems("storage.k8s.io", "VolumeAttributesClass", old, new) == ["driverName", "parameters"]
