"""What becomes of `matchLabelKeys` and `mismatchLabelKeys` of a new pod."""

from typing import Any

import pytest

from seatrial.harness.apiserver.tests.asking import PODS, Api, pod

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def term(selector: Any, **keys: list[str]) -> dict[str, Any]:
    return {"topologyKey": "zone", **({"labelSelector": selector} if selector is not None else {}), **keys}


def created(labels: dict[str, str], spec: dict[str, Any]) -> Any:
    body = pod("p")
    body["metadata"]["labels"] = labels
    body["spec"] |= spec
    return Api().do("POST", PODS, body)["spec"]


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_the_keys_become_requirements_of_the_selector(kind: str) -> None:
    """As in kube-apiserver; of keys that the pod does not have nothing is required."""
    app = {"matchLabels": {"app": "a"}}
    required = term(app, matchLabelKeys=["hash", "absent"], mismatchLabelKeys=["tenant"])
    preferred = {
        "weight": 1,
        "podAffinityTerm": term({"matchExpressions": [{"key": "x", "operator": "Exists"}]}, matchLabelKeys=["hash"]),
    }
    affinity = {"affinity": {kind: {REQUIRED: [required, term(app)], PREFERRED: [preferred]}}}

    spec = created({"hash": "1", "tenant": "t"}, affinity)["affinity"][kind]

    match = {"key": "hash", "operator": "In", "values": ["1"]}
    mismatch = {"key": "tenant", "operator": "NotIn", "values": ["t"]}
    assert [each["labelSelector"] for each in spec[REQUIRED]] == [{**app, "matchExpressions": [match, mismatch]}, app]
    (wish,) = spec[PREFERRED]
    assert wish["podAffinityTerm"]["labelSelector"]["matchExpressions"] == [{"key": "x", "operator": "Exists"}, match]


def test_pods_of_one_spec_have_their_own_values() -> None:
    """Specs that are equal are completed once; these are not equal any more."""
    api, constraint = Api(), {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    for name in ("a", "b"):
        body = pod(name)
        body["metadata"]["labels"] = {"hash": name}
        body["spec"]["topologySpreadConstraints"] = [{**constraint, "labelSelector": {}, "matchLabelKeys": ["hash"]}]
        (made,) = api.do("POST", PODS, body)["spec"]["topologySpreadConstraints"]
        assert made["labelSelector"] == {"matchExpressions": [{"key": "hash", "operator": "In", "values": [name]}]}
