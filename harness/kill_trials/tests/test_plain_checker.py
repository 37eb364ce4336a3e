"""The checker of plain JSON: a cluster without a fault is silent, and each class of fault is found."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from seatrial.harness.kill_trials.plain_checker import (
    ALLOCATED,
    GROUP,
    QUOTA,
    RESERVED,
    unplaced,
    wrong_at_rest,
    wrong_now,
)

Json = dict[str, Any]


class Scene:
    """A node of 8 cores and two cards: a pod has card 0, an owner a part of the reserved card 1; a gang of two."""

    def __init__(self) -> None:
        self.objects: dict[str, list[Json]] = {
            kind: []
            for kind in (
                *("Pod", "Node", "PodGroup", "Device", "Reservation"),
                *("ElasticQuota", "PodMigrationJob", "ResourceClaim", "ResourceSlice"),
            )
        }
        amounts = {"cpu": "8", "memory": "16Gi", "pods": "10"}
        self.objects["Node"].append({"metadata": {"name": "n1"}, "status": {"allocatable": amounts}})
        cards = [{"type": "gpu", "minor": minor} for minor in range(2)]
        self.objects["Device"].append({"metadata": {"name": "n1"}, "spec": {"devices": cards}})
        self.whole = self.pod("whole", cards={0: 100}, cpu="2")
        self.held: Json = {
            "metadata": {"name": "held", "uid": "R", "annotations": allocation({1: 100})},
            "spec": {"allocateOnce": False},
            "status": {
                "phase": "Available",
                "nodeName": "n1",
                "allocatable": {"cpu": "2", "memory": "1Gi"},
                "conditions": [{"type": "Scheduled", "status": "True"}],
                "currentOwners": [{"name": "owner"}],
            },
        }
        self.objects["Reservation"].append(self.held)
        self.owner = self.pod("owner", cards={1: 50}, cpu="1", inside="R")
        self.gang: Json = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"minMember": 2}}
        self.objects["PodGroup"].append(self.gang)
        self.members = [self.pod(f"g-{number}", labels={GROUP: "g", QUOTA: "q"}, cpu="1") for number in range(2)]
        self.quota: Json = {"metadata": {"name": "q"}, "spec": {"max": {"cpu": "2"}}, "status": {"used": {"cpu": "2"}}}
        self.objects["ElasticQuota"].append(self.quota)
        self.job: Json = {"metadata": {"name": "j", "uid": "J"}, "spec": {}, "status": {"phase": "Succeeded"}}
        self.objects["PodMigrationJob"].append(self.job)
        self.claimer = self.pod("claimer")
        self.claimer["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
        self.claimer["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "c"}]
        self.claim = self.claimed("c", "gpu-0", "claimer")

    def pod(
        self,
        name: str,
        cards: dict[int, int] | None = None,
        inside: str = "",
        labels: dict[str, str] | None = None,
        node: str = "n1",
        **requests: str,
    ) -> Json:
        """A pod on the node, with a share of these cards."""
        cards = cards or {}
        if cards:
            requests["koordinator.sh/gpu-core"] = str(sum(cards.values()))
        annotations = {
            **allocation(cards),
            **({RESERVED: json.dumps({"name": "held", "uid": inside})} if inside else {}),
        }
        condition = {"type": "PodScheduled", "status": "True"}
        manifest: Json = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": labels or {},
                "annotations": annotations,
            },
            "spec": {"nodeName": node, "containers": [{"resources": {"requests": requests}}]},
            "status": {"phase": "Running", "conditions": [condition] if node else []},
        }
        self.objects["Pod"].append(manifest)
        return manifest

    def claimed(self, name: str, device: str, *users: str) -> Json:
        """A claim with a device of the node, for these pods."""
        results = [{"request": "gpu", "driver": "d.io", "pool": "n1", "device": device}]
        reserved = [{"resource": "pods", "name": user, "uid": user} for user in users]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        manifest: Json = {"metadata": {"name": name}, "spec": {}, "status": status}
        self.objects["ResourceClaim"].append(manifest)
        return manifest


def allocation(cards: dict[int, int]) -> dict[str, str]:
    """The annotation with a share of these cards."""
    entries = [{"minor": minor, "resources": {"koordinator.sh/gpu-core": str(share)}} for minor, share in cards.items()]
    return {ALLOCATED: json.dumps({"gpu": entries})} if cards else {}


def card_twice(scene: Scene) -> None:
    scene.pod("thief", cards={0: 50})


def reserved_card(scene: Scene) -> None:
    scene.pod("thief", cards={1: 60})


def lost_grant(scene: Scene) -> None:
    scene.whole["metadata"]["annotations"] = {}


def no_such_card(scene: Scene) -> None:
    scene.pod("far", cards={7: 50})


def device_twice(scene: Scene) -> None:
    scene.claimed("thief", "gpu-0", "whole")


def not_reserved(scene: Scene) -> None:
    scene.claim["status"]["reservedFor"] = []
    scene.claimed("other", "gpu-1", "claimer")


def no_devices(scene: Scene) -> None:
    scene.claim["status"].pop("allocation")


def device_elsewhere(scene: Scene) -> None:
    scene.claim["status"]["allocation"]["devices"]["results"][0]["pool"] = "n2"


def claim_without_pod(scene: Scene) -> None:
    scene.claimed("left", "gpu-1", "gone")


def published(scene: Scene, *devices: Json) -> None:
    """A slice of d.io with these devices, and the counters of one card."""
    spec = {"driver": "d.io", "pool": {"name": "n1"}}
    counters = {"sharedCounters": [{"name": "card", "counters": {"memory": {"value": "80"}}}]}
    scene.objects["ResourceSlice"] += [{"spec": {**spec, **counters}}, {"spec": {**spec, "devices": list(devices)}}]


def counters_exceeded(scene: Scene) -> None:
    for name, memory in (("whole", "70"), ("part", "20")):
        consumed = {"counterSet": "card", "counters": {"memory": {"value": memory}}}
        published(scene, {"name": name, "consumesCounters": [consumed]})
        scene.claimed(name, name)


def shares_exceeded(scene: Scene) -> None:
    published(scene, {"name": "nic", "capacity": {"slots": {"value": "2"}}})
    for number in range(3):
        claim = scene.claimed(f"share-{number}", "nic")
        claim["status"]["allocation"]["devices"]["results"][0] |= {
            "shareID": number,
            "consumedCapacity": {"slots": "1"},
        }


def no_card_by_name(scene: Scene) -> None:
    pod = scene.pod("by-name")
    pod["spec"]["containers"][0]["resources"]["requests"] = {"nvidia.com/gpu": "1"}


def node_full(scene: Scene) -> None:
    scene.pod("big", cpu="2500m")  # beside 2, 2 of the reservation and its owner, and 2 of the gang


def too_many_pods(scene: Scene) -> None:
    for number in range(8):
        scene.pod(f"small-{number}")


def no_node(scene: Scene) -> None:
    scene.pod("lost", node="n9")


def false_condition(scene: Scene) -> None:
    scene.whole["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]


def false_reservation(scene: Scene) -> None:
    scene.held["status"]["conditions"][0]["status"] = "False"


def quota_exceeded(scene: Scene) -> None:
    scene.pod("more", labels={QUOTA: "q"}, cpu="500m")


def owner_elsewhere(scene: Scene) -> None:
    scene.objects["Node"].append({**scene.objects["Node"][0], "metadata": {"name": "n2"}})
    scene.objects["Device"].append({**scene.objects["Device"][0], "metadata": {"name": "n2"}})
    scene.owner["spec"]["nodeName"] = "n2"


def two_owners_of_one(scene: Scene) -> None:
    scene.held["spec"] = {}
    scene.pod("second", inside="R")


def half_a_gang(scene: Scene) -> None:
    scene.members[0]["spec"]["nodeName"] = ""
    scene.members[0]["status"]["conditions"] = []
    scene.quota["status"] = {"used": {"cpu": "1"}}


def wrong_use(scene: Scene) -> None:
    scene.quota["status"] = {"used": {"cpu": "1"}}


def wrong_owners(scene: Scene) -> None:
    scene.held["status"]["currentOwners"] = []


def open_job(scene: Scene) -> None:
    scene.job["status"] = {"phase": "Running"}


def job_holds_room(scene: Scene) -> None:
    scene.held["metadata"]["name"] = "J"


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (card_twice, "card 0 of node n1 is given out beyond 100 percent: default/thief 50, default/whole 100"),
        (reserved_card, "card 1 of node n1 is given out beyond 100 percent"),
        (lost_grant, "pod default/whole asks for 100 percent of a card and has 0"),
        (no_such_card, "pod default/far has card 7, which node n1 has not"),
        (device_twice, "device d.io/n1/gpu-0 is in the claims c, thief"),
        (not_reserved, "pod default/claimer on n1 uses claim c, which is not reserved for it"),
        (no_devices, "pod default/claimer on n1 uses claim c, which has no devices"),
        (counters_exceeded, "claims have 90 of 80 of d.io/n1/card/memory"),
        (shares_exceeded, "claims have 3 of 2 of d.io/n1/nic/slots"),
        (no_card_by_name, "pod default/by-name asks for 100 percent of a card and has 0"),
        (device_elsewhere, "pod default/claimer on n1 has device gpu-0 of n2"),
        (node_full, "node n1 has 8.500 of 8 cpu"),
        (too_many_pods, "node n1 has 13 of 10 pods"),
        (false_condition, "pod default/whole on n1 has PodScheduled=False: 0/1 nodes"),
        (false_reservation, "reservation held on n1 has Scheduled=False"),
        (quota_exceeded, "quota q uses 2.500 of 2 cpu"),
        (owner_elsewhere, "pod default/owner on n2 is in reservation held on n1"),
        (two_owners_of_one, "reservation held is for one pod and has default/owner, default/second"),
    ],
)
def test_what_is_wrong_at_any_moment(fault: Callable[[Scene], None], says: str) -> None:
    scene = Scene()
    assert wrong_at_rest(scene.objects) == []
    fault(scene)
    assert [text for text in wrong_now(scene.objects) if text.startswith(says)], wrong_now(scene.objects)


def test_a_claim_that_users_made_may_keep_its_devices() -> None:
    scene = Scene()
    claim_without_pod(scene)
    scene.objects["ResourceClaim"][-1]["status"]["reservedFor"] = []
    assert wrong_at_rest(scene.objects) == []


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        (half_a_gang, "gang g has 1 of 2 members on nodes"),
        (wrong_use, "quota q shows 1 cpu used, its pods use 2"),
        (wrong_owners, "reservation held shows the owners [] and has ['owner']"),
        (claim_without_pod, "claim left has devices and no pod"),
        (open_job, "migration job j has not ended"),
        (job_holds_room, "migration job j has ended and its reservation holds room"),
    ],
)
def test_what_is_wrong_when_nothing_changes_any_more(fault: Callable[[Scene], None], says: str) -> None:
    scene = Scene()
    fault(scene)
    assert wrong_now(scene.objects) == []
    assert [text for text in wrong_at_rest(scene.objects) if text.startswith(says)], wrong_at_rest(scene.objects)


def test_a_pod_that_fits_and_has_no_node() -> None:
    scene = Scene()
    assert unplaced(scene.objects) == []
    scene.pod("left", node="")
    assert unplaced(scene.objects) == ["pod default/left has no node, although it fits"]
