"""The official Python client, unchanged: typed and dynamic calls, watch, informer, manifests, leader election."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest
from kubernetes import client, config, dynamic, utils, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from seatrial.harness.apiserver.quantities import milli, units
from seatrial.harness.apiserver.tests.kubectl import MANIFESTS
from seatrial.harness.clusters.embedded import EmbeddedCluster

WITHIN = 60.0  # seconds


@pytest.fixture(scope="module")
def api(embedded: EmbeddedCluster) -> Iterator[client.ApiClient]:
    assert embedded.endpoint is not None
    with config.new_client_from_config(str(embedded.endpoint.kubeconfig)) as client:
        yield client


@pytest.fixture
def core(api: client.ApiClient) -> client.CoreV1Api:
    return client.CoreV1Api(api)


def pod(name: str, image: str = "nginx:1") -> client.V1Pod:
    container = client.V1Container(
        name="main", image=image, resources=client.V1ResourceRequirements(requests={"cpu": "100m"})
    )
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels={"app": name}),
        spec=client.V1PodSpec(containers=[container], termination_grace_period_seconds=1),
    )


def wait_until(done: Callable[[], bool], what: str) -> None:
    end = monotonic() + WITHIN
    tick = threading.Event()
    while not done():
        assert monotonic() < end, f"{what}: expected within {WITHIN:.0f} s, not seen"
        tick.wait(0.02)


def refused(call: Callable[[], Any]) -> ApiException:
    with pytest.raises(ApiException) as caught:
        call()
    return caught.value


# -- typed -------------------------------------------------------------------------------------------------------------


def test_typed_life_of_a_pod(core: client.CoreV1Api, namespace: str) -> None:
    made = core.create_namespaced_pod(namespace, pod("a"))
    assert made.status.phase == "Pending"
    assert made.metadata.creation_timestamp <= datetime.now(UTC)
    namespace_pod = core.read_namespaced_pod("a", namespace)
    assert namespace_pod.metadata.uid == made.metadata.uid
    assert namespace_pod.metadata.managed_fields[0].manager == "OpenAPI-Generator"
    namespace_pod.metadata.labels["tier"] = "front"
    changed = core.replace_namespaced_pod("a", namespace, namespace_pod)
    assert changed.metadata.resource_version != namespace_pod.metadata.resource_version
    error = refused(lambda: core.replace_namespaced_pod("a", namespace, namespace_pod))
    assert (error.status, error.reason) == (409, "Conflict")
    patched = core.patch_namespaced_pod("a", namespace, {"metadata": {"labels": {"tier": None}}})
    assert patched.metadata.labels == {"app": "a"}
    target = client.V1ObjectReference(kind="Node", name="cpu-3")
    binding = client.V1Binding(metadata=client.V1ObjectMeta(name="a"), target=target)
    core.create_namespaced_pod_binding("a", namespace, binding, _preload_content=False)
    wait_until(lambda: core.read_namespaced_pod_status("a", namespace).status.phase == "Running", "a running pod")
    assert core.read_namespaced_pod_log("a", namespace) is not None
    core.delete_namespaced_pod("a", namespace)
    wait_until(lambda: not core.list_namespaced_pod(namespace).items, "the pod's end")
    assert refused(lambda: core.read_namespaced_pod("a", namespace)).status == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        pytest.param(lambda body: body.metadata.__setattr__("name", "Not_A_Name"), 422, id="a-name-with-capitals"),
        pytest.param(lambda body: body.spec.containers[0].__setattr__("image", None), 422, id="no-image"),
        pytest.param(lambda body: body.spec.__setattr__("priority_class_name", "none"), 403, id="no-such-class"),
        pytest.param(lambda body: body.metadata.__setattr__("namespace", "other"), 400, id="another-namespace"),
    ],
)
def test_typed_refusals(
    core: client.CoreV1Api, namespace: str, change: Callable[[client.V1Pod], None], status: int
) -> None:
    body = pod("bad")
    change(body)
    assert refused(lambda: core.create_namespaced_pod(namespace, body)).status == status


def test_lists_in_pages(core: client.CoreV1Api, namespace: str) -> None:
    for number in range(5):
        core.create_namespaced_config_map(
            namespace,
            client.V1ConfigMap(metadata=client.V1ObjectMeta(name=f"c{number}", labels={"odd": str(number % 2)})),
        )
    names: list[str] = []
    token = None
    while token != "":
        page = core.list_namespaced_config_map(namespace, limit=2, _continue=token, label_selector="odd")
        names += [item.metadata.name for item in page.items]
        token = page.metadata._continue or ""
    assert names == [f"c{number}" for number in range(5)]
    odd = core.list_namespaced_config_map(namespace, label_selector="odd=1", field_selector="metadata.name!=c3")
    assert [item.metadata.name for item in odd.items] == ["c1"]


@pytest.mark.parametrize(
    "read",
    [
        pytest.param(lambda api: client.AppsV1Api(api).list_deployment_for_all_namespaces(), id="apps"),
        pytest.param(lambda api: client.BatchV1Api(api).list_job_for_all_namespaces(), id="batch"),
        pytest.param(lambda api: client.CoordinationV1Api(api).list_lease_for_all_namespaces(), id="coordination"),
        pytest.param(lambda api: client.SchedulingV1Api(api).list_priority_class(), id="scheduling"),
        pytest.param(lambda api: client.PolicyV1Api(api).list_pod_disruption_budget_for_all_namespaces(), id="policy"),
        pytest.param(lambda api: client.StorageV1Api(api).list_storage_class(), id="storage"),
        pytest.param(lambda api: client.RbacAuthorizationV1Api(api).list_cluster_role(), id="rbac"),
        pytest.param(lambda api: client.NetworkingV1Api(api).list_ingress_for_all_namespaces(), id="networking"),
        pytest.param(lambda api: client.NodeV1Api(api).list_runtime_class(), id="node"),
        pytest.param(lambda api: client.ResourceV1Api(api).list_device_class(), id="resource"),
        pytest.param(
            lambda api: client.AutoscalingV1Api(api).list_horizontal_pod_autoscaler_for_all_namespaces(),
            id="autoscaling",
        ),
        pytest.param(lambda api: client.ApiextensionsV1Api(api).list_custom_resource_definition(), id="apiextensions"),
        pytest.param(lambda api: client.EventsV1Api(api).list_namespaced_event("kube-public"), id="events"),
        pytest.param(lambda api: client.CertificatesV1Api(api).list_certificate_signing_request(), id="certificates"),
        pytest.param(lambda api: client.DiscoveryV1Api(api).list_endpoint_slice_for_all_namespaces(), id="discovery"),
        pytest.param(lambda api: client.FlowcontrolApiserverV1Api(api).list_flow_schema(), id="flowcontrol"),
        pytest.param(
            lambda api: client.AdmissionregistrationV1Api(api).list_validating_webhook_configuration(),
            id="admissionregistration",
        ),
        pytest.param(lambda api: client.ApiregistrationV1Api(api).list_api_service(), id="apiregistration"),
    ],
)
def test_every_group_is_read(api: client.ApiClient, read: Callable[[client.ApiClient], Any]) -> None:
    result = read(api)
    assert result.metadata.resource_version.isdigit()
    assert all(item.metadata.name for item in result.items)


def test_metrics(api: client.ApiClient) -> None:
    custom_object = client.CustomObjectsApi(api).get_cluster_custom_object(
        "metrics.k8s.io", "v1beta1", "nodes", "cpu-0"
    )
    assert set(custom_object["usage"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("usage", "more"),
    [
        ('{"cpu": "40", "memory": "4Gi", "hostApplications": {"a": {"cpu": "500m"}}}', (40500, 4 << 30)),
        ('{"cpu": 2}', (2000, 0)),
        ('{"cpu": "a lot"}', (0, 0)),
        ('{"cpu": ["1"]}', (0, 0)),
        ("[]", (0, 0)),
        ("{", (0, 0)),
    ],
)
def test_metrics_of_an_annotated_node(api: client.ApiClient, usage: str, more: tuple[int, int]) -> None:
    """What the annotation of a node says is added to what its pods use; what cannot be read counts as nothing."""

    def used() -> tuple[int, int]:
        custom_object = client.CustomObjectsApi(api).get_cluster_custom_object(
            "metrics.k8s.io", "v1beta1", "nodes", "cpu-0"
        )
        return milli(custom_object["usage"]["cpu"]), units(custom_object["usage"]["memory"])

    nodes, before = client.CoreV1Api(api), used()
    nodes.patch_node("cpu-0", {"metadata": {"annotations": {"seatrial.dev/usage": usage}}})
    after = used()
    nodes.patch_node("cpu-0", {"metadata": {"annotations": {"seatrial.dev/usage": None}}})
    assert (after[0] - before[0], after[1] - before[1]) == more


# -- dynamic -----------------------------------------------------------------------------------------------------------


def test_dynamic(api: client.ApiClient, namespace: str) -> None:
    dynamic_client = dynamic.DynamicClient(api)
    maps = dynamic_client.resources.get(api_version="v1", kind="ConfigMap")
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d"}, "data": {"a": "b"}}
    assert maps.create(body=body, namespace=namespace).data.a == "b"
    body["data"] = {"a": "c"}
    applied = maps.server_side_apply(
        namespace=namespace, body=body, name="d", field_manager="tester", force_conflicts=True
    )
    assert applied.data.a == "c"
    assert "tester" in {entry.manager for entry in applied.metadata.managedFields}
    merged = maps.patch(
        body={"data": {"z": "y"}}, name="d", namespace=namespace, content_type="application/merge-patch+json"
    )
    assert merged.data.to_dict() == {"a": "c", "z": "y"}
    assert [item.metadata.name for item in maps.get(namespace=namespace, field_selector="metadata.name=d").items] == [
        "d"
    ]
    maps.delete(name="d", namespace=namespace)
    with pytest.raises(dynamic.exceptions.NotFoundError):
        maps.get(name="d", namespace=namespace)


def test_dynamic_knows_custom_resources(api: client.ApiClient, namespace: str) -> None:
    dynamic_client = dynamic.DynamicClient(api)
    groups = dynamic_client.resources.get(api_version="scheduling.sigs.k8s.io/v1alpha1", kind="PodGroup")
    body = {"metadata": {"name": "gang"}, "spec": {"minMember": 2}}
    body |= {"apiVersion": "scheduling.sigs.k8s.io/v1alpha1", "kind": "PodGroup"}
    assert groups.create(body=body, namespace=namespace).spec.minMember == 2


# -- watches -----------------------------------------------------------------------------------------------------------


def test_watch(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("one"))
    seen: list[tuple[str, str]] = []
    watcher = watch.Watch()
    for event in watcher.stream(core.list_namespaced_pod, namespace, timeout_seconds=int(WITHIN)):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 1:
            core.patch_namespaced_pod("one", namespace, {"metadata": {"labels": {"x": "y"}}})
        elif len(seen) == 2:
            core.create_namespaced_pod(namespace, pod("two"))
        elif len(seen) == 3:
            core.delete_namespaced_pod("one", namespace)
        else:
            watcher.stop()
    assert seen == [("ADDED", "one"), ("MODIFIED", "one"), ("ADDED", "two"), ("DELETED", "one")]


def test_watch_from_a_revision(core: client.CoreV1Api, namespace: str) -> None:
    start = core.list_namespaced_pod(namespace).metadata.resource_version
    core.create_namespaced_pod(namespace, pod("later"))
    stream = watch.Watch().stream(
        core.list_namespaced_pod, namespace, resource_version=start, label_selector="app=later", timeout_seconds=1
    )
    assert [(event["type"], event["object"].metadata.name) for event in stream] == [("ADDED", "later")]


def test_informer(core: client.CoreV1Api, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("before"))
    seen: list[tuple[str, str]] = []
    informer = SharedInformer(core.list_namespaced_pod, namespace=namespace)
    for kind in (ADDED, MODIFIED, DELETED):
        informer.add_event_handler(kind, lambda obj, kind=kind: seen.append((kind, obj.metadata.name)))
    informer.start()
    try:
        wait_until(lambda: (ADDED, "before") in seen, "the pod that was there")
        core.create_namespaced_pod(namespace, pod("after"))
        wait_until(lambda: (ADDED, "after") in seen, "the pod that came")
        core.delete_namespaced_pod("before", namespace)
        wait_until(lambda: (DELETED, "before") in seen, "the pod that went")
        assert informer.cache.list_keys() == [f"{namespace}/after"]
    finally:
        informer.stop()


# -- manifests, leader election ----------------------------------------------------------------------------------------


def test_create_from_yaml(api: client.ApiClient, core: client.CoreV1Api, namespace: str) -> None:
    for name in ("pod.yaml", "configmap.yaml"):
        utils.create_from_yaml(api, str(MANIFESTS / name), namespace=namespace)
    assert core.read_namespaced_pod("web", namespace).spec.containers[0].image == "nginx:1"
    with pytest.raises(utils.FailToCreateError, match="already exists"):
        utils.create_from_yaml(api, str(MANIFESTS / "pod.yaml"), namespace=namespace)


def test_leader_election(embedded: EmbeddedCluster, api: client.ApiClient, namespace: str) -> None:
    assert embedded.endpoint is not None
    config.load_kube_config(str(embedded.endpoint.kubeconfig))
    leading, stop, stopped = threading.Event(), threading.Event(), threading.Event()

    def lead() -> None:
        leading.set()
        stop.wait(WITHIN)
        raise RuntimeError("the leader has had enough")  # the only way to make this client step down

    setup = electionconfig.Config(
        LeaseLock("leader", namespace, "one"),
        lease_duration=3,
        renew_deadline=2,
        retry_period=1,
        onstarted_leading=lead,
        onstopped_leading=stopped.set,
    )
    candidate = threading.Thread(target=leaderelection.LeaderElection(setup).run, daemon=True)
    candidate.start()
    assert leading.wait(WITHIN), "expected a leader, found none"
    lease = client.CoordinationV1Api(api).read_namespaced_lease("leader", namespace)
    assert lease.spec.holder_identity == "one"
    renewed = lease.spec.renew_time
    leases = client.CoordinationV1Api(api)
    wait_until(lambda: leases.read_namespaced_lease("leader", namespace).spec.renew_time > renewed, "a renewal")
    stop.set()
    assert stopped.wait(WITHIN), "expected the leader to step down"
    candidate.join(WITHIN)


# -- access ------------------------------------------------------------------------------------------------------------


def test_a_service_account_may_do_what_its_roles_say(
    embedded: EmbeddedCluster, core: client.CoreV1Api, api: client.ApiClient, namespace: str
) -> None:
    core.create_namespaced_service_account(namespace, client.V1ServiceAccount(metadata={"name": "robot"}))
    request = client.AuthenticationV1TokenRequest(spec=client.V1TokenRequestSpec(audiences=[]))
    token = core.create_namespaced_service_account_token("robot", namespace, request).status.token
    admin = api.configuration
    robot = client.Configuration(host=admin.host, api_key={"authorization": token}, api_key_prefix={})
    robot.api_key_prefix["authorization"] = "Bearer"
    robot.ssl_ca_cert = admin.ssl_ca_cert
    with client.ApiClient(robot) as mine:
        own = client.CoreV1Api(mine)
        assert refused(lambda: own.list_namespaced_pod(namespace)).status == 403
        subject = {"kind": "ServiceAccount", "name": "robot", "namespace": namespace}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
        client.RbacAuthorizationV1Api(api).create_namespaced_role_binding(
            namespace, {"metadata": {"name": "see"}, "roleRef": role, "subjects": [subject]}
        )
        assert own.list_namespaced_pod(namespace).items == []
        assert refused(lambda: own.list_namespaced_secret(namespace)).status == 403
        assert refused(lambda: own.create_namespaced_pod(namespace, pod("a"))).status == 403
    robot.api_key["authorization"] = token + "x"
    with client.ApiClient(robot) as unauthenticated:
        assert refused(lambda: client.CoreV1Api(unauthenticated).list_namespaced_pod(namespace)).status == 401
