"""DaemonSets in virtual time: one pod per node, changes of nodes, updates."""

import gc
from functools import partial
from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.daemonsets import DaemonSets
from seatrial.harness.apiserver.controllers.tests.bench import Bench, owner, running, workload


def homes(bench: Bench) -> list[str]:
    """The nodes of the pods that are not terminating."""
    return sorted(pod["spec"].get("nodeName", "") for pod in bench.live_pods())


def images(bench: Bench) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in bench.live_pods()}


def ready(bench: Bench, count: int) -> bool:
    status = bench.status("daemonsets", "agent")
    return status.get("numberReady") == status.get("desiredNumberScheduled") == count


def test_every_node_gets_a_pod_bound_by_the_scheduler() -> None:
    with running(nodes=3) as bench:
        bench.create("daemonsets", workload("agent"))
        bench.wait(lambda: ready(bench, 3))
        assert homes(bench) == ["n0", "n1", "n2"]
        status = bench.status("daemonsets", "agent")
        assert {
            name: status[name]
            for name in ("currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberMisscheduled")
        } == {"currentNumberScheduled": 3, "updatedNumberScheduled": 3, "numberAvailable": 3, "numberMisscheduled": 0}
        pod = bench.live_pods()[0]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]}
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert required == {"nodeSelectorTerms": [term]}
        assert owner(pod)["kind"] == "DaemonSet"
        tolerated = {(toleration["key"], toleration["effect"]) for toleration in pod["spec"]["tolerations"]}
        assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
        assert len(bench.all("controllerrevisions")) == 1


def test_a_new_node_gets_a_pod_and_a_removed_node_loses_it() -> None:
    with running(nodes=1) as bench:
        bench.create("daemonsets", workload("agent"))
        bench.wait(lambda: ready(bench, 1))
        bench.cluster.add_nodes([{"name": "late", "server": "cpu-64"}])
        bench.wait(lambda: ready(bench, 2))
        assert homes(bench) == ["late", "n0"]
        bench.cluster.remove_node("late")
        bench.wait(lambda: ready(bench, 1) and homes(bench) == ["n0"], within=120)


@pytest.mark.parametrize(
    ("spec", "change"),
    [
        pytest.param({"nodeSelector": {"disk": "ssd"}}, {"metadata": {"labels": {"disk": "ssd"}}}, id="a-label"),
        pytest.param(
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
                        }
                    }
                }
            },
            {"metadata": {"labels": {"disk": "ssd"}}},
            id="affinity",
        ),
    ],
)
def test_a_node_whose_labels_change_gains_and_loses_its_pod(spec: dict[str, Any], change: dict[str, Any]) -> None:
    with running(nodes=2) as bench:
        body = workload("agent")
        body["spec"]["template"]["spec"].update(spec)
        bench.create("daemonsets", body)
        bench.settle(2)
        assert homes(bench) == []
        bench.patch("nodes", "n1", change)
        bench.wait(lambda: homes(bench) == ["n1"])
        bench.patch("nodes", "n1", {"metadata": {"labels": {"disk": None}}})
        bench.wait(lambda: homes(bench) == [], within=60)


def test_untolerated_taints() -> None:
    with running(nodes=2) as bench:
        bench.create("daemonsets", workload("agent"))
        bench.wait(lambda: ready(bench, 2))
        taint = {"key": "gone", "value": "", "effect": "NoSchedule"}
        bench.patch("nodes", "n0", {"spec": {"taints": [taint]}})
        bench.wait(lambda: bench.status("daemonsets", "agent")["desiredNumberScheduled"] == 1)
        assert homes(bench) == ["n0", "n1"]  # what runs may stay
        assert bench.status("daemonsets", "agent")["numberMisscheduled"] == 1
        bench.patch("nodes", "n0", {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}})
        bench.wait(lambda: homes(bench) == ["n1"], within=60)


