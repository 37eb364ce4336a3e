"""The order of evictions, with the worked examples of the specification (E8h, E8i)."""

from typing import Any

from seatrial.scheduler.api.quantity import amounts
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.plugins.low_node_load import usage_score
from seatrial.scheduler.descheduler.plugins.node_load import NodeLoad
from seatrial.scheduler.descheduler.pod_order import class_of, eviction_order, koordinator_class
from seatrial.scheduler.descheduler.tests.cluster import node, pod

PROD_MAX, PROD_MIN, BATCH_MAX, BATCH_MIN = 9999, 9000, 5999, 5000
DELETION, EVICTION = "controller.kubernetes.io/pod-deletion-cost", "scheduling.koordinator.sh/eviction-cost"


def made(number: int, priority: int, qos: str, kubernetes: str, *, later: bool = False, **costs: str) -> Pod:
    keys = {"deletion": DELETION, "eviction": EVICTION}
    return pod(
        f"test-{number}",
        "n1",
        labels={"koordinator.sh/qosClass": qos} if qos else {},
        annotations={keys[name]: value for name, value in costs.items()},
        creationTimestamp="2026-01-01T00:01:00Z" if later else "2026-01-01T00:00:00Z",
        spec={"nodeName": "n1", "priority": priority},
        status={"qosClass": kubernetes},
    )


def numbers(pods: list[Pod]) -> list[int]:
    return [int(pod.metadata.name.removeprefix("test-")) for pod in pods]


def test_pods_over_all_keys() -> None:
    """E8h, TestSortPods: no resource is over, so pods with a report rank equal. 18 and 16, 19 and 17 are equal in all
    keys; upstream leaves their order to an unstable sort."""
    best, burst, sure = "BestEffort", "Burstable", "Guaranteed"
    pods = [
        made(1, 0, "", best),
        made(10, 0, "", sure),
        made(11, 0, "", burst),
        made(12, 8, "", best),
        made(13, 9, "", sure),
        made(14, 10, "", burst),
        made(5, PROD_MAX, "LSE", sure),
        made(6, PROD_MAX - 1, "LSE", sure),
        made(3, PROD_MAX - 100, "LS", burst),
        made(9, BATCH_MIN, "BE", burst),
        made(2, PROD_MIN, "LS", burst),
        made(8, BATCH_MAX, "BE", burst),
        made(15, BATCH_MIN, "BE", best),
        made(16, BATCH_MIN, "BE", best, later=True),
        made(17, BATCH_MIN, "BE", best),
        made(18, BATCH_MIN, "BE", best, later=True),
        made(19, BATCH_MIN, "BE", best),
        made(20, BATCH_MIN, "BE", best, deletion="200"),
        made(21, BATCH_MIN, "BE", best, deletion="100"),
        made(22, BATCH_MIN, "BE", best, deletion="200", eviction="200"),
        made(23, BATCH_MIN, "BE", best, deletion="200", eviction="100"),
        made(4, PROD_MAX - 80, "LSR", sure),
        made(7, PROD_MAX - 100, "LS", sure),
    ]
    reported = {"test-16", "test-17", "test-18", "test-19"}

    values = numbers(sorted(pods, key=eviction_order(lambda pod: 0.0 if pod.metadata.name in reported else -1.0)))

    assert (values[:2], set(values[2:4]), set(values[4:6])) == ([1, 12], {18, 16}, {19, 17})
    assert values[6:] == [15, 21, 20, 23, 22, 9, 8, 11, 10, 13, 14, 2, 3, 7, 4, 6, 5]


def test_pods_by_what_they_use_of_what_is_over() -> None:
    """E8i, TestSortPods2: over by 4 cores and 4 GiB, and memory counts twice."""
    used = {1: ("2", "5Gi"), 2: ("3", "4Gi"), 3: ("4", "3Gi"), 4: ("5", "2Gi")}
    pods = [made(number, BATCH_MIN, "BE", "BestEffort") for number in used]
    gib = 1 << 30
    load = NodeLoad(
        node("n1"), {}, {"cpu": 104000, "memory": 516 * gib}, {}, {}, [], high={"cpu": 100000, "memory": 512 * gib}
    )
    load.metrics = {
        f"default/test-{number}": amounts({"cpu": cpu, "memory": memory}) for number, (cpu, memory) in used.items()
    }
    weights: dict[str, Any] = {"cpu": 1, "memory": 2, "pods": 1}

    def score(pod: Pod) -> float:
        return usage_score(load, pod, ["cpu", "memory"], weights, prod=False)

    assert numbers(sorted(pods, key=eviction_order(score))) == [2, 1, 3, 4]


def test_classes_follow_from_the_quality_of_service() -> None:
    """A pod without Koordinator's labels gets its classes from Kubernetes' class."""
    assert [class_of(made(1, 0, "", kind)) for kind in ("BestEffort", "Burstable", "Guaranteed")] == [
        "koord-batch",
        "koord-prod",
        "koord-prod",
    ]
    assert [koordinator_class(made(1, 0, "", kind)) for kind in ("BestEffort", "Burstable", "Guaranteed")] == [
        "BE",
        "LS",
        "LSR",
    ]
    assert class_of(made(1, 0, "BE", "Burstable")) == "koord-batch"
    assert class_of(made(1, 3000, "LS", "Burstable")) == "koord-free"
