"""Printers of services and network kinds."""

from typing import Any

import pytest

from seatrial.harness.apiserver.printers.tests.printed import made, printed

BALANCED = {"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "192.0.2.9"}, {"ip": "192.0.2.9"}]}}


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param(
            {"type": "ClusterIP", "clusterIPs": ["10.0.0.1"], "ports": [{"port": 80, "protocol": "TCP"}]},
            {},
            ["ClusterIP", "10.0.0.1", "<none>", "80/TCP"],
            id="inside-the-cluster",
        ),
        pytest.param(
            {"clusterIP": "None"}, {}, ["ClusterIP", "None", "<none>", "<none>"], id="headless-and-without-ports"
        ),
        pytest.param(
            {"type": "NodePort", "externalIPs": ["192.0.2.1"], "ports": [{"port": 80, "nodePort": 30080}]},
            {},
            ["NodePort", "<none>", "192.0.2.1", "80:30080/TCP"],
            id="a-node-port",
        ),
        pytest.param(
            {"type": "LoadBalancer"}, {}, ["LoadBalancer", "<none>", "<pending>", "<none>"], id="no-balancer-yet"
        ),
        pytest.param(
            {"type": "LoadBalancer", "externalIPs": ["192.0.2.1"]},
            BALANCED,
            ["LoadBalancer", "<none>", "192.0.2.9,lb.example,192.0.2.1", "<none>"],
            id="a-balancer-with-two-names",
        ),
        pytest.param(
            {"type": "ExternalName", "externalName": "db.example"},
            {},
            ["ExternalName", "<none>", "db.example", "<none>"],
            id="a-name-elsewhere",
        ),
    ],
)
def test_a_service(spec: dict[str, Any], status: dict[str, Any], want: list[str]) -> None:
    heads = ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "[Selector]"]
    values = made(spec={**spec, "selector": {"app": "x"}}, status=status)
    assert printed("", "services", values) == list(zip(heads, ["x", *want, "60s", "app=x"], strict=True))


def ips(count: int) -> list[dict[str, str]]:
    return [{"ip": f"10.0.0.{i + 1}"} for i in range(count)]


@pytest.mark.parametrize(
    ("subsets", "want"),
    [
        pytest.param([], "<none>", id="none"),
        pytest.param([{"notReadyAddresses": ips(1), "ports": [{"port": 80}]}], "", id="none-is-ready"),
        pytest.param([{"addresses": ips(2)}], "10.0.0.1,10.0.0.2", id="no-ports"),
        pytest.param([{"addresses": [{"ip": "fd00::1"}], "ports": [{"port": 80}]}], "[fd00::1]:80", id="ipv6"),
        pytest.param(
            [{"addresses": ips(2), "ports": [{"port": 80}, {"port": 443}]}, {"addresses": ips(1)}],
            "10.0.0.1:80,10.0.0.2:80,10.0.0.1:443 + 2 more...",
            id="three-are-shown",
        ),
    ],
)
def test_endpoints(subsets: list[dict[str, Any]], want: str) -> None:
    assert printed("", "endpoints", made(subsets=subsets)) == [("Name", "x"), ("Endpoints", want), ("Age", "60s")]


@pytest.mark.parametrize(
    ("ports", "endpoints", "want"),
    [
        pytest.param(None, None, ["<unset>", "<unset>"], id="empty"),
        pytest.param(
            [{"port": 80}, {"name": "web"}, {}],
            [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3", "10.0.0.4"]}],
            ["80,web,*", "10.0.0.1,10.0.0.2,10.0.0.3 + 1 more..."],
            id="ports-by-number-by-name-and-any",
        ),
    ],
)
def test_an_endpoint_slice(ports: Any, endpoints: Any, want: list[str]) -> None:
    values = made(addressType="IPv4", ports=ports, endpoints=endpoints)
    heads = ["Name", "AddressType", "Ports", "Endpoints", "Age"]
    assert printed("discovery.k8s.io", "endpointslices", values) == list(
        zip(heads, ["x", "IPv4", *want, "60s"], strict=True)
    )


@pytest.mark.parametrize(
    ("spec", "status", "want"),
    [
        pytest.param({}, {}, ["<none>", "*", "", "80"], id="nothing-set"),
        pytest.param(
            {"ingressClassName": "nginx", "rules": [{"host": h} for h in "abcde"], "tls": [{}]},
            BALANCED,
            ["nginx", "a,b,c + 2 more...", "192.0.2.9,lb.example", "80, 443"],
            id="many-hosts-and-tls",
        ),
        pytest.param({"rules": [{"host": h} for h in "abc"]}, {}, ["<none>", "a,b,c", "", "80"], id="three-hosts"),
        pytest.param({"rules": [{}, {"host": "a"}]}, {}, ["<none>", "a", "", "80"], id="a-rule-for-any-host"),
    ],
)
def test_an_ingress(spec: dict[str, Any], status: dict[str, Any], want: list[str]) -> None:
    heads = ["Name", "Class", "Hosts", "Address", "Ports", "Age"]
    shown = printed("networking.k8s.io", "ingresses", made(spec=spec, status=status))
    assert shown == list(zip(heads, ["x", *want, "60s"], strict=True))


@pytest.mark.parametrize(
    ("plural", "spec", "want"),
    [
        pytest.param("networkpolicies", {"podSelector": {}}, [("Pod-Selector", "<none>")], id="a-policy-for-all-pods"),
        pytest.param(
            "networkpolicies",
            {"podSelector": {"matchLabels": {"a": "b"}}},
            [("Pod-Selector", "a=b")],
            id="a-policy-for-some-pods",
        ),
        pytest.param(
            "ingressclasses",
            {"controller": "example.com/in", "parameters": {"apiGroup": "k8s.example", "kind": "Cfg", "name": "c"}},
            [("Controller", "example.com/in"), ("Parameters", "Cfg.k8s.example/c")],
            id="a-class-with-parameters",
        ),
        pytest.param("servicecidrs", {"cidrs": ["10.0.0.0/16", "fd00::/112"]}, [("CIDRs", "10.0.0.0/16,fd00::/112")]),
    ],
)
def test_a_smaller_kind(plural: str, spec: dict[str, Any], want: list[tuple[str, Any]]) -> None:
    assert printed("networking.k8s.io", plural, made(spec=spec)) == [("Name", "x"), *want, ("Age", "60s")]


def test_endpoints_without_addresses_and_ports_are_printed() -> None:
    """Null in a list becomes an empty address or port; `seatrial fuzz` found it."""
    cells = printed("", "endpoints", made(subsets=[{"addresses": [{}], "ports": [{}]}]))
    assert ("Endpoints", ":0") in cells
