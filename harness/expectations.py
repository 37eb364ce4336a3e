"""The message of a failed expectation, for results and for tables of mutants."""

import ast
import textwrap

import pytest

_ASSERT = "assert "


class NotTriedAgain(AssertionError):
    """A pod waits though it fits: one that is equal was bound when it came."""


def expectation_message(excinfo: pytest.ExceptionInfo[BaseException]) -> str:
    """The text of an AssertionError. An assert without words of its own names what it compared, not only the values.

    `assert expect.bound("a").spec.node_name == "n2"` has the message
    `expected expect.bound('a').spec.node_name == 'n2', found 'n1' == 'n2'`, and `assert shows(3), status()` has
    `expected shows(3), found {}`.
    """
    text = str(excinfo.value)
    try:
        statement = ast.parse(textwrap.dedent(str(excinfo.traceback[-1].statement))).body[0]
    except SyntaxError:  # the source is not there, or not the one that ran
        return text
    if not isinstance(statement, ast.Assert):
        return text
    if statement.msg is None and not text.startswith(_ASSERT):  # raised below, as by a check of a library
        return text
    if isinstance(statement.msg, ast.JoinedStr | ast.Constant):
        return text
    return f"expected {ast.unparse(statement.test)}, found {text.removeprefix(_ASSERT)}"
