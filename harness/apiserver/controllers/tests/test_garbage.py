"""Garbage collection of objects whose owners form a cycle."""

import pytest

from seatrial.harness.apiserver.tests.asking import CONFIGS, Api, config
from seatrial.scheduler.api.transport import MERGE_PATCH


def owned(api: Api, name: str, owner: str) -> None:
    uid = api.do("GET", f"{CONFIGS}/{owner}")["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": True}
    api.do("PATCH", f"{CONFIGS}/{name}", {"metadata": {"ownerReferences": [reference]}}, MERGE_PATCH)


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
def test_a_cycle_of_owners_ends_under_foreground_deletion(names: str) -> None:
    """Each object blocks the deletion of the one before; upstream releases the object that closes the cycle."""
    api = Api()
    for name in (*names, "free"):
        api.do("POST", CONFIGS, config(name))
    for name, owner in zip(names, names[1:] + names[0], strict=True):
        owned(api, name, owner)
    api.do("DELETE", f"{CONFIGS}/a?propagationPolicy=Foreground")
    api.clock.advance(1)
    assert [item["metadata"]["name"] for item in api.do("GET", CONFIGS)["items"]] == ["free", "kube-root-ca.crt"]


def test_an_owner_waits_for_a_dependent_that_blocks_it() -> None:
    api = Api()
    for name in "ab":
        api.do("POST", CONFIGS, config(name))
    owned(api, "b", "a")
    api.do("PATCH", f"{CONFIGS}/b", {"metadata": {"finalizers": ["sea.io/hold"]}}, MERGE_PATCH)
    api.do("DELETE", f"{CONFIGS}/a?propagationPolicy=Foreground")
    api.clock.advance(1)
    assert api.do("GET", f"{CONFIGS}/a")["metadata"]["finalizers"] == ["foregroundDeletion"]
    api.do("PATCH", f"{CONFIGS}/b", {"metadata": {"finalizers": None}}, MERGE_PATCH)
    api.clock.advance(1)
    assert api.ask("GET", f"{CONFIGS}/a")[0] == 404
