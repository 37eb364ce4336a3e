"""Claims of pods: names, templates, users that have gone; and what the API refuses of claims and slices."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.resource_claims import FINALIZER, generated
from seatrial.harness.apiserver.tests.asking import PODS, Api, pod
from seatrial.scheduler.api.resourceclaims import EXTENDED_CLAIM
from seatrial.scheduler.api.transport import MERGE_PATCH

GROUP = "/apis/resource.k8s.io/v1"
CLAIMS = f"{GROUP}/namespaces/default/resourceclaims"
TEMPLATES = f"{GROUP}/namespaces/default/resourceclaimtemplates"
SLICES = f"{GROUP}/resourceslices"
REQUESTS = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "d.io", "pool": "p", "device": "gpu-0"}]}}


@pytest.fixture
def api() -> Api:
    return Api()


def claiming(name: str, **entry: Any) -> dict[str, Any]:
    body = pod(name)
    body["spec"]["resourceClaims"] = [{"name": "gpu", **entry}]
    return body


def allocate(api: Api, claim: str, uid: str, name: str = "p", tolerations: Any = None) -> None:
    (result,) = ALLOCATION["devices"]["results"]
    allocation = {"devices": {"results": [{**result, **({"tolerations": tolerations} if tolerations else {})}]}}
    users = [{"resource": "pods", "name": name, "uid": uid}]
    api.do("PATCH", f"{CLAIMS}/{claim}", {"metadata": {"finalizers": [FINALIZER]}}, kind=MERGE_PATCH)
    status = {"status": {"allocation": allocation, "reservedFor": users}}
    api.do("PATCH", f"{CLAIMS}/{claim}/status", status, kind=MERGE_PATCH)


def test_long_names_are_cut_in_proportion() -> None:
    """DRA-E4: 41 characters of the pod, 13 of the entry, and no hyphen at the end."""
    assert generated("p" * 60, "e" * 20) == "p" * 41 + "-" + "e" * 13
    assert generated("train", "gpu") == "train-gpu-"


def test_a_claim_is_made_from_the_template_once(api: Api) -> None:
    """The template comes after the pod; the pod's status names the claim; a claim that is deleted is made again."""
    api.do("POST", PODS, claiming("p", resourceClaimTemplateName="t"))
    api.clock.advance(1)
    assert api.do("GET", CLAIMS)["items"] == []
    spec = {"metadata": {"labels": {"a": "b"}}, "spec": REQUESTS}
    api.do("POST", TEMPLATES, {"metadata": {"name": "t"}, "spec": spec})
    api.clock.advance(5)

    (made,) = api.do("GET", CLAIMS)["items"]
    metadata = made["metadata"]
    assert metadata["name"].startswith("p-gpu-")
    assert metadata["labels"] == {"a": "b"}
    assert metadata["annotations"] == {"resource.kubernetes.io/pod-claim-name": "gpu"}
    assert [(owner["kind"], owner["name"], owner["controller"]) for owner in metadata["ownerReferences"]] == [
        ("Pod", "p", True)
    ]
    named = [{"name": "gpu", "resourceClaimName": metadata["name"]}]
    assert api.do("GET", f"{PODS}/p")["status"]["resourceClaimStatuses"] == named

    api.do("DELETE", f"{CLAIMS}/{metadata['name']}")
    api.clock.advance(5)
    (again,) = api.do("GET", CLAIMS)["items"]
    assert again["metadata"]["uid"] != metadata["uid"]


