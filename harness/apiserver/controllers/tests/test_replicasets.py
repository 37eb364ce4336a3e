"""ReplicaSets in virtual time: scaling, adoption and release, status and events."""

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import condition, owner, running, workload


def test_pods_are_created_and_ready_ones_counted() -> None:
    with running() as bench:
        made = bench.create("replicasets", workload("web", 3))
        bench.wait(lambda: bench.status("replicasets", "web").get("availableReplicas") == 3)

        status = bench.status("replicasets", "web")
        assert {name: status[name] for name in ("replicas", "readyReplicas", "fullyLabeledReplicas")} == {
            "replicas": 3,
            "readyReplicas": 3,
            "fullyLabeledReplicas": 3,
        }
        assert status["observedGeneration"] == made["metadata"]["generation"]
        for pod in bench.all("pods"):
            assert pod["metadata"]["name"].startswith("web-")
            assert owner(pod) == {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "web",
                "uid": made["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        assert len(bench.events("SuccessfulCreate")) == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [pytest.param(2, 5, id="up"), pytest.param(5, 2, id="down"), pytest.param(3, 0, id="to-nothing")],
)
def test_scaling(before: int, after: int) -> None:
    with running() as bench:
        bench.create("replicasets", workload("web", before))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas", 0) == before)
        old = set(bench.names("pods"))

        bench.scale("replicasets", "web", after)
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas", 0) == after)
        bench.settle(1)

        new = set(bench.names("pods"))
        assert len(new) == after
        assert old <= new or new <= old  # those that may stay do stay


def test_a_deleted_or_failed_pod_is_replaced() -> None:
    with running() as bench:
        bench.create("replicasets", workload("web", 2))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 2)
        first, second = bench.names("pods")
        bench.delete("pods", first)
        bench.patch("pods", second, {"status": {"phase": "Failed"}}, "status")
        bench.wait(lambda: len({pod["metadata"]["name"] for pod in bench.live_pods()} - {first, second}) == 2)
        assert second in bench.names("pods")  # a failed one is kept for inspection


def test_matching_pods_are_adopted_and_others_released() -> None:
    with running() as bench:
        bench.create(
            "pods",
            {
                "metadata": {"name": "stray", "labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "img"}]},
            },
        )
        bench.create("replicasets", workload("web", 2))
        bench.wait(lambda: len(bench.all("pods")) == 2)
        assert owner(bench.get("pods", "stray"))["name"] == "web"

        bench.patch("pods", "stray", {"metadata": {"labels": {"app": "debug"}}})
        bench.wait(lambda: len(bench.all("pods")) == 3)
        assert "ownerReferences" not in bench.get("pods", "stray")["metadata"]

        bench.patch("pods", "stray", {"metadata": {"labels": {"app": "web"}}})
        bench.wait(lambda: len(bench.live_pods()) == 2)


@pytest.mark.parametrize(
    ("how", "left"),
    [
        pytest.param("Background", 0, id="background"),
        pytest.param("Foreground", 0, id="foreground"),
        pytest.param("Orphan", 2, id="orphan"),
    ],
)
def test_deletion(how: str, left: int) -> None:
    with running() as bench:
        bench.create("replicasets", workload("web", 2))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 2)
        bench.delete("replicasets", "web", f"?propagationPolicy={how}")
        bench.settle(40)
        assert bench.names("replicasets") == []
        pods = bench.all("pods")
        assert len(pods) == left
        assert not any("ownerReferences" in pod["metadata"] for pod in pods)


def test_the_least_useful_pods_are_deleted_first() -> None:
    with running(nodes=1) as bench:
        bench.create("replicasets", workload("web", 2))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 2)
        cheap, dear = bench.names("pods")
        bench.patch("pods", cheap, {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}})
        bench.scale("replicasets", "web", 1)
        bench.wait(lambda: [pod["metadata"]["name"] for pod in bench.live_pods()] == [dear])


def test_pods_count_as_available_only_after_min_ready_seconds() -> None:
    with running() as bench:
        bench.create("replicasets", workload("web", 1, minReadySeconds=30))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 1)
        bench.settle(20)
        assert "availableReplicas" not in bench.status("replicasets", "web")
        bench.settle(15)
        assert bench.status("replicasets", "web")["availableReplicas"] == 1


def test_pods_of_a_lost_node_are_replaced_after_five_minutes() -> None:
    with running(nodes=2) as bench:
        bench.create("replicasets", workload("web", 4))
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 4)
        lost = next(pod["spec"]["nodeName"] for pod in bench.all("pods"))
        on_lost = {pod["metadata"]["name"] for pod in bench.all("pods") if pod["spec"]["nodeName"] == lost}
        bench.cluster.inject({"node": lost, "verb": "frozen"})

        bench.settle(300)
        assert {pod["metadata"]["name"] for pod in bench.live_pods()} >= on_lost  # tolerated so far
        bench.settle(80)  # and the grace period before it was noticed
        assert bench.status("replicasets", "web")["readyReplicas"] == 4
        assert {pod["spec"]["nodeName"] for pod in bench.live_pods()} == {"n0", "n1"} - {lost}


def test_failed_creation_is_reported_and_retried() -> None:
    with running() as bench:
        body = workload("web", 1)
        body["spec"]["template"]["spec"]["priorityClassName"] = "later"
        bench.create("replicasets", body)
        bench.settle(1)
        failure = condition(bench.get("replicasets", "web"), "ReplicaFailure")
        assert (failure["status"], failure["reason"]) == ("True", "FailedCreate")
        assert "no PriorityClass with name later was found" in failure["message"]
        bench.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "later"}, "value": 5})
        bench.wait(lambda: bench.status("replicasets", "web").get("readyReplicas") == 1)
        assert condition(bench.get("replicasets", "web"), "ReplicaFailure") == {}


def test_replication_controllers() -> None:
    with running() as bench:
        body = workload("old", 2)
        body["spec"]["selector"] = {"app": "old"}
        bench.create("replicationcontrollers", body)
        bench.wait(lambda: bench.status("replicationcontrollers", "old").get("readyReplicas") == 2)
        assert {owner(pod)["kind"] for pod in bench.all("pods")} == {"ReplicationController"}
