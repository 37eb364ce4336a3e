"""Expressions about devices (DRA-R87 to DRA-R91)."""

from typing import Any

import pytest

from seatrial.scheduler.api.cel.values import Semver
from seatrial.scheduler.api.quantity import exact
from seatrial.scheduler.plugins.dynamicresources.expressions import Allowance, Expression, ExpressionError, Subject

LOOP = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(%s, "
OWN = "device.attributes['d.io']"


def card(**attributes: Any) -> Subject:
    values: dict[tuple[str, ...], Any] = {("driver",): "d.io", ("allowMultipleAllocations",): False}
    values["capacity", "d.io", "memory"] = exact("80Gi")
    return Subject(values | {("attributes", "d.io", name): value for name, value in attributes.items()})


CARD = card(model="H100", flag=True, n=3, version=Semver("1.10.0-rc.2"))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("device.driver == 'd.io'", True),
        ("device.driver == 'x' && device.attributes['x'].y == 'z'", False),
        (f"has({OWN}.nope) && {OWN}.nope == 'z'", False),
        (f"has({OWN}.model)", True),
        ("'d.io' in device.attributes", True),
        ("'x.io' in device.attributes", False),
        (f"'model' in {OWN}", True),
        (f"{OWN}.flag", True),
        (f"{OWN}.n > 2 && {OWN}.n != 4", True),
        (f"{OWN}.model in ['A100', 'H100']", True),
        (f"{OWN}.model.lowerAscii().startsWith('h')", True),
        (f"{OWN}.?nope.orValue('none') == 'none'", True),
        ("device.attributes[?'x.io'].?n.orValue(0) == 0", True),
        (f"{OWN}.exists(name, name == 'model')", True),
        ("device.capacity['d.io'].memory.compareTo(quantity('9Gi')) > 0", True),
        ("device.capacity['d.io'].memory.isLessThan(quantity('80Gi'))", False),
        (f"{OWN}.version.isGreaterThan(semver('1.9.0')) && {OWN}.version.isLessThan(semver('1.10.0'))", True),
        (f"{OWN}.version.minor() == 10", True),
        (f"{OWN}.nope == 'x' || true", True),
        ("device.allowMultipleAllocations", False),
        (f"{OWN}.model.find('[0-9]+') == '100' && {OWN}.model.matches('^H')", True),
        ("sets.contains(['d.io', 'x'], [device.driver]) && ip('10.0.0.1').family() == 4", True),
    ],
)
def test_what_holds(text: str, holds: bool) -> None:
    expression = Expression(text, Allowance())
    assert [expression.holds(CARD), expression.holds(CARD)] == [holds, holds], "evaluated, and from what is known"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{OWN}.nope == 'x'", "no such key: nope. consider using CEL optional chaining"),
        ("device.attributes['x.io'].nope == 'x'", "no such key: nope"),
        ("device.driver", "must evaluate to a bool"),
        ("foo(1) == 1", "undeclared reference to 'foo'"),
        (f"{OWN}.model > 3", "no matching overload"),
        (f"{LOOP % 'a'}{LOOP % 'b'}{LOOP % 'c'}{LOOP % 'd'}a + b + c + d > 0))))", "takes more than 10000 steps"),
        (
            "".join(f"cel.bind(x{n + 1}, x{n} + x{n}, " for n in range(40)).replace("x0", "'x'") + "true" + ")" * 40,
            "steps",
        ),
        ("'x'" + ".replace('x', 'xxxxxxxxxx')" * 40 + " == 'x'", "steps"),
        ("[1]" + ".map(x, [x, x])" * 60 + " == [[1]]", "steps"),
    ],
)
def test_what_fails(text: str, why: str) -> None:
    expression = Expression(text, Allowance())
    for _ in range(2):
        with pytest.raises(ExpressionError, match=why):
            expression.holds(CARD)


@pytest.mark.parametrize("text", ["1 +", "'" + "\\\\" * 4000, "(" * 5000, "'" + "x" * 11_000 + "' == ''"])
def test_what_cannot_be_compiled(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text, Allowance())


@pytest.mark.parametrize(
    ("text", "cards", "count"),
    [
        (
            f"{OWN}.model == 'H100'",
            [card(model=model, uuid=str(n)) for n, model in enumerate(["H100", "A100"] * 50)],
            2,
        ),
        (f"has({OWN}.x)", [card(x=1), card(x=True), card(x=1), card()], 3),
    ],
    ids=["by-model", "1-and-true-are-two-values"],
)
def test_one_evaluation_for_all_devices_that_it_cannot_tell_apart(text: str, cards: list[Subject], count: int) -> None:
    expression = Expression(text, Allowance())
    evaluated: list[object] = []
    inner = expression._evaluate

    def counted(*arguments: Any) -> Any:
        evaluated.append(arguments)
        return inner(*arguments)

    expression._evaluate = counted
    assert [expression.holds(each) for each in cards] == [Expression(text, Allowance()).holds(each) for each in cards]
    assert len(evaluated) == count
