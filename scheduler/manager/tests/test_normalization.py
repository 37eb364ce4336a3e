"""Ratios of nodes: the worked examples NUMA-E19, QOS-E6 and QOS-E7, and the settings of collect policies."""

import json
from typing import Any

import pytest

from seatrial.scheduler.api.core import ConfigMap
from seatrial.scheduler.manager.config import COLOCATION, SloConfig, read_config
from seatrial.scheduler.manager.normalization import amplification_ratios, changed_annotations, normalization_ratio
from seatrial.scheduler.manager.sections import SettingsError
from seatrial.scheduler.manager.strategy import collect_policy, node_strategy

RATIO = "node.koordinator.sh/cpu-normalization-ratio"
AMPLIFIED = "node.koordinator.sh/resource-amplification-ratio"
ENABLED = "node.koordinator.sh/cpu-normalization-enabled"
MODEL = {
    "baseRatio": 1.5,
    "turboEnabledRatio": 1.65,
    "hyperThreadEnabledRatio": 1.0,
    "hyperThreadTurboEnabledRatio": 1.1,
}
ON: dict[str, Any] = {"enable": True, "ratioModel": {"x": MODEL}}


def info(model: str = "x", *, threads: bool = True, turbo: bool = True) -> dict[str, str]:
    written = {"cpuModel": model, "hyperThreadEnabled": threads, "turboEnabled": turbo}
    return {"node.koordinator.sh/cpu-basic-info": json.dumps(written)}


@pytest.mark.parametrize(
    ("settings", "labels", "cpu", "expected"),
    [
        pytest.param(ON, {}, info(), "1.10", id="threads-and-turbo"),
        pytest.param(ON, {}, info(turbo=False), "1.00", id="threads"),
        pytest.param(ON, {}, info(threads=False), "1.65", id="turbo"),
        pytest.param(ON, {}, info(threads=False, turbo=False), "1.50", id="neither"),
        pytest.param({**ON, "defaultRatio": 2.5}, {}, info("y"), "2.50", id="default-for-an-unknown-model"),
        pytest.param({"enable": True, "ratioModel": {"x": {}}, "defaultRatio": 2.2}, {}, info(), "2.20", id="no-field"),
        pytest.param({**ON, "enable": False}, {ENABLED: "true"}, info(), "1.10", id="label-turns-on"),
        pytest.param(ON, {ENABLED: "false"}, info(), "1.00", id="label-turns-off"),
        pytest.param({**ON, "defaultRatio": 5.0}, {}, info("y"), "5.00", id="the-largest"),
        pytest.param({}, {}, {}, "1.00", id="off"),
    ],
)
def test_ratios(settings: dict[str, Any], labels: dict[str, str], cpu: dict[str, str], expected: str) -> None:
    assert normalization_ratio(settings, labels, cpu) == expected


@pytest.mark.parametrize(
    ("settings", "labels", "cpu", "why"),
    [
        pytest.param(ON, {}, info("y"), "no ratio for CPU y", id="unknown-model"),
        pytest.param(
            {"enable": True, "ratioModel": {"x": {}}},
            {},
            info(),
            "missing HyperThreadTurboEnabledRatio for CPU x",
            id="missing-field",
        ),
        pytest.param({"enable": True}, {}, info(), "ratio model is nil", id="no-table"),
        pytest.param(
            {"enable": True, "ratioModel": {"x": {"hyperThreadTurboEnabledRatio": 10}}},
            {},
            info(),
            "the ratio is too big, cur[10] > max[5]",
            id="too-big",
        ),
        pytest.param(
            {"enable": True, "ratioModel": {"x": {"hyperThreadEnabledRatio": 0.82}}},
            {},
            info(turbo=False),
            "the ratio is too small, cur[0.82] < min[1]",
            id="the-announcement-s-own-0.82",
        ),
        pytest.param(ON, {ENABLED: "maybe"}, info(), "expected true or false, found 'maybe'", id="label"),
        pytest.param(ON, {}, {}, "expected a CPU model, found ''", id="not-reported-yet"),
    ],
)
def test_ratios_refused(settings: dict[str, Any], labels: dict[str, str], cpu: dict[str, str], why: str) -> None:
    with pytest.raises(SettingsError) as refused:
        normalization_ratio(settings, labels, cpu)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("ratios", "normalization", "expected"),
    [
        ({"cpu": 1.1, "memory": 2.1}, "", '{"cpu":1.10,"memory":2.10}'),
        ({"cpu": 1.5, "memory": 2.5}, "1.20", '{"cpu":1.80,"memory":2.50}'),
        ({"memory": 3.5, "storage": 1.8}, "1.50", '{"cpu":1.50,"memory":3.50,"storage":1.80}'),
        ({"cpu": 0.8, "memory": 3.5, "storage": 1.8}, "1.50", '{"cpu":1.20,"memory":3.50,"storage":1.80}'),
        ({"memory": 1}, "", '{"memory":1.00}'),
        (None, "1.00", None),
        (None, "1.22", '{"cpu":1.22}'),
    ],
)
def test_amplification(ratios: dict[str, float] | None, normalization: str, expected: str | None) -> None:
    settings = {"enable": True, "resourceAmplificationRatio": ratios} if ratios else {}
    assert amplification_ratios(settings, {RATIO: normalization} if normalization else {}) == expected


