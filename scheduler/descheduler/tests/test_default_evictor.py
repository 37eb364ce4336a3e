"""DefaultEvictor: which pods it protects, and arguments that it refuses."""

from typing import Any

import pytest

from seatrial.scheduler.api.clock import SimClock
from seatrial.scheduler.api.transport import Done, OnLine, Request, Stream
from seatrial.scheduler.client.rest import Rest
from seatrial.scheduler.descheduler.args import ArgsError, read_args
from seatrial.scheduler.descheduler.config import ConfigError, expand, parse
from seatrial.scheduler.descheduler.default_evictor import DefaultEvictor, DefaultEvictorArgs
from seatrial.scheduler.descheduler.objects import Pod
from seatrial.scheduler.descheduler.state import ClusterState
from seatrial.scheduler.descheduler.tests.cluster import CONTROLLER, node, pod

DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "ds", "uid": "ds", "controller": True}


class Unused:
    """A transport that nothing may use."""

    def send(self, request: Request, done: Done) -> None:
        raise AssertionError(request)

    def stream(self, request: Request, on_line: OnLine, on_end: Done) -> Stream:
        raise AssertionError(request)


def may_evict(args: dict[str, Any], feature: Pod) -> bool:
    clock, state = SimClock(), ClusterState()  # the year 2026 begins
    state.set_node(node("n1", labels={"pool": "a"}))
    state.set_node(node("n2", labels={"pool": "b"}, cpu="1"))
    state.namespaces["default"] = {"team": "red"}
    for item in (feature, pod("sibling", "n1")):
        state.set_pod(item)
    evictor = DefaultEvictor(state, clock, Rest(Unused(), clock), read_args(DefaultEvictorArgs, document=args))
    return evictor.may_evict(feature)


def disabled(kind: str) -> dict[str, Any]:
    return {"podProtections": {"defaultDisabled": [kind]}}


def extra(kind: str) -> dict[str, Any]:
    return {"podProtections": {"extraEnabled": [kind]}}


def with_volume(source: str) -> Pod:
    return pod("p", "n1", spec={"volumes": [{"name": "v", source: {}}]})


BARE = pod("p", "n1", ownerReferences=[])
FAILED = pod("p", "n1", ownerReferences=[], status={"phase": "Failed"})
SELECTOR = {"matchLabels": {"team": "blue"}}


