"""StatefulSets in virtual time: order, ordinals, partitions, revisions, claims."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, owner, running, workload


def ready(bench: Bench, name: str, replicas: int) -> bool:
    return bench.status("statefulsets", name).get("readyReplicas", 0) == replicas and len(bench.all("pods")) == replicas


def images(bench: Bench) -> list[str]:
    """By ordinal."""
    return [pod["spec"]["containers"][0]["image"] for pod in bench.all("pods")]


def set_image(bench: Bench, image: str) -> None:
    containers = [{"name": "c", "image": image}]
    bench.patch("statefulsets", "db", {"spec": {"template": {"spec": {"containers": containers}}}})


def updated(bench: Bench) -> bool:
    """As `kubectl rollout status` sees it."""
    stateful_set = bench.get("statefulsets", "db")
    status = stateful_set.get("status") or {}
    return (
        status.get("observedGeneration", 0) >= stateful_set["metadata"]["generation"]
        and status.get("readyReplicas", 0) == stateful_set["spec"]["replicas"]
        and status.get("currentRevision") == status.get("updateRevision")
        and status.get("updatedReplicas", 0) == stateful_set["spec"]["replicas"]
    )


def test_pods_are_created_in_order_of_their_ordinals() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 3, serviceName="db"))
        seen: list[int] = []

        def done() -> bool:
            seen.append(sum(pod["status"]["phase"] == "Pending" for pod in bench.all("pods")))
            return ready(bench, "db", 3)

        bench.wait(done)
        assert max(seen) == 1
        assert bench.names("pods") == ["db-0", "db-1", "db-2"]
        pod = bench.get("pods", "db-1")
        assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("db-1", "db")
        labels = pod["metadata"]["labels"]
        assert labels["statefulset.kubernetes.io/pod-name"] == "db-1"
        assert labels["apps.kubernetes.io/pod-index"] == "1"
        assert labels["controller-revision-hash"] == bench.names("controllerrevisions")[0]
        assert owner(pod)["kind"] == "StatefulSet"


def test_parallel_pod_management() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 3, podManagementPolicy="Parallel"))
        bench.settle(0.01)
        assert len(bench.all("pods")) == 3


def test_scaling_down_removes_the_highest_ordinal_first() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 3))
        bench.wait(lambda: ready(bench, "db", 3))
        bench.scale("statefulsets", "db", 1)
        seen: list[list[str]] = []

        def done() -> bool:
            seen.append([pod["metadata"]["name"] for pod in bench.live_pods()])
            return ready(bench, "db", 1)

        bench.wait(done)
        assert seen[-1] == ["db-0"]
        assert ["db-0", "db-1"] in seen


def test_a_deleted_pod_is_recreated_with_its_name() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 2))
        bench.wait(lambda: ready(bench, "db", 2))
        before = bench.get("pods", "db-0")["metadata"]["uid"]
        bench.delete("pods", "db-0")
        bench.wait(lambda: ready(bench, "db", 2) and bench.get("pods", "db-0")["metadata"]["uid"] != before)


def test_an_update_goes_from_the_highest_ordinal_down_one_at_a_time() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 3))
        bench.wait(lambda: updated(bench))
        set_image(bench, "img:2")
        seen: list[list[str]] = []

        def done() -> bool:
            if len(bench.live_pods()) == 3:
                seen.append(images(bench))
            return updated(bench) and len(bench.all("pods")) == 3

        bench.wait(done)
        old, new = "img:1", "img:2"
        for stage in ([old, old, new], [old, new, new], [new, new, new]):
            assert stage in seen
        assert not any(entry[0] == new and entry[2] == old for entry in seen)
        assert [revision["revision"] for revision in bench.all("controllerrevisions")] in ([1, 2], [2, 1])


def test_pods_below_the_partition_keep_the_old_revision_when_recreated() -> None:
    with running() as bench:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        bench.create("statefulsets", workload("db", 3, updateStrategy=strategy))
        bench.wait(lambda: updated(bench))
        set_image(bench, "img:2")
        bench.wait(lambda: ready(bench, "db", 3) and images(bench) == ["img:1", "img:1", "img:2"])
        bench.delete("pods", "db-0")
        bench.settle(40)
        assert images(bench) == ["img:1", "img:1", "img:2"]
        bench.patch("statefulsets", "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
        bench.wait(lambda: updated(bench) and images(bench) == ["img:2"] * 3)


def test_a_rollback_renumbers_the_old_revision() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 1))
        bench.wait(lambda: updated(bench))
        (first,) = bench.all("controllerrevisions")
        set_image(bench, "img:2")
        bench.wait(lambda: updated(bench))
        response = bench.call(
            "PATCH", bench.path("statefulsets", "db"), first["data"], "application/strategic-merge-patch+json"
        )
        assert response.code == 200, response.body
        bench.wait(lambda: updated(bench) and images(bench) == ["img:1"])
        numbers = {revision["metadata"]["name"]: revision["revision"] for revision in bench.all("controllerrevisions")}
        assert numbers.pop(first["metadata"]["name"]) == 3
        assert list(numbers.values()) == [2]


@pytest.mark.parametrize(
    ("policy", "after_scale", "after_delete"),
    [
        pytest.param({}, 2, 2, id="claims-are-kept"),
        pytest.param({"whenScaled": "Delete"}, 1, 1, id="deleted-with-the-pod"),
        pytest.param({"whenDeleted": "Delete"}, 2, 0, id="deleted-with-the-set"),
    ],
)
def test_claims_follow_the_retention_policy(policy: dict[str, Any], after_scale: int, after_delete: int) -> None:
    with running(scheduler=False) as bench:
        claim = {
            "metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        }
        body = workload(
            "db",
            2,
            podManagementPolicy="Parallel",
            volumeClaimTemplates=[claim],
            persistentVolumeClaimRetentionPolicy=policy,
        )
        bench.create("statefulsets", body)
        bench.settle(1)
        assert bench.names("persistentvolumeclaims") == ["data-db-0", "data-db-1"]
        volume = bench.get("pods", "db-1")["spec"]["volumes"][0]
        assert volume == {"name": "data", "persistentVolumeClaim": {"claimName": "data-db-1"}}
        bench.scale("statefulsets", "db", 1)
        bench.settle(1)
        assert len(bench.all("persistentvolumeclaims")) == after_scale
        bench.delete("statefulsets", "db")
        bench.settle(1)
        assert len(bench.all("persistentvolumeclaims")) == after_delete


def test_a_pod_of_a_lost_node_is_not_recreated() -> None:
    """A second pod would duplicate the identity of the first, so the controller waits until the node is removed."""
    with running(nodes=2) as bench:
        bench.create("statefulsets", workload("db", 1))
        bench.wait(lambda: ready(bench, "db", 1))
        home = bench.get("pods", "db-0")["spec"]["nodeName"]
        bench.cluster.inject({"node": home, "verb": "frozen"})
        bench.settle(400)
        (pod,) = bench.all("pods")
        assert "deletionTimestamp" in pod["metadata"]
        bench.delete("nodes", home)
        bench.wait(lambda: ready(bench, "db", 1) and bench.get("pods", "db-0")["spec"]["nodeName"] != home, within=120)


def test_ordinals_can_start_above_zero() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 2, ordinals={"start": 5}))
        bench.wait(lambda: ready(bench, "db", 2))
        assert bench.names("pods") == ["db-5", "db-6"]
        bench.patch("statefulsets", "db", {"spec": {"ordinals": {"start": 6}}})
        bench.wait(lambda: bench.names("pods") == ["db-6", "db-7"] and ready(bench, "db", 2))


def test_on_delete_updates_only_deleted_pods() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 2, updateStrategy={"type": "OnDelete"}))
        bench.wait(lambda: ready(bench, "db", 2))
        set_image(bench, "img:2")
        bench.settle(30)
        assert images(bench) == ["img:1", "img:1"]
        bench.delete("pods", "db-1")
        bench.wait(lambda: ready(bench, "db", 2) and images(bench) == ["img:1", "img:2"])


def test_the_next_pod_waits_for_min_ready_seconds_of_the_previous_one() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 2, minReadySeconds=30))
        bench.settle(25)
        assert bench.names("pods") == ["db-0"]
        bench.settle(10)
        assert bench.names("pods") == ["db-0", "db-1"]
        bench.wait(lambda: bench.status("statefulsets", "db").get("availableReplicas") == 2)


def test_max_unavailable_updates_several_pods_at_once() -> None:
    with running() as bench:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}
        bench.create("statefulsets", workload("db", 4, updateStrategy=strategy, podManagementPolicy="Parallel"))
        bench.wait(lambda: updated(bench))
        set_image(bench, "img:2")
        fewest = [4]

        def done() -> bool:
            serving = [
                pod
                for pod in bench.live_pods()
                if any(
                    each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ())
                )
            ]
            fewest.append(len(serving))
            return updated(bench) and images(bench) == ["img:2"] * 4

        bench.wait(done)
        assert min(fewest) == 2


def test_failed_pods_are_replaced() -> None:
    with running() as bench:
        bench.create("statefulsets", workload("db", 1))
        bench.wait(lambda: ready(bench, "db", 1))
        before = bench.get("pods", "db-0")["metadata"]["uid"]
        bench.patch("pods", "db-0", {"status": {"phase": "Failed"}}, "status")
        bench.wait(lambda: ready(bench, "db", 1) and bench.get("pods", "db-0")["metadata"]["uid"] != before)
