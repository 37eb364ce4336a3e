"""cel-python's interpreter with what kube-apiserver has more: two-variable macros, optional values, namespaces.

Optional selection has a syntax of its own, `a.?b` and `a[?b]`; the parser does not know it, so it is given calls.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import celpy
import lark
from celpy import celtypes
from celpy.evaluation import CELEvalError, Evaluator

from harness.apiserver.cel.functions import FUNCTIONS, NAMESPACES
from harness.apiserver.cel.values import NONE, Optional

MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
TWO: Final = frozenset({"all", "exists", "exists_one", "existsOne", "transformList", "transformMap"})  # variables
OPTIONAL: Final = frozenset({"optMap", "optFlatMap"})
STEPS = 100_000  # of one expression, two or three seconds; a rule over all pairs of 64 takes half of them
_PASSING: Final = frozenset({
    "expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member",
})  # fmt: skip
_TOKEN: Final = re.compile(
    r"""[rRbB]{0,2}(?:'''(?:\\.|.)*?'''|\"\"\"(?:\\.|.)*?\"\"\"|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")"""
    r"|//[^\n]*|\.\?\s*[_a-zA-Z]\w*|\[\s*\?|[\[\](){}]|\w+|\s+|.",
    re.DOTALL,
)


class TooLongError(Exception):
    """The expression takes too many steps. No error of CEL's own: macros go on after those."""


def without_marks(expression: str) -> str:
    """`a.?b` → `a.optSelect__("b")`, `a[?b]` → `a.optIndex__(b)`."""
    if "?" not in expression:
        return expression
    parts: list[str] = []
    opened: list[str] = []  # what closes each bracket
    before = ""
    for found in _TOKEN.finditer(expression):
        piece = found[0]
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
            before = found[0]
    return "".join(parts)


def lean(tree: Any) -> Any:
    """Without the nodes that only pass on what is below them: of ten steps to a name or a number two are left."""
    if not isinstance(tree, lark.Tree):
        return tree
    while tree.data in _PASSING and len(tree.children) == 1 and isinstance(tree.children[0], lark.Tree):
        tree = tree.children[0]
    tree.children = [lean(child) for child in tree.children]
    return tree


def ident_of(tree: Any) -> str:
    """The name that is all of an expression; empty if it is more than a name."""
    while isinstance(tree, lark.Tree):
        if tree.data == "ident":
            return str(tree.children[0])
        if len(tree.children) != 1:
            return ""
        tree = tree.children[0]
    return ""


def parts_of(tree: lark.Tree[Any]) -> tuple[Any, Any, list[Any]]:
    """Of a call `member.name(given…)`: member, name, what is given."""
    member, name = tree.children[:2]
    return member, name, list(tree.children[2].children) if len(tree.children) > 2 else []


