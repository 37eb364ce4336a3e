"""Values of CEL expressions: Kubernetes' functions, types and macros, with examples of its documentation."""

import re
from typing import Any

import pytest

pytest.importorskip("celpy", reason="cel-python is not installed yet: make the environment anew")

from seatrial.harness.apiserver.cel import expressions
from seatrial.harness.apiserver.cel.expressions import ExpressionError, OptionalVariable, value_of

TRUE = (
    # literals
    r"""'a\'b' == "a'b" && r'\' + 'x' == '\\x' && r"\d" == '\\d' && '\u00e9\123' == "éS" && '''a'b''' == 'a\'b'""",
    "b'a' == b\"a\" && -9223372036854775808 < 0 && 007 == 7 && 0xFFu == 255u",
    # text
    "'tacocat'.charAt(4) == 'c'",
    "'tacocat'.indexOf('ac') == 1 && 'tacocat'.indexOf('a', 3) == 5 && 'x'.indexOf('') == 0",
    "'tacocat'.lastIndexOf('ac') == 1 && 'tacocat'.lastIndexOf('z') == -1",
    "['hello', 'world'].join(' ') == 'hello world' && ['a', 'b'].join() == 'ab'",
    "'TacoCÆt'.lowerAscii() == 'tacocÆt' && 'tacocæt'.upperAscii() == 'TACOCæT'",
    "'hello hello'.replace('he', 'we') == 'wello wello' && 'hello hello'.replace('he', 'we', 1) == 'wello hello'",
    "'a b c'.split(' ') == ['a', 'b', 'c'] && 'a b c'.split(' ', 2) == ['a', 'b c'] && 'a b'.split(' ', 0) == []",
    "'tacocat'.substring(4) == 'cat' && 'tacocat'.substring(0, 4) == 'taco'",
    "'  trim  '.trim() == 'trim'",
    "'héy'.reverse() == 'yéh' && strings.quote('a\"b') == '\"a\\\\\"b\"'",
    "!optional.of(false).orValue(true) && optional.of(true).value() && [true, false].max()",
    # regular expressions
    "'abc 123'.find('[0-9]*$') == '123' && 'abc'.find('[0-9]+') == ''",
    "'1.2.3.4'.findAll('[0-9]+').map(x, int(x)).sum() == 10 && 'a1b2'.findAll('[0-9]', 1) == ['1']",
    "'k8s'.matches('^[a-z0-9]+$')",
    # lists
    "[1, 2, 3].isSorted() && ![2, 1].isSorted() && ['a', 'b'].isSorted()",
    "[1, 3].sum() == 4 && [1.5, 3.0].sum() == 4.5",
    "[1, 3].min() == 1 && [1, 3].max() == 3 && ['a', 'b'].max() == 'b'",
    "[1, 2, 2, 3].indexOf(2) == 1 && [1, 2, 2, 3].lastIndexOf(2) == 2 && [1].indexOf(9) == -1",
    "[1, 2, 3].slice(1, 3) == [2, 3] && [[1], [2, 3]].flatten() == [1, 2, 3] && [1, 1, 2].distinct() == [1, 2]",
    "[3, 1].sort() == [1, 3] && [1, 2].reverse() == [2, 1] && lists.range(3) == [0, 1, 2]",
    # sets
    "sets.contains([1, 2, 3], [2, 3]) && !sets.contains([1], [2])",
    "sets.equivalent([1, 2, 2], [2, 1]) && !sets.equivalent([1], [1, 2])",
    "sets.intersects([1], [1, 2]) && !sets.intersects([1], [2])",
    # URLs
    "isURL('https://example.com:80/path') && isURL('/absolute') && !isURL('../relative') && !isURL('https://a:b:c/')",
    "url('https://example.com:80/path').getScheme() == 'https' && url('/path').getScheme() == ''",
    "url('https://[::1]:80/a').getHost() == '[::1]:80' && url('https://[::1]:80/a').getHostname() == '::1'",
    "url('https://example.com:80/').getPort() == '80' && url('https://example.com/').getPort() == ''",
    "url('https://example.com/with spaces/').getEscapedPath() == '/with%20spaces/' && !isURL('/with%zz')",
    "url('https://example.com/?k1=v1&k2=v2a&k2=v2b').getQuery() == {'k1': ['v1'], 'k2': ['v2a', 'v2b']}",
    # addresses and networks
    "isIP('127.0.0.1') && isIP('::1') && !isIP('127.0.0.256') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%en0')",
    "ip('127.0.0.1').family() == 4 && ip('::1').family() == 6",
    "ip('0.0.0.0').isUnspecified() && ip('127.0.0.1').isLoopback() && ip('169.254.169.254').isLinkLocalUnicast()",
    "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
    "ip('192.168.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
    "ip.isCanonical('2001:db8::abcd') && !ip.isCanonical('2001:DB8::ABCD')",
    "ip('127.0.0.1') == ip('127.0.0.1') && ip('::1') != ip('::2') && string(ip('::1')) == '::1'",
    "isCIDR('192.168.0.0/24') && !isCIDR('192.168.0.0/') && !isCIDR('::ffff:1.2.3.4/112')",
    "cidr('192.168.0.0/24').containsIP('192.168.0.1') && !cidr('192.168.0.0/24').containsIP(ip('192.168.1.1'))",
    "cidr('192.168.0.0/24').containsCIDR('192.168.0.0/25') && !cidr('10.0.0.0/24').containsCIDR(cidr('10.0.0.0/8'))",
    "cidr('192.168.0.5/24').masked() == cidr('192.168.0.0/24') && cidr('192.168.0.5/24').ip() == ip('192.168.0.5')",
    "cidr('192.168.0.0/24').prefixLength() == 24",
    # quantities
    "isQuantity('1.3Gi') && isQuantity('-0.2') && !isQuantity('5Ki3') && !isQuantity('200K')",
    "quantity('50M').isInteger() && quantity('50k').asInteger() == 50000 && !quantity('1m').isInteger()",
    "quantity('50M').asApproximateFloat() == 50000000.0 && sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
    "quantity('50k').add(quantity('20k')) == quantity('70k')",
    "quantity('50k').add(20) == quantity('50020') && quantity('50k').sub(20000) == quantity('30k')",
    "quantity('1Gi').isGreaterThan(quantity('1G')) && quantity('1').isLessThan(quantity('2'))",
    "quantity('1000m').compareTo(quantity('1')) == 0 && quantity('1').compareTo(quantity('2')) == -1",
    # versions
    "isSemver('1.2.3') && !isSemver('v1.2') && isSemver('v01.2', true)",
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.0.0-alpha.2').isLessThan(semver('1.0.0-alpha.10')) && semver('1.0.0-rc.1').isLessThan(semver('1.0.0'))",
    "semver('v1.0', true).compareTo(semver('1.0.0')) == 0 && semver('1.0.0+b') == semver('1.0.0')",
    # formats
    "!format.dns1123Label().validate('a-label').hasValue() && format.dns1123Label().validate('A_').hasValue()",
    "format.named('uuid').value().validate('no').value() == ['does not match the UUID format']",
    "!format.named('nothing').hasValue()",
    "'%s is %d and %.2f, %e %%'.format(['a', 2, 1.5, 10.0]) == 'a is 2 and 1.50, 1.000000e+01 %'",
    "'%x %X %b %o'.format([255, 'k', true, 8]) == 'ff 6B 1 10'",
    "'%s %s %s %s'.format([[1, 'a'], {'b': 1, 'a': null}, true, 1.5]) == '[1, a] {a: null, b: 1} true 1.5'",
    # optional values
    "optional.of(1).value() == 1 && optional.none().orValue(2) == 2 && !optional.ofNonZeroValue('').hasValue()",
    "map.?a.orValue('x') == 'y' && map.?b.orValue('x') == 'x' && map.?c.?d.orValue(5) == 5",
    "map[?'a'].hasValue() && !rows[?9].hasValue() && rows[?0].value() == 1",
    "map.?a.optMap(x, x + '!').value() == 'y!' && !map.?b.optMap(x, x).hasValue()",
    "optional.none().or(optional.of(3)).value() == 3 && map.?a.optFlatMap(x, optional.of(x)).value() == 'y'",
    "map.?a == optional.of('y') && perhaps.hasValue() && !nothing.hasValue() && perhaps.value() == 7",
    "'a?b'.contains('?') && (1 > 2 ? [1] : [2]) == [2] && (true ?[1]:[2]) == [1]",
    # macros
    "rows.all(i, x, x == i + 1) && map.exists(k, v, k == 'a' && v == 'y') && rows.existsOne(i, x, x == 2)",
    "rows.existsOne(x, x == 2) && rows.exists_one(x, x == 2)",
    "rows.transformList(i, x, i * x) == [0, 2, 6] && rows.transformList(i, x, i > 0, x) == [2, 3]",
    "map.transformMap(k, v, v + k) == {'a': 'ya'} && rows.transformMapEntry(i, x, {string(x): i})['3'] == 2",
    "rows.map(x, x > 1, x * 2) == [4, 6] && rows.filter(x, x > 1) == [2, 3]",
    "rows.all(i, x, x > 0 || unknown.home) && !rows.all(i, x, x > 1 && unknown.home)",
    "rows.exists(i, x, x == 3 || unknown.home)",
    # numbers of two kinds
    "1 < 1.5 && 2.0 == 2 && 1.5 >= 1 && 3 != 2.5 && 2 > 1u",
)
OBJECTS = {
    "map": {"a": "y"},
    "rows": [1, 2, 3],
    "perhaps": OptionalVariable(7),
    "nothing": OptionalVariable(None),
    "many": list(range(1000)),
}