@pytest.mark.parametrize(
    ("ratios", "normalization"),
    [({"cpu": 0.5}, "1.50"), ({"memory": 0.9}, ""), ({"a/b": 2, "memory": 0.9, "c/d": 2}, "")],
)
def test_amplification_below_one_is_refused(ratios: dict[str, float], normalization: str) -> None:
    settings = {"enable": True, "resourceAmplificationRatio": ratios}
    with pytest.raises(SettingsError, match="expected 1 or more"):
        amplification_ratios(settings, {RATIO: normalization} if normalization else {})


@pytest.mark.parametrize("value", ["1.5", [2], True, None, pytest.param(10**5000, id="above-floats")])
def test_a_ratio_is_a_number(value: object) -> None:
    """Also of the CPU, which is multiplied by the ratio of the node."""
    settings = {"enable": True, "resourceAmplificationRatio": {"cpu": value}}
    with pytest.raises(SettingsError, match=r"resourceAmplificationRatio\[cpu\]: expected a number"):
        amplification_ratios(settings, {RATIO: "1.20"})


def test_ratios_are_by_resource() -> None:
    with pytest.raises(SettingsError, match="expected ratios by resource, found"):
        amplification_ratios({"enable": True, "resourceAmplificationRatio": ["cpu"]}, {})


def test_a_node_loses_an_amplification_that_cannot_be_had() -> None:
    low = {"enable": True, "resourceAmplificationRatio": {"cpu": 0.5}}
    changes, wrong = changed_annotations(ON, low, {}, {RATIO: "1.10", AMPLIFIED: '{"cpu":1.10}'}, info())
    assert changes == {AMPLIFIED: None}
    assert len(wrong) == 1


@pytest.mark.parametrize(
    ("have", "expected"),
    [
        pytest.param({RATIO: "1.099999999", AMPLIFIED: '{"cpu":1.10}'}, {}, id="close"),
        pytest.param({RATIO: "1.20"}, {RATIO: "1.10", AMPLIFIED: '{"cpu":1.20}'}, id="the-old-ratio-amplifies-now"),
    ],
)
def test_changes(have: dict[str, str], expected: dict[str, str]) -> None:
    changes, wrong = changed_annotations(ON, {}, {}, have, info())
    assert wrong == []
    if RATIO in have and have[RATIO].startswith("1.0999"):
        assert RATIO not in changes
    else:
        assert changes == expected


@pytest.mark.parametrize(
    "ratios",
    [
        pytest.param({"baseRatio": 1.5}, id="only-the-base"),
        pytest.param({"hyperThreadTurboEnabledRatio": 10}, id="too-big"),
    ],
)
def test_a_ratio_that_cannot_be_had_leaves_the_annotation(ratios: dict[str, float]) -> None:
    """QOS-E6, row 37: the ratio that the node has still amplifies."""
    have = {RATIO: "1.10", AMPLIFIED: '{"cpu":1.10}'}
    changes, wrong = changed_annotations({"enable": True, "ratioModel": {"x": ratios}}, {}, {}, have, info())
    assert (changes, len(wrong)) == ({}, 1)


def config_map(**sections: object) -> ConfigMap:
    return ConfigMap(
        data={
            key.replace("_", "-"): text if isinstance(text, str) else json.dumps(text) for key, text in sections.items()
        }
    )


