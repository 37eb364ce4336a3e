"""Device taints evict pods, by slice and by rule; conditions of rules (DRA-R118 to DRA-R122)."""

from typing import Any

import pytest

from seatrial.harness.apiserver.controllers.tests.test_resource_claims import (
    CLAIMS,
    REQUESTS,
    SLICES,
    allocate,
    claiming,
)
from seatrial.harness.apiserver.tests.asking import PODS, Api
from seatrial.scheduler.api.transport import MERGE_PATCH

RULES = "/apis/resource.k8s.io/v1/devicetaintrules"
TAINT = {"key": "d.io/broken", "value": "yes", "effect": "NoExecute"}
MARKED = "Device Taint manager: deleting due to NoExecute taint"


@pytest.fixture
def api() -> Api:
    return Api()


def use(api: Api, pod: str = "p", claim: str = "c", tolerations: Any = None, node: str = "n") -> None:
    """A pod on a node (if any) uses device gpu-0 by a claim."""
    body = claiming(pod, resourceClaimName=claim)
    if node:
        body["spec"]["nodeName"] = node
    uid = api.do("POST", PODS, body)["metadata"]["uid"]
    api.do("POST", CLAIMS, {"metadata": {"name": claim}, "spec": REQUESTS})
    allocate(api, claim, uid, pod, tolerations)


def publish(api: Api, *taints: dict[str, Any], generation: int = 1) -> None:
    devices = [{"name": "gpu-0", **({"taints": list(taints)} if taints else {})}, {"name": "gpu-1"}]
    pool = {"name": "p", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "d.io", "nodeName": "n", "pool": pool, "devices": devices}
    body = {"metadata": {"name": "s"}, "spec": spec}
    if generation == 1:
        api.do("POST", SLICES, body)
    else:
        api.do("PATCH", f"{SLICES}/s", {"spec": spec}, kind=MERGE_PATCH)


def rule(api: Api, effect: str = "NoExecute", **selector: str) -> None:
    spec = {"deviceSelector": selector, "taint": {**TAINT, "effect": effect}}
    api.do("POST", RULES, {"metadata": {"name": "r"}, "spec": spec})


def condition(api: Api) -> tuple[str, str, str]:
    (result,) = api.do("GET", f"{RULES}/r")["status"]["conditions"]
    assert result["type"] == "EvictionInProgress"
    return result["status"], result["reason"], result["message"]


def is_evicted(api: Api, pod: str = "p") -> bool:
    """Whether the pod is marked and being deleted, with the event; both or neither."""
    body = api.do("GET", f"{PODS}/{pod}")
    conditions = (body.get("status") or {}).get("conditions") or ()
    marks = [row["message"] for row in conditions if row.get("reason") == "DeletionByDeviceTaintManager"]
    events = api.do("GET", "/api/v1/namespaces/default/events")["items"]
    messages = [
        row["message"]
        for row in events
        if row["reason"] == "DeviceTaintManagerEviction" and row["involvedObject"]["name"] == pod
    ]
    evicted = "deletionTimestamp" in body["metadata"]
    assert (marks, messages) == (([MARKED], ["Marking for deletion"]) if evicted else ([], []))
    return evicted


def test_a_taint_in_a_slice_evicts_the_user_of_that_device(api: Api) -> None:
    """The user of the other device stays; so does one that a slice of an older generation would evict."""
    publish(api)
    use(api)
    api.clock.advance(1)
    assert not is_evicted(api)
    publish(api, {**TAINT, "effect": "NoSchedule"}, generation=2)
    api.clock.advance(1)
    assert not is_evicted(api)
    publish(api, TAINT, generation=3)
    api.clock.advance(1)
    assert is_evicted(api)


def test_a_pod_that_gets_its_node_later_is_evicted_then(api: Api) -> None:
    publish(api, TAINT)
    use(api, node="")
    api.clock.advance(1)
    assert not is_evicted(api)
    api.do("POST", f"{PODS}/p/binding", {"metadata": {"name": "p"}, "target": {"name": "n"}})
    api.clock.advance(1)
    assert is_evicted(api)


@pytest.mark.parametrize(
    ("tolerations", "after"),
    [
        ([{"operator": "Exists", "effect": "NoExecute"}], None),
        ([{"operator": "Exists"}], 0),  # an empty effect does for allocation only
        ([{"key": "d.io/other", "operator": "Exists", "effect": "NoExecute"}], 0),
        ([{"key": "d.io/broken", "value": "no", "effect": "NoExecute"}], 0),
        ([{"key": "d.io/broken", "value": "yes", "effect": "NoExecute", "tolerationSeconds": 60}], 60),
        ([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -5}], 0),
        (
            [
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
                {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 90},
            ],
            30,
        ),
    ],
    ids=["ever", "no-effect", "key", "value", "seconds", "negative", "smallest"],
)
def test_what_a_toleration_allows(api: Api, tolerations: Any, after: int | None) -> None:
    publish(api, TAINT)
    use(api, tolerations=tolerations)
    if after:
        api.clock.advance(after - 1)
        assert not is_evicted(api)
    api.clock.advance(2)
    assert is_evicted(api) == (after is not None)


def test_a_taint_that_goes_in_time_evicts_nobody(api: Api) -> None:
    publish(api, TAINT)
    use(api, tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}])
    api.clock.advance(30)
    publish(api, generation=2)
    api.clock.advance(100)
    assert not is_evicted(api)


@pytest.mark.parametrize(
    ("selector", "evicts"),
    [({"device": "gpu-0"}, True), ({"pool": "p"}, True), ({"driver": "other.io"}, False), ({"device": "gpu-1"}, False)],
    ids=["device", "pool", "driver", "other-device"],
)
def test_a_rule_evicts_and_says_so(api: Api, selector: dict[str, str], evicts: bool) -> None:
    """Its condition counts what it has before it, and what it has done."""
    publish(api)
    use(api)
    api.clock.advance(1)
    rule(api, **selector)
    api.clock.advance(0)
    pending = ("True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace.")
    assert condition(api) == (pending if evicts else ("False", "NotStarted", ""))
    api.clock.advance(1)
    assert is_evicted(api) == evicts
    api.clock.advance(12)
    done = ("False", "Completed", "1 pod evicted since starting the controller.")
    assert condition(api) == (done if evicts else ("False", "NotStarted", ""))


def test_a_rule_without_effect_says_what_it_would_do(api: Api) -> None:
    """Nobody is evicted, and NoSchedule says that it evicts nobody."""
    publish(api)
    use(api)
    use(api, "q", "d", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])
    api.clock.advance(1)
    rule(api, effect="None", driver="d.io")
    api.clock.advance(20)
    assert not is_evicted(api)
    assert condition(api) == (
        "False",
        "NoEffect",
        (
            "2 published devices selected. 2 allocated devices selected. 1 pod would be evicted in 1 namespace if the "
            "effect was NoExecute. This information will not be updated again. Recreate the DeviceTaintRule to trigger "
            "an update."
        ),
    )
    api.do("PATCH", f"{RULES}/r", {"spec": {"taint": {"effect": "NoSchedule"}}}, kind=MERGE_PATCH)
    api.clock.advance(20)
    assert condition(api) == ("False", "OtherEffect", "Eviction only happens for the NoExecute effect.")
    api.do("PATCH", f"{RULES}/r", {"spec": {"taint": {"effect": "NoExecute"}}}, kind=MERGE_PATCH)
    api.clock.advance(1)
    assert is_evicted(api)
    assert not is_evicted(api, "q")
