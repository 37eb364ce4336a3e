"""Deletion: grace, preconditions, finalizers, propagation, namespaces (API-A10)."""

import pytest

from seatrial.harness.apiserver.schemas.tests.test_shapes import at
from seatrial.harness.apiserver.tests.asking import CONFIGS, PODS, Api, Object, config, pod
from seatrial.harness.apiserver.verbs.tests.bound import bound
from seatrial.scheduler.api.transport import MERGE_PATCH

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def api() -> Api:
    return Api()


def test_an_object_without_finalizers_is_removed_at_once(api: Api) -> None:
    uid = api.do("POST", CONFIGS, config("c"))["metadata"]["uid"]
    status = api.do("DELETE", f"{CONFIGS}/c")
    assert (status["status"], status["details"]) == ("Success", {"name": "c", "kind": "configmaps", "uid": uid})
    assert api.ask("DELETE", f"{CONFIGS}/c")[0] == 404


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        pytest.param({}, False, id="the-pods-own-grace"),
        pytest.param({"gracePeriodSeconds": 5}, False, id="another-grace"),
        pytest.param({"gracePeriodSeconds": 0}, True, id="none"),
    ],
)
def test_a_running_pod_is_deleted_with_a_grace_period(api: Api, options: Object, gone: bool) -> None:
    bound(api, "p", terminationGracePeriodSeconds=20)
    response = api.do("DELETE", f"{PODS}/p", options)
    assert (api.ask("GET", f"{PODS}/p")[0] == 404) is gone
    if gone:
        return
    grace = options.get("gracePeriodSeconds", 20)
    assert response["metadata"]["deletionGracePeriodSeconds"] == grace
    shorter = api.do("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 2})
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 2
    longer = api.do("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 100})
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 2
    api.do("DELETE", f"{PODS}/p", {"gracePeriodSeconds": 0})  # the node agent confirms
    assert api.ask("GET", f"{PODS}/p")[0] == 404


def test_an_unbound_pod_is_removed_at_once(api: Api) -> None:
    api.do("POST", PODS, pod("p"))
    api.do("DELETE", f"{PODS}/p")
    assert api.ask("GET", f"{PODS}/p")[0] == 404


def test_the_removal_of_a_pod_shows_it_as_being_deleted(api: Api) -> None:
    """The answer, the event of the watch, and the answer of a dry run; a list of an older revision does not."""
    version = api.do("POST", PODS, pod("p"))["metadata"]["resourceVersion"]
    watch = api.watch(PODS, resourceVersion=version)
    tried = api.do("DELETE", f"{PODS}/p?dryRun=All")
    answer = api.do("DELETE", f"{PODS}/p")
    (event,) = watch.events()
    assert event["type"] == "DELETED"
    for item in (tried, answer, event["object"]):
        metadata = item["metadata"]
        assert (metadata["deletionGracePeriodSeconds"], metadata["generation"]) == (0, 2)
        assert metadata["deletionTimestamp"] == api.clock.timestamp()
    (old,) = api.do("GET", f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")["items"]
    assert (old["metadata"]["resourceVersion"], old["metadata"]["generation"]) == (version, 1)
    assert "deletionTimestamp" not in old["metadata"]


def test_a_negative_grace_period_is_a_second(api: Api) -> None:
    bound(api, "p")
    response = api.do("DELETE", f"{PODS}/p", {"gracePeriodSeconds": -1})
    assert response["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_deletion_that_is_tried_shows_its_result(api: Api) -> None:
    bound(api, "p")
    tried = api.do("DELETE", f"{PODS}/p?dryRun=All&gracePeriodSeconds=7&propagationPolicy=Foreground")
    assert tried["metadata"]["deletionGracePeriodSeconds"] == 7
    assert tried["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert "deletionTimestamp" not in api.do("GET", f"{PODS}/p")["metadata"]


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        pytest.param({"uid": "x"}, "the UID in the precondition (x) does not match the UID in record", id="uid"),
        pytest.param(
            {"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match", id="revision"
        ),
    ],
)
def test_preconditions_of_a_delete(api: Api, conditions: Object, message: str) -> None:
    metadata = api.do("POST", CONFIGS, config("c"))["metadata"]
    code, status = api.ask("DELETE", f"{CONFIGS}/c", {"preconditions": conditions})
    assert (code, status["reason"]) == (409, "Conflict")
    assert message in status["message"]
    right = {name: metadata[name] for name in conditions}
    api.do("DELETE", f"{CONFIGS}/c", {"preconditions": right})


def test_finalizers_hold_an_object_until_they_are_gone(api: Api) -> None:
    api.do("POST", CONFIGS, at(config("c"), "metadata.finalizers", ["x.io/a", "x.io/b"]))
    held = api.do("DELETE", f"{CONFIGS}/c")
    assert held["metadata"]["deletionTimestamp"]
    since = held["metadata"]["deletionTimestamp"]
    api.clock.advance(10)
    api.do("PATCH", f"{CONFIGS}/c", {"metadata": {"finalizers": ["x.io/b"]}}, MERGE_PATCH)
    assert api.do("GET", f"{CONFIGS}/c")["metadata"]["deletionTimestamp"] == since
    api.do("PATCH", f"{CONFIGS}/c", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert api.ask("GET", f"{CONFIGS}/c")[0] == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param("/api/v1/namespaces/default/services", {"spec": {"ports": [{"port": 80}]}}, id="service"),
        pytest.param("/api/v1/namespaces/default/serviceaccounts", {}, id="service-account"),
        pytest.param("/apis/storage.k8s.io/v1/storageclasses", {"provisioner": "x.io/y"}, id="storage-class"),
        pytest.param("/apis/resource.k8s.io/v1/deviceclasses", {"spec": {}}, id="device-class"),
    ],
)
def test_deleting_these_kinds_returns_the_object(api: Api, path: str, body: Object) -> None:
    created = api.do("POST", path, {"metadata": {"name": "gone"}, **body})
    deleted = api.do("DELETE", f"{path}/gone")
    assert (deleted["kind"], deleted["metadata"]["uid"]) == (created["kind"], created["metadata"]["uid"])
    assert api.ask("GET", f"{path}/gone")[0] == 404


def owned(name: str, owner: Object, *, blocks: bool = False) -> Object:
    reference = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }
    return at(config(name), "metadata.ownerReferences", [reference])


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
def test_propagation(api: Api, policy: str) -> None:
    owner = api.do("POST", CONFIGS, config("owner"))
    api.do("POST", CONFIGS, owned("dependent", owner, blocks=True))
    api.do("DELETE", f"{CONFIGS}/owner", {"propagationPolicy": policy})
    assert api.ask("GET", f"{CONFIGS}/owner")[0] == 404
    code, left = api.ask("GET", f"{CONFIGS}/dependent")
    assert code == (200 if policy == "Orphan" else 404)
    if policy == "Orphan":
        assert "ownerReferences" not in left["metadata"]


def test_foreground_deletion_waits_for_blocking_dependents(api: Api) -> None:
    owner = api.do("POST", CONFIGS, config("owner"))
    held = at(owned("dependent", owner, blocks=True), "metadata.finalizers", ["x.io/a"])
    api.do("POST", CONFIGS, held)
    api.do("DELETE", f"{CONFIGS}/owner?propagationPolicy=Foreground")
    assert api.do("GET", f"{CONFIGS}/owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    api.do("PATCH", f"{CONFIGS}/dependent", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert api.ask("GET", f"{CONFIGS}/owner")[0] == 404


def test_a_dependent_stays_while_an_owner_exists(api: Api) -> None:
    owners = [api.do("POST", CONFIGS, config(name)) for name in ("first", "second")]
    body = owned("dependent", owners[0])
    body["metadata"]["ownerReferences"] += owned("x", owners[1])["metadata"]["ownerReferences"]
    api.do("POST", CONFIGS, body)
    api.do("DELETE", f"{CONFIGS}/first")
    kept = api.do("GET", f"{CONFIGS}/dependent")["metadata"]["ownerReferences"]
    assert [item["name"] for item in kept] == ["second"]
    api.do("DELETE", f"{CONFIGS}/second")
    assert api.ask("GET", f"{CONFIGS}/dependent")[0] == 404


def test_deletecollection_deletes_the_selected_objects(api: Api) -> None:
    for number in range(4):
        api.do("POST", CONFIGS, config(f"c{number}", labels={"odd": str(number % 2)}))
    deleted = api.do("DELETE", f"{CONFIGS}?labelSelector=odd%3D1")
    assert [item["metadata"]["name"] for item in deleted["items"]] == ["c1", "c3"]
    left = api.do("GET", f"{CONFIGS}?labelSelector=odd")
    assert [item["metadata"]["name"] for item in left["items"]] == ["c0", "c2"]


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
def test_namespaces_of_the_cluster_cannot_be_deleted(api: Api, name: str) -> None:
    code, status = api.ask("DELETE", f"{NAMESPACES}/{name}")
    assert (code, status["reason"]) == (403, "Forbidden")
    assert status["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    api.clock.advance(60)
    assert api.do("GET", f"{NAMESPACES}/{name}")["status"]["phase"] == "Active"


def test_namespaces_cannot_be_deleted_as_a_collection(api: Api) -> None:
    code, status = api.ask("DELETE", NAMESPACES)
    assert (code, status["reason"]) == (405, "MethodNotAllowed")
    listed = next(row for row in api.do("GET", "/api/v1")["resources"] if row["name"] == "namespaces")
    assert "deletecollection" not in listed["verbs"]


def test_a_deleted_namespace_takes_its_objects_along(api: Api) -> None:
    api.do("POST", NAMESPACES, {"metadata": {"name": "going"}})
    inside = f"{NAMESPACES}/going/configmaps"
    api.do("POST", inside, config("plain"))
    api.do("POST", inside, at(config("held"), "metadata.finalizers", ["x.io/a"]))
    api.do("DELETE", f"{NAMESPACES}/going")
    assert api.do("GET", f"{NAMESPACES}/going")["status"]["phase"] == "Terminating"
    assert api.ask("GET", f"{inside}/plain")[0] == 404
    code, status = api.ask("POST", inside, config("late"))
    assert (code, status["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    api.do("PATCH", f"{inside}/held", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert api.ask("GET", f"{NAMESPACES}/going")[0] == 404
    api.do("POST", NAMESPACES, {"metadata": {"name": "going"}})