@pytest.mark.parametrize("expression", [pytest.param(text, id=text[:60]) for text in TRUE])
def test_it_is_true(expression: str) -> None:
    assert value_of(expression, OBJECTS) is True


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        pytest.param("quantity('x')", "quantities must match the regular expression", id="no-quantity"),
        pytest.param("quantity('1m').asInteger()", "cannot convert value to integer", id="no-integer"),
        pytest.param("ip('x')", 'IP Address "x" parse error during conversion from string', id="no-address"),
        pytest.param("cidr('10.0.0.0/99')", "parse error", id="no-network"),
        pytest.param("url('relative')", "URL parse error during conversion from string", id="no-url"),
        pytest.param("semver('1')", "parse error", id="no-version"),
        pytest.param("optional.none().value()", "optional.none() dereference", id="nothing-there"),
        pytest.param("[].min()", "min called on empty list", id="the-least-of-nothing"),
        pytest.param("'abc'.substring(2, 1)", "index out of range: 1", id="backwards"),
        pytest.param("'abc'.charAt(9)", "index out of range: 9", id="beyond-the-end"),
        pytest.param("'a'.find('[')", "missing ]", id="no-pattern"),
        pytest.param("[1].find('a')", "no such overload", id="of-another-kind"),
        pytest.param("quantity('1') > quantity('2')", "no such overload", id="no-such-operator"),
        pytest.param("'%d'.format(['a'])", "%d cannot show a", id="no-number"),
        pytest.param("'%d %d'.format([1])", "index 1 out of range", id="one-too-few"),
        pytest.param("'%q'.format([1])", 'unrecognized formatting clause "%"', id="no-clause"),
        pytest.param("'%.2000000000f'.format([1.0])", "precision '2000000000' is above 1000", id="two-gigabytes"),
        pytest.param(f"1 < {'9' * 5000}", "invalid int literal", id="a-number-of-5000-digits"),
        pytest.param("uint(1) < 18446744073709551616u", "invalid uint literal", id="65-bits"),
        pytest.param('["' + "\\" * 9_990, "compilation failed", id="an-open-literal-of-backslashes"),
        pytest.param("b'" + "\\" * 9_990 + "\n", "compilation failed", id="open-bytes-of-backslashes"),
        pytest.param("'''" + "\\'" * 4_990, "compilation failed", id="open-lines-of-backslashes"),
        pytest.param("map.b == 1", "no such key: b", id="no-field"),
        pytest.param("rows.transformList(i, x, unknown)", "undeclared reference", id="in-a-macro"),
        pytest.param("rows[9]", "evaluating rule: rows[9]", id="no-row"),
        pytest.param("1 / 0", "evaluating rule: 1 / 0", id="by-nothing"),
    ],
)
def test_evaluation_errors(expression: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=re.escape(why)):
        value_of(expression, OBJECTS)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        pytest.param("1 + 2", 3, id="a-number"),
        pytest.param("'a' + 'b'", "ab", id="text"),
        pytest.param("rows.exists(x, x == 2)", True, id="a-truth"),
    ],
)
def test_plain_values_come_back(expression: str, value: Any) -> None:
    expression_value = value_of(expression, OBJECTS)
    assert expression_value == value


