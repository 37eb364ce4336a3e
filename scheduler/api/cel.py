"""CEL as Kubernetes' programs need it: cel-python's parser without its slow patterns, and evaluation by counted steps.

cel-python's parser lacks the syntax of optional selection, `a.?b` and `a[?b]`, which is rewritten to calls first. This
module is imported when the first expression is compiled: cel-python takes a while.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import celpy
import lark
from celpy.celparser import CELParser
from celpy.evaluation import CELEvalError, Evaluator
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


class Steps(Protocol):
    """Counts the steps of an evaluation, and raises where there are too many."""

    def spend(self, steps: int = 1) -> None: ...


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


VALUES_A_STEP: Final = 10  # texts or numbers whose comparison takes as long as one step of an evaluation
_STEPS_A_COMPARISON: Final = 2  # of what is in two lists of lists
_STEPS_A_NUMBER: Final = 2  # that is made
_CHARACTERS_A_VALUE: Final = 10
_AT_ONCE: Final = frozenset({"size", "hasValue", "value", "or", "orValue", "optSelect__", "optIndex__"})
_ALL_PAIRS: Final = frozenset({"distinct", "sets.contains", "sets.intersects", "sets.equivalent"})


def size_of(value: Any) -> int:
    """The number of values in it, however often each is in it. Lists and maps of CEL keep theirs."""
    if isinstance(value, str | bytes):
        return 1 + len(value) // _CHARACTERS_A_VALUE
    size = getattr(value, "size_of", None)
    if size is None and isinstance(value, list | dict):
        size = 1 + sum(map(size_of, value.values() if isinstance(value, dict) else value))
        if hasattr(value, "__dict__"):
            value.size_of = size
    return size or 1


class CountingEvaluator(Evaluator):
    """Evaluates an expression or a part of it, step by step: three nested loops over lists can take minutes."""

    budget: Steps  # shared by all parts of the expression
    outer: Mapping[str, Any]  # the variables of the enclosing parts
    scope: Mapping[str, Any]  # `outer` and this part's variables

    def sub_evaluator(self, ast: lark.Tree[Any]) -> "CountingEvaluator":
        """The evaluator of a macro's body; overrides cel-python's method."""
        part = type(self)(ast, activation=self.activation)
        part.budget, part.outer, part.scope = self.budget, self.scope, self.scope
        return part

    def evaluate(self, context: Any = None) -> Any:
        """Evaluate without copying all variables for each list element, as cel-python does."""
        self.scope = {**self.outer, **context} if context else self.outer
        value = self.visit(self.ast)
        if isinstance(value, CELEvalError):
            raise value
        return value

    def ident_value(self, name: str, root_scope: bool = False) -> Any:
        """The value of a variable or type name; overrides cel-python's method."""
        return self.scope[name] if name in self.scope else super().ident_value(name, root_scope)

    def addition(self, tree: lark.Tree[Any]) -> Any:
        """A sum, counted by its size; overrides cel-python's method."""
        return self._counted(super().addition(tree))

    def function_eval(self, name_token: lark.Token, exprlist: Any = None) -> Any:
        """A call of a function; overrides cel-python's method."""
        self.count(str(name_token), exprlist)
        return self._counted(super().function_eval(name_token, exprlist))

    def method_eval(self, object: Any, method_ident: lark.Token, exprlist: Any = None) -> Any:  # noqa: A002
        """A call of a method; overrides cel-python's method."""
        self.count(str(method_ident), [object, exprlist or []])
        return self._counted(super().method_eval(object, method_ident, exprlist))

    def count(self, name: str, arguments: Any) -> None:
        """Count a call by the sizes of its arguments before it is made: values that are in a list twice, and that list
        twice in the next, double with each step of an expression."""
        if name in _AT_ONCE or not isinstance(arguments, list) or not arguments:
            return
        size, first = size_of(arguments), arguments[0]
        if name == "lists.range" and isinstance(first, int):
            size += max(0, first) * VALUES_A_STEP * _STEPS_A_NUMBER
        elif isinstance(first, list):
            if size_of(first) > len(first) + 1:  # values in values
                size *= VALUES_A_STEP * _STEPS_A_COMPARISON
            if name in _ALL_PAIRS:
                size *= len(first)
        self.budget.spend(size // VALUES_A_STEP)

    def _counted(self, value: Any) -> Any:
        if isinstance(value, str | bytes | list | dict):
            self.budget.spend(size_of(value) // VALUES_A_STEP)
        return value

    def member_dot_arg(self, tree: lark.Tree[Any]) -> Any:
        """A call of a method, or `cel.bind(name, value, body)`; overrides cel-python's method."""
        member, name, *rest = tree.children
        if name == "bind" and ident_of(member) == "cel" and rest and len(rest[0].children) == 3:
            variable, value, body = rest[0].children
            try:
                return self.sub_evaluator(body).evaluate({ident_of(variable): self.visit(value)})
            except CELEvalError as error:
                return error
        return super().member_dot_arg(tree)

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        """Count a step; cel-python calls this for every part of an expression, and for both sides of an operator."""
        self.budget.spend()
        values = super().visit_children(tree)
        if tree.data == "relation" or tree.data == "addition":
            self.count("", values)
        return values


class CountingRunner(celpy.InterpretedRunner):
    """A compiled expression, evaluated by `evaluator`."""

    evaluator: type[CountingEvaluator] = CountingEvaluator

    def counted(self, context: Any, budget: Steps) -> Any:
        """The value of the expression; `context` are its variables."""
        whole = self.evaluator(self.ast, activation=self.new_activation())
        whole.budget, whole.outer = budget, {}
        return whole.evaluate(context)


def _edit(terminal: TerminalDef) -> None:
    if terminal.name in _LITERALS:
        terminal.pattern = PatternRE(_LITERALS[terminal.name])


def environment(runner: type[CountingRunner] = CountingRunner) -> celpy.Environment:
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
