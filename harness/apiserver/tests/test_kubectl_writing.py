"""The real kubectl writes: create, apply in both ways, replace, patch, edit, label, delete."""

import pytest

from seatrial.harness.apiserver.tests.kubectl import Kubectl, Step, fed, step

_MOVED = {"app: web": "app: shop"}
_NEWER = {"nginx:1": "nginx:2"}

CREATE = [
    step("create configmap cm --from-literal=a=b", "^configmap/cm created$"),
    step("get cm cm -o jsonpath={.data.a}", "^b$"),
    step("create secret generic key --from-literal=a=b"),
    step("get secret key -o jsonpath={.data.a}", "^Yg==$"),
    step("create serviceaccount robot"),
    step("create quota q --hard=cpu=100,pods=200"),
    step("get quota q -o jsonpath={.spec.hard.cpu}", "^100$"),
    step("create pdb budget --selector=app=web --min-available=50%"),
    step("get pdb budget -o jsonpath={.spec.minAvailable}", "^50%$"),
    step("create job j --image=nginx -- sleep 1"),
    step("create cronjob c --image=nginx --schedule='*/5 * * * *'"),
    step("create job j2 --from=cronjob/c"),
    step("create role r --verb=get,list --resource=pods"),
    step("create rolebinding rb --role=r --serviceaccount=$NS:robot"),
    step("create service clusterip svc --tcp=80:8080"),
    step("get svc svc -o jsonpath={.spec.ports[0].targetPort}", "^8080$"),
    step("create ingress i --rule=a.example.com/*=svc:80"),
    step("create priorityclass p-$NS --value=10"),
    step("create configmap cm --from-literal=a=b", 'configmaps "cm" already exists', fails=True),
    step("create configmap Bad_Name", "a lowercase RFC 1123 subdomain", fails=True),
    step("create deployment d --image=nginx --dry-run=server -o name", "^deployment.apps/d$"),
    step("get deployment d", "not found", fails=True),
    fed(
        "create -f -",
        "pod.yaml",
        'strict decoding error: unknown field "spec.contianers"',
        fails=True,
        replacing={"containers": "contianers"},
    ),
    fed(
        "create --validate=warn -f -",
        "pod.yaml",
        'Warning: unknown field "spec.colour"',
        "^pod/web created$",
        replacing={"  containers:": "  colour: blue\n  containers:"},
    ),
    fed(
        "create --validate=false -f -",
        "pod.yaml",
        "^pod/quiet created$",
        replacing={"name: web": "name: quiet", "  containers:": "  colour: blue\n  containers:"},
    ),
]
APPLY = [
    fed("apply -f -", "pod.yaml", "^pod/web created$"),
    fed("apply -f -", "pod.yaml", "^pod/web unchanged$"),
    fed("diff -f -", "pod.yaml", "^$"),
    fed("diff -f -", "pod.yaml", r"^-    app: web$", r"^\+    app: shop$", fails=True, replacing=_MOVED),
    fed("apply --dry-run=server -f -", "pod.yaml", r"configured \(server dry run\)", replacing=_MOVED),
    fed("apply -f -", "pod.yaml", "^pod/web configured$", replacing={"app: web": "app: shop, tier: front"}),
    fed("apply -f -", "pod.yaml", "^pod/web configured$"),
    step("get pod web -o jsonpath={.metadata.labels}", r'^{"app":"web"}$'),
    fed(
        "apply -f -",
        "pod.yaml",
        "Forbidden: pod updates may not change fields other than",
        fails=True,
        replacing={"1500m": "1600m"},
    ),
    step("apply view-last-applied pod web", "image: nginx:1"),
    fed("apply -f -", "configmap.yaml", "configmap/settings created"),
    fed(
        "apply -f - --prune -l set=one --prune-allowlist=core/v1/ConfigMap",
        "configmap.yaml",
        "configmap/others created",
        "configmap/settings pruned",
        replacing={"name: settings": "name: others"},
    ),
    step("kustomize $MANIFESTS/base", "^  name: kust-settings$"),
    step("apply -k $MANIFESTS/base", "configmap/kust-settings created", "configmap/kust-made-.* created"),
    step("delete -k $MANIFESTS/base", 'configmap "kust-settings" deleted'),
]
SERVER_SIDE = [
    fed("apply --server-side -f -", "pod.yaml", "^pod/web serverside-applied$"),
    fed(
        "apply --server-side -f - --field-manager=other",
        "pod.yaml",
        r'conflict with "kubectl": .spec.containers\[name="main"\].image',
        fails=True,
        replacing=_NEWER,
    ),
    fed(
        "apply --server-side -f - --field-manager=other --force-conflicts",
        "pod.yaml",
        "serverside-applied",
        replacing=_NEWER,
    ),
    step("get pod web -o yaml --show-managed-fields", "manager: other", "manager: kubectl$"),
    fed("diff --server-side --force-conflicts -f -", "pod.yaml", r"^\+  - image: nginx:1$", fails=True),
    fed("apply -f -", "configmap.yaml", "settings created"),
    fed("apply --server-side -f -", "configmap.yaml", "serverside-applied"),
    fed(
        "apply --server-side -f -", "configmap.yaml", "serverside-applied", replacing={"{colour: blue}": "{size: big}"}
    ),
    step("get cm settings -o jsonpath={.data}", r'^{"size":"big"}$'),
]
MIGRATED = [
    fed("apply -f -", "pod.yaml"),
    fed("apply --server-side -f -", "pod.yaml", "^pod/web serverside-applied$"),
    step("get pod web -o jsonpath={.spec.tolerations[*].key}", "node.kubernetes.io/not-ready"),
    step("get pod web -o yaml --show-managed-fields", "operation: Apply", lacks=["kubectl-client-side-apply"]),
    fed("apply --server-side -f -", "pod.yaml", "^pod/web serverside-applied$"),
]
CHANGE = [
    fed("create -f -", "pod.yaml"),
    step("""patch pod web -p '{"metadata":{"labels":{"q":"1"}}}'""", "^pod/web patched$"),
    step("""patch pod web -p '{"metadata":{"labels":{"q":"1"}}}'""", r"^pod/web patched \(no change\)$"),
    step("""patch pod web --type=merge -p '{"metadata":{"labels":{"q":null}}}'""", "patched"),
    step("""patch pod web --type=json -p '[{"op":"test","path":"/metadata/labels/app","value":"no"}]'""", fails=True),
    step("""patch pod web --type=json -p '[{"op":"add","path":"/metadata/labels/r","value":"2"}]'""", "patched"),
    step("""patch pod web --subresource=status --type=merge -p '{"status":{"message":"hello"}}'""", "patched"),
    step("get pod web -o jsonpath={.metadata.labels}{.status.message}", r'^{"app":"web","r":"2"}hello$'),
    step("label pod web r=3", "already has a value", fails=True),
    step("label pod web r=3 --overwrite", "^pod/web labeled$"),
    step("label pod web r-", "^pod/web unlabeled$"),
    step("annotate pod web note='a b'", "^pod/web annotated$"),
    step("set image pod/web main=nginx:9", "^pod/web image updated$"),
    Step("edit pod web", ("^pod/web edited$",), env={"KUBE_EDITOR": "sed -i s/nginx:9/nginx:10/"}),
    Step("edit pod web", ("Edit cancelled, no changes made",), env={"KUBE_EDITOR": "true"}),
    step("get pod web -o jsonpath={.spec.containers[0].image}", "^nginx:10$"),
    fed("replace -f -", "configmap.yaml", "NotFound", fails=True),
    fed("create -f -", "configmap.yaml"),
    fed("replace -f -", "configmap.yaml", "^configmap/settings replaced$", replacing={"blue": "red"}),
    step("get cm settings -o jsonpath={.data.colour}", "^red$"),
    fed("replace --force -f -", "pod.yaml", 'pod "web" deleted', "^pod/web replaced$"),
    step("run quick --image=nginx --labels=a=b --restart=Never", "^pod/quick created$"),
    step("delete pod quick --now", "deleted"),
    step("delete pod -l app=web --wait=false", 'pod "web" deleted'),
    step("delete cm --all", 'configmap "settings" deleted'),
    step("delete pod web", "not found", fails=True),
    step("create ns gone-$NS"),
    step("delete ns gone-$NS --timeout=10s", "deleted"),
]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(CREATE, id="create-of-many-kinds"),
        pytest.param(APPLY, id="apply-diff-prune-kustomize"),
        pytest.param(SERVER_SIDE, id="server-side-apply"),
        pytest.param(MIGRATED, id="server-side-after-client-side-apply"),
        pytest.param(CHANGE, id="patch-label-edit-replace-delete"),
    ],
)
def test_writes(kubectl: Kubectl, namespace: str, steps: list[Step]) -> None:
    kubectl.play(steps, namespace)


LISTS = [
    fed("create -f -", "list.yaml", "^configmap/listed-1 created$", "^secret/listed-2 created$"),
    fed("apply -f -", "list.yaml", "^configmap/listed-1 configured$", "^secret/listed-2 configured$"),
    fed("apply -f -", "list.yaml", 'unknown field "dat"', fails=True, replacing={" data:": " dat:"}),
]


def test_a_file_of_kind_list_is_created_and_applied(kubectl: Kubectl, namespace: str) -> None:
    """kubectl validates lists with the OpenAPI v2 document in protocol buffers."""
    kubectl.play(LISTS, namespace)
