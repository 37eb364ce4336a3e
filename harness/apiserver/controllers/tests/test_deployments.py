"""Deployments in virtual time: rollouts, rollbacks, pausing, deadlines, status."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.bench import Bench, condition, owner, running, workload

REVISION = "deployment.kubernetes.io/revision"


def rolled_out(bench: Bench, name: str, replicas: int) -> bool:
    """As `kubectl rollout status` sees it."""
    deployment = bench.get("deployments", name)
    status = deployment.get("status") or {}
    return status.get("observedGeneration", 0) >= deployment["metadata"]["generation"] and all(
        status.get(field, 0) == replicas for field in ("updatedReplicas", "replicas", "availableReplicas")
    )


def set_image(bench: Bench, name: str, image: str) -> None:
    containers = [{"name": "c", "image": image}]
    bench.patch("deployments", name, {"spec": {"template": {"spec": {"containers": containers}}}})


def images(bench: Bench) -> set[str]:
    return {pod["spec"]["containers"][0]["image"] for pod in bench.live_pods()}


def revisions(bench: Bench) -> dict[str, str]:
    """Image → revision of its ReplicaSet."""
    return {
        replica_set["spec"]["template"]["spec"]["containers"][0]["image"]: replica_set["metadata"]["annotations"][
            REVISION
        ]
        for replica_set in bench.all("replicasets")
    }


def test_the_replica_set_is_named_after_its_template() -> None:
    with running() as bench:
        made = bench.create("deployments", workload("web", 3))
        bench.wait(lambda: rolled_out(bench, "web", 3))

        (replica_set,) = bench.all("replicasets")
        mark = replica_set["metadata"]["labels"]["pod-template-hash"]
        assert replica_set["metadata"]["name"] == f"web-{mark}"
        assert replica_set["spec"]["selector"]["matchLabels"] == {"app": "web", "pod-template-hash": mark}
        assert owner(replica_set)["uid"] == made["metadata"]["uid"]
        assert owner(replica_set)["blockOwnerDeletion"] is True
        assert {pod["metadata"]["labels"]["pod-template-hash"] for pod in bench.all("pods")} == {mark}
        deployment = bench.get("deployments", "web")
        assert deployment["metadata"]["annotations"][REVISION] == "1"
        assert condition(deployment, "Available")["reason"] == "MinimumReplicasAvailable"
        assert condition(deployment, "Progressing")["reason"] == "NewReplicaSetAvailable"
        assert bench.events("ScalingReplicaSet") == [f"Scaled up replica set web-{mark} from 0 to 3"]


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "fewest"),
    [
        pytest.param(1, 0, 5, 4, id="one-more-at-a-time"),
        pytest.param(0, 1, 4, 3, id="one-fewer-at-a-time"),
        pytest.param("25%", "25%", 5, 3, id="quarters"),
        pytest.param("100%", 0, 8, 4, id="all-at-once"),
    ],
)
def test_a_rollout_respects_its_limits(surge: int | str, unavailable: int | str, most: int, fewest: int) -> None:
    with running() as bench:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}
        bench.create("deployments", workload("web", 4, strategy=strategy))
        bench.wait(lambda: rolled_out(bench, "web", 4))

        set_image(bench, "web", "img:2")
        seen: list[tuple[int, int]] = []

        def done() -> bool:
            pods = bench.live_pods()
            ready = sum(condition(pod, "Ready").get("status") == "True" for pod in pods)
            seen.append((len(pods), ready))
            return rolled_out(bench, "web", 4)

        bench.wait(done)
        assert images(bench) == {"img:2"}
        assert max(total for total, _ in seen) <= most
        assert min(ready for _, ready in seen) >= fewest
        assert revisions(bench) == {"img:1": "1", "img:2": "2"}


def test_recreate_stops_old_pods_before_creating_new_ones() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2, strategy={"type": "Recreate"}))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        set_image(bench, "web", "img:2")
        mixed: list[set[str]] = []

        def done() -> bool:
            mixed.append({pod["spec"]["containers"][0]["image"] for pod in bench.all("pods")})
            return rolled_out(bench, "web", 2)

        bench.wait(done)
        assert images(bench) == {"img:2"}
        assert {"img:1", "img:2"} not in mixed


def test_a_rollback_reuses_the_old_replica_set_with_a_new_revision() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        (first,) = bench.names("replicasets")
        set_image(bench, "web", "img:2")
        bench.wait(lambda: rolled_out(bench, "web", 2) and images(bench) == {"img:2"})
        set_image(bench, "web", "img:1")  # what `kubectl rollout undo` writes
        bench.wait(lambda: rolled_out(bench, "web", 2) and images(bench) == {"img:1"})

        assert revisions(bench) == {"img:2": "2", "img:1": "3"}
        annotations = bench.get("replicasets", first)["metadata"]["annotations"]
        assert annotations["deployment.kubernetes.io/revision-history"] == "1"
        assert bench.get("deployments", "web")["metadata"]["annotations"][REVISION] == "3"


def test_a_paused_deployment_scales_but_does_not_roll() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        bench.patch("deployments", "web", {"spec": {"paused": True}})
        set_image(bench, "web", "img:2")
        bench.scale("deployments", "web", 3)
        bench.settle(30)
        assert images(bench) == {"img:1"}
        assert len(bench.live_pods()) == 3
        assert condition(bench.get("deployments", "web"), "Progressing")["reason"] == "DeploymentPaused"

        bench.patch("deployments", "web", {"spec": {"paused": None}})
        bench.wait(lambda: rolled_out(bench, "web", 3) and images(bench) == {"img:2"})


def test_a_restart_is_a_new_template() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        old = set(bench.names("pods"))
        mark = {"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
        bench.patch("deployments", "web", {"spec": {"template": {"metadata": {"annotations": mark}}}})
        bench.wait(
            lambda: rolled_out(bench, "web", 2) and not old & {pod["metadata"]["name"] for pod in bench.live_pods()}
        )


def test_old_replica_sets_beyond_the_history_limit_are_deleted() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 1, revisionHistoryLimit=2))
        for number in range(1, 6):
            set_image(bench, "web", f"img:{number}")
            bench.wait(lambda: rolled_out(bench, "web", 1))
        bench.settle(5)
        assert revisions(bench) == {"img:3": "3", "img:4": "4", "img:5": "5"}


def test_a_stuck_rollout_exceeds_its_deadline_and_recovers() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2, progressDeadlineSeconds=60))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        misfit = {"spec": {"template": {"spec": {"nodeSelector": {"no": "such"}}}}}
        bench.patch("deployments", "web", misfit)
        bench.settle(50)
        assert condition(bench.get("deployments", "web"), "Progressing")["reason"] == "ReplicaSetUpdated"
        bench.settle(20)
        results = condition(bench.get("deployments", "web"), "Progressing")
        assert (results["status"], results["reason"]) == ("False", "ProgressDeadlineExceeded")
        assert results["message"].endswith("has timed out progressing.")
        assert condition(bench.get("deployments", "web"), "Available")["status"] == "True"

        misfit["spec"]["template"]["spec"]["nodeSelector"] = {"no": None}  # type: ignore[dict-item]
        bench.patch("deployments", "web", misfit)
        bench.wait(lambda: rolled_out(bench, "web", 2))
        assert condition(bench.get("deployments", "web"), "Progressing")["reason"] == "NewReplicaSetAvailable"


def test_scaling_during_a_rollout_keeps_the_proportions() -> None:
    with running(nodes=4) as bench:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 3, "maxUnavailable": 2}}
        bench.create("deployments", workload("web", 10, strategy=strategy))
        bench.wait(lambda: rolled_out(bench, "web", 10))
        bench.patch("deployments", "web", {"spec": {"template": {"spec": {"nodeSelector": {"no": "such"}}}}})
        bench.settle(5)
        assert sorted(replica_set["spec"]["replicas"] for replica_set in bench.all("replicasets")) == [5, 8]
        bench.scale("deployments", "web", 15)
        bench.settle(5)
        assert sorted(replica_set["spec"]["replicas"] for replica_set in bench.all("replicasets")) == [
            7,
            11,
        ]  # upstream's own example


def test_foreground_deletion_removes_sets_and_pods_first() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        bench.delete("deployments", "web", "?propagationPolicy=Foreground")
        bench.wait(lambda: not bench.all("deployments"))
        assert bench.names("pods") == []
        assert bench.names("replicasets") == []


def test_an_orphaned_replica_set_is_adopted() -> None:
    with running() as bench:
        bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        pods, sets = bench.names("pods"), bench.names("replicasets")
        bench.delete("deployments", "web", "?propagationPolicy=Orphan")
        bench.settle(1)
        assert bench.names("deployments") == []
        made = bench.create("deployments", workload("web", 2))
        bench.wait(lambda: rolled_out(bench, "web", 2))
        assert (bench.names("pods"), bench.names("replicasets")) == (pods, sets)
        assert owner(bench.all("replicasets")[0])["uid"] == made["metadata"]["uid"]


def test_change_cause_reaches_the_history() -> None:
    with running() as bench:
        body: dict[str, Any] = workload("web", 1)
        body["metadata"]["annotations"] = {
            "kubernetes.io/change-cause": "first",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        }
        bench.create("deployments", body)
        bench.wait(lambda: rolled_out(bench, "web", 1))
        annotations = bench.all("replicasets")[0]["metadata"]["annotations"]
        assert annotations["kubernetes.io/change-cause"] == "first"
        assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations
