"""Binding of PersistentVolumes to claims, and their protection while they are in use."""

from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import PODS, Api, pod
from seatrial.scheduler.api.transport import MERGE_PATCH

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"


def volume(name: str, size: str = "10Gi", **spec: Any) -> dict[str, Any]:
    whole = {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp/v"}, **spec}
    return {"metadata": {"name": name, "labels": {"disk": name}}, "spec": whole}


def claim(name: str = "c", size: str = "5Gi", **spec: Any) -> dict[str, Any]:
    whole = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}, **spec}
    return {"metadata": {"name": name}, "spec": whole}


def phase_and_volume(api: Api, name: str = "c") -> tuple[str, str]:
    """Phase and volume of a claim."""
    api.clock.advance(1)
    item = api.do("GET", f"{CLAIMS}/{name}")
    return item["status"]["phase"], item["spec"].get("volumeName", "")


@pytest.mark.parametrize(
    ("volumes", "amounts", "expected"),
    [
        pytest.param(
            [volume("big", "20Gi"), volume("small", "5Gi"), volume("tiny", "1Gi")],
            claim(),
            "small",
            id="the-smallest-that-is-large-enough",
        ),
        pytest.param([volume("v", storageClassName="fast")], claim(), "", id="another-class"),
        pytest.param([volume("v", volumeMode="Block")], claim(), "", id="another-mode"),
        pytest.param([volume("v")], claim(accessModes=["ReadWriteMany"]), "", id="another-access-mode"),
        pytest.param([volume("a"), volume("b")], claim(selector={"matchLabels": {"disk": "b"}}), "b", id="by-selector"),
        pytest.param([volume("a", "1Ti"), volume("b")], claim(volumeName="a"), "a", id="by-name"),
        pytest.param(
            [volume("a"), volume("b", claimRef={"namespace": "default", "name": "c"})],
            claim(),
            "b",
            id="reserved-for-it",
        ),
        pytest.param(
            [volume("a"), volume("b", storageClassName="x", claimRef={"namespace": "default", "name": "c"})],
            claim(selector={"matchLabels": {"disk": "a"}}),
            "b",
            id="reserved-for-it-in-spite-of-its-class-and-selector",
        ),
        pytest.param(
            [volume("a", claimRef={"namespace": "default", "name": "d"})], claim(), "", id="reserved-for-another"
        ),
    ],
)
@pytest.mark.parametrize("first", ["volumes", "claim"])
def test_which_volume_a_claim_gets(
    volumes: list[dict[str, Any]], amounts: dict[str, Any], expected: str, first: str
) -> None:
    """Volumes exist before the claim; or one fitting volume comes later, which must be found too."""
    api = Api()
    fitting = [each for each in volumes if first == "volumes" or each["metadata"]["name"] == (expected or "none")]
    for order in ("volumes", "claim") if first == "volumes" else ("claim", "volumes"):
        for body in fitting if order == "volumes" else [amounts]:
            api.do("POST", VOLUMES if order == "volumes" else CLAIMS, body)
    assert phase_and_volume(api) == (
        ("Bound", expected) if expected else ("Pending", amounts["spec"].get("volumeName", ""))
    )
    if expected:
        item = api.do("GET", f"{VOLUMES}/{expected}")
        uid = api.do("GET", f"{CLAIMS}/c")["metadata"]["uid"]
        assert (item["status"]["phase"], item["spec"]["claimRef"]["uid"]) == ("Bound", uid)


def test_a_claim_that_waits_for_its_consumer_is_bound_when_the_scheduler_has_chosen() -> None:
    api = Api()
    mode = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    api.do("POST", CLASSES, {"metadata": {"name": "local"}, **mode})
    for name in ("a", "b"):
        api.do("POST", VOLUMES, volume(name, storageClassName="local"))
    api.do("POST", CLAIMS, claim(storageClassName="local"))
    assert phase_and_volume(api) == ("Pending", "")
    reference = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": "default",
        "name": "c",
        "uid": api.do("GET", f"{CLAIMS}/c")["metadata"]["uid"],
    }
    api.do("PATCH", f"{VOLUMES}/b", {"spec": {"claimRef": reference}}, MERGE_PATCH)
    assert phase_and_volume(api) == ("Bound", "b")


def test_a_claim_gets_the_default_class() -> None:
    api = Api()
    for name, marked in (("a", "false"), ("b", "true")):
        annotations = {"storageclass.kubernetes.io/is-default-class": marked}
        api.do("POST", CLASSES, {"metadata": {"name": name, "annotations": annotations}, "provisioner": "x"})
    assert api.do("POST", CLAIMS, claim())["spec"]["storageClassName"] == "b"
    assert api.do("POST", CLAIMS, claim("d", storageClassName=""))["spec"]["storageClassName"] == ""


