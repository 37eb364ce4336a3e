"""Objects of every kind come and go: nothing that is kept by name, uid or value grows with their number.

API server with controllers, simulated nodes, and our scheduler with all plugins run in virtual time. Each round makes
objects under new names and values, and removes them. The sizes of all containers that are reachable are compared after
some rounds and after more rounds; a container that grew is named by its owner's class and attribute.
"""

import gc
import types
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary

import numpy as np
import orjson
import pytest

from seatrial.harness.clusters.virtual import VirtualBackend, VirtualCluster
from seatrial.harness.subject.inprocess import InProcess
from seatrial.scheduler.api.builders import disruption_budget, gang, node, pod, priority_class, quota, reservation
from seatrial.scheduler.api.podgroup import GANG_MIN, GANG_NAME
from seatrial.scheduler.api.transport import JSON, MERGE_PATCH, Request

FIRST, SECOND = 6, 18  # rounds before the first and before the second look
ALLOWED = 8  # entries that a container may have more
ZONE = "topology.kubernetes.io/zone"
PROFILE = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {
                "filter": {"enabled": [{"name": "LoadAwareScheduling"}]},
                "score": {
                    "enabled": [
                        {"name": name, "weight": 1}
                        for name in (
                            "LoadAwareScheduling",
                            "NodeResourcesFitPlus",
                            "ScarceResourceAvoidance",
                            "DeviceFragmentation",
                        )
                    ]
                },
                "reserve": {"enabled": [{"name": "LoadAwareScheduling"}]},
            },
            "pluginConfig": [
                {"name": "Coscheduling", "args": {"enablePreemption": True}},
                {"name": "DeviceFragmentation", "args": {"window": 100}},
                {"name": "ElasticQuota", "args": {"monitorAllQuotas": True, "delayEvictTime": "1s"}},
            ],
        }
    ],
}
BOUNDED = {  # containers that are emptied, or lose their oldest entries, at a limit of their own
    "Collection.history": 16_384,
    "PodSpecCache._known": 2048,
    "Recorder._known": 4096,
    "PodDecoder._specs": 16_384,
    "ClassRegistry._by_content": 16_384,  # as the decoded specs
    "ClassRegistry._by_spec": 16_384,
    "RowLog._rows": 1 << 17,
    "Cache._capacities": 4096,
    "ScoreMatrix.pending": 256,
    "Timing.by_plugin": 1000,  # plugins, extension points and status codes
    "QuotaCache._charges": 65_536,
    "StateCache._options": 50_000,
    "StateCache._states": 50_000,
}
LIMITS = (  # of results that are kept: they are small here, so that what is kept beside them is seen
    "cache.cache.MAX_CLASSES",
    "cache.domains.MAX_KEYS",
    "cache.matching.MAX_READINGS",
    "cache.node_facts.MIN_VALUES",
    "cache.tallies.MAX_KEPT_CELLS",
    "cache.tallies.MIN_TALLIES",
    "client.events._REMEMBERED",
    "engine.plugin_runner.MAX_GATE_LISTS",
    "engine.runner.MAX_CLASSES",
    "engine.runner.MIN_CLASSES",
    "plugins.coscheduling.measures._MAX_JOBS",
    "plugins.deviceshare.allocator.MAX_ALLOCATIONS",
    "plugins.deviceshare.plugin.MAX_REQUESTS",
    "plugins.deviceshare.states.MAX_FREE_AMOUNTS",
    "plugins.deviceshare.states.MAX_HOLDINGS",
    "plugins.deviceshare.states.MAX_REQUESTS",
    "plugins.podtopologyspread.constraints.MAX_KEPT_ROWS",
    "plugins.node_selection.MAX_KEYS",
)


class Sizes:
    """Entries of the containers by `Class.attribute`, and objects by class, that are reachable from some roots."""

    def __init__(self, *roots: object) -> None:
        gc.collect()
        self.counts: Counter[str] = Counter()
        self._seen: set[int] = set()
        self._pending: list[tuple[object, str]] = [(root, "root") for root in roots]
        while self._pending:
            self._visit(*self._pending.pop())

    def _visit(self, one: object, label: str) -> None:
        if id(one) in self._seen or isinstance(one, type | types.ModuleType | str | bytes | int | float | None):
            return
        self._seen.add(id(one))
        if label in BOUNDED:
            assert len(one) <= BOUNDED[label], label  # type: ignore[arg-type]
            return
        kind = type(one)
        if isinstance(one, np.ndarray):
            self.counts[label] += one.size
        elif isinstance(one, dict):
            self.counts[label] += len(one)
            self._pending += [(part, label) for pair in one.items() for part in pair]
        elif isinstance(one, list | set | frozenset | deque | tuple):
            self.counts[label] += len(one)
            self._pending += [(part, label) for part in one]
        elif isinstance(one, WeakValueDictionary | WeakKeyDictionary):
            self.counts[label] += len(one)
        elif isinstance(one, types.MethodType):
            self._pending.append((one.__self__, label))
        elif isinstance(one, types.FunctionType):
            cells = [cell.cell_contents for cell in one.__closure__ or () if cell != types.CellType()]
            self._pending += [(part, f"{one.__qualname__}()") for part in cells]
        elif isinstance(one, partial):
            self._pending += [(part, label) for part in (one.func, *one.args, *one.keywords.values())]
        elif kind.__module__.startswith("seatrial") and not isinstance(one, ReferenceType):
            self.counts[kind.__qualname__] += 1
            self._pending += [(value, f"{kind.__qualname__}.{name}") for name, value in _fields(one)]


