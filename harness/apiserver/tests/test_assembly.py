"""All controllers together: they settle, and deleting a namespace deletes all its objects."""

from typing import Any

from seatrial.harness.apiserver.controllers.tests.bench import Bench, running, template, workload

QUIET = {("coordination.k8s.io", "leases"), ("", "nodes")}  # what node agents write for ever


def populate(bench: Bench) -> None:
    """One of every kind that makes pods, and what follows them."""
    bench.create("deployments", workload("web", 2))
    bench.create("statefulsets", workload("db", 2))
    bench.create("daemonsets", workload("agent"))
    bench.create("jobs", {"metadata": {"name": "j"}, "spec": {"template": template({}, restartPolicy="Never")}})
    yearly = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template({}, restartPolicy="Never")}}}
    bench.create("cronjobs", {"metadata": {"name": "c"}, "spec": yearly})
    ports = [{"port": 80}]
    bench.create("services", {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": ports}})
    bench.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "50"}}})


def test_what_has_settled_stays_still() -> None:
    """No polling: an hour in which nothing happens costs nothing."""
    with running(nodes=2) as bench:
        populate(bench)
        bench.settle(60)
        assert len(bench.all("pods")) == 7
        bench.settle(3600)  # events expire
        written: list[Any] = []
        bench.cluster.server.objects.store.listeners.append(
            lambda collection, _: written.append(collection) if collection not in QUIET else None
        )
        bench.settle(3600)
        assert written == []


def test_a_namespace_goes_with_all_that_makes_pods() -> None:
    with running(nodes=2) as bench:
        bench.call("POST", "/api/v1/namespaces", {"metadata": {"name": "team"}})
        path = bench.path
        bench.path = lambda *args, **named: path(*args, **{"namespace": "team", **named})  # type: ignore[method-assign]
        populate(bench)
        bench.settle(60)
        assert len(bench.all("pods")) == 7
        bench.delete("namespaces", "team")
        bench.wait(lambda: bench.call("GET", "/api/v1/namespaces/team").code == 404, within=120)
        store = bench.cluster.server.objects.store
        assert [item.key for _, items in store for item in items.each("team")] == []


def test_two_runs_are_alike() -> None:
    seen = []
    for _ in range(2):
        with running(nodes=2) as bench:
            populate(bench)
            bench.settle(30)
            seen.append([(pod["metadata"]["name"], pod["spec"]["nodeName"]) for pod in bench.all("pods")])
    assert seen[0] == seen[1]