def test_a_claim_in_use_stays_until_its_pod_is_gone() -> None:
    api = Api()
    api.do("POST", VOLUMES, volume("v", persistentVolumeReclaimPolicy="Retain"))
    api.do("POST", CLAIMS, claim())
    using = [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]
    api.do("POST", PODS, pod("p", volumes=using, nodeName="n"))
    api.do("DELETE", f"{CLAIMS}/c")
    assert phase_and_volume(api)[0] == "Bound"
    assert api.do("GET", f"{CLAIMS}/c")["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    api.do("DELETE", f"{VOLUMES}/v")
    assert api.do("GET", f"{VOLUMES}/v")["status"]["phase"] == "Bound"
    api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    api.clock.advance(1)
    assert api.ask("GET", f"{CLAIMS}/c")[0] == 404
    assert api.ask("GET", f"{VOLUMES}/v")[0] == 404


SCRATCH = {
    "name": "scratch",
    "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"kind": "scratch"}}, "spec": claim()["spec"]}},
}


def test_an_ephemeral_volume_gets_a_claim_that_its_pod_owns() -> None:
    """The claim is protected while the pod uses it, is made again if it was deleted, and goes with the pod."""
    api = Api()
    api.do("POST", PODS, pod("p", volumes=[SCRATCH]))
    api.clock.advance(1)
    made = api.do("GET", f"{CLAIMS}/p-scratch")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("Pod", "p", True)
    assert owner["uid"] == api.do("GET", f"{PODS}/p")["metadata"]["uid"]
    assert (made["metadata"]["labels"], made["spec"]["resources"]) == (
        {"kind": "scratch"},
        claim()["spec"]["resources"],
    )
    api.do("DELETE", f"{CLAIMS}/p-scratch")
    api.clock.advance(1)
    again = api.do("GET", f"{CLAIMS}/p-scratch")
    assert again["metadata"]["uid"] != made["metadata"]["uid"]
    api.do("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    api.do("DELETE", f"{CLAIMS}/p-scratch")
    api.clock.advance(1)
    assert "deletionTimestamp" in api.do("GET", f"{CLAIMS}/p-scratch")["metadata"], "the pod uses it"
    api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    api.clock.advance(1)
    assert api.ask("GET", f"{CLAIMS}/p-scratch")[0] == 404


def test_a_claim_of_somebody_else_is_not_used_for_an_ephemeral_volume() -> None:
    """The pod is told; it gets its own claim when the other one is gone. Another pod is served meanwhile."""
    api = Api()
    api.do("POST", CLAIMS, claim("p-scratch"))
    api.do("POST", PODS, pod("p", volumes=[SCRATCH]))
    api.do("POST", PODS, pod("q", volumes=[SCRATCH]))
    api.clock.advance(1)
    assert "ownerReferences" not in api.do("GET", f"{CLAIMS}/p-scratch")["metadata"]
    assert api.do("GET", f"{CLAIMS}/q-scratch")["metadata"]["ownerReferences"][0]["name"] == "q"
    (event,) = [
        each
        for each in api.do("GET", "/api/v1/namespaces/default/events")["items"]
        if each["reason"] == "FailedBinding"
    ]
    expected = "ephemeral volume scratch: PVC default/p-scratch was not created for pod default/p (pod is not owner)"
    assert (event["involvedObject"]["name"], event["message"]) == ("p", expected)
    api.do("DELETE", f"{CLAIMS}/p-scratch")
    api.clock.advance(60)
    assert api.do("GET", f"{CLAIMS}/p-scratch")["metadata"]["ownerReferences"][0]["name"] == "p"


@pytest.mark.parametrize(("policy", "expected"), [("Retain", "Released"), ("Delete", "")])
def test_what_becomes_of_a_volume_whose_claim_is_gone(policy: str, expected: str) -> None:
    api = Api()
    api.do("POST", VOLUMES, volume("v", persistentVolumeReclaimPolicy=policy))
    api.do("POST", CLAIMS, claim())
    assert phase_and_volume(api) == ("Bound", "v")
    api.do("DELETE", f"{CLAIMS}/c")
    api.clock.advance(1)
    code, item = api.ask("GET", f"{VOLUMES}/v")
    assert (item["status"]["phase"] if expected else code) == (expected or 404)


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        pytest.param(None, "Bound", id="unbound-again"),
        pytest.param({"name": "d", "uid": "another"}, "Lost", id="another-claim-s"),
        pytest.param("gone", "Lost", id="gone"),
    ],
)
def test_what_becomes_of_a_claim_whose_volume_changes(reference: Any, expected: str) -> None:
    """A claim is bound to its volume again, or is Lost where that is gone or another claim's (syncBoundClaim)."""
    api = Api()
    api.do("POST", VOLUMES, volume("v"))
    api.do("POST", CLAIMS, claim())
    assert phase_and_volume(api) == ("Bound", "v")
    if reference == "gone":
        api.do("DELETE", f"{VOLUMES}/v")
        api.do("PATCH", f"{VOLUMES}/v", {"metadata": {"finalizers": None}}, kind=MERGE_PATCH)
    else:
        api.do("PATCH", f"{VOLUMES}/v", {"spec": {"claimRef": reference}}, kind=MERGE_PATCH)
    assert phase_and_volume(api) == (expected, "v")
    if reference is None:
        assert (
            api.do("GET", f"{VOLUMES}/v")["spec"]["claimRef"]["uid"] == api.do("GET", f"{CLAIMS}/c")["metadata"]["uid"]
        )