@pytest.mark.parametrize("end", ["deleted", "succeeded"])
def test_the_last_user_gives_the_devices_back(api: Api, end: str) -> None:
    """A claim of its own stays, without devices and finalizer."""
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    uid = api.do("POST", PODS, claiming("p", resourceClaimName="c"))["metadata"]["uid"]
    allocate(api, "c", uid)
    api.clock.advance(5)
    assert api.do("GET", f"{CLAIMS}/c")["status"]["reservedFor"]

    if end == "deleted":
        api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    else:
        api.do("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, kind=MERGE_PATCH)
    api.clock.advance(5)

    response = api.do("GET", f"{CLAIMS}/c")
    assert response["status"] == {}
    assert "finalizers" not in response["metadata"]


def test_one_of_two_users_leaves_the_devices(api: Api) -> None:
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    users = []
    for name in ("p", "q"):
        made = api.do("POST", PODS, claiming(name, resourceClaimName="c"))
        users.append({"resource": "pods", "name": name, "uid": made["metadata"]["uid"]})
    status = {"status": {"allocation": ALLOCATION, "reservedFor": users}}
    api.do("PATCH", f"{CLAIMS}/c/status", status, kind=MERGE_PATCH)
    api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    api.clock.advance(5)
    result = api.do("GET", f"{CLAIMS}/c")["status"]
    assert result["reservedFor"] == users[1:]
    assert result["allocation"] == ALLOCATION


@pytest.mark.parametrize("end", ["deleted", "succeeded"])
def test_a_claim_for_extended_resources_goes_with_its_pod(api: Api, end: str) -> None:
    """The scheduler has made it; the pod names no claim in its spec."""
    body = pod("p")
    container = body["spec"]["containers"][0]
    container["resources"] = {name: {"example.com/gpu": "1"} for name in ("requests", "limits")}
    uid = api.do("POST", PODS, body)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": True}
    metadata = {"name": "c", "annotations": {EXTENDED_CLAIM: "true"}, "ownerReferences": [owner]}
    api.do("POST", CLAIMS, {"metadata": metadata, "spec": REQUESTS})
    allocate(api, "c", uid)
    mapping = {"containerName": container["name"], "resourceName": "example.com/gpu", "requestName": "gpu"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    api.do("PATCH", f"{PODS}/p/status", {"status": status}, kind=MERGE_PATCH)
    api.clock.advance(5)
    assert api.do("GET", f"{CLAIMS}/c")["status"]["reservedFor"]

    if end == "deleted":
        api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    else:
        api.do("PATCH", f"{PODS}/p/status", {"status": {"phase": "Succeeded"}}, kind=MERGE_PATCH)
    api.clock.advance(5)

    assert api.ask("GET", f"{CLAIMS}/c")[0] == 404


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param(
            {"allocation": {"devices": {"results": [{**ALLOCATION["devices"]["results"][0], "device": "gpu-1"}]}}},
            "status.allocation",
            id="another-device",
        ),
        pytest.param({"allocation": None}, "may not be specified when `allocated` is not set", id="users-without"),
        pytest.param(
            {"devices": [{"driver": "d.io", "pool": "p", "device": "gpu-9"}]},
            "must be an allocated device",
            id="status-of-another-device",
        ),
    ],
)
def test_a_status_that_contradicts_itself(api: Api, change: dict[str, Any], message: str) -> None:
    """DRA-R16, and what is said of a device that the claim does not have."""
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    uid = api.do("POST", PODS, claiming("p", resourceClaimName="c"))["metadata"]["uid"]
    allocate(api, "c", uid)
    code, answer = api.ask("PATCH", f"{CLAIMS}/c/status", {"status": change}, kind=MERGE_PATCH)
    assert code == 422
    assert message in answer["message"]


@pytest.mark.parametrize(
    ("change", "allocation", "message"),
    [
        pytest.param({"request": "none"}, {}, 'results[0].request: Invalid value: "none"', id="no-such-request"),
        pytest.param({"device": "A_1"}, {}, 'results[0].device: Invalid value: "A_1"', id="no-name-of-a-device"),
        pytest.param({}, {"nodeSelector": {"nodeSelectorTerms": []}}, "at least one node selector term", id="no-term"),
    ],
)
def test_an_allocation_that_is_none(api: Api, change: dict[str, Any], allocation: dict[str, Any], message: str) -> None:
    """`validateAllocationResult` of kube-apiserver."""
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    (result,) = ALLOCATION["devices"]["results"]
    status = {"allocation": {"devices": {"results": [{**result, **change}]}, **allocation}}
    code, answer = api.ask("PATCH", f"{CLAIMS}/c/status", {"status": status}, kind=MERGE_PATCH)
    assert code == 422
    assert message in answer["message"]


def test_what_is_said_of_devices_goes_with_them(api: Api) -> None:
    """DRA-R17: a client that does not know `status.devices` takes the devices away."""
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": REQUESTS})
    (result,) = ALLOCATION["devices"]["results"]
    entry = {field: result[field] for field in ("driver", "pool", "device")}
    status = {"status": {"allocation": ALLOCATION, "devices": [entry]}}
    assert api.do("PATCH", f"{CLAIMS}/c/status", status, kind=MERGE_PATCH)["status"]["devices"] == [entry]

    after = api.do("PATCH", f"{CLAIMS}/c/status", {"status": {"allocation": None}}, kind=MERGE_PATCH)
    assert not after.get("status")


TWO_NAMES = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}]}