def _fields(one: object) -> Iterator[tuple[str, object]]:
    names = dict.fromkeys(getattr(one, "__dict__", ()))
    for kind in type(one).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        names |= dict.fromkeys((slots,) if isinstance(slots, str) else slots)
    for name in names:
        try:
            yield name, getattr(one, name)
        except AttributeError:
            continue


class Churn:
    """A cluster in which objects come and go."""

    def __init__(self, cluster: VirtualCluster) -> None:
        self.cluster = cluster
        self._made: list[str] = []

    def make(self, path: str, body: Any) -> None:
        body = getattr(body, "manifest", body)
        response = self.cluster.call(Request("POST", path, orjson.dumps(body), JSON))
        assert response.ok, f"{path}: {response.body.decode()}"
        self._made.append(f"{path}/{body['metadata']['name']}")

    def round(self, number: int) -> None:
        """Make one object of each kind, and more pods; let them be scheduled; remove all."""
        cluster, n, ns = self.cluster, str(number), f"ns-{number}"
        core, storage = f"/api/v1/namespaces/{ns}", "/apis/storage.k8s.io/v1"
        koordinator, sigs = "/apis/scheduling.koordinator.sh/v1alpha1", "/apis/scheduling.sigs.k8s.io/v1alpha1"
        self.make("/api/v1/namespaces", {"metadata": {"name": ns, "labels": {"team": n}}})
        names = [f"a{n}", f"b{n}"]
        self.make("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(f"p{n}", number))
        cluster.add_nodes(
            node(name).cpu(16 + number).cards(2).label(ZONE, name).label(f"own-{n}", n).taint(f"t{n}") for name in names
        )
        metric = {
            "updateTime": cluster.clock.timestamp(),
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": f"{number}m", "memory": "1Gi"}}},
        }
        for name in names:
            metrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
            self.make(metrics, {"apiVersion": metrics[6:-12], "kind": "NodeMetric", "metadata": {"name": name}})
            cluster.call(Request("PATCH", f"{metrics}/{name}/status", orjson.dumps({"status": metric}), MERGE_PATCH))
            self.make(
                f"{storage}/csinodes",
                {
                    "metadata": {"name": name},
                    "spec": {"drivers": [{"name": "d", "nodeID": name, "allocatable": {"count": 5}}]},
                },
            )
        self.make(
            f"{storage}/storageclasses",
            {"metadata": {"name": f"c{n}"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer"},
        )
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"c{n}",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        volume = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": f"c{n}",
            "hostPath": {"path": "/x"},
            "persistentVolumeReclaimPolicy": "Delete",
        }
        self.make("/api/v1/persistentvolumes", {"metadata": {"name": f"v{n}"}, "spec": volume})
        self.make(f"{core}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
        self.make(
            f"{storage}/volumeattachments",
            {
                "metadata": {"name": f"va{n}"},
                "spec": {"attacher": "d", "nodeName": names[0], "source": {"persistentVolumeName": f"v{n}"}},
            },
        )
        quotas = f"{sigs}/namespaces/{ns}/elasticquotas"
        self.make(quotas, quota(f"top{n}").min(cpu=4, memory="8Gi").max(cpu=40, memory="80Gi").parent())
        self.make(quotas, quota(f"q{n}").min(cpu=1, memory="1Gi").max(cpu=8, memory="80Gi").below(f"top{n}"))
        self.make(f"{sigs}/namespaces/{ns}/podgroups", gang("train", 2).waiting_time(30))
        self.make(f"{sigs}/namespaces/{ns}/podgroups", gang("short", 3).waiting_time(5))
        self.make(
            f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets", disruption_budget("b", {"app": n}, min_available=1)
        )
        selector = {"selector": {"app": n}, "ports": [{"port": 80}]}
        self.make(f"{core}/services", {"metadata": {"name": f"s{n}"}, "spec": selector})
        template = pod("t").request(cpu=1).tolerate(f"t{n}").label("app", n).manifest
        template = {"metadata": {"labels": {"app": n}}, "spec": template["spec"]}
        workload = {"replicas": 2, "selector": {"matchLabels": {"app": n}}, "template": template}
        self.make(f"/apis/apps/v1/namespaces/{ns}/deployments", {"metadata": {"name": "d"}, "spec": workload})
        self.make(
            f"/apis/apps/v1/namespaces/{ns}/statefulsets",
            {"metadata": {"name": "s"}, "spec": {**workload, "serviceName": "s", "volumeClaimTemplates": []}},
        )
        self.make(
            f"/apis/apps/v1/namespaces/{ns}/daemonsets",
            {"metadata": {"name": "ds"}, "spec": {**workload, "replicas": None}},
        )
        self.make(
            f"/apis/batch/v1/namespaces/{ns}/jobs",
            {"metadata": {"name": "j"}, "spec": {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}},
        )
        held = pod("x").request(cpu=1).gpus(1).tolerate(f"t{n}")
        self.make(f"{koordinator}/reservations", reservation(f"r{n}").like(held).for_labels(owner=n).ttl("60s").many())
        for built in self._pods(number, ns):
            self.make(f"{core}/pods", built)
        cluster.pass_time(12)
        for path in reversed(self._made):
            grace = "?gracePeriodSeconds=0" if "/pods/" in path else ""
            cluster.call(Request("DELETE", path + grace))
        for name in names:
            cluster.remove_node(name)
        self._made.clear()
        cluster.pass_time(5)

    def _pods(self, number: int, ns: str) -> Iterator[Any]:
        n = str(number)
        terms = {
            "labelSelector": {"matchLabels": {"app": n}},
            "topologyKey": ZONE,
            "namespaceSelector": {"matchLabels": {"team": n}},
        }
        shapes = {
            "plain": pod("plain").request(cpu=f"{number}m", memory="1Mi"),
            "share": pod("share").gpu_share(10 + number % 50),
            "card": pod("card").gpus(1).hint("gpu", selector={"matchLabels": {"no": n}}),
            "cpus": pod("cpus").request(cpu=2).qos("LSR").bind_cpus("FullPCPUs"),
            "owner": pod("owner").request(cpu=1).label("owner", n),
            "quota": pod("quota").request(cpu=1).quota(f"q{n}"),
            "over": pod("over").request(cpu=9).quota(f"q{n}"),
            "wide": pod("wide").request(cpu=1000 + number),
            "high": pod("high").request(cpu=17).priority_class(f"p{n}"),
            "light-0": pod("light-0").request(cpu=1).annotation(GANG_NAME, f"l{n}").annotation(GANG_MIN, "2"),
            "light-1": pod("light-1").request(cpu=1).annotation(GANG_NAME, f"l{n}").annotation(GANG_MIN, "2"),
            **{
                f"{name}-{i}": pod(f"{name}-{i}").request(cpu=1).in_gang(name)
                for name in ("train", "short")
                for i in range(2)
            },
        }
        for name in ("near", "spread", "port", "claim", "ephemeral", "gated", "dra", "image", "select"):
            shapes[name] = pod(name).request(cpu=1)
        specs: dict[str, dict[str, Any]] = {
            "near": {
                "affinity": {
                    "podAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": terms}]
                    },
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [terms]},
                }
            },
            "spread": {
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": f"own-{n}",
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": n}},
                    }
                ]
            },
            "claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            "ephemeral": {
                "volumes": [
                    {
                        "name": "v",
                        "ephemeral": {
                            "volumeClaimTemplate": {
                                "spec": {
                                    "accessModes": ["ReadWriteOnce"],
                                    "storageClassName": f"c{n}",
                                    "resources": {"requests": {"storage": "1Gi"}},
                                }
                            }
                        },
                    }
                ]
            },
            "gated": {"schedulingGates": [{"name": f"example.com/g{n}"}]},
            "dra": {"resourceClaims": [{"name": f"c{n}", "resourceClaimName": "no"}]},
            "select": {"nodeSelector": {f"own-{n}": n}},
        }
        shapes["port"].manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 1000 + number}]
        shapes["image"].manifest["spec"]["containers"][0]["image"] = f"example.com/image:{n}"
        for name, built in shapes.items():
            built.manifest["spec"] |= specs.get(name, {})
            yield built.namespace(ns).tolerate(f"t{n}").label("app", n)


def test_nothing_grows_with_objects_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in LIMITS:
        monkeypatch.setattr(f"seatrial.scheduler.{name}", 2)
    configuration = tmp_path / "scheduler.yaml"
    configuration.write_bytes(orjson.dumps(PROFILE))
    with VirtualBackend().start() as cluster, InProcess(cluster, config=configuration) as subject:
        churn, looks = Churn(cluster), []
        for number in range(1, SECOND + 1):
            churn.round(number)
            if number in {FIRST, SECOND}:
                cluster.pass_time(7200)  # events and what is left of timers expire
                looks.append(Sizes(cluster, subject).counts)
        subject.check()
    before, after = looks
    grown = {key: (before[key], count) for key, count in after.items() if count > before[key] + ALLOWED}
    assert not grown, "\n".join(f"{key}: {old} -> {new}" for key, (old, new) in sorted(grown.items()))
