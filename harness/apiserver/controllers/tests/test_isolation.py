"""One object that a controller fails at: objects of others are served, and the server says which one fails."""

from collections.abc import Callable, Hashable
from itertools import pairwise
from typing import Any

import orjson
import pytest

from seatrial.harness.apiserver.access.authority import Authority
from seatrial.harness.apiserver.assembly import build_server
from seatrial.harness.apiserver.controllers.cronjobs import CronJobs
from seatrial.harness.apiserver.controllers.deployments import Deployments
from seatrial.harness.apiserver.controllers.nodes import Nodes
from seatrial.harness.apiserver.controllers.tests.bench import Bench, Object, running, workload
from seatrial.harness.apiserver.controllers.work_queue import CHANGE_PAUSE, WorkQueue
from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.faults import FIRST_PAUSE, LONGEST_PAUSE, Faults
from seatrial.scheduler.api.transport import Request

DIGITS = "9" * 512
QUEUES = [
    "Autoscalers._sync",
    "Budgets._recount",
    "Certificates._delete_expired",
    "Certificates._sync",
    "CronJobs._sync",
    "DaemonSets._sync",
    "Definitions._establish",
    "Deployments._sync",
    "DeviceTaintEviction._sync_claim",
    "DeviceTaintEviction._sync_rule",
    "Endpoints._sync",
    "EphemeralClaims._sync",
    "GarbageCollector._collect",
    "GarbageCollector._owner_gone",
    "Jobs._release_stray",
    "Jobs._remove",
    "Jobs._sync",
    "Namespaces._create_default_objects",
    "Namespaces._empty",
    "Nodes._evict",
    "Nodes._remove_pod",
    "Nodes._remove_pods",
    "Nodes._sync",
    "PodGroupProtection._sync",
    "Quotas._write_status",
    "ReplicaSets._sync",
    "ReplicationControllers._sync",
    "ResourceClaims._sync_claim",
    "ResourceClaims._sync_group",
    "ResourceClaims._sync_pod",
    "ServiceAddresses._sync",
    "ServiceRanges._sync",
    "StatefulSets._sync",
    "Volumes._reconcile",
]


def queues_of_a_server(monkeypatch: pytest.MonkeyPatch) -> tuple[SimClock, list[WorkQueue[Hashable]]]:
    made: list[WorkQueue[Hashable]] = []
    begin = WorkQueue.__init__

    def recorded(queue: WorkQueue[Hashable], *args: Any, **more: Any) -> None:
        begin(queue, *args, **more)
        if args[0] is clock:  # and not the clock of the server that makes the initial definitions
            made.append(queue)

    clock = SimClock(faults=Faults())
    monkeypatch.setattr(WorkQueue, "__init__", recorded)
    build_server(clock, authority=Authority.fresh(clock.now()))
    clock.advance(1)
    return clock, made


def test_every_queue_goes_on_after_a_key_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """All work queues of a server; the work of each raises an exception for one of two keys."""
    clock, queues = queues_of_a_server(monkeypatch)
    assert sorted(queue.name for queue in queues) == QUEUES
    for queue in queues:
        done: list[Hashable] = []
        tried: list[float] = []

        def work(key: Hashable, done: list[Hashable] = done, tried: list[float] = tried) -> None:
            if key == "poison":
                tried.append(clock.monotonic())
                raise TypeError("a fault")
            done.append(key)

        monkeypatch.setattr(queue, "_work", work)
        queue.add("poison")
        queue.add("good")
        clock.settle()
        assert done == ["good"], queue.name
        clock.advance(3600)
        queue.add("good")
        clock.settle()
        assert done == ["good"] * 2, queue.name
        gaps = [later - earlier for earlier, later in pairwise(tried)]
        assert gaps[:3] == pytest.approx([FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]), queue.name
        assert gaps[-1] == pytest.approx(LONGEST_PAUSE), queue.name


def test_a_key_whose_failing_work_changes_it_is_not_tried_in_a_hot_loop() -> None:
    """The work queues its own key, as an event of its own write does, before it raises."""
    clock = SimClock(faults=Faults())
    tried = 0

    def work(key: str) -> None:
        nonlocal tried
        tried += 1
        queue.add(key)
        raise TypeError("a fault")

    queue = WorkQueue(clock, work)
    queue.add("poison")
    clock.settle()
    assert tried == 1
    clock.advance(600)
    assert tried < 600 / CHANGE_PAUSE + 10


