"""Writes `objects.json` from a running kube-apiserver and kube-controller-manager.

`kubectl proxy --port=8001 & python -m seatrial.harness.apiserver.bootstrap.record_objects http://127.0.0.1:8001`.
The objects are upstream's bootstrap policy
(Apache-2.0, The Kubernetes Authors). Roles that aggregate others have the rules that the controller filled in.
"""

import sys
from typing import Any
from urllib.request import urlopen

import orjson

from seatrial.harness.apiserver.bootstrap.objects import RECORDED

_COLLECTIONS = {  # key of the collection in the store: path
    ("rbac.authorization.k8s.io", "clusterroles"): "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    ("rbac.authorization.k8s.io", "roles"): "/apis/rbac.authorization.k8s.io/v1/roles",
    ("rbac.authorization.k8s.io", "rolebindings"): "/apis/rbac.authorization.k8s.io/v1/rolebindings",
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
    (
        "flowcontrol.apiserver.k8s.io",
        "prioritylevelconfigurations",
    ): "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
}
_KEPT = ("name", "namespace", "labels", "annotations", "generation")  # of metadata; the rest is the server's


def main() -> int:
    """Write the objects of the server at the address that is the first argument."""
    results: dict[str, list[dict[str, Any]]] = {}
    for (group, plural), path in _COLLECTIONS.items():
        with urlopen(sys.argv[1] + path) as answer:  # noqa: S310 an address that the caller gives
            listed = orjson.loads(answer.read())
        head = {"apiVersion": listed["apiVersion"], "kind": listed["kind"].removesuffix("List")}
        results[f"{group}/{plural}"] = [{**head, **_trimmed(item)} for item in listed["items"] if _is_bootstrap(item)]
    lines = (
        orjson.dumps(name) + b":[\n" + b",\n".join(orjson.dumps(item) for item in items) + b"\n]"
        for name, items in results.items()
    )
    RECORDED.write_bytes(b"{\n" + b",\n".join(lines) + b"\n}\n")
    return 0


def _is_bootstrap(item: dict[str, Any]) -> bool:
    metadata = item["metadata"]
    marks = {*(metadata.get("labels") or ()), *(metadata.get("annotations") or ())}
    return not marks.isdisjoint({"kubernetes.io/bootstrapping", "apf.kubernetes.io/autoupdate-spec"})


def _trimmed(item: dict[str, Any]) -> dict[str, Any]:
    metadata = {name: item["metadata"][name] for name in _KEPT if name in item["metadata"]}
    for condition in (item.get("status") or {}).get("conditions") or ():
        condition.pop("lastTransitionTime", None)
    return {**item, "metadata": metadata}


if __name__ == "__main__":
    sys.exit(main())
