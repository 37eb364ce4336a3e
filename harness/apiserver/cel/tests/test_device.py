"""Estimated costs of selectors of devices are those of `dra: cel/compile_test.go`."""

import pytest

from seatrial.harness.apiserver.cel.device import selector_cost

ATTRIBUTES, CAPACITY = 'device.attributes["gpu.example.com"]', 'device.capacity["gpu.example.com"]'
TEN = str(list(range(1, 11)))


def nested(levels: int, body: str) -> str:
    """Loops over ten numbers in one another."""
    return "".join(f"{TEN}.all({'x' * level}, " for level in range(1, levels + 1)) + body + ")" * levels


@pytest.mark.parametrize(
    ("cost", "expression"),
    [
        (2, 'device.driver == ""'),
        (4, 'device.driver == "gpu.example.com"'),
        (3, '"nic.example.com" in device.attributes'),
        (4, f"{ATTRIBUTES}.flag"),
        (4, f"{ATTRIBUTES}['flag']"),
        (5, f"{ATTRIBUTES}.count > 0"),
        (12, f"{ATTRIBUTES}.a && {ATTRIBUTES}.b && {ATTRIBUTES}.c"),
        (15, f"cel.bind(found, {ATTRIBUTES}, found.flag)"),
        (18, f'{ATTRIBUTES}.model.matches("[^b]?gpu")'),
        (19, f'{ATTRIBUTES}.model.split("example").size() >= 2'),
        (133, f'{ATTRIBUTES}.exists_one(x, x == "services")'),
        (164, 'device.attributes.exists_one(x, x == "gpu.example.com")'),
        (6, f'{CAPACITY}.memory.isGreaterThan(quantity("1Ki"))'),
        (133, f'{CAPACITY}.exists_one(x, x == "memory")'),
        (3, "device.allowMultipleAllocations == true"),
        (85555551, nested(7, "int('1'.find('[0-9]*')) < 100")),
    ],
)
def test_costs_of_selectors(cost: int, expression: str) -> None:
    assert selector_cost(expression) == cost
