"""KubeSchedulerConfiguration: merging (FWK-R1 to FWK-R3, FWK-E13) and errors (FWK-R4, FWK-R5)."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.scheduler.config import ConfigError, Expanded, expand, load, parse

HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}


def expanded(profile: dict[str, Any], **more: Any) -> Expanded:
    return expand(parse({**HEAD, "profiles": [{"schedulerName": "koord-scheduler", **profile}], **more}))[0]


def test_without_plugins_the_defaults_run() -> None:
    profile = expanded({})
    assert profile.at["filter"] == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeNUMAResource",
        "DeviceShare",
        "Reservation",
    ]
    assert profile.weights == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "NodeNUMAResource": 1,
        "DeviceShare": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "Reservation": 5000,
        "Coscheduling": 1,
    }


def test_a_star_drops_all_but_what_is_named() -> None:
    profile = expanded(
        {"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "DeviceShare", "weight": 2}]}}}
    )
    assert profile.weights == {"DeviceShare": 2}
    assert "NodeResourcesFit" in profile.at["filter"], "other points keep their plugins"


def test_an_explicit_weight_wins_and_moves_the_plugin_to_the_front() -> None:
    profile = expanded({"plugins": {"score": {"enabled": [{"name": "NodeResourcesFit", "weight": 5}]}}})
    assert profile.at["score"][0] == "NodeResourcesFit"
    assert profile.weights["NodeResourcesFit"] == 5


def test_named_filters_run_first_then_the_other_defaults() -> None:
    profile = expanded({"plugins": {"filter": {"enabled": [{"name": "NodeResourcesFit"}]}}})
    assert profile.at["filter"][:3] == ["NodeResourcesFit", "NodeUnschedulable", "NodeName"]


def test_a_default_enabled_again_in_multi_point_keeps_its_place() -> None:
    profile = expanded({"plugins": {"multiPoint": {"enabled": [{"name": "NodeAffinity", "weight": 9}]}}})
    assert profile.at["filter"] == expanded({}).at["filter"]
    assert profile.weights["NodeAffinity"] == 9


def test_weight_zero_counts_as_one() -> None:
    profile = expanded({"plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "DeviceShare"}]}}})
    assert profile.weights == {"DeviceShare": 1}


def test_disabled_post_filter_leaves_no_preemption() -> None:
    profile = expanded({"plugins": {"postFilter": {"disabled": [{"name": "DefaultPreemption"}]}}})
    others = ["DynamicResources", "Reservation", "Coscheduling", "ElasticQuota"]  # inside their own, or on request
    assert profile.at["postFilter"] == others


def test_old_versions_and_published_spellings_are_read() -> None:
    document = {
        **HEAD,
        "apiVersion": "kubescheduler.config.k8s.io/v1beta3",
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "pluginConfigs": [{"name": "DeviceShare", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
            }
        ],
    }
    (profile,) = expand(parse(document))
    assert "DeviceShare" in profile.args


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param([], "expected a KubeSchedulerConfiguration, found list", id="not-a-document"),
        pytest.param({**HEAD, "apiVersion": "v9"}, "apiVersion, kind: expected", id="unknown-version"),
        pytest.param({**HEAD, "profils": []}, "unknown field `profils`", id="misspelt-field"),
        pytest.param({**HEAD, "parallelism": "many"}, "parallelism: expected int, found 'many'", id="wrong-kind"),
        pytest.param({**HEAD, "profiles": []}, "profiles: expected at least one, found none", id="no-profile"),
        pytest.param(
            {**HEAD, "percentageOfNodesToScore": 101}, "not in valid range [0-100], found 101", id="percentage"
        ),
        pytest.param(
            {**HEAD, "podInitialBackoffSeconds": 0}, "podInitialBackoffSeconds: expected more than 0", id="backoff"
        ),
        pytest.param(
            {**HEAD, "podInitialBackoffSeconds": 20},
            "podMaxBackoffSeconds: expected at least podInitialBackoffSeconds (20), found 10",
            id="backoff-order",
        ),
        pytest.param(
            {**HEAD, "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "profiles[1].schedulerName: Duplicate value: 'a'",
            id="name-twice",
        ),
        pytest.param(
            {**HEAD, "profiles": [{"schedulerName": "a"}, {}]},
            "profiles[1].schedulerName: Required value",
            id="no-name",
        ),
    ],
)
def test_documents_refused(document: object, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse(document)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        pytest.param(
            {"plugins": {"filtre": {}}}, "profiles[0].plugins: unknown extension point 'filtre'", id="misspelt-point"
        ),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": "Nope"}]}}},
            'profiles[0].plugins.filter: FilterPlugin "Nope" does not exist',
            id="unknown-plugin",
        ),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": "PrioritySort"}]}}},
            'plugin "PrioritySort" does not extend FilterPlugin plugin',
            id="wrong-point",
        ),
        pytest.param(
            {"plugins": {"filter": {"enabled": [{"name": "NodeName"}, {"name": "NodeName"}]}}},
            'plugin "NodeName" already registered as "FilterPlugin"',
            id="twice-at-a-point",
        ),
        pytest.param(
            {"plugins": {"queueSort": {"disabled": [{"name": "*"}]}}},
            "expected exactly one plugin, found 0",
            id="no-sort",
        ),
        pytest.param(
            {"plugins": {"bind": {"disabled": [{"name": "*"}]}}}, "at least one bind plugin is needed", id="no-bind"
        ),
        pytest.param(
            {"pluginConfig": [{"name": "DeviceShare"}, {"name": "DeviceShare"}]},
            "profiles[0].pluginConfig[1]: repeated config for plugin DeviceShare",
            id="args-twice",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "DeviceShare", "args": {"scoring": {}}}]},
            "profiles[0].pluginConfig[0].args: DeviceShare: Object contains unknown field `scoring`",
            id="unknown-argument",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "DeviceShare", "args": {"scoringStrategy": {"type": "Most"}}}]},
            "scoring strategy Most is not supported",
            id="unknown-strategy",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "DeviceShare", "args": {"scoringStrategy": None}}]},
            "scoring strategy not specified",
            id="no-strategy",
        ),
        pytest.param(
            {
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio"}}}
                ]
            },
            "scoringStrategy.requestedToCapacityRatio.shape: expected at least one point",
            id="no-shape",
        ),
        pytest.param(
            {"pluginConfig": [{"name": "DeviceShare", "args": {"kind": "NodeResourcesFitArgs"}}]},
            "args.kind: expected DeviceShareArgs, found NodeResourcesFitArgs",
            id="other-plugins-args",
        ),
    ],
)
def test_profiles_refused(profile: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        expanded(profile)
    assert message in str(refused.value)


def test_a_file_is_named_in_its_refusal(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("profiles: [")
    with pytest.raises(ConfigError, match=r"config\.yaml: not YAML"):
        load(file)
    with pytest.raises(ConfigError, match=r"missing\.yaml: cannot be read: No such file"):
        load(tmp_path / "missing.yaml")
