"""The real kubectl runs things: workloads and their subresources, nodes, access, proxy."""

import subprocess
import urllib.request

import pytest

from seatrial.harness.apiserver.tests.kubectl import Kubectl, Step, fed, step

WORKLOADS = [
    step("create deployment shop --image=nginx:1 --replicas=2 --port=80", "^deployment.apps/shop created$"),
    step("scale deployment shop --replicas=3", "^deployment.apps/shop scaled$"),
    step("scale deployment shop --current-replicas=9 --replicas=1", "Expected replicas to be 9", fails=True),
    step("get deployment shop -o jsonpath={.spec.replicas}", "^3$"),
    step("set image deployment/shop nginx=nginx:2", "image updated"),
    step("set env deployment/shop COLOUR=blue", "env updated"),
    step("set env deployment/shop --list", "^COLOUR=blue$"),
    step("set resources deployment/shop --limits=cpu=1 --requests=cpu=500m", "resource requirements updated"),
    step("set serviceaccount deployment/shop robot", "serviceaccount updated"),
    step("set selector service/none a=b", "NotFound|not found", fails=True),
    step("autoscale deployment shop --min=1 --max=5 --cpu-percent=50", "autoscaled"),
    step("get hpa shop", r"Deployment/shop .*50%"),
    step("get horizontalpodautoscalers.v1.autoscaling shop -o jsonpath={.spec.targetCPUUtilizationPercentage}", "^50$"),
    step("expose deployment shop --port=80 --target-port=8080", "^service/shop exposed$"),
    step("get service shop -o jsonpath={.spec.selector.app}", "^shop$"),
    step("rollout restart deployment/shop", "^deployment.apps/shop restarted$"),
    step("rollout pause deployment/shop", "paused"),
    step("rollout pause deployment/shop", "already paused", fails=True),
    step("rollout resume deployment/shop", "resumed"),
    step("get deployment shop -o jsonpath={.spec.template.spec.containers[0].image}", "^nginx:2$"),
    step("delete deployment shop --cascade=orphan", "deleted"),
    step("delete hpa,svc shop", 'horizontalpodautoscaler.autoscaling "shop" deleted', 'service "shop" deleted'),
]
CASCADES = [
    step("create deployment owner --image=nginx"),
    step("get deployment owner -o jsonpath={.metadata.uid}", "^[0-9a-f-]{36}$"),
    step("delete deployment owner --cascade=foreground --timeout=10s", "deleted"),
    step("get deployment owner", "not found", fails=True),
    step("create deployment owner --image=nginx"),
    step("delete deployment owner --cascade=background", "deleted"),
    step("delete deployment owner", "not found", fails=True),
    step("delete deployment owner --ignore-not-found"),
    step("create cm held --from-literal=a=b"),
    step("""patch cm held --type=merge -p '{"metadata":{"finalizers":["sea.example.com/hold"]}}'"""),
    step("delete cm held --wait=false", "deleted"),
    step("get cm held -o jsonpath={.metadata.deletionTimestamp}", r"^\d{4}-"),
    step("""patch cm held --type=merge -p '{"metadata":{"finalizers":null}}'""", "patched"),
    step("wait --for=delete cm/held --timeout=5s"),
]
NODES = [
    fed("create -f -", "running.yaml", replacing={"cpu-1": "cpu-2"}),
    step("wait --for=condition=Ready pod/runs --timeout=20s"),
    step("cordon cpu-2", "^node/cpu-2 cordoned$"),
    step("cordon cpu-2", r"^node/cpu-2 already cordoned$"),
    step("get nodes --field-selector=spec.unschedulable=true", "^cpu-2 +Ready,SchedulingDisabled"),
    step("drain cpu-2 --timeout=15s", "cannot delete Pods that declare no controller", fails=True),
    step("create pdb keep --selector=app=runs --min-available=1"),
    step("wait --for=jsonpath={.status.currentHealthy}=1 pdb/keep --timeout=10s"),
    step(
        "drain cpu-2 --force --timeout=2s",
        "Cannot evict pod as it would violate the pod's disruption budget",
        fails=True,
    ),
    step("delete pdb keep"),
    step("drain cpu-2 --force --timeout=15s", "evicting pod .*/runs", "^node/cpu-2 drained$|pod/runs evicted"),
    step("uncordon cpu-2", "^node/cpu-2 uncordoned$"),
    step("taint node cpu-2 k=v:NoSchedule", "^node/cpu-2 tainted$"),
    step("taint node cpu-2 k=v:NoSchedule", "already has k taint", fails=True),
    step("taint node cpu-2 k=w:NoSchedule --overwrite", "^node/cpu-2 modified$"),
    step("taint node cpu-2 k-", "^node/cpu-2 untainted$"),
    step("label node cpu-2 zone=a", "labeled"),
    step("get nodes -l zone=a -o name", "^node/cpu-2$"),
    step("label node cpu-2 zone-", "unlabeled"),
]
_NO_PODS = r'pods is forbidden: User "someone" cannot list resource "pods" in API group ""'
ACCESS = [
    step("auth whoami", "^Username +seatrial-admin$", r"system:masters"),
    step("auth can-i create pods", "^yes$"),
    step("auth can-i --list", r"^\*\.\*"),
    step("auth can-i create pods --as=someone", "^no$", fails=True),
    step("get pods --as=someone", _NO_PODS, fails=True),
    step("create rolebinding see --clusterrole=view --user=someone"),
    step("auth can-i list pods --as=someone", "^yes$"),
    step("auth can-i --list --as=someone", r"^pods +\[\] +\[\] +\[get list watch\]"),
    step("get pods --as=someone", "No resources found"),
    step("get secrets --as=someone", "is forbidden", fails=True),
    step("get pods -A --as=someone", "at the cluster scope", fails=True),
    step("create cm c --from-literal=a=b --as=someone", 'cannot create resource "configmaps"', fails=True),
    step("auth whoami --as=someone --as-group=crew", "^Username +someone$", "crew system:authenticated"),
    step("create serviceaccount robot"),
    step("create token robot --duration=10m", r"^[\w-]+\.[\w-]+\.[\w-]+$"),
    step("create token absent", 'serviceaccounts "absent" not found', fails=True),
    step("config view", "certificate-authority-data: DATA\\+OMITTED"),
    step("config current-context", "^seatrial$"),
    step("cluster-info", "Kubernetes control plane.* is running at"),
    step("cluster-info dump --output-directory=$NS", "Cluster info dumped to"),
    fed("auth reconcile -f -", "role.yaml", "role.rbac.authorization.k8s.io/reader reconciled"),
    step("create clusterrole c-$NS --verb=get --resource=nodes"),
    step("create clusterrolebinding c-$NS --clusterrole=c-$NS --user=someone"),
    step("delete clusterrolebinding,clusterrole c-$NS"),
]
CERTIFICATES = [
    fed("create -f -", "request.yaml", "request created"),
    step("get csr request", "^request .* Pending$"),
    step("certificate approve request", "certificatesigningrequest.certificates.k8s.io/request approved"),
    step("get csr request", "Approved"),
    step("certificate deny request", fails=True),
    step("delete csr request", "deleted"),
]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(WORKLOADS, id="workloads"),
        pytest.param(CASCADES, id="cascades-and-finalizers"),
        pytest.param(NODES, id="cordon-drain-taint"),
        pytest.param(ACCESS, id="access"),
        pytest.param(CERTIFICATES, id="certificates"),
    ],
)
def test_runs(kubectl: Kubectl, namespace: str, steps: list[Step]) -> None:
    kubectl.play(steps, namespace)


def test_proxy(kubectl: Kubectl) -> None:
    with subprocess.Popen(
        [kubectl.binary, "proxy", "--port=0"], stdout=subprocess.PIPE, text=True, env=kubectl.env
    ) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().rsplit(" ", 1)[-1].strip()
            with urllib.request.urlopen(f"http://{address}/api/v1/namespaces/default", timeout=10) as answer:
                assert b'"kind":"Namespace"' in answer.read()
        finally:
            process.terminate()
