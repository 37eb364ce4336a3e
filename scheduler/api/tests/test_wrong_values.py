"""Messages about documents of wrong types name the field, what was expected and what was found."""

from typing import Any

import msgspec
import pytest

from seatrial.scheduler.api.wrong_values import readable
from seatrial.scheduler.descheduler.plugins.low_node_load import LowNodeLoadArgs


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param(
            {"lowThresholds": {"memory": 20, "cpu": "many"}},
            "lowThresholds.cpu: expected float, found 'many'",
            id="a-value-of-a-map",
        ),
        pytest.param(
            {"nodePools": [{"name": "a"}, {"name": 3}]},
            "nodePools[1].name: expected str, found 3",
            id="an-item-of-a-list",
        ),
        pytest.param(
            {"anomalyCondition": {"consecutiveAbnormalities": None}},
            "anomalyCondition.consecutiveAbnormalities: expected int, found None",
            id="null",
        ),
        pytest.param({"lowThreshold": {}}, "Object contains unknown field `lowThreshold`", id="an-unknown-field"),
        pytest.param(
            {"nodePools": [{"high": {}}]},
            "nodePools[0]: Object contains unknown field `high`",
            id="an-unknown-field-of-an-item",
        ),
        pytest.param([1], "expected object, found [1]", id="another-kind-of-document"),
    ],
)
def test_the_field_is_named(value: Any, message: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, LowNodeLoadArgs)
    assert readable(caught.value, value) == message
