"""A mixed load by a seed: gangs, quotas, reservations, migrations, preemption, claims, and pods that come and go."""

from collections.abc import Callable
from random import Random
from typing import Any

import orjson

from seatrial.harness.clusters.answers import accepted
from seatrial.harness.clusters.protocol import Cluster
from seatrial.scheduler.api.builders import (
    PodBuilder,
    claim,
    claim_template,
    gang,
    members,
    node,
    pod,
    priority_class,
    quota,
    reservation,
)
from seatrial.scheduler.api.migration import JOBS_PATH
from seatrial.scheduler.api.quota import QUOTAS_PATH
from seatrial.scheduler.api.reservation import RESERVATIONS_PATH
from seatrial.scheduler.api.resourceclaims import CLAIMS_PATH, GROUP_PATH, SLICES_PATH, TAINT_RULES_PATH
from seatrial.scheduler.api.transport import MERGE_PATCH, Request

Json = dict[str, Any]
NAMESPACE = "default"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
GROUPS = f"/apis/scheduling.sigs.k8s.io/v1alpha1/namespaces/{NAMESPACE}/podgroups"
QUOTAS = QUOTAS_PATH.replace("/elasticquotas", f"/namespaces/{NAMESPACE}/elasticquotas")
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CLAIMS = f"{GROUP_PATH}/namespaces/{NAMESPACE}/resourceclaims"
TEMPLATES = f"{GROUP_PATH}/namespaces/{NAMESPACE}/resourceclaimtemplates"
CARDS = "gpu.nvidia.com"  # class and driver of the cards of nodes that offer them to claims
CLAIMED = "trial.seatrial.dev/claims"  # taint of those nodes: only pods with claims are there
RULE = "trial"
KINDS = {
    "Pod": "/api/v1/pods",
    "Node": "/api/v1/nodes",
    "PodGroup": "/apis/scheduling.sigs.k8s.io/v1alpha1/podgroups",
    "Device": "/apis/scheduling.koordinator.sh/v1alpha1/devices",
    "Reservation": RESERVATIONS_PATH,
    "ElasticQuota": QUOTAS_PATH,
    "PodMigrationJob": JOBS_PATH,
    "ResourceClaim": CLAIMS_PATH,
    "ResourceSlice": SLICES_PATH,
}
LOW, MIDDLE, HIGH = "trial-low", "trial-middle", "trial-high"
PRIORITIES = {LOW: 1000, MIDDLE: 5000, HIGH: 9000}
MOST_PODS = 40  # at a time, in addition to the Deployment's


