"""Allocation and release of Services' addresses and node ports."""

from ipaddress import IPv4Network
from typing import Any

import pytest

from seatrial.harness.apiserver.admission.cluster_ips import CIDRS, SERVICES, ClusterIps
from seatrial.harness.apiserver.controllers.tests.bench import Bench, running
from seatrial.harness.apiserver.discovery.resources import BUILT_IN
from seatrial.harness.apiserver.storage.store import Store
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import MERGE_PATCH


def service(name: str, port: int = 80, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"selector": {"app": name}, "ports": [{"port": port}], **spec}}


def make(bench: Bench, name: str, **spec: Any) -> dict[str, Any]:
    results: dict[str, Any] = bench.create("services", service(name, **spec))["spec"]
    return results


def test_addresses_are_unique_and_reproducible() -> None:
    seen = []
    for _ in range(2):
        with running(nodes=0) as bench:
            seen.append([make(bench, name)["clusterIP"] for name in ("a", "b", "c")])
    assert seen[0] == seen[1] == ["10.96.1.0", "10.96.1.1", "10.96.1.2"]


def test_fields_set_with_the_address() -> None:
    with running(nodes=0) as bench:
        spec = make(bench, "a")
        assert spec["clusterIPs"] == [spec["clusterIP"]]
        assert (spec["ipFamilies"], spec["ipFamilyPolicy"]) == (["IPv4"], "SingleStack")
        headless = make(bench, "b", clusterIP="None")
        assert headless["clusterIPs"] == ["None"]
        external = bench.create(
            "services", {"metadata": {"name": "c"}, "spec": {"type": "ExternalName", "externalName": "x.org"}}
        )
        assert "clusterIP" not in external["spec"]


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        pytest.param("10.96.0.10", "provided IP is already allocated", id="taken"),
        pytest.param(
            "192.168.0.1",
            "the provided IP (192.168.0.1) is not in the valid range. The range of valid IPs is 10.96.0.0/12",
            id="elsewhere",
        ),
    ],
)
def test_unavailable_addresses(address: str, problem: str) -> None:
    with running(nodes=0) as bench:
        assert make(bench, "a", clusterIP="10.96.0.10")["clusterIP"] == "10.96.0.10"
        refused = bench.create("services", service("b", clusterIP=address), code=422)
        text = f'spec.clusterIPs: Invalid value: ["{address}"]'
        assert refused["message"] == f'Service "b" is invalid: {text}: failed to allocate IP {address}: {problem}'


def test_an_update_without_the_address_keeps_it() -> None:
    with running(nodes=0) as bench:
        before = make(bench, "a", type="NodePort")
        response = bench.call("PUT", bench.path("services", "a"), service("a", type="NodePort"))
        assert response.code == 200, response.body
        after = bench.get("services", "a")["spec"]
        assert after["clusterIP"] == before["clusterIP"]
        assert after["ports"][0]["nodePort"] == before["ports"][0]["nodePort"]


@pytest.mark.parametrize("address", ["10.96.0.99", "192.168.0.1"])
def test_an_address_is_immutable_even_if_it_is_not_available(address: str) -> None:
    with running(nodes=0) as bench:
        make(bench, "a")
        answer = bench.call("PUT", bench.path("services", "a"), service("a", clusterIP=address))
        assert answer.code == 422
        assert b"may not change once set" in answer.body
        assert b"failed to allocate" not in answer.body


def test_the_address_of_a_deleted_service_is_free_again() -> None:
    with running(nodes=0) as bench:
        make(bench, "a", clusterIP="10.96.0.10")
        bench.delete("services", "a")
        assert make(bench, "b", clusterIP="10.96.0.10")["clusterIP"] == "10.96.0.10"


def test_node_ports() -> None:
    with running(nodes=0) as bench:
        assert make(bench, "a", type="NodePort")["ports"][0]["nodePort"] == 30086
        assert make(bench, "b", type="LoadBalancer")["ports"][0]["nodePort"] == 30087
        assert "nodePort" not in make(bench, "c")["ports"][0]
        taken = service("d", type="NodePort", ports=[{"port": 80, "nodePort": 30086}])
        refused = bench.create("services", taken, code=422)
        assert "spec.ports[0].nodePort: Invalid value: 30086: provided port is already allocated" in refused["message"]
        outside = service("e", type="NodePort", ports=[{"port": 80, "nodePort": 80}])
        refused = bench.create("services", outside, code=422)
        assert "provided port is not in the valid range. The range of valid ports is 30000-32767" in refused["message"]


def test_a_dry_run_allocates_nothing() -> None:
    with running(nodes=0) as bench:
        response = bench.call("POST", bench.path("services") + "?dryRun=All", service("a"))
        assert b"10.96.1.0" in response.body
        assert make(bench, "b")["clusterIP"] == "10.96.1.0"


def test_an_update_that_is_not_stored_leaves_the_stored_node_port() -> None:
    """The patched object shares its ports with the stored one, and a type without node ports drops them."""
    with running(nodes=0) as bench:
        make(bench, "a", type="NodePort", ports=[{"port": 80, "nodePort": 30999}])
        path = bench.path("services", "a") + "?dryRun=All"
        answer = bench.call("PATCH", path, {"spec": {"type": "ClusterIP"}}, MERGE_PATCH)
        assert (answer.code, b"nodePort" in answer.body) == (200, False)
        bench.delete("services", "a")
        make(bench, "b", type="NodePort", ports=[{"port": 80, "nodePort": 30999}])  # the port is free again


def test_a_full_range_is_followed_by_the_next() -> None:
    """Of 10.0.0.0/29 six addresses can be given; of a /24 the first 16 are for explicit requests."""
    store = Store(SimClock())
    ips = ClusterIps(store, IPv4Network("10.0.0.0/29"))
    more = {"metadata": {"name": "more"}, "spec": {"cidrs": ["fd00::/112", "10.1.0.0/24"]}}
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    store.collection(CIDRS).put(("", "more"), {**more, **ready})
    services, result = next(each for each in BUILT_IN if each.key == SERVICES), []
    for number in range(8):
        body = service(f"s{number}")
        ips(services, body, None, "")
        store.collection(SERVICES).put(("x", f"s{number}"), body)
        result.append(body["spec"]["clusterIP"])
    assert result == [*(f"10.0.0.{last}" for last in range(1, 7)), "10.1.0.16", "10.1.0.17"]