@pytest.mark.parametrize(
    ("args", "pod", "want"),
    [
        pytest.param({}, pod("p", "n1"), True, id="a-pod"),
        pytest.param({}, pod("p", "n1", owner=DAEMON), False, id="of-a-daemon-set"),
        pytest.param(disabled("DaemonSetPods"), pod("p", "n1", owner=DAEMON), True, id="of-a-daemon-set-lifted"),
        pytest.param({"evictDaemonSetPods": True}, pod("p", "n1", owner=DAEMON), True, id="older-spelling"),
        pytest.param({}, with_volume("emptyDir"), False, id="local-storage"),
        pytest.param(disabled("PodsWithLocalStorage"), with_volume("emptyDir"), True, id="local-storage-lifted"),
        pytest.param({}, with_volume("persistentVolumeClaim"), True, id="claim"),
        pytest.param(extra("PodsWithPVC"), with_volume("persistentVolumeClaim"), False, id="claim-protected"),
        pytest.param(extra("PodsWithPVC"), with_volume("emptyDir"), False, id="the-default-stays"),
        pytest.param(
            extra("PodsWithResourceClaims"),
            pod("p", "n1", spec={"resourceClaims": [{"name": "gpu"}]}),
            False,
            id="resource-claims",
        ),
        pytest.param({}, FAILED, False, id="failed-bare"),
        pytest.param(disabled("FailedBarePods"), FAILED, True, id="failed-bare-lifted"),
        pytest.param(disabled("FailedBarePods"), BARE, False, id="running-bare"),
        pytest.param({}, pod("p", "n1", spec={"priority": 2_000_000_000}), False, id="critical"),
        pytest.param(
            disabled("SystemCriticalPods"), pod("p", "n1", spec={"priority": 2_000_000_000}), True, id="critical-lifted"
        ),
        pytest.param({"priorityThreshold": {"value": 9}}, pod("p", "n1", spec={"priority": 9}), False, id="threshold"),
        pytest.param({"priorityThreshold": {"value": 11}}, pod("p", "n1", spec={"priority": 10}), True, id="below-it"),
        pytest.param({"labelSelector": SELECTOR}, pod("p", "n1"), False, id="other-labels"),
        pytest.param({"labelSelector": SELECTOR}, pod("p", "n1", labels={"team": "blue"}), True, id="its-labels"),
        pytest.param({"namespaceLabelSelector": SELECTOR}, pod("p", "n1"), False, id="other-namespace"),
        pytest.param({"minReplicas": 3}, pod("p", "n1"), False, id="too-few-replicas"),
        pytest.param({"minReplicas": 2}, pod("p", "n1"), True, id="enough-replicas"),
        pytest.param(
            {"minReplicas": 3},
            pod("p", "n1", ownerReferences=[CONTROLLER, DAEMON | {"controller": False}]),
            True,
            id="two-owners-are-not-counted",
        ),
        pytest.param({"minPodAge": "24h1m"}, pod("p", "n1"), False, id="too-young"),
        pytest.param({"minPodAge": "23h59m"}, pod("p", "n1"), True, id="old-enough"),
        pytest.param({"nodeFit": True}, pod("p", "n1", cpu="2"), False, id="fits-nowhere-else"),
        pytest.param({"nodeFit": True}, pod("p", "n1", cpu="1"), True, id="fits-elsewhere"),
        pytest.param({"nodeFit": True, "nodeSelector": "pool=a"}, pod("p", "n1", cpu="1"), False, id="not-on-these"),
        pytest.param(
            {"nodeFit": True, "nodeSelector": "!gpu, pool in (b,c)"}, pod("p", "n1", cpu="1"), True, id="on-these"
        ),
        pytest.param({"nodeFit": True, "nodeSelector": "pool!=b"}, pod("p", "n1", cpu="1"), False, id="on-no-others"),
        pytest.param({"nodeFit": True, "nodeSelector": "gpu"}, pod("p", "n1", cpu="1"), False, id="without-the-label"),
        pytest.param(
            {"noEvictionPolicy": "Mandatory"},
            pod("p", "n1", annotations={"descheduler.alpha.kubernetes.io/prefer-no-eviction": ""}),
            False,
            id="asks-to-stay",
        ),
        pytest.param(
            {"labelSelector": SELECTOR},
            pod("p", "n1", annotations={"descheduler.alpha.kubernetes.io/evict": "true"}),
            True,
            id="asks-to-go",
        ),
    ],
)
def test_protected_pods(args: dict[str, Any], pod: Pod, want: bool) -> None:
    assert may_evict(args, pod) is want


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"priorityThreshold": {"value": 1, "name": "a"}}, "priorityThreshold: expected value or name, found both"),
        ({"noEvictionPolicy": "Never"}, "noEvictionPolicy: expected Preferred or Mandatory, found 'Never'"),
        ({"minReplicas": -1}, "minReplicas: expected 0 or more, found -1"),
        ({"minPodAge": "old"}, "minPodAge: expected a duration"),
        ({"evictDaemonSetPods": True, **extra("PodsWithPVC")}, "expected it or the older fields"),
        ({"ignorePodsWithoutPDB": True}, "disruption budgets are not read"),
        (extra("PodsWithoutPDB"), "podProtections.extraEnabled: expected each of PodsWithPVC, PodsWithResourceClaims"),
        (disabled("AllPods"), "podProtections.defaultDisabled: expected each of .*, found AllPods"),
        (
            {"podProtections": {"defaultDisabled": ["DaemonSetPods", "DaemonSetPods"]}},
            "at most once, found DaemonSetPods, DaemonSetPods",
        ),
        ({"namespaceLabelSelector": {"matchExpressions": [{"key": "a"}]}}, "namespaceLabelSelector: "),
        ({"nodeSelector": "pool=a,,b"}, "nodeSelector: found ',', expected: !, identifier"),
        ({"evictAll": True}, "unknown field `evictAll`"),
    ],
)
def test_bad_arguments_are_refused_in_words(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ArgsError, match=words):
        read_args(DefaultEvictorArgs, values)


def configuration(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", **fields}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (
            {"profiles": [{"pluginConfig": [{"name": "DefaultEvictor", "args": {"nodeFit": 1}}]}]},
            "arguments of DefaultEvictor: nodeFit: expected bool, found 1",
        ),
        ({"clientConnection": {"burst": -1}}, "clientConnection.burst: expected 0 or more, found -1"),
        ({"healthzBindAddress": "10251"}, "healthzBindAddress: expected an address with its port .*, found '10251'"),
        ({"metricsBindAddress": "::1:10251:"}, "metricsBindAddress: expected an address with its port"),
        ({"nodeSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}}, 'nodeSelector: "Near" is not'),
        (
            {"profiles": [{"name": "a", "nodeSelector": {"matchExpressions": [{"key": "a"}]}}]},
            r"profiles\[0\].nodeSelector: ",
        ),
    ],
)
def test_bad_configurations_are_refused_in_words(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse(configuration(**fields))


def test_a_configuration_without_profiles_has_the_default_one() -> None:
    """So that migration jobs of other programs are worked on, as by Koordinator's."""
    expansion = expand(parse(configuration(healthzBindAddress="[::1]:10251", metricsBindAddress="0.0.0.0")))  # noqa: S104
    assert [(profile.name, profile.evictor) for profile in expansion] == [("koord-descheduler", "MigrationController")]