def test_evaluation_stops_at_the_step_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expressions, "MAX_STEPS", 1000)
    with pytest.raises(ExpressionError, match="operation cancelled: actual cost limit exceeded"):
        value_of("many.all(a, many.all(b, many.all(c, unknown || a + b + c >= 0)))", OBJECTS)
    assert value_of("many.all(a, a >= 0)", {"many": [1, 2, 3]}) is True


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("a == a", id="compared"),
        pytest.param("[a].distinct() == []", id="distinct"),
        pytest.param("[a].flatten(99) == []", id="flattened"),
        pytest.param("'%s'.format([a]) == ''", id="formatted"),
        pytest.param("string(a) == ''", id="as-text"),
        pytest.param("lists.range(1000000000) == []", id="a-long-range"),
        pytest.param("lists.range(9999).distinct() == []", id="all-pairs"),
    ],
)
@pytest.mark.parametrize("pair", ["[x, x]", "[optional.of(x), optional.of(x)]", "{1: x, 2: x}"])
def test_values_that_double_with_each_step(expression: str, pair: str) -> None:
    """Forty pairs of pairs are a few values and 2^40 ways to them."""
    a = "optional.of([1])" + f".optMap(x, {pair})" * 40
    with pytest.raises(ExpressionError, match="operation cancelled"):
        value_of(f"{a}.optMap(a, {expression}).value()", {})