def test_a_cordoned_node_keeps_its_daemon_pod() -> None:
    with running(nodes=1) as bench:
        bench.create("daemonsets", workload("agent"))
        bench.wait(lambda: ready(bench, 1))
        bench.patch("nodes", "n0", {"spec": {"unschedulable": True}})
        bench.delete("pods", bench.names("pods")[0])
        bench.wait(lambda: ready(bench, 1) and len(bench.all("pods")) == 1)


@pytest.mark.parametrize(
    ("rolling", "most", "fewest"),
    [
        pytest.param({"maxUnavailable": 1}, 4, 3, id="one-down-at-a-time"),
        pytest.param({"maxUnavailable": "50%"}, 4, 2, id="half-of-them"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, 5, 4, id="one-more-at-a-time"),
    ],
)
def test_an_update_respects_its_limits(rolling: dict[str, Any], most: int, fewest: int) -> None:
    with running(nodes=4) as bench:
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        bench.create("daemonsets", workload("agent", updateStrategy=strategy))
        bench.wait(lambda: ready(bench, 4))
        containers = [{"name": "c", "image": "img:2"}]
        bench.patch("daemonsets", "agent", {"spec": {"template": {"spec": {"containers": containers}}}})
        seen: list[tuple[int, int]] = []

        def done() -> bool:
            pods = bench.live_pods()
            serving = {
                pod["spec"].get("nodeName")
                for pod in pods
                if any(
                    each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
                )
            }
            seen.append((len(pods), len(serving)))
            status = bench.status("daemonsets", "agent")
            return images(bench) == {"img:2"} and len(pods) == 4 and status.get("numberAvailable") == 4

        bench.wait(done)
        assert max(total for total, _ in seen) <= most
        assert min(ready for _, ready in seen) >= fewest
        assert homes(bench) == ["n0", "n1", "n2", "n3"]
        assert {revision["revision"] for revision in bench.all("controllerrevisions")} == {1, 2}


def test_on_delete_updates_only_deleted_pods() -> None:
    with running(nodes=1) as bench:
        bench.create("daemonsets", workload("agent", updateStrategy={"type": "OnDelete"}))
        bench.wait(lambda: ready(bench, 1))
        containers = [{"name": "c", "image": "img:2"}]
        bench.patch("daemonsets", "agent", {"spec": {"template": {"spec": {"containers": containers}}}})
        bench.settle(30)
        assert images(bench) == {"img:1"}
        bench.delete("pods", bench.names("pods")[0])
        bench.wait(lambda: images(bench) == {"img:2"})


def test_a_failed_daemon_pod_is_recreated_with_backoff() -> None:
    with running(nodes=1) as bench:
        bench.create("daemonsets", workload("agent"))
        bench.wait(lambda: ready(bench, 1))
        for pause in (1.0, 2.0, 4.0):
            name = bench.names("pods")[0]
            bench.patch("pods", name, {"status": {"phase": "Failed"}}, "status")
            bench.wait(partial(lambda gone: gone not in bench.names("pods"), name), within=5)
            begin = bench.clock.monotonic()
            bench.wait(bench.live_pods, within=pause + 1)
            assert bench.clock.monotonic() - begin >= pause - 0.2
            bench.wait(lambda: ready(bench, 1))


def test_failures_of_daemon_sets_and_on_nodes_that_are_gone_are_forgotten() -> None:
    with running(nodes=2) as bench:
        for name in ("agent", "other"):
            bench.create("daemonsets", workload(name))
        bench.wait(
            lambda: [bench.status("daemonsets", name).get("numberReady") for name in ("agent", "other")] == [2, 2]
        )
        for name in bench.names("pods"):
            bench.patch("pods", name, {"status": {"phase": "Failed"}}, "status")
        sets = (candidate for candidate in gc.get_objects() if isinstance(candidate, DaemonSets))
        kept = next(candidate for candidate in sets if candidate._control.clock is bench.clock)
        bench.wait(lambda: len(kept._failures) == 4, within=5)  # memory, which no answer shows
        bench.delete("daemonsets", "agent")
        assert len(kept._failures) == 2
        bench.delete("nodes", "n0")
        assert len(kept._failures) == 1
