"""Endpoints and EndpointSlices of Services in virtual time."""

from typing import Any

from seatrial.harness.apiserver.controllers.tests.bench import Bench, owner, running, workload


def service(**spec: Any) -> dict[str, Any]:
    body = {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}], **spec}
    return {"metadata": {"name": "web", "labels": {"team": "a"}}, "spec": body}


def ready_addresses(bench: Bench) -> list[str]:
    subsets = bench.get("endpoints", "web").get("subsets") or ()
    return sorted(address["ip"] for subset in subsets for address in subset.get("addresses", ()))


def sliced(bench: Bench, condition: str = "ready") -> list[str]:
    slices = bench.all("endpointslices", "kubernetes.io/service-name=web")
    return sorted(
        address
        for slice_ in slices
        for each in slice_.get("endpoints") or ()
        if each["conditions"][condition]
        for address in each["addresses"]
    )


def pod_addresses(bench: Bench) -> list[str]:
    return sorted(pod["status"]["podIP"] for pod in bench.live_pods())


def test_ready_pods_become_addresses() -> None:
    with running() as bench:
        made = bench.create("services", service())
        bench.create("deployments", workload("web", 3))
        bench.wait(lambda: len(ready_addresses(bench)) == 3)

        assert ready_addresses(bench) == sliced(bench) == pod_addresses(bench)
        endpoints = bench.get("endpoints", "web")
        (subset,) = endpoints["subsets"]
        assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
        assert subset["addresses"][0]["targetRef"]["kind"] == "Pod"
        assert endpoints["metadata"]["labels"]["team"] == "a"
        (slice_,) = bench.all("endpointslices")
        assert slice_["metadata"]["name"].startswith("web-")
        assert (
            slice_["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "endpointslice-controller.k8s.io"
        )
        assert owner(slice_)["uid"] == made["metadata"]["uid"]
        assert owner(slice_)["blockOwnerDeletion"] is True
        assert slice_["addressType"] == "IPv4"
        assert {each["nodeName"] for each in slice_["endpoints"]} <= {"n0", "n1"}


def test_unready_and_terminating_pods_are_not_ready_addresses() -> None:
    with running() as bench:
        bench.create("services", service())
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: len(ready_addresses(bench)) == 2)
        name = bench.names("pods")[0]
        conditions = [{"type": "Ready", "status": "False"}]
        bench.patch("pods", name, {"status": {"conditions": conditions}}, "status")
        bench.wait(lambda: len(ready_addresses(bench)) == 1)
        (subset,) = bench.get("endpoints", "web")["subsets"]
        assert len(subset["notReadyAddresses"]) == 1
        assert len(sliced(bench)) == 1

        bench.scale("deployments", "web", 0)
        bench.wait(lambda: not bench.get("endpoints", "web").get("subsets"))
        bench.wait(lambda: not bench.all("endpointslices")[0]["endpoints"])


def test_unready_addresses_are_published_on_request() -> None:
    with running() as bench:
        bench.create("services", service(publishNotReadyAddresses=True))
        bench.create("replicasets", workload("web", 1))
        bench.wait(lambda: len(ready_addresses(bench)) == 1)
        name = bench.names("pods")[0]
        bench.patch("pods", name, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, "status")
        bench.settle(1)
        assert len(ready_addresses(bench)) == 1


def test_named_ports_and_hostnames_of_a_stateful_set() -> None:
    with running() as bench:
        bench.create("services", service(clusterIP="None", ports=[{"port": 80, "targetPort": "http"}]))
        body = workload("web", 2, serviceName="web")
        body["spec"]["template"]["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": 9090}]
        bench.create("statefulsets", body)
        bench.wait(lambda: len(ready_addresses(bench)) == 2)
        (slice_,) = bench.all("endpointslices")
        assert slice_["ports"] == [{"name": "", "port": 9090, "protocol": "TCP"}]
        assert sorted(each["hostname"] for each in slice_["endpoints"]) == ["web-0", "web-1"]
        assert bench.get("endpoints", "web")["metadata"]["labels"]["service.kubernetes.io/headless"] == ""


def test_a_label_change_adds_and_removes_a_pod() -> None:
    with running() as bench:
        bench.create("services", service())
        bench.create("pods", {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "img"}]}})
        bench.wait(lambda: bench.get("pods", "p")["status"].get("podIP"))
        assert ready_addresses(bench) == []
        bench.patch("pods", "p", {"metadata": {"labels": {"app": "web"}}})
        bench.wait(lambda: len(ready_addresses(bench)) == 1)
        bench.patch("pods", "p", {"metadata": {"labels": {"app": "other"}}})
        bench.wait(lambda: ready_addresses(bench) == [])


def test_more_than_a_hundred_addresses_need_another_slice() -> None:
    with running(nodes=3) as bench:
        bench.create("services", service())
        bench.create("replicasets", workload("web", 120))
        bench.wait(lambda: len(ready_addresses(bench)) == 120)
        assert sorted(len(slice_["endpoints"]) for slice_ in bench.all("endpointslices")) == [20, 100]
        bench.scale("replicasets", "web", 50)
        bench.wait(lambda: len(sliced(bench)) == 50 and len(bench.all("endpointslices")) == 1)


def test_slices_are_removed_with_the_service_and_recreated_when_deleted() -> None:
    with running() as bench:
        bench.create("services", service())
        bench.create("replicasets", workload("web", 1))
        bench.wait(lambda: len(sliced(bench)) == 1)
        bench.delete("endpointslices", bench.names("endpointslices")[0])
        bench.wait(lambda: len(sliced(bench)) == 1)
        bench.delete("services", "web")
        bench.settle(1)
        assert (bench.names("endpoints"), bench.names("endpointslices")) == ([], [])


def test_a_service_without_selector_is_left_to_its_author() -> None:
    with running(nodes=0) as bench:
        body = service()
        del body["spec"]["selector"]
        bench.create("services", body)
        bench.create("endpoints", {"metadata": {"name": "web"}, "subsets": [{"addresses": [{"ip": "10.0.0.9"}]}]})
        bench.settle(1)
        assert ready_addresses(bench) == ["10.0.0.9"]
