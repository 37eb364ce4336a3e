"""The real kubectl reads: discovery, explain, get in all shapes, describe, events, top, wait."""

import pytest

from seatrial.harness.apiserver.tests.kubectl import Kubectl, Step, fed, step

_SECOND = {"name: web": "name: web2", "app: web": "app: other"}

DISCOVERY = [
    step("version", r"Server Version: v1\.\d+\.\d+"),
    step("api-versions", "^v1$", r"^apps/v1$", r"^metrics\.k8s\.io/v1beta1$", r"^autoscaling/v1$"),
    step("api-resources", r"^pods +po +v1 +true +Pod$", r"^deployments +deploy +apps/v1 +true +Deployment$"),
    step("api-resources --namespaced=false --api-group= -o name", "^nodes$", lacks=["^pods$"]),
    step("api-resources --verbs=create --categories=all -o wide", r"deploy.*create,delete,.*watch +all$"),
    step("get --raw /readyz?verbose", r"^\[\+\]ping ok$"),
    step("get --raw /nowhere", "NotFound|not find", fails=True),
    step("get nothings", "doesn't have a resource type", fails=True),
]
EXPLAIN = [
    step("explain pod", "^KIND: +Pod$", r"^  spec\t<PodSpec>$", "Pod is a collection of containers"),
    step("explain pod.spec.nodeName", r"^FIELD: nodeName <string>$", "NodeName indicates"),
    step("explain pod.spec.containers.resources.limits", r"^FIELD: limits <map\[string\]Quantity>$"),
    step("explain deploy.spec.strategy.rollingUpdate.maxSurge", r"^FIELD: maxSurge <IntOrString>$"),
    step("explain pod.spec.containers --recursive", r"^  env\t<\[\]EnvVar>$", r"^    name\t<string> -required-$"),
    step("explain hpa.spec --api-version=autoscaling/v1", "targetCPUUtilizationPercentage"),
    step("explain pod.spec.restartPolicy", r"^ENUM:$", r"^    OnFailure$", "Possible enum values:"),
    step("explain pod.spec.nodename", 'field "nodename" does not exist', fails=True),
    step("get cs", r"^controller-manager +Healthy +ok"),
    step("get servicecidr", r"^kubernetes +10\.96\.0\.0/12"),
    step("get ip", r"^10\.96\.0\.1 +services/default/kubernetes"),
    step("explain podgroup.spec --api-version=scheduling.sigs.k8s.io/v1alpha1", "^FIELD: spec <Object>$", "minMember"),
]
GET = [
    fed("create -f -", "pod.yaml", "^pod/web created$"),
    fed("create -f -", "pod.yaml", "^pod/web2 created$", replacing=_SECOND),
    step("get pods", r"^NAME +READY +STATUS +RESTARTS +AGE$", r"^web +0/1 +Pending +0 +"),
    step("get pod web -o wide", r"IP +NODE +NOMINATED NODE +READINESS GATES$"),
    step("get po/web -o name", "^pod/web$"),
    step("get pod web -o jsonpath={.spec.containers[0].image}", "^nginx:1$"),
    step("get pod web -o yaml", "^kind: Pod$", lacks=["managedFields"]),
    step("get pods -o yaml --show-managed-fields", "^ +manager: kubectl-create$", "^ +f:containers:$"),
    step("get pod web -o json --show-managed-fields", '"manager": "kubectl-create"'),
    step("get pods -o custom-columns=N:.metadata.name,Q:.status.qosClass", r"^web +Burstable$"),
    step("get pods --sort-by={.metadata.name} -o name", "pod/web\npod/web2\n"),
    step("get pods -l app=web --show-labels", r"app=web$", lacks=["web2"]),
    step("get pods -l app!=web,app -o name", "^pod/web2$", lacks=["pod/web$"]),
    step("get pods -l 'app in (web,none)' -L app -o wide", "^web +", lacks=["web2"]),
    step("get pods --field-selector=metadata.name=web2 -o name", "^pod/web2$", lacks=["pod/web$"]),
    step("get pods --field-selector=spec.colour=blue", "field label not supported", fails=True),
    step("get pods -A --chunk-size=1 -o name", "^pod/web$", "^pod/web2$"),
    step("get pods,cm -o name", "^pod/web$", "^configmap/kube-root-ca.crt$"),
    step("get all", "^pod/web "),
    step("get pod absent", r'Error from server \(NotFound\): pods "absent" not found', fails=True),
    step("get pod absent --ignore-not-found", "^$"),
    step("get pods -w --request-timeout=1s", "^web +"),
    step("get pods --watch-only --output-watch-events --request-timeout=1s"),
    step("get nodes cpu-0 -o wide", r"^cpu-0 +Ready +<none> +\S+ +v1\.\d+"),
    step("get --raw /api/v1/namespaces/$NS/pods?limit=1", '"remainingItemCount":1'),
]
DESCRIBE = [
    fed("create -f -", "running.yaml"),
    step("wait --for=condition=Ready pod/runs --timeout=20s", "^pod/runs condition met$"),
    step("wait --for=jsonpath={.status.phase}=Running pod/runs --timeout=5s", "condition met"),
    step(
        "describe pod runs", "^Node: +cpu-1/", "^Status: +Running$", r"^    Image: +nginx:1$", "^QoS Class: +Burstable"
    ),
    step("describe node cpu-1", "^Name: +cpu-1$", r"^  \S+ +runs +1500m \(\d+%\)", "^Allocated resources:"),
    step("create deployment shop --image=nginx --replicas=0"),
    step("describe deployment shop", "^Replicas: +0 desired", "^StrategyType: +RollingUpdate$"),
    step("create job once --image=nginx"),
    step("describe job once", "^Completions: +1$"),
    step("describe cm kube-root-ca.crt", "BEGIN CERTIFICATE"),
    step("describe namespace $NS", "^Status: +Active$", "No resource quota"),
    step("events", "SuccessfulCreate +Job/once +Created pod: once-"),
    step("top node cpu-1", r"^cpu-1 +\d+m +\d+% +\d+Mi +\d+%"),
    step("top pod runs", r"^runs +1500m +1024Mi"),
    step("top pod --containers", r"^runs +main +1500m +1024Mi"),
    step("logs runs"),
    step("logs runs -c other", "container other is not valid for pod runs", fails=True),
    step("debug runs --image=busybox:1 -c looker --profile=general"),
    step("get pod runs -o jsonpath={.spec.ephemeralContainers[*].name}", "^looker$"),
    step(
        """patch pod runs --subresource=resize -p '{"spec":{"containers":[{"name":"main","resources":{"requests":
         {"cpu":"1","memory":"1Gi"}}}]}}'""",
        "^pod/runs patched$",
    ),
    step("get pod runs -o jsonpath={.spec.containers[0].resources.requests.cpu}", "^1$"),
    step(
        """patch pod runs --subresource=resize -p '{"spec":{"containers":[{"name":"main","resources":{"limits":
         {"cpu":"1","memory":"1Gi"}}}]}}'""",
        "Pod QOS Class may not change as a result of resizing",
        fails=True,
    ),
    step("port-forward pod/runs 0:80", "simulates its containers", fails=True),
    step("exec runs -- true", "simulates its containers", fails=True),
    step("attach runs", "simulates its containers", fails=True),
    step("delete pod runs --timeout=20s", 'pod "runs" deleted'),
    step("wait --for=delete pod/runs --timeout=5s"),
]
LOGS = [
    fed("create -f -", "talking.yaml"),
    step("wait --for=condition=Ready pod/talks --timeout=20s"),
    step("logs talks", r"\Aone\ntwo\nthree\n\Z"),
    step("logs talks --tail=1", r"\Athree\n\Z"),
    step("logs talks --limit-bytes=5", r"\Aone\nt\Z"),
    step("logs talks --timestamps", r"^\d{4}-\d\d-\d\dT\S+Z one$"),
    step("logs talks --since=1h --prefix", r"^\[pod/talks/main\] one$"),
    step("logs talks --previous", 'previous terminated container "main" in pod "talks" not found', fails=True),
    step("logs -l app=talks", "^three$"),
    step("logs talks -f", r"\Aone\ntwo\nthree\n\Z"),
    step("wait --for=jsonpath={.status.phase}=Succeeded pod/talks --timeout=1s"),
    step("logs talks", r"\Aone\ntwo\nthree\n\Z"),
]
CUSTOM = [
    step("apply -f $MANIFESTS/cluster_crd.yaml", "/boats.sea.example.com created"),
    step("wait --for=condition=Established crd/boats.sea.example.com --timeout=5s", "condition met"),
    step("api-resources --api-group=sea.example.com", r"^boats +bo +sea\.example\.com/v1 +true +Boat$"),
    step("explain boat.spec", r"^  sail\t<string> -required-$|^  sail\t<string>", "What drives it."),
    step("apply -f $MANIFESTS/boat.yaml", "boat.sea.example.com/dory created"),
    step("get bo", r"^NAME +SAIL$", "^dory +gaff$"),
    step("get boat dory -o jsonpath={.spec.oars}", "^2$"),
    step(
        'patch boat dory --type=merge -p \'{"spec":{"sail":"square"}}\'',
        r'The Boat "dory" is invalid: spec.sail: Unsupported value: "square"',
        fails=True,
    ),
    step("patch boat dory -p '{}'", "UnsupportedMediaType|strategic", fails=True),
    step("scale boat dory --replicas=6", "^boat.sea.example.com/dory scaled$"),
    step("get boat dory -o jsonpath={.spec.oars}", "^6$"),
    step("apply --server-side --force-conflicts -f $MANIFESTS/boat.yaml", "serverside-applied"),
    step("describe boat dory", "^Kind: +Boat$", "^  Sail: +gaff$"),
    step("get all", "boat.sea.example.com/dory"),
    step("delete crd boats.sea.example.com --timeout=10s", "deleted"),
    step("get bo", "doesn't have a resource type|could not find the requested resource", fails=True),
    step("api-versions", lacks=["sea.example.com"]),  # renews kubectl's cache on disk, which `get all` believes
]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(DISCOVERY, id="discovery"),
        pytest.param(EXPLAIN, id="explain"),
        pytest.param(GET, id="get-in-all-shapes"),
        pytest.param(DESCRIBE, id="describe-events-top-wait"),
        pytest.param(LOGS, id="logs"),
        pytest.param(CUSTOM, id="custom-resources"),
    ],
)
def test_reads(kubectl: Kubectl, namespace: str, steps: list[Step]) -> None:
    kubectl.play(steps, namespace)