class Load:
    """Changes the cluster at random. Members of gangs have the highest priority, so that none of them is a victim."""

    not_judged: frozenset[str] = frozenset()  # invariants that hold under this load in a cluster without faults only

    def __init__(self, cluster: Cluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self._number = 0
        self._steps: list[tuple[int, Callable[[], None]]] = [
            (4, self._plain),
            (3, self._gang),
            (3, self._of_quota),
            (2, self._reserved),
            (2, self._important),
            (2, self._migrate),
            (3, self._claiming),
            (1, self._sharing),
            (1, self._taint_card),
            (3, self._delete_pod),
            (1, self._delete_gang),
            (1, self._delete_reservation),
        ]

    def begin(self) -> None:
        """The nodes, priorities, quotas and the Deployment."""
        self._cluster.add_nodes(node(f"n{number}").cpu(12).gpus("a10", 3) for number in range(4))
        self._cluster.add_nodes(node(f"d{number}").cpu(16).cards(3).dra().taint(CLAIMED) for number in range(2))
        for count in (1, 2):
            self._create(TEMPLATES, claim_template(f"t{count}").asks("gpu", CARDS, count=count).manifest)
        for name, value in PRIORITIES.items():
            self._create("/apis/scheduling.k8s.io/v1/priorityclasses", priority_class(name, value))
        for number, cores in enumerate((6, 9)):
            self._create(QUOTAS, quota(f"q{number}").max(cpu=cores, **{"koordinator.sh/gpu": 300}).manifest)
        labels = {"app": "web"}
        template = pod("x").request(cpu=1).priority_class(MIDDLE).manifest["spec"] | {"restartPolicy": "Always"}
        self._create(
            DEPLOYMENTS,
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": {
                    "replicas": 4,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": template},
                },
            },
        )

    def step(self) -> None:
        """One change."""
        pods = len(self.objects("Pod"))
        steps = self._steps if pods < MOST_PODS else self._steps[-3:]
        weights, changes = zip(*steps, strict=True)
        self._random.choices(changes, weights)[0]()

    def make_room(self) -> None:
        """Room for all pods, in nodes and in quotas."""
        self._cluster.add_nodes(node(f"more{number}").cpu(64).gpus("a10", 8) for number in range(4))
        self._cluster.add_nodes(node(f"many{number}").cpu(64).cards(16).dra().taint(CLAIMED) for number in range(4))
        self._untaint()
        for item in self.objects("ElasticQuota"):
            if item["metadata"]["name"] in {"q0", "q1"}:
                body = {"spec": {"max": {"cpu": "500", "koordinator.sh/gpu": "5000"}}}
                self._call("PATCH", f"{QUOTAS}/{item['metadata']['name']}", body)

    def objects(self, kind: str) -> list[Json]:
        """All objects of a kind of `KINDS`."""
        listed: list[Json] = orjson.loads(self._call("GET", KINDS[kind]).body)["items"]
        return listed

    def all(self) -> dict[str, list[Json]]:
        """The objects of all kinds of `KINDS`."""
        return {kind: self.objects(kind) for kind in KINDS}

    # -- changes ------------------------------------------------------------------------------------------------------

    def _plain(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._submit(self._pod().priority_class(self._random.choice((LOW, MIDDLE))))

    def _gang(self) -> None:
        size = self._random.randint(6, 8)
        mode = self._random.choice(("Strict", "Strict", "NonStrict"))
        group = gang(self._name("g"), size - self._random.randint(0, 1)).mode(mode)
        self._create(GROUPS, group.waiting_time(self._random.choice((20, 60, 600))).manifest)
        cores, cards = self._random.randint(1, 3), self._random.random() < 0.3
        for member in members(group, size):
            member.request(cpu=cores).priority_class(HIGH)
            self._submit(member.gpus(1) if cards else member)

    def _of_quota(self) -> None:
        name = self._random.choice(("q0", "q1"))
        for _ in range(self._random.randint(1, 3)):
            self._submit(self._pod().quota(name).priority_class(self._random.choice((LOW, MIDDLE))))

    def _reserved(self) -> None:
        name = self._name("r")
        held = reservation(name).like(pod("x").request(cpu=2).gpus(1)).for_labels(app=name).ttl("20m")
        once = self._random.random() < 0.5
        self._create(RESERVATIONS_PATH, (held if once else held.many()).manifest)
        for _ in range(self._random.randint(1, 2)):
            owner = pod(self._name("o")).label("app", name).request(cpu=1).priority_class(MIDDLE)
            self._submit(owner.gpu_share(50))

    def _important(self) -> None:
        self._submit(pod(self._name("h")).request(cpu=self._random.randint(6, 12)).priority_class(HIGH))

    def _migrate(self) -> None:
        running = [
            pod
            for pod in self.objects("Pod")
            if pod["metadata"].get("labels", {}).get("app") == "web" and pod["status"].get("phase") == "Running"
        ]
        if running:
            moved = self._random.choice(running)["metadata"]
            self._create(
                JOBS_PATH,
                {
                    "apiVersion": "scheduling.koordinator.sh/v1alpha1",
                    "kind": "PodMigrationJob",
                    "metadata": {"name": self._name("j")},
                    "spec": {
                        "podRef": {"namespace": NAMESPACE, "name": moved["name"], "uid": moved["uid"]},
                        "ttl": "1m",
                        "mode": "ReservationFirst",
                    },
                },
            )

    def _claiming(self) -> None:
        for _ in range(self._random.randint(1, 3)):
            self._submit(self._claimer().claim("gpu", template=self._random.choice(("t1", "t1", "t2"))))

    def _sharing(self) -> None:
        name = self._name("s")
        self._create(CLAIMS, claim(name).asks("gpu", CARDS).manifest)
        for _ in range(2):
            self._submit(self._claimer().claim("gpu", name=name))

    def _claimer(self, name: str = "") -> PodBuilder:
        return pod(name or self._name("c")).request(cpu=1).priority_class(MIDDLE).tolerate(CLAIMED)

    def _taint_card(self) -> None:
        """A card of a node fails, or is well again."""
        if self._untaint():
            return
        taint = {"key": CLAIMED, "effect": self._random.choice(("NoSchedule", "NoExecute"))}
        selector = {"driver": CARDS, "pool": f"d{self._random.randint(0, 1)}", "device": "gpu-0"}
        spec = {"deviceSelector": selector, "taint": taint}
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": RULE}}
        self._create(TAINT_RULES_PATH, {**head, "spec": spec})

    def _untaint(self) -> bool:
        return bool(self._call("DELETE", f"{TAINT_RULES_PATH}/{RULE}").ok)

    def _delete_pod(self) -> None:
        names = [pod["metadata"]["name"] for pod in self.objects("Pod")]
        single = [name for name in names if name[0] in "phoqc"]
        for name in self._random.sample(single, min(len(single), 3)):
            self._call("DELETE", f"{PODS}/{name}")

    def _delete_gang(self) -> None:
        groups = [entry["metadata"]["name"] for entry in self.objects("PodGroup")]
        if groups:
            name = self._random.choice(groups)
            for item in self.objects("Pod"):
                if item["metadata"]["name"].startswith(f"{name}-"):
                    self._call("DELETE", f"{PODS}/{item['metadata']['name']}")
            self._call("DELETE", f"{GROUPS}/{name}")

    def _delete_reservation(self) -> None:
        held = [reservation["metadata"]["name"] for reservation in self.objects("Reservation")]
        held = [name for name in held if name.startswith("r")]
        if held:
            self._call("DELETE", f"{RESERVATIONS_PATH}/{self._random.choice(held)}")

    def _pod(self) -> PodBuilder:
        builder = pod(self._name("p")).request(cpu=self._random.randint(1, 3))
        kind = self._random.random()
        return (
            builder.gpus(self._random.randint(1, 2)) if kind < 0.3 else builder.gpu_share(50) if kind < 0.5 else builder
        )

    def _submit(self, built: PodBuilder) -> None:
        self._create(PODS, built.manifest)

    def _create(self, path: str, body: Json) -> None:
        accepted(self._call("POST", path, body), f"create {body['kind']} {body['metadata']['name']}")

    def _call(self, method: str, path: str, body: Json | None = None) -> Any:
        data = b"" if body is None else orjson.dumps(body)
        return self._cluster.call(Request(method, path, data, MERGE_PATCH if method == "PATCH" else "application/json"))

    def _name(self, prefix: str) -> str:
        self._number += 1
        return f"{prefix}{self._number}"