def test_the_first_matching_override_goes_before_the_cluster_s() -> None:
    slo_config, wrong = read_config(
        config_map(
            cpu_normalization_config={
                "enable": True,
                "ratioModel": {"x": MODEL},
                "nodeConfigs": [
                    {"name": "old", "nodeSelector": {"matchLabels": {"pool": "old"}}, "enable": False},
                    {
                        "name": "all",
                        "nodeSelector": {"matchExpressions": [{"key": "pool", "operator": "Exists"}]},
                        "ratioModel": {"x": {"baseRatio": 2.0}},
                    },
                ],
            }
        ),
        SloConfig(),
    )
    assert not wrong
    section = slo_config.section("cpu-normalization-config")
    assert section.on({})["enable"] is True
    assert section.on({"pool": "old"})["enable"] is False
    assert section.on({"pool": "new"})["ratioModel"]["x"] == {**MODEL, "baseRatio": 2.0}


def test_a_broken_key_keeps_its_last_settings() -> None:
    good, _ = read_config(config_map(colocation_config={"enable": True}), SloConfig())
    kept, wrong = read_config(config_map(colocation_config="{"), good)
    assert kept.section("colocation-config").cluster == {"enable": True}
    assert "ConfigMap koordinator-system/slo-controller-config: colocation-config: " in wrong[COLOCATION]
    _, wrong = read_config(config_map(colocation_config={"nodeConfigs": [{"name": "a"}]}), SloConfig())
    assert "nodeConfigs[0].nodeSelector: expected a label selector" in wrong[COLOCATION]


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        pytest.param({}, 60, id="default"),
        pytest.param({"enable": True, "metricReportIntervalSeconds": 30}, 30, id="given"),
        pytest.param({"metricReportIntervalSeconds": 30}, 60, id="not-enabled"),
        pytest.param({"enable": True, "metricReportIntervalSeconds": 0}, 60, id="invalid"),
        pytest.param(
            {"enable": True, "metricReportIntervalSeconds": 30, "metricAggregatePolicy": {"durations": ["soon"]}},
            60,
            id="invalid-duration",
        ),
        pytest.param(
            {"enable": True, "metricReportIntervalSeconds": 30, "metricAggregatePolicy": {"durations": ["1m", "0s"]}},
            60,
            id="invalid-second-duration",
        ),
    ],
)
def test_collect_policies(settings: dict[str, Any], seconds: int) -> None:
    config, _ = read_config(config_map(colocation_config=settings), SloConfig())
    policy = collect_policy(node_strategy(config.section(COLOCATION), {}, {})[0])
    assert policy["reportIntervalSeconds"] == seconds
    assert policy["nodeAggregatePolicy"] == {"durations": ("5m", "10m", "30m")}
    assert policy["nodeMemoryCollectPolicy"] == "usageWithoutPageCache"


@pytest.mark.parametrize(
    ("reclaim", "static", "expected"),
    [(("0.7", "0.75"), ("0.1", "0.12"), (70, 75, 10, 12)), (("-1", "invalidField"), ("", ""), (65, 65, 0, 0))],
)
def test_labels_of_a_node(
    reclaim: tuple[str, str], static: tuple[str, str], expected: tuple[int, int, int, int]
) -> None:
    """QOS-E9: `Test_GetNodeColocationStrategy`; labels that are no ratios leave the cluster's settings."""
    settings = {"enable": True, "cpuReclaimThresholdPercent": 65, "memoryReclaimThresholdPercent": 65}
    config, _ = read_config(config_map(colocation_config=settings), SloConfig())
    section = config.section(COLOCATION)
    names = [f"{kind}-reclaim-ratio" for kind in ("cpu", "memory")]
    names += [f"mid-static-{kind}-reserved-ratio" for kind in ("cpu", "memory")]
    labels = {f"node.koordinator.sh/{name}": value for name, value in zip(names, reclaim + static, strict=True)}
    strategy, wrong = node_strategy(section, labels, {})
    assert wrong == []
    assert (
        strategy.cpu_reclaim_threshold_percent,
        strategy.memory_reclaim_threshold_percent,
        strategy.mid_static_cpu_reserved_percent,
        strategy.mid_static_memory_reserved_percent,
    ) == expected
    disabled, _ = node_strategy(section, labels, {"node.koordinator.sh/colocation-strategy": '{"enable": false}'})
    assert not disabled.enable
