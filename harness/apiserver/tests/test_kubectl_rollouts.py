"""The real kubectl follows controllers: rollouts, their history and undoing, scaling, exposing, jobs, quotas."""

from collections.abc import Iterator

import pytest

from seatrial.harness.apiserver.tests.kubectl import Kubectl, Step, fed, step
from seatrial.harness.clusters.embedded import EmbeddedBackend, EmbeddedCluster
from seatrial.harness.subject.protocol import OURS, open_subject

_IMAGE = "-o jsonpath={.spec.template.spec.containers[0].image}"

DEPLOYMENT = [
    step("create deployment web --image=nginx:1 --replicas=3"),
    step("rollout status deployment/web --timeout=20s", 'deployment "web" successfully rolled out'),
    step("annotate deployment/web kubernetes.io/change-cause=first"),
    step("set image deployment/web nginx=nginx:2"),
    step("rollout status deployment/web --timeout=20s", "successfully rolled out"),
    step("rollout history deployment/web", "^1 +first$", "^2 +first$"),
    step("rollout history deployment/web --revision=2", "nginx:2"),
    step("rollout undo deployment/web", "rolled back"),
    step("rollout status deployment/web --timeout=20s", "successfully rolled out"),
    step(f"get deployment web {_IMAGE}", "^nginx:1$"),
    step("rollout history deployment/web", "^2 ", "^3 ", lacks=["^1 "]),
    step("rollout pause deployment/web", "paused"),
    step("set image deployment/web nginx=nginx:3"),
    step("get rs -o jsonpath={.items[*].spec.template.spec.containers[0].image}", lacks=["nginx:3"]),
    step("rollout resume deployment/web", "resumed"),
    step("rollout status deployment/web --timeout=20s", "successfully rolled out"),
    step("rollout restart deployment/web", "restarted"),
    step("rollout status deployment/web --timeout=20s", "successfully rolled out"),
    step("scale deployment/web --replicas=5", "scaled"),
    step("wait --for=jsonpath={.status.availableReplicas}=5 deployment/web --timeout=20s", "condition met"),
    step("describe deployment web", "^Replicas: +5 desired [|] 5 updated [|] 5 total [|] 5 available"),
    step("expose deployment web --port=80 --target-port=8080", "service/web exposed"),
    step("wait --for=jsonpath={.subsets[0].ports[0].port}=8080 endpoints/web --timeout=20s", "condition met"),
    step("get svc web -o jsonpath={.spec.clusterIP}", r"^10\.\d+\.\d+\.\d+$"),
    step("delete deployment web --cascade=foreground --timeout=20s", "deleted"),
    step("get rs,pods", "No resources found"),
]
OTHERS = [
    fed("apply -f -", "workloads.yaml"),
    step("rollout status sts/db --timeout=20s", "roll out complete"),
    step("rollout status ds/agent --timeout=20s", "successfully rolled out"),
    step("wait --for=condition=complete job/sums --timeout=20s", "condition met"),
    step("get job sums -o jsonpath={.status.completedIndexes}", "^0-2$"),
    step("set image sts/db c=nginx:2"),
    step("rollout status sts/db --timeout=20s", "roll out complete"),
    step("rollout history sts/db", "^1 ", "^2 "),
    step("rollout undo sts/db", "rolled back"),
    step("rollout status sts/db --timeout=20s", "roll out complete"),
    step(f"get sts db {_IMAGE}", "^nginx:1$"),
    step("set image ds/agent c=nginx:2"),
    step("rollout status ds/agent --timeout=20s", "successfully rolled out"),
    step("rollout undo ds/agent --to-revision=1", "rolled back"),
    step("rollout status ds/agent --timeout=20s", "successfully rolled out"),
    step(f"get ds agent {_IMAGE}", "^nginx:1$"),
    step("delete sts,ds,job --all --timeout=20s", 'statefulset.apps "db" deleted'),
]
QUOTA = [
    step("create quota q --hard=pods=1"),
    step("run one --image=nginx", "created"),
    step(
        "run two --image=nginx",
        r'pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1',
        fails=True,
    ),
    step("describe quota q", "^pods +1 +1$"),
]


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster]:
    """A server of its own, with a scheduler: elsewhere pods are to wait."""
    with EmbeddedBackend(seed=1).start(fleet="default") as cluster, open_subject(OURS, cluster):
        yield cluster


@pytest.fixture(scope="module")
def kubectl(embedded: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl.of(embedded, tmp_path_factory.mktemp("kubectl"))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(DEPLOYMENT, id="a-deployment"),
        pytest.param(OTHERS, id="stateful-and-daemon-sets-and-a-job"),
        pytest.param(QUOTA, id="a-quota"),
    ],
)
def test_rollouts(kubectl: Kubectl, namespace: str, steps: list[Step]) -> None:
    kubectl.play(steps, namespace)