def test_a_key_that_passes_again_is_forgotten() -> None:
    clock = SimClock(faults=Faults())
    broken = True

    def work(_key: str) -> None:
        if broken:
            raise TypeError("a fault")

    queue = WorkQueue(clock, work)
    queue.add("a")
    clock.advance(10)
    assert list(clock.faults.failing) == [(queue.name, "a")]
    broken = False
    queue.add("a")
    clock.advance(CHANGE_PAUSE)
    assert not clock.faults.failing
    before = clock.faults.counts.total()
    clock.advance(3600)
    assert clock.faults.counts.total() == before


def poison_deployment(bench: Bench) -> None:
    """A ReplicaSet whose revision is no number, which a Deployment adopts."""
    poisoned = workload("poison", 0)
    poisoned["metadata"] |= {"annotations": {"deployment.kubernetes.io/revision": "²"}, "labels": {"app": "poison"}}
    bench.call("POST", bench.path("replicasets"), poisoned)
    bench.create("deployments", workload("poison", 1))


def poison_job(bench: Bench) -> None:
    """A pod of an Indexed Job whose index is no number."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"completionMode": "Indexed", "completions": 2, "parallelism": 1, "template": template}
    bench.create("jobs", {"metadata": {"name": "poison"}, "spec": spec})
    bench.settle()
    (pod,) = bench.names("pods")
    patch = {"metadata": {"annotations": {"batch.kubernetes.io/job-completion-index": "²"}}}
    bench.call("PATCH", bench.path("pods", pod), patch, "application/merge-patch+json")
    bench.call("PATCH", bench.path("jobs", "poison"), {"spec": {"parallelism": 2}}, "application/merge-patch+json")


def poison_claim(bench: Bench) -> None:
    """A claim whose size has 512 digits, beside a quota."""
    bench.create("resourcequotas", {"metadata": {"name": "poison"}, "spec": {"hard": {"requests.storage": "5Gi"}}})
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": DIGITS}}}
    bench.call("POST", bench.path("persistentvolumeclaims"), {"metadata": {"name": "poison"}, "spec": spec})


def poison_taint(bench: Bench) -> None:
    """A taint with a time that no calendar has, and a pod on its node."""
    pod = {"metadata": {"name": "poison"}, "spec": {"nodeName": "n0", "containers": [{"name": "c", "image": "i"}]}}
    bench.create("pods", pod)
    taint = {"key": "a", "effect": "NoExecute", "timeAdded": "9999-99-99T99:99:99Z"}
    bench.call("PATCH", bench.path("nodes", "n0"), {"spec": {"taints": [taint]}}, "application/merge-patch+json")


def poison_cron_job(bench: Bench) -> None:
    """A CronJob whose last schedule time is in no calendar."""
    bench.create("cronjobs", cron_job("poison"))
    status = {"status": {"lastScheduleTime": "9999-99-99T99:99:99Z"}}
    bench.call("PATCH", bench.path("cronjobs", "poison", "status"), status, "application/merge-patch+json")
    bench.patch("cronjobs", "poison", {"metadata": {"labels": {"changed": "1"}}})


def cron_job(name: str) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": template}}}
    return {"metadata": {"name": name}, "spec": spec}


def other_deployment(bench: Bench) -> bool:
    post(bench, "deployments", workload("other", 1))
    bench.settle(10)
    return bool(orjson.loads(bench.call("GET", bench.path("replicasets", namespace="other")).body)["items"])


def other_job(bench: Bench) -> bool:
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
    post(bench, "jobs", {"metadata": {"name": "other"}, "spec": {"template": template}})
    bench.settle(10)
    return bool(orjson.loads(bench.call("GET", bench.path("pods", namespace="other")).body)["items"])


def other_quota(bench: Bench) -> bool:
    post(bench, "resourcequotas", {"metadata": {"name": "other"}, "spec": {"hard": {"pods": "5"}}})
    bench.settle(10)
    body = orjson.loads(bench.call("GET", bench.path("resourcequotas", "other", namespace="other")).body)
    return bool(body.get("status", {}).get("used"))


def other_eviction(bench: Bench) -> bool:
    body = {"metadata": {"name": "other"}, "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]}}
    post(bench, "pods", body)
    bench.patch("nodes", "n1", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    bench.settle(60)
    return bench.call("GET", bench.path("pods", "other", namespace="other")).code == 404


def other_cron_job(bench: Bench) -> bool:
    post(bench, "cronjobs", cron_job("other"))
    bench.settle(125)
    return len(orjson.loads(bench.call("GET", bench.path("jobs", namespace="other")).body)["items"]) == 2


def post(bench: Bench, plural: str, body: Object) -> None:
    response = bench.call("POST", bench.path(plural, namespace="other"), body)
    assert response.code == 201, response.body


Poison = Callable[[Bench], None]
Other = Callable[[Bench], bool]


@pytest.mark.parametrize(
    ("poison", "served"),
    [
        pytest.param(poison_deployment, other_deployment, id="revision"),
        pytest.param(poison_job, other_job, id="completion-index"),
        pytest.param(poison_claim, other_quota, id="size-of-a-claim"),
        pytest.param(poison_taint, other_eviction, id="time-of-a-taint"),
        pytest.param(poison_cron_job, other_cron_job, id="last-schedule-time"),
    ],
)
def test_a_poisoned_object_does_not_stop_the_objects_of_others(poison: Poison, served: Other) -> None:
    """A user stores a value that a controller cannot read, if the server takes it; another user's object follows."""
    with running(scheduler=False) as bench:
        bench.clock.faults.raises = False
        bench.create("namespaces", {"metadata": {"name": "other"}})
        poison(bench)
        bench.settle()
        assert served(bench)


