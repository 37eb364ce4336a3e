"""ClusterColocationProfiles and the rules about classes of pods: what the API server stores, and what it refuses.

Figures and messages are those of Koordinator's own tests (pkg/webhook/pod/mutating, pkg/webhook/pod/validating).
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
import pytest
import yaml

from seatrial.fixtures.expect import Expect
from seatrial.fixtures.features import suites_folder
from seatrial.fixtures.manager import StartManager
from seatrial.fixtures.trial import Trial
from seatrial.fixtures.webhook import admission_webhook
from seatrial.harness.apiserver.quantities import amount
from seatrial.harness.clusters.protocol import Capability
from seatrial.harness.errors import ApiRefused
from seatrial.harness.subject.foreign_manager import running_foreign_manager
from seatrial.scheduler.api.builders import PodBuilder, node, pod
from seatrial.scheduler.api.colocation import EXTENDED_RESOURCE_SPEC, SKIP_RESOURCES
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.numa import PRIORITY_CLASS_LABEL, QOS_LABEL
from seatrial.scheduler.api.reservation import PRIORITY_LABEL
from seatrial.scheduler.api.slo import BATCH_CPU, BATCH_MEMORY, MID_CPU
from seatrial.suites.loadaware.reports import report, settle
from seatrial.suites.qos.colocation import batch, colocation, expect_offer, machine

pytestmark = [pytest.mark.needs(Capability.NODES, Capability.OWN_CLUSTER)]

StartWebhook = Callable[..., None]
IN_COMBINATION = "koordinator.sh/qosClass={} and priorityClass={} cannot be used in combination"


@pytest.fixture
def start_webhook(request: pytest.FixtureRequest, trial: Trial) -> Iterator[StartWebhook]:
    """Starts the pod webhook; profiles that are there by then are applied from the first pod on."""
    with ExitStack() as running:

        def start(*options: str) -> None:
            if foreign := request.config.getoption("--seatrial-manager"):
                if "start_manager" in request.fixturenames:
                    return  # it runs already, with its webhooks
                running.enter_context(running_foreign_manager(trial.cluster, foreign, controllers="quotaprofile"))
                return
            if trial.cluster.endpoint is None:
                pytest.skip(f"needs a cluster that a process can reach; {trial.cluster.name} lives in this process")
            kubeconfig = str(trial.cluster.endpoint.kubeconfig)
            running.enter_context(
                admission_webhook(trial, "--kubeconfig", kubeconfig, "--colocation", *options, name="colocation")
            )

        yield start


def profile(trial: Trial, name: str = "a", **spec: Any) -> None:
    """A profile for the pods of this test's namespace."""
    metadata: dict[str, Any] = {"name": f"{trial.name}-{name}"}
    if "annotations_of_profile" in spec:
        metadata["annotations"] = spec.pop("annotations_of_profile")
    if "labels_of_profile" in spec:
        metadata["labels"] = spec.pop("labels_of_profile")
    here = {"matchLabels": {"kubernetes.io/metadata.name": trial.name}}
    trial.apply(
        {
            "apiVersion": "config.koordinator.sh/v1alpha1",
            "kind": "ClusterColocationProfile",
            "metadata": metadata,
            "spec": {"namespaceSelector": here, **spec},
        }
    )


def priority_class(trial: Trial, value: int) -> str:
    name = f"{trial.name}-{value}"
    trial.apply(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
            "preemptionPolicy": "Never",
        }
    )
    return name


def stored(trial: Trial, builder: PodBuilder) -> Pod:
    trial.submit(builder)
    pod = trial.find(builder.name)
    assert pod is not None
    return pod


def amounts(pod: Pod, part: str = "requests") -> dict[str, int]:
    """Requests or limits, in thousandths of a core for cpu."""
    resources: dict[str, Any] = getattr(pod.spec.containers[0].resources, part)
    return {name: amount(name, value) for name, value in resources.items()}


