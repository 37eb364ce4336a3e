"""Hook plugins: their configuration, the order of their calls, and what they decide."""

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from seatrial.scheduler.api.builders import quota
from seatrial.scheduler.api.core import Pod
from seatrial.scheduler.api.quota import QUOTA_NAME, ElasticQuota
from seatrial.scheduler.plugins.elasticquota import hooks
from seatrial.scheduler.plugins.elasticquota.cache import QuotaCache
from seatrial.scheduler.plugins.elasticquota.hooks import MAX_PODS, PODS, PodCount, QuotaHook
from seatrial.scheduler.plugins.elasticquota.tests.test_plugin import cores, put, refusals, rig_with
from seatrial.scheduler.quota.tree import QuotaSpec


class Recorder(QuotaHook):
    """Notes each call; refuses the pods whose name its arguments list."""

    def __init__(self, key: str, args: Any) -> None:
        super().__init__(key)
        self.calls: list[str] = []
        self.refuses: set[str] = set(args or ())

    def pre_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        state["began"] = quota.name
        self.calls.append(f"pre {quota.name} {old is not None}-{new is not None}")

    def post_quota_update(
        self, old: QuotaSpec | None, new: QuotaSpec | None, quota: ElasticQuota, state: dict[str, Any]
    ) -> None:
        self.calls.append(f"post {state['began']} {old is not None}-{new is not None}")

    def on_pod_updated(self, quota: str, old: Pod | None, new: Pod | None) -> None:
        name = (new or old or Pod()).metadata.name
        self.calls.append(f"pod {name} of {quota} {old is not None}-{new is not None}")

    def update_quota_status(self, quota: ElasticQuota) -> Mapping[str, str]:
        return {"seen": quota.name}

    def check_pod(self, quota: str, pod: Pod) -> str:
        return f"{quota} is closed" if pod.metadata.name in self.refuses else ""


@pytest.fixture(autouse=True)
def factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "BUILT_IN", {"podCount": PodCount, "recorder": Recorder})


def entry(key: str, factory: str, args: Any = None) -> dict[str, Any]:
    return {"key": key, "factoryKey": factory, "factoryArgs": args}


@pytest.mark.parametrize(
    ("plugins", "message"),
    [
        ([{"factoryKey": "podCount"}], "failed to initialize index-0 hook plugin: key is empty"),
        ([{"key": "mine"}], "failed to initialize hook plugin mine: factory key is empty"),
        ([entry("mine", "nowhere")], "failed to initialize hook plugin mine: factory nowhere not found"),
        (
            [entry("mine", "podCount", {"maxPods": -1})],
            "failed to initialize hook-plugin mine by factory podCount, err=maxPods: expected a number, found -1",
        ),
        (
            [{}, entry("mine", "nowhere")],
            (
                "failed to initialize index-0 hook plugin: key is empty; "
                "failed to initialize hook plugin mine: factory nowhere not found"
            ),
        ),
    ],
)
def test_a_configuration_is_refused_in_upstreams_words(plugins: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValueError, match="hook") as error:
        rig_with(hookPlugins=plugins)
    assert message in str(error.value)


def test_hooks_hear_of_quotas_and_of_pods_on_nodes() -> None:
    rig = rig_with(hookPlugins=[entry("one", "recorder")])
    hook = QuotaCache.of(rig.core.handle).hooks[0].hook
    assert isinstance(hook, Recorder)
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.submit(cores("a", "q", 1))
    assert hook.calls == ["pre q False-True", "post q False-True"]  # a waiting pod uses nothing yet
    rig.run()
    put(rig, quota("q").max(cpu=5))
    rig.delete("a")
    put(rig, quota("q").max(cpu=5), gone=True)
    assert hook.calls[2:] == [
        "pod a of q False-True",
        "pre q True-True",
        "post q True-True",
        "pod a of q True-False",
        "pre q True-False",
        "post q True-False",
    ]


def test_the_first_hook_that_refuses_is_named_and_other_pods_of_the_class_are_asked() -> None:
    rig = rig_with(hookPlugins=[entry("one", "recorder", ["a"]), entry("two", "recorder", ["a", "b"])])
    rig.node("n1")
    put(rig, quota("q").max(cpu=4))
    rig.submit(cores("a", "q", 1), cores("b", "q", 1), cores("c", "q", 1))
    rig.run()
    assert "CheckPod failed for hook plugin one, err: q is closed." in refusals(rig)["a"]
    assert "CheckPod failed for hook plugin two, err: q is closed." in refusals(rig)["b"]
    assert rig.where("c") == "n1"


def test_a_pod_that_a_hook_refused_is_asked_again_after_a_pod_left() -> None:
    rig = rig_with(hookPlugins=[entry("count", "podCount", {"maxPods": 1})])
    rig.node("n1")
    put(rig, quota("q").max(cpu=4), quota("other").max(cpu=4).namespace("x"))
    rig.submit(cores("a", "q", 1), cores("b", "q", 1), cores("c", "other", 1))
    rig.run()
    assert set(refusals(rig)) == {"b"}
    rig.clock.advance(30)
    rig.delete("a")
    rig.run()
    assert rig.where("b") == "n1"


def test_the_number_of_pods_is_that_of_the_annotation() -> None:
    rig = rig_with(hookPlugins=[entry("count", "podCount")])
    rig.node("n1")
    limited = quota("q").max(cpu=4).annotation(MAX_PODS, "1")
    put(rig, limited, quota("free").max(cpu=4))
    rig.submit(*(cores(f"{own}-{number}", own, 1) for own in ("q", "free") for number in range(2)))
    rig.run()
    assert set(refusals(rig)) == {"q-1"}
    cache = QuotaCache.of(rig.core.handle)
    assert cache.hooks[0].update_quota_status(cache.objects["q"]) == {PODS: "1"}
    assert cache.hooks[0].update_quota_status(cache.objects["free"]) == {}

    limited.annotation(MAX_PODS, "2")  # the spec is the same
    rig.clock.advance(30)
    put(rig, limited)
    rig.run()
    assert rig.where("q-1") == "n1"


def test_a_pod_that_moves_leaves_one_quota_and_joins_the_other() -> None:
    rig = rig_with(hookPlugins=[entry("one", "recorder")])
    hook = QuotaCache.of(rig.core.handle).hooks[0].hook
    assert isinstance(hook, Recorder)
    rig.node("n1")
    put(rig, quota("q").max(cpu=4), quota("r").max(cpu=4))
    rig.submit(cores("a", "q", 1))
    rig.run()
    hook.calls.clear()
    (info,) = rig.core.pods()
    labels = {**info.pod.metadata.labels, QUOTA_NAME: "r"}
    rig.core.intake.set_pod(replace(info.pod, metadata=replace(info.pod.metadata, labels=labels)))
    assert hook.calls == ["pod a of q True-False", "pod a of r False-True"]