def a_slice(**spec: Any) -> dict[str, Any]:
    whole = {"driver": "d.io", "pool": {"name": "p", "resourceSliceCount": 1}, "nodeName": "n", **spec}
    return {"metadata": {"name": "s"}, "spec": {key: value for key, value in whole.items() if value is not None}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"nodeName": None}, "exactly one of `nodeName`", id="no-place"),
        pytest.param({"driver": f"{'d' * 60}.io.example"}, "may not be more than 63 bytes", id="long-driver"),
        pytest.param({"pool": {"name": "a//b", "resourceSliceCount": 1}}, "spec.pool.name", id="pool"),
        pytest.param({"allNodes": True}, "but multiple fields are set", id="two-places"),
        pytest.param(
            {"nodeName": None, "nodeSelector": {"nodeSelectorTerms": [TWO_NAMES]}},
            "spec.nodeSelector.nodeSelectorTerms[0].matchFields[0].values: Required value: must be only one value",
            id="two-names",
        ),
        pytest.param(
            {
                "nodeName": None,
                "perDeviceNodeSelection": True,
                "devices": [{"name": "a", "nodeSelector": {"nodeSelectorTerms": [TWO_NAMES]}}],
            },
            "spec.devices[0].nodeSelector.nodeSelectorTerms[0].matchFields[0].values: Required value",
            id="two-names-for-a-device",
        ),
        pytest.param({"devices": [{"name": "a"}, {"name": "a"}]}, "Duplicate value", id="one-name-twice"),
        pytest.param({"devices": [{"name": f"d{n}"} for n in range(129)]}, "Too many", id="too-many"),
        pytest.param(
            {"devices": [{"name": "a", "attributes": {"x": {"int": 1, "bool": True}}}]},
            "exactly one value must be specified",
            id="two-values",
        ),
        pytest.param(
            {"devices": [{"name": "a", "attributes": {"x": {"version": "1.2"}}}]}, "semver.org", id="no-version"
        ),
        pytest.param(
            {"devices": [{"name": "a", "bindingConditions": ["Attached"]}]},
            "bindingFailureConditions are required",
            id="no-failure-condition",
        ),
        pytest.param(
            {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "Never"}]}]}, "supported values", id="effect"
        ),
    ],
)
def test_a_slice_that_is_refused(api: Api, spec: dict[str, Any], message: str) -> None:
    """DRA-R10 to DRA-R14; the same slice without the mistake is taken."""
    code, answer = api.ask("POST", SLICES, a_slice(**spec))
    assert code == 422
    assert message in answer["message"]
    api.do("POST", SLICES, a_slice(devices=[{"name": "a"}]))


@pytest.mark.parametrize("name", ["gpu", "kubernetes.io/gpu", "deviceclass.resource.kubernetes.io/gpu", "a.io/b/c"])
def test_a_class_serves_extended_resources_only(api: Api, name: str) -> None:
    """The same class with another name is taken."""
    body = {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": name}}
    code, answer = api.ask("POST", f"{GROUP}/deviceclasses", body)
    assert code == 422
    assert f'spec.extendedResourceName: Invalid value: "{name}": must be a valid extended' in answer["message"]
    api.do("POST", f"{GROUP}/deviceclasses", {**body, "spec": {"extendedResourceName": "example.com/gpu"}})


def test_access_for_administrators_needs_a_label(api: Api) -> None:
    """DRA-M9; the path has no `exactly` in it."""
    amounts = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "adminAccess": True}}]}}
    code, answer = api.ask("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": amounts})
    assert code == 422
    assert "spec.devices.requests[0].adminAccess: Forbidden: admin access to devices requires" in answer["message"]
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    api.do("PATCH", "/api/v1/namespaces/default", label, kind=MERGE_PATCH)
    api.do("POST", CLAIMS, {"metadata": {"name": "c"}, "spec": amounts})


def test_a_group_is_the_user_of_its_claims(api: Api) -> None:
    """Pods that are bound without a scheduler reserve the claim for their group; it is free when the group is gone."""
    groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
    api.do("POST", TEMPLATES, {"metadata": {"name": "t"}, "spec": {"spec": REQUESTS}})
    entry = {"name": "gpu", "resourceClaimTemplateName": "t"}
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [entry]}
    group = api.do("POST", groups, {"metadata": {"name": "g"}, "spec": spec})
    api.clock.advance(5)
    (claim,) = api.do("GET", CLAIMS)["items"]
    name, uid = claim["metadata"]["name"], group["metadata"]["uid"]
    users = [{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}]
    api.do("PATCH", f"{CLAIMS}/{name}", {"metadata": {"finalizers": [FINALIZER]}}, kind=MERGE_PATCH)
    api.do("PATCH", f"{CLAIMS}/{name}/status", {"status": {"allocation": ALLOCATION}}, kind=MERGE_PATCH)

    body = claiming("p", resourceClaimTemplateName="t")
    body["spec"] |= {"schedulingGroup": {"podGroupName": "g"}, "nodeName": "n1"}
    api.do("POST", PODS, body)
    api.clock.advance(5)

    assert api.do("GET", f"{PODS}/p")["status"]["resourceClaimStatuses"] == [{"name": "gpu", "resourceClaimName": name}]
    assert api.do("GET", f"{CLAIMS}/{name}")["status"]["reservedFor"] == users
    api.do("DELETE", f"{PODS}/p?gracePeriodSeconds=0")
    api.clock.advance(5)
    assert api.do("GET", f"{CLAIMS}/{name}")["status"]["reservedFor"] == users
    api.do("DELETE", f"{groups}/g")
    api.clock.advance(5)
    assert api.do("GET", CLAIMS)["items"] == []