def refused(trial: Trial, pod: PodBuilder) -> str:
    with pytest.raises(ApiRefused) as error:
        trial.submit(pod)
    return str(error.value)


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-020", severity="critical")
def test_a_profile_makes_batch_pods(trial: Trial, start_webhook: StartWebhook) -> None:
    """A pod that knows nothing of colocation is stored with class, priority, scheduler, labels and batch resources of
    the profile that matches it, and with the annotation that the node's agent reads; another one as it is.
    A changed profile counts for the next pod, and stored ones stay as they are."""
    name = priority_class(trial, 5999)
    profile(
        trial,
        selector={"matchLabels": {"app": "batch"}},
        qosClass="BE",
        priorityClassName=name,
        koordinatorPriority=1111,
        schedulerName="koord-scheduler",
        labels={"team": "a"},
        annotations={"note": "b"},
        patch={"spec": {"terminationGracePeriodSeconds": 7}},
    )
    start_webhook()

    results = stored(trial, pod("a").request(cpu="1500m", memory="4Gi").label("app", "batch"))
    burst = stored(trial, pod("c").request(cpu=1).limits({"cpu": 3}).label("app", "batch"))
    other = stored(trial, pod("b").request(cpu="1500m", memory="4Gi").label("app", "web"))

    expected = {BATCH_CPU: 1500, BATCH_MEMORY: 4 << 30}
    assert (amounts(results), amounts(results, "limits")) == (expected, expected)
    labels = results.metadata.labels
    assert [labels.get(key) for key in (QOS_LABEL, PRIORITY_LABEL, "team")] == ["BE", "1111", "a"]
    assert results.metadata.annotations.get("note") == "b"
    assert (results.spec.priority, results.spec.preemption_policy) == (5999, "Never")
    assert results.spec.scheduler_name == "koord-scheduler"
    raw = json.loads(trial.call("GET", trial.path("Pod", "a")).body)
    assert raw["spec"]["terminationGracePeriodSeconds"] == 7, "the patch of the profile"
    assert EXTENDED_RESOURCE_SPEC in results.metadata.annotations
    written = json.loads(results.metadata.annotations[EXTENDED_RESOURCE_SPEC])["containers"]["main"]
    assert {part: {name: amount(name, value) for name, value in each.items()} for part, each in written.items()} == {
        "requests": expected,
        "limits": expected,
    }
    assert (amounts(burst), amounts(burst, "limits")) == ({BATCH_CPU: 1000}, {BATCH_CPU: 3000})
    assert amounts(other) == {"cpu": 1500, "memory": 4 << 30}
    assert not {QOS_LABEL, PRIORITY_LABEL, "team"} & other.metadata.labels.keys()

    path = f"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/{trial.name}-a"
    assert trial.call("PATCH", path, {"spec": {"labels": {"team": "b"}}}).ok
    settle(trial)
    assert stored(trial, pod("d").request(cpu=1).label("app", "batch")).metadata.labels["team"] == "b"
    assert trial.call("PATCH", trial.path("Pod", "a"), {"metadata": {"labels": {"other": "x"}}}).ok
    assert trial.pod("a").metadata.labels["team"] == "a"


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-021", severity="normal")
def test_profiles_apply_in_the_order_of_their_names(trial: Trial, start_webhook: StartWebhook) -> None:
    """Of two profiles that match, the later name decides about a label of both, whichever is older; keys of labels and
    annotations are mapped and suffixes added after both are set. A key is mapped without its source as well."""
    profile(
        trial,
        "b",
        labels={"who": "b"},
        annotations={"note": "b"},
        labelKeysMapping={"who": "copy", "missing": "empty"},
        annotationKeysMapping={"note": "copy"},
        labelSuffixes={"who": "-x", "none": "y"},
    )
    start_webhook()
    profile(trial, "a", labels={"who": "a", "only": "a"})
    trial.settle(2.0)  # the webhook receives profiles from a watch

    metadata = stored(trial, pod("a").request(cpu=1)).metadata

    assert [metadata.labels.get(key) for key in ("who", "copy", "only", "empty")] == ["b-x", "b", "a", ""]
    assert metadata.annotations.get("copy") == "b"
    assert "none" not in metadata.labels


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-022", severity="normal")
def test_mid_pods_and_pods_whose_amounts_stay(trial: Trial, start_webhook: StartWebhook) -> None:
    """A pod of the class koord-mid gets mid resources, in its init containers too; a profile that skips resources
    leaves cpu and memory, also where it is for none of the pods, and so does a pod that no profile matches."""
    profile(trial, "mid", selector={"matchLabels": {"app": "mid"}}, labels={PRIORITY_CLASS_LABEL: "koord-mid"})
    profile(
        trial,
        "skip",
        selector={"matchLabels": {"app": "skip"}},
        labels={PRIORITY_CLASS_LABEL: "koord-mid"},
        annotations_of_profile={SKIP_RESOURCES: "true"},
    )
    skip = {SKIP_RESOURCES: "true"}
    profile(trial, "none", selector={"matchLabels": {"team": "x"}}, probability=0, annotations_of_profile=skip)
    start_webhook()

    assert amounts(stored(trial, pod("a").request(cpu=1).label("app", "mid"))) == {MID_CPU: 1000}
    assert amounts(stored(trial, pod("d").request(cpu=1).label("app", "mid").label("team", "x"))) == {"cpu": 1000}
    other = pod("e").request(cpu=1).label(PRIORITY_CLASS_LABEL, "koord-mid")
    assert amounts(stored(trial, other)) == {"cpu": 1000}
    assert amounts(stored(trial, pod("b").request(cpu=1).label("app", "skip"))) == {"cpu": 1000}
    two = pod("c").request(cpu=1).label("app", "mid")
    two.manifest["spec"]["initContainers"] = [{"name": "i", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
    trial.submit(two)
    spec = orjson.loads(trial.call("GET", trial.path("Pod", "c")).body)["spec"]
    init = spec["initContainers"][0]["resources"]["requests"]
    assert {name: amount(name, value) for name, value in init.items()} == {MID_CPU: 1000}


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case(
    "CO-124", severity="normal", source="Koordinator pkg/webhook/pod/mutating/extended_resource_spec.go; spec W-8"
)
def test_the_annotation_of_pods_without_a_profile(trial: Trial, start_webhook: StartWebhook) -> None:
    """Pods that request batch resources themselves get the annotation that the node's agent reads, in the place of one
    that says something else."""
    start_webhook()
    wrong = '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"1"}}}}'
    for builder in (batch("a", 1000), batch("b", 1000).annotation(EXTENDED_RESOURCE_SPEC, wrong)):
        text = stored(trial, builder).metadata.annotations.get(EXTENDED_RESOURCE_SPEC, "{}")
        requests = json.loads(text).get("containers", {}).get("main", {}).get("requests", {})
        assert {name: amount(name, value) for name, value in requests.items()} == {
            BATCH_CPU: 1000,
            BATCH_MEMORY: 10**9,
        }, f"expected the requests of {builder.name}, found {text}"


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-023", severity="normal")
def test_part_of_the_pods(trial: Trial, start_webhook: StartWebhook) -> None:
    """Profiles for none, for half and for all of the pods: no, some and each of 24 pods get their labels."""
    for name, probability in (("none", 0), ("half", "50%"), ("all", 100)):
        profile(trial, name, labels={name: "yes"}, probability=probability)
    start_webhook("--seed", "1")

    results = [stored(trial, pod(f"p-{number}").request(cpu="1m")).metadata.labels for number in range(24)]

    counts = {name: sum(name in labels for labels in results) for name in ("none", "half", "all")}
    assert (counts["none"], counts["all"]) == (0, 24)
    assert 0 < counts["half"] < 24


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-024", severity="normal")
def test_a_priority_class_that_is_missing(trial: Trial, start_webhook: StartWebhook) -> None:
    """A pod whose profile names a priority class that does not exist is refused; pods of other profiles are not."""
    profile(trial, "bad", selector={"matchLabels": {"app": "bad"}}, priorityClassName=f"{trial.name}-none")
    profile(trial, "good", labels={"good": "yes"})
    start_webhook()

    assert f'"{trial.name}-none" not found' in refused(trial, pod("a").request(cpu=1).label("app", "bad"))
    assert "good" in stored(trial, pod("b").request(cpu=1)).metadata.labels


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-025", severity="critical")
def test_classes_that_do_not_fit(trial: Trial, start_webhook: StartWebhook) -> None:
    """Batch resources without the class BE, classes that contradict each other or are missing, and parts of a core or
    none for an LSR or an LSE pod are refused, in Koordinator's words; what fits is stored."""
    start_webhook()
    must_be = "must specify koordinator QoS BE with koordinator colocation resources"
    for builder in (batch("a", 1000), pod("a").resources({BATCH_MEMORY: "1Gi"})):
        assert must_be in refused(trial, builder.qos("LS"))
    wrong = pod("a").request(cpu=1).qos("BE").label(PRIORITY_CLASS_LABEL, "koord-prod")
    assert IN_COMBINATION.format("BE", "koord-prod") in refused(trial, wrong)
    for name in ("koord-batch", "koord-mid", "koord-free"):
        wrong = pod("a").request(cpu=1).qos("LSR").label(PRIORITY_CLASS_LABEL, name)
        assert IN_COMBINATION.format("LSR", name) in refused(trial, wrong)
    for qos in ("BE", "LSR"):
        assert IN_COMBINATION.format(qos, "") in refused(trial, pod("a").request(cpu=1).qos(qos))
    for qos in ("LSR", "LSE"):
        none = pod("a").resources({"memory": "1Gi"}).qos(qos).label(PRIORITY_CLASS_LABEL, "koord-prod")
        assert "LSR Pod must declare the requested CPUs" in refused(trial, none)
        part = pod("a").request(cpu="500m").qos(qos).label(PRIORITY_CLASS_LABEL, "koord-prod")
        assert "the requested CPUs of LSR Pod must be integer" in refused(trial, part)

    trial.submit(batch("a", 1000), pod("b").request(cpu=2).qos("LSR").label(PRIORITY_CLASS_LABEL, "koord-prod"))


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-026", severity="normal")
@pytest.mark.parametrize(
    ("key", "value"), [(QOS_LABEL, "LSE"), (PRIORITY_LABEL, "2"), (PRIORITY_CLASS_LABEL, "koord-mid")]
)
def test_classes_of_a_pod_do_not_change(trial: Trial, start_webhook: StartWebhook, key: str, value: str) -> None:
    """QoS class, priority class and priority within it are refused to change; other labels change."""
    start_webhook()
    values = {QOS_LABEL: "LS", PRIORITY_LABEL: "1", PRIORITY_CLASS_LABEL: "koord-prod"}
    builder = pod("a").request(cpu=1)
    for name, word in values.items():
        builder.label(name, word)
    trial.submit(builder)

    answer = trial.call("PATCH", trial.path("Pod", "a"), {"metadata": {"labels": {key: value}}})
    other = trial.call("PATCH", trial.path("Pod", "a"), {"metadata": {"labels": {"team": "b"}}})

    assert answer.code == 400, f"expected a refusal, found {answer.code}"
    assert "field is immutable" in json.loads(answer.body)["message"]
    assert other.ok


@pytest.mark.feature("QOS-3.limit-above-request", "QOS-3.manifest-batch-burst")
@pytest.mark.case("CO-027", severity="critical")
def test_limits_above_requests(trial: Trial, start_manager: StartManager) -> None:
    """The pod of the announcement has limits above its requests of batch resources: it is stored so, and counts with
    its requests."""
    trial.add(machine("n1"))
    report(trial, "n1", "63", "10G", system=("63", "10G"))
    start_manager(colocation())
    expect_offer(trial, "n1", (2000, 68))
    path = suites_folder() / "manifests/v0.7/batch-burst.yaml"
    for name in ("a", "b", "c"):
        manifest = yaml.safe_load(path.read_bytes())
        manifest["metadata"] = {**manifest["metadata"], "name": name, "namespace": trial.name}
        manifest["spec"]["schedulerName"] = pod("x").manifest["spec"].get("schedulerName", "default-scheduler")
        trial.apply(manifest)
    trial.reaches(lambda: len(bound(trial)) >= 2, within=10.0)
    settle(trial)
    assert len(bound(trial)) == 2, f"expected two of three pods of 1000 on 2000 thousandths, found {bound(trial)}"
    assert amounts(trial.pod("a"), "limits") == {BATCH_CPU: 4000, BATCH_MEMORY: 2 << 30}


def bound(trial: Trial) -> list[str]:
    return [pod.metadata.name for pod in trial.pods() if pod.spec.node_name]


@pytest.mark.feature("QOS-2.manifest-batch-colocation", "QOS-10.quick-start")
@pytest.mark.case("CO-028", severity="critical")
def test_the_released_quick_start(
    trial: Trial, expect: Expect, start_manager: StartManager, start_webhook: StartWebhook
) -> None:
    """Settings, priority class and profile of the announcement: its pod, which knows nothing of it, runs as a batch pod
    on what prod pods leave of a node that is full by their requests."""
    manifests = list(yaml.safe_load_all((suites_folder() / "manifests/v1.7/batch-colocation.yaml").read_bytes()))
    kinds = {each["kind"]: each for each in manifests if each["metadata"]["name"] != "koordinator-system"}
    trial.add(machine("n1"))
    trial.submit(pod("full").request(cpu=100).qos("LS"))
    expect.running("full")
    report(trial, "n1", "20", "20G", pods={"full": ("20", "20G", "koord-prod")})
    trial.apply(kinds["PriorityClass"])
    kinds["ClusterColocationProfile"]["spec"] |= {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": trial.name}},
        "schedulerName": "default-scheduler",
    }
    trial.apply(kinds["ClusterColocationProfile"])
    start_manager(kinds["ConfigMap"]["data"])
    start_webhook()
    expect_offer(trial, "n1", (40000, 58))
    kinds["Pod"]["metadata"] = {"name": "batch-pod", "namespace": trial.name}

    trial.apply(kinds["Pod"])

    pods = expect.running("batch-pod")
    assert amounts(pods) == {BATCH_CPU: 1000, BATCH_MEMORY: 1 << 30}
    assert (pods.metadata.labels[QOS_LABEL], pods.spec.priority) == ("BE", 5999)


SETTINGS = "/api/v1/namespaces/koordinator-system/configmaps"


@pytest.mark.feature("QOS-2.settings")
@pytest.mark.case("CO-089", severity="normal", source="ConfigMapValidatingWebhook; spec N-4, N-5")
def test_each_key_of_the_settings_and_each_pair_is_checked(trial: Trial, start_webhook: StartWebhook) -> None:
    """A value out of its range in each of the five keys, and a lower limit that is not below its upper one, of each
    pair; with the next lower one the change is taken, whatever another key had before the webhook was there."""
    cat = {"beClass": {"resctrlQOS": {"catRangeStartPercent": 30, "catRangeEndPercent": 30}}}
    refused: dict[str, list[dict[str, Any]]] = {
        "colocation-config": [{"enable": True, "midCPUThresholdPercent": 101}],
        "resource-threshold-config": [
            {"memoryEvictLowerPercent": 70, "memoryEvictThresholdPercent": 70},
            {"cpuEvictBESatisfactionLowerPercent": 60, "cpuEvictBESatisfactionUpperPercent": 60},
        ],
        "resource-qos-config": [cat],
        "cpu-burst-config": [{"cpuBurstPercent": 0}],
        "system-config": [{"minFreeKbytesFactor": 0}],
    }
    trial.call("POST", "/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})
    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    data = {
        "system-config": json.dumps({"clusterStrategy": {"totalNetworkBandwidth": "100M"}}),
        "cpu-burst-config": json.dumps({"clusterStrategy": {"cpuBurstPercent": -5}}),
    }
    assert trial.call(
        "POST", SETTINGS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    ).ok
    start_webhook("--slo-config")

    def taken(key: str, settings: dict[str, Any]) -> bool:
        text = json.dumps(settings if key == "colocation-config" else {"clusterStrategy": settings})
        answer = trial.call("PATCH", f"{SETTINGS}/slo-controller-config", {"data": {key: text}})
        assert answer.ok or "ConfigParamInvalid" in answer.body.decode(), answer.body.decode()
        return answer.ok

    try:
        wrong = [(key, each) for key, rows in refused.items() for each in rows if taken(key, each)]
        assert wrong == []
        assert taken("resource-threshold-config", {"memoryEvictLowerPercent": 69, "memoryEvictThresholdPercent": 70})
        assert taken("cpu-burst-config", {"cpuBurstPercent": 1})
    finally:
        trial.call("DELETE", f"{SETTINGS}/slo-controller-config")


@pytest.mark.feature("QOS-2.settings")
@pytest.mark.case("CO-065", severity="normal", source="ConfigMapValidatingWebhook; spec N-3 to N-7")
def test_settings_that_are_refused(trial: Trial, start_webhook: StartWebhook) -> None:
    """A percentage above 100, network requests of more than all or of two kinds, settings of nodes without a name of
    their own, and two for the nodes of one pool are refused with Koordinator's reasons, and the stored settings stay;
    so is a label that would give a node two of them. Other ConfigMaps are not checked."""
    pool, zone = (f"{trial.name}-{name}" for name in ("pool", "zone"))
    trial.add(node("n1").label(pool, "a"))
    start_webhook("--slo-config")
    trial.call("POST", "/api/v1/namespaces", {"metadata": {"name": "koordinator-system"}})

    def override(name: str, **labels: str) -> dict[str, Any]:
        return {"name": name, "nodeSelector": {"matchLabels": labels}, "enable": True}

    def put(key: str, **settings: Any) -> str:
        """What the API server says of a change of the stored settings; "" if it takes it."""
        answer = trial.call("PATCH", f"{SETTINGS}/slo-controller-config", {"data": {key: json.dumps(settings)}})
        return "" if answer.ok else answer.body.decode()

    metadata = {"name": "slo-controller-config", "namespace": "koordinator-system"}
    # koord-manager checks network requests together with this key, and refuses them without it.
    data = {"system-config": json.dumps({"clusterStrategy": {"totalNetworkBandwidth": "100M"}})}
    assert trial.call(
        "POST", SETTINGS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    ).ok
    try:
        key = "resource-threshold-config"
        assert put(key, clusterStrategy={"cpuSuppressThresholdPercent": 70}) == ""
        assert "ConfigParamInvalid" in put(key, clusterStrategy={"cpuSuppressThresholdPercent": 101})
        assert "ParseConfigFail" in put(key, nodeStrategies="all")
        two = [override("a", **{pool: "a"}), override("b", **{pool: "a", zone: "z"})]
        assert "NodeStrategiesOverlap" in put(key, nodeStrategies=two)
        expressions = {"matchExpressions": [{"key": zone, "operator": "In", "values": ["y"]}]}
        by_expression = [{**override(name), "nodeSelector": expressions} for name in ("a", "b")]
        assert "NodeStrategiesOverlap" in put(key, nodeStrategies=by_expression)
        assert "NodeSelector must not empty" in put(key, nodeStrategies=[override("a")])
        band = {"lsClass": {"networkQOS": {"ingressRequest": "-5M"}}}
        assert "must be an integer" in put("resource-qos-config", clusterStrategy=band)
        one = override("a", **{pool: "a"})
        assert "ConfigParamInvalid" in put(key, nodeStrategies=[{**one, "cpuSuppressThresholdPercent": 101}])
        assert "Name need" in put(key, nodeStrategies=[{**one, "name": ""}])
        assert "Name confilict" in put(key, nodeStrategies=[one, override("a", **{pool: "b"})])
        classes, sizes = (
            {name: {"networkQOS": {"ingressRequest": each}} for name in ("lsClass", "beClass")} for each in (60, "60M")
        )
        assert "already over 100" in put("resource-qos-config", clusterStrategy=classes)
        assert "already over 100" in put("resource-qos-config", nodeStrategies=[{**one, **classes}])
        assert "over total network bandwidth" in put("resource-qos-config", clusterStrategy=sizes)
        kinds = {"lsClass": {"networkQOS": {"ingressRequest": 10, "egressRequest": "10M"}}}
        assert "only one type" in put("resource-qos-config", clusterStrategy=kinds)
        other = {"name": trial.name, "namespace": "koordinator-system"}
        unread = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": other, "data": {key: "{"}}
        assert trial.call("POST", SETTINGS, unread).ok, "it has another name"
        trial.call("DELETE", f"{SETTINGS}/{trial.name}")
        stored_data = orjson.loads(trial.call("GET", f"{SETTINGS}/slo-controller-config").body)["data"]
        assert json.loads(stored_data[key]) == {"clusterStrategy": {"cpuSuppressThresholdPercent": 70}}

        both = [override("a", **{pool: "a"}), override("b", **{zone: "z"})]
        second = {"metadata": {"labels": {zone: "z"}}}
        assert trial.call("PATCH", "/api/v1/nodes/n1", second).ok
        settle(trial)
        assert "ExistNodeConf" in put(key, nodeStrategies=both), "n1 would have both since its labels have changed"
        assert trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {zone: None}}}).ok
        settle(trial)
        assert put(key, nodeStrategies=both) == ""
        refusal = ""

        def refused_label() -> bool:
            """Once the webhooks have seen the settings; until then the label is taken off again."""
            nonlocal refusal
            answer = trial.call("PATCH", "/api/v1/nodes/n1", second)
            refusal = answer.body.decode()
            if answer.ok:
                trial.call("PATCH", "/api/v1/nodes/n1", {"metadata": {"labels": {zone: None}}})
            return "ExistNodeConf" in refusal

        assert trial.reaches(refused_label, within=10), f"expected a refusal of the second label, found {refusal}"
        trial.add(node("n2").label(pool, "a").label(zone, "z"))  # of a new node it is only logged
        note = {"metadata": {"annotations": {"note": "x"}}}
        assert trial.call("PATCH", "/api/v1/nodes/n2", note).ok, "its labels stay as they are"
    finally:
        trial.call("DELETE", f"{SETTINGS}/slo-controller-config")


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-067", severity="normal", source="Koordinator pkg/controller/colocationprofile; spec W-10")
@pytest.mark.long(seconds=90)
def test_pods_that_wait_already(trial: Trial, start_manager: StartManager) -> None:
    """Profiles that come after their pods give labels, annotations and a patch to those that wait for a node: not to
    one that has a node, nor by a profile without the label for it, without a selector of pods or for other namespaces,
    and amounts stay. A profile that changes is followed."""
    trial.add(node("n1").cpu(8).memory("16Gi"))
    trial.submit(pod("runs").request(cpu=1).label("app", "x").node_name("n1"))
    apps = {"x": "x", "y": "y", "z": "x"}
    waiting = [pod(name).request(cpu=100).label("app", app) for name, app in apps.items()]
    trial.submit(*waiting)
    start_manager({})
    words: dict[str, Any] = {"labels": {"team": "a"}, "annotations": {"note": "b"}, "labelSuffixes": {"team": "-1"}}
    label = {"config.koordinator.sh/controller-managed": "true"}
    patch = {"metadata": {"labels": {"patched": "yes"}}}
    selector = {"matchLabels": {"app": "x"}}
    profile(trial, "a", labels_of_profile=label, selector=selector, patch=patch, **words)
    profile(trial, "b", labels={"unmanaged": "yes"}, selector=selector)
    profile(trial, "c", labels_of_profile=label, labels={"all": "yes"})
    profile(trial, "d", labels_of_profile=label, selector=selector, labels={"second": "yes"})
    others = {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}
    profile(trial, "e", labels_of_profile=label, selector=selector, namespaceSelector=others, labels={"others": "yes"})

    def changed(*names: str, **expected: str) -> bool:
        return all(expected.items() <= trial.pod(name).metadata.labels.items() for name in names)

    assert trial.reaches(lambda: changed("x", "z", team="a-1", patched="yes", second="yes"), within=40), (
        f"expected the labels of both profiles, found {[trial.pod(name).metadata.labels for name in 'xz']}"
    )
    change = {"spec": {"labels": {"team": "a", "more": "yes"}}}
    path = f"/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles/{trial.name}-a"
    assert trial.call("PATCH", path, change).ok
    assert trial.reaches(lambda: changed("x", more="yes"), within=40)
    x = trial.pod("x")
    assert (x.metadata.labels["team"], x.metadata.annotations["note"], amounts(x)) == ("a-1", "b", {"cpu": 100_000})
    for name, keys in (("x", {"unmanaged", "all", "others"}), ("y", {"team", "all"}), ("runs", {"team", "patched"})):
        assert not keys & trial.pod(name).metadata.labels.keys(), f"{name} has {trial.pod(name).metadata.labels}"


@pytest.mark.feature("QOS-3.profile")
@pytest.mark.case("CO-110", severity="normal", source="Koordinator pkg/controller/colocationprofile; spec W-10")
@pytest.mark.long(seconds=90)
def test_more_pods_that_wait_than_are_changed_at_once(trial: Trial, start_manager: StartManager) -> None:
    """A profile comes after 120 pods that wait, of which 100 may be changed at once: all of them get its label."""
    trial.submit(*(pod(f"p-{number}").request(cpu=100).label("app", "x") for number in range(120)))
    start_manager({})
    label = {"config.koordinator.sh/controller-managed": "true"}
    profile(trial, labels_of_profile=label, selector={"matchLabels": {"app": "x"}}, labels={"team": "a"})

    def left() -> list[str]:
        return [each.metadata.name for each in trial.pods() if each.metadata.labels.get("team") != "a"]

    assert trial.wait(lambda: not left(), within=80), f"expected the label, found {len(left())} pods without it"
