"""Parsing of CEL: cel-python's parser without its slow patterns, and with the syntax that it lacks.

It lacks that of optional selection, `a.?b` and `a[?b]`, which is rewritten to calls first.
"""

import re
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy.celparser import CELParser
from lark.lexer import PatternRE, TerminalDef

_PASSING: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member"}
)
_LINE: Final = r"""(?:[rR]"[^"\n]*+"|[rR]'[^'\n]*+'|"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')"""
_LINES: Final = (
    r'''(?:[rR]"""(?:[^"]++|"(?!""))*+"""|"""(?:[^"\\]++|"(?!"")|\\[\s\S])*+"""'''
    r"""|[rR]'''(?:[^']++|'(?!''))*+'''|'''(?:[^'\\]++|'(?!'')|\\[\s\S])*+''')"""
)
_LITERALS: Final = {"STRING_LIT": _LINE, "MLSTRING_LIT": _LINES, "BYTES_LIT": f"[bB](?:{_LINES}|{_LINE})"}
_TOKEN: Final = re.compile(
    r"""[rRbB]{0,2}(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"|//[^\n]*|\.\?\s*[_a-zA-Z]\w*|\[\s*\?|[\[\](){}]|\w+|\s+|.",
    re.DOTALL,
)


def desugared(expression: str) -> str:
    """`a.?b` → `a.optSelect__("b")`, `a[?b]` → `a.optIndex__(b)`."""
    if "?" not in expression:
        return expression
    parts: list[str] = []
    opened: list[str] = []  # the closing text of each open bracket
    before = ""
    for match in _TOKEN.finditer(expression):
        piece = match[0]
        if piece.startswith(".?"):
            piece = f'.optSelect__("{piece[2:].strip()}")'
        elif piece[0] == "[" and piece.endswith("?") and (before.isidentifier() or before in {")", "]"}):
            piece = ".optIndex__("
            opened.append(")")
        elif piece in {"[", "(", "{"}:
            opened.append({"[": "]", "(": ")", "{": "}"}[piece])
        elif piece in {"]", ")", "}"} and opened:
            piece = opened.pop()
        parts.append(piece)
        if not piece.isspace():
            before = match[0]
    return "".join(parts)


def simplified(tree: Any) -> Any:
    """The tree without nodes that only forward to their single child: ten steps to a literal become two."""
    if not isinstance(tree, lark.Tree):
        return tree
    while tree.data in _PASSING and len(tree.children) == 1 and isinstance(tree.children[0], lark.Tree):
        tree = tree.children[0]
    tree.children = [simplified(child) for child in tree.children]
    return tree


def ident_of(tree: Any) -> str:
    """The name if the expression is a single identifier, else empty."""
    while isinstance(tree, lark.Tree):
        if tree.data == "ident":
            return str(tree.children[0])
        if len(tree.children) != 1:
            return ""
        tree = tree.children[0]
    return ""


def parts_of(tree: lark.Tree[Any]) -> tuple[Any, Any, list[Any]]:
    """Member, name and arguments of a call `member.name(arguments…)`."""
    member, name = tree.children[:2]
    return member, name, list(tree.children[2].children) if len(tree.children) > 2 else []


def _edit(terminal: TerminalDef) -> None:
    if terminal.name in _LITERALS:
        terminal.pattern = PatternRE(_LITERALS[terminal.name])


def environment(runner: type[celpy.Runner]) -> celpy.Environment:
    """The CEL environment in which expressions are compiled.

    The patterns of cel-python for literals of strings read an escape in two ways, so that 40 backslashes in an open
    literal take half a minute. These read it in one.
    """
    if CELParser.CEL_PARSER is None:
        CELParser.CEL_PARSER = lark.Lark(
            Path(celpy.__file__).with_name("cel.lark").read_text(encoding="utf-8"),
            parser="lalr",
            start="expr",
            g_regex_flags=re.MULTILINE,
            propagate_positions=True,
            maybe_placeholders=False,
            lexer_callbacks={"IDENT": CELParser.ambiguous_literals},
            priority="invert",
            edit_terminals=_edit,
            tree_class=runner.tree_node_class,
        )
    return celpy.Environment(runner_class=runner)
