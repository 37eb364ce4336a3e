"""The message of a failed expectation, for results and for tables of mutants."""

import ast
import textwrap

import pytest

_ASSERT = "assert "


def expectation_message(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """The text of an AssertionError; an assert without a message names what it compared, not only the values.

    `assert expect.bound("a").spec.node_name == "n2"` has the message
    `expected expect.bound('a').spec.node_name == 'n2', found 'n1' == 'n2'`.
    """
    said = str(excinfo.value)
    if not said.startswith(_ASSERT):
        return said
    try:
        statement = ast.parse(textwrap.dedent(str(excinfo.traceback[-1].statement))).body[0]
    except SyntaxError:  # the source is not there, or not the one that ran
        return said
    if not isinstance(statement, ast.Assert):
        return said
    return f"expected {ast.unparse(statement.test)}, found {said.removeprefix(_ASSERT)}"