@pytest.mark.parametrize(
    ("kind", "method", "plural", "served"),
    [
        pytest.param(Deployments, "_reconcile", "deployments", other_deployment, id="deployment"),
        pytest.param(CronJobs, "_plan", "cronjobs", other_cron_job, id="cron-job"),
    ],
)
def test_health_and_metrics_name_the_object_that_fails(
    kind: type[Any], method: str, plural: str, served: Other, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server stays ready, since the objects of others are served. The object is named until it is gone."""
    right = getattr(kind, method)

    def failing(self: Any, item: Any, *rest: Any) -> Any:
        if item.key[1] == "poison":
            raise TypeError("a fault")
        return right(self, item, *rest)

    monkeypatch.setattr(kind, method, failing)
    with running(scheduler=False) as bench:
        bench.clock.faults.raises = False
        bench.create("namespaces", {"metadata": {"name": "other"}})
        bench.create(plural, cron_job("poison") if plural == "cronjobs" else workload("poison", 1))
        bench.settle()
        assert served(bench)
        for path in ("/healthz", "/livez", "/readyz"):
            assert bench.call("GET", path).body == b"ok"
            verbose = bench.call("GET", f"{path}?verbose").body.decode()
            assert f"[!]{kind.__name__}._sync default/poison failed " in verbose
        metrics = bench.call("GET", "/metrics").body.decode()
        assert f'seatrial_faults_total{{work="{kind.__name__}._sync"}}' in metrics
        assert "seatrial_failing_objects 1\n" in metrics
        bench.delete(plural, "poison")
        bench.settle(600)
        assert "[!]" not in bench.call("GET", "/readyz?verbose").body.decode()


def test_a_lease_that_cannot_be_checked_does_not_stop_the_check_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of one node raises at each pass; the node lifecycle controller still sees that another is gone."""
    right = Nodes._check_lease

    def failing(self: Nodes, item: Any, lease: Any) -> None:
        if item.key[1] == "n0":
            raise TypeError("a fault")
        right(self, item, lease)

    monkeypatch.setattr(Nodes, "_check_lease", failing)
    with running(scheduler=False) as bench:
        bench.clock.faults.raises = False
        bench.settle(20)
        bench.create("nodes", {"metadata": {"name": "silent"}})
        bench.settle(120)
        ready = [entry for entry in bench.status("nodes", "silent")["conditions"] if entry["type"] == "Ready"]
        assert ready[0]["reason"] == "NodeStatusNeverUpdated"


def test_a_listener_that_raises_does_not_undo_the_write_or_keep_it_from_others() -> None:
    with running(scheduler=False) as bench:
        bench.clock.faults.raises = False
        store, seen = bench.cluster.server.store, list[str]()

        def broken(*_: object) -> None:
            raise TypeError("a fault")

        store.listeners[:0] = [broken]
        store.listeners.append(lambda _, change: seen.append(change.key[1]))
        assert bench.cluster.call(Request("POST", bench.path("configmaps"), b'{"metadata":{"name":"a"}}')).code == 201
        assert "a" in seen