class Interpreter(Evaluator):
    """Evaluates one expression, or one part of it.

    Nobody else is served meanwhile, so an expression has only so many steps; a list in a list in a list is many.
    """

    steps: list[int]  # taken so far, by all parts of the expression together
    outer: Mapping[str, Any]  # the variables of the parts around this one
    scope: Mapping[str, Any]  # with its own

    def sub_evaluator(self, ast: lark.Tree[Any]) -> "Interpreter":
        """cel-python's name for the evaluator of a macro's body."""
        part = Interpreter(ast, activation=self.activation)
        part.steps, part.outer, part.scope = self.steps, self.scope, self.scope
        return part

    def evaluate(self, context: Any = None) -> Any:
        """As cel-python's, which copies all variables for every row of a list."""
        self.scope = {**self.outer, **context} if context else self.outer
        value = self.visit(self.ast)
        if isinstance(value, CELEvalError):
            raise value
        return value

    def ident_value(self, name: str, root_scope: bool = False) -> Any:
        """A variable, or a type; cel-python's name for it."""
        return self.scope[name] if name in self.scope else super().ident_value(name, root_scope)

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        """cel-python comes here for every part of an expression."""
        self.steps[0] += 1
        if self.steps[0] > STEPS:
            raise TooLongError
        return super().visit_children(tree)

    def member_dot_arg(self, tree: lark.Tree[Any]) -> Any:
        """A call of a method, a macro or a namespaced function; cel-python's name for it."""
        member, name, given = parts_of(tree)
        namespace = ident_of(member)
        if namespace in NAMESPACES and f"{namespace}.{name}" in FUNCTIONS:
            return FUNCTIONS[f"{namespace}.{name}"](*[self.visit(argument) for argument in given])
        if (name in TWO and len(given) >= 3) or name == "transformMapEntry":
            return self._of_two(member, str(name), given)
        if name in OPTIONAL and len(given) == 2:
            return self._of_optional(member, str(name), given)
        if name == "map" and len(given) == 3:
            return self._filtered_map(member, given)
        if name == "min" and not given:
            return FUNCTIONS["min"](self.visit(member))
        if name == "existsOne":
            tree.children[1] = lark.Token("IDENT", "exists_one")
        return super().member_dot_arg(tree)

    def member_dot(self, tree: lark.Tree[Any]) -> Any:
        """`a.b`, also of an optional; cel-python's name for it."""
        found = self.visit(tree.children[0])
        if isinstance(found, Optional):
            return FUNCTIONS["optSelect__"](found, celtypes.StringType(str(tree.children[1])))
        return super().member_dot(tree)

    def _bodies(self, names: list[str], tree: Any, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """What a macro's body comes to, row by row; errors as values."""
        nested = self.sub_evaluator(tree)
        for row in rows:
            try:
                yield nested.evaluate(dict(zip(names, row, strict=True)))
            except CELEvalError as error:
                yield error

    def _of_two(self, member: Any, name: str, given: list[Any]) -> Any:
        over = self.visit(member)
        if isinstance(over, CELEvalError):
            return over
        if isinstance(over, celtypes.MapType):
            rows = list(over.items())
        elif isinstance(over, list):
            rows = [(celtypes.IntType(at), element) for at, element in enumerate(over)]
        else:
            return CELEvalError("no such overload", TypeError, (type(over).__name__,))
        names = [ident_of(argument) for argument in given[:2]]
        if len(given) == 4:
            kept = list(self._bodies(names, given[2], rows))
            for element in kept:
                if isinstance(element, CELEvalError):
                    return element
            rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
        found = list(self._bodies(names, given[-1], rows))
        failed = next((result for result in found if isinstance(result, CELEvalError)), None)
        truths = [bool(result) for result in found if not isinstance(result, CELEvalError)]
        if name == "all":
            return celtypes.BoolType(0) if False in truths else failed or celtypes.BoolType(1)
        if name == "exists":
            return celtypes.BoolType(1) if True in truths else failed or celtypes.BoolType(0)
        if failed is not None:
            return failed
        match name:
            case "transformList":
                return celtypes.ListType(found)
            case "transformMap":
                return celtypes.MapType({row[0]: result for row, result in zip(rows, found, strict=True)})
            case "transformMapEntry":
                return celtypes.MapType({key: value for mapping in found for key, value in mapping.items()})
            case _:
                return celtypes.BoolType(sum(1 for truth in found if truth) == 1)

    def _of_optional(self, member: Any, name: str, given: list[Any]) -> Any:
        over = self.visit(member)
        if not isinstance(over, Optional):
            return over if isinstance(over, CELEvalError) else CELEvalError("no such overload", TypeError, ())
        if not over:
            return NONE
        (found,) = self._bodies([ident_of(given[0])], given[1], [over.values])
        return found if name == "optFlatMap" or isinstance(found, CELEvalError) else Optional((found,))

    def _filtered_map(self, member: Any, given: list[Any]) -> Any:
        """`list.map(x, condition, result)`."""
        over = self.visit(member)
        if isinstance(over, CELEvalError):
            return over
        names = [ident_of(given[0])]
        found: list[Any] = []
        for element in over:
            (kept,) = self._bodies(names, given[1], [(element,)])
            if isinstance(kept, CELEvalError):
                return kept
            if kept:
                found += self._bodies(names, given[2], [(element,)])
        return next((result for result in found if isinstance(result, CELEvalError)), celtypes.ListType(found))


class Runner(celpy.InterpretedRunner):
    """A compiled expression."""

    def evaluate(self, context: Any) -> Any:
        whole = Interpreter(self.ast, activation=self.new_activation())
        whole.steps, whole.outer = [0], {}
        return whole.evaluate(context)


def environment() -> celpy.Environment:
    """Where expressions are compiled."""
    return celpy.Environment(runner_class=Runner)
