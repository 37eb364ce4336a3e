"""Worked examples E16 of Koordinator's tests: page cache, protection, throttling."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.koordlet import memory_qos
from seatrial.scheduler.koordlet.cgroups import (
    MEMORY_HIGH,
    MEMORY_LOW,
    MEMORY_MIN,
    PAGE_CACHE_ENABLE,
    PAGE_CACHE_SIZE,
    WMARK_MIN_ADJ,
)
from seatrial.scheduler.koordlet.memory_qos import DEFAULTS, NONE, class_config, page_cache, pod_config, protection
from seatrial.scheduler.koordlet.strategies import MemoryQos, QosStrategy

GI, MI = 1 << 30, 1 << 20


@pytest.mark.parametrize(
    ("config", "enable", "size"),
    [
        ({"pageCacheLimitSize": "512Mi"}, 1, 512 * MI),
        ({"pageCacheLimitSize": "2Gi"}, 1, GI),
        ({"pageCacheLimitSize": "0"}, 0, 0),
        ({"pageCacheEnable": False, "pageCacheLimitSize": "512Mi"}, 0, 512 * MI),
        ({"pageCacheEnable": True}, 1, None),
        ({"pageCacheLimitPercent": 50}, 1, 512 * MI),
        ({"pageCacheLimitPercent": 50, "pageCacheLimitSize": "256Mi"}, 1, 256 * MI),
        ({"pageCacheLimitSize": "much"}, None, None),
    ],
)
def test_page_cache(config: dict[str, Any], enable: int | None, size: int | None) -> None:
    """CG-6: a pod with a limit of 1 GiB."""
    amounts = page_cache(msgspec.convert(config, MemoryQos), GI)
    assert (amounts.get(PAGE_CACHE_ENABLE), amounts.get(PAGE_CACHE_SIZE)) == (enable, size)


@pytest.mark.parametrize(
    ("request_", "limit", "high"), [(0, GI, 858_992_640), (GI, GI, GI), (GI // 2, GI, 966_365_184 // 4096 * 4096)]
)
def test_throttling(request_: int, limit: int, high: int) -> None:
    """CG-3: 80 % of what is between request and limit."""
    config = MemoryQos(min_limit_percent=100, throttling_percent=80)
    assert memory_qos.high(config, request_, limit) == high


def test_no_throttling() -> None:
    assert memory_qos.high(MemoryQos(throttling_percent=0), GI, GI) == MEMORY_HIGH.high


@pytest.mark.parametrize(("least", "low", "values"), [(50, 0, (50, 0)), (50, 20, (50, 50)), (20, 80, (20, 80))])
def test_protection(least: int, low: int, values: tuple[int, int]) -> None:
    """CG-2: what is low is at least the minimum, if there is any."""
    amounts = protection(MemoryQos(min_limit_percent=least, low_limit_percent=low), 100)
    assert (amounts[MEMORY_MIN], amounts[MEMORY_LOW]) == values


QOS = msgspec.convert(
    {"lsClass": {"memoryQOS": {"enable": True, "wmarkRatio": 80}}, "beClass": {"memoryQOS": {"wmarkRatio": 80}}},
    QosStrategy,
)


@pytest.mark.parametrize(
    ("name", "annotation", "ratio", "adjustment"),
    [
        pytest.param("LS", "", 80, -25, id="the-class"),
        pytest.param("BE", "", 0, 0, id="the-class-is-not-enabled"),
        pytest.param("BE", '{"policy": "auto"}', 95, 50, id="auto-although-not-enabled"),
        pytest.param("LS", '{"policy": "none", "wmarkRatio": 70}', 0, 0, id="none"),
        pytest.param("LS", '{"wmarkRatio": 70}', 70, -25, id="a-field-of-its-own"),
        pytest.param("BE", '{"policy": "auto", "wmarkMinAdj": 25}', 95, 25, id="auto-and-a-field"),
        pytest.param("LS", '{"wmarkRatio": "x"}', 80, -25, id="unreadable"),
    ],
)
def test_the_settings_of_a_pod(name: str, annotation: str, ratio: int, adjustment: int) -> None:
    """CG-5."""
    config = pod_config({memory_qos.ANNOTATION: annotation}, name, class_config(QOS, name))
    assert (config.wmark_ratio, config.wmark_min_adj) == (ratio, adjustment)


def test_defaults_have_all_values() -> None:
    for config in (NONE, *DEFAULTS.values()):
        assert None not in [getattr(config, field) for field in MemoryQos.__struct_fields__ if "page" not in field]
    assert WMARK_MIN_ADJ.low <= (DEFAULTS["BE"].wmark_min_adj or 0) <= WMARK_MIN_ADJ.high
