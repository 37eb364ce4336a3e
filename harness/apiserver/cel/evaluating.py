"""cel-python's interpreter, extended by two-variable macros, optional values and namespaced functions.

cel-python's parser lacks the syntax of optional selection, `a.?b` and `a[?b]`, which is rewritten to calls first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import celpy
import lark
from celpy import celtypes
from celpy.celparser import CELParser
from celpy.evaluation import CELEvalError, Evaluator
from lark.lexer import PatternRE, TerminalDef

from seatrial.harness.apiserver.cel.expressions import TooLongError
from seatrial.harness.apiserver.cel.functions import FUNCTIONS, NAMESPACES
from seatrial.harness.apiserver.cel.values import NONE, Optional
from seatrial.harness.apiserver.long_computations import LOOP_STEPS, NeedsThread
from seatrial.harness.apiserver.patterns import match_cost

MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
TWO_VARIABLE_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "transformList", "transformMap"})

_PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
OPTIONAL: Final = frozenset({"optMap", "optFlatMap"})
MAX_STEPS = 100_000  # of all rules of an object; a rule over all pairs of 64 elements takes half
MATCH_STEPS = 500  # steps of a pattern match that take as long as one step here
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


class Budget:
    """Counts the steps of evaluations that share one limit; few are allowed for those that block the event loop."""

    def __init__(self, *, on_loop: bool = False, steps: int = 0) -> None:
        self.used = 0
        self._limit = LOOP_STEPS if on_loop else steps or MAX_STEPS
        self._error: type[Exception] = NeedsThread if on_loop else TooLongError

    def spend(self, steps: int = 1) -> None:
        """
        Raises:
            NeedsThread: more steps than the event loop may take.
            TooLongError: the limit is exceeded.
        """
        self.used += steps
        if self.used > self._limit:
            raise self._error

    @property
    def exhausted(self) -> bool:
        return self.used > self._limit


def desugared(expression: str) -> str:
    """`a.?b` → `a.optSelect__("b")`, `a[?b]` → `a.optIndex__(b)`."""
    if "?" not in expression:
        return expression
    parts: list[str] = []
    opened: list[str] = []  # the closing text of each open bracket
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


class Interpreter(Evaluator):
    """Evaluates an expression or a part of it.

    Evaluation blocks the server, so the number of steps is limited; three nested loops over lists can reach the limit.
    """

    budget: Budget  # shared by all parts of the expression
    outer: Mapping[str, Any]  # the variables of the enclosing parts
    scope: Mapping[str, Any]  # `outer` and this part's variables

    def sub_evaluator(self, ast: lark.Tree[Any]) -> "Interpreter":
        """The evaluator of a macro's body; overrides cel-python's method."""
        part = Interpreter(ast, activation=self.activation)
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

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        """Count a step; cel-python calls this for every part of an expression."""
        self.budget.spend()
        return super().visit_children(tree)

    def member_dot_arg(self, tree: lark.Tree[Any]) -> Any:
        """A call of a method, macro or namespaced function; overrides cel-python's method."""
        member, name, arguments = parts_of(tree)
        namespace = ident_of(member)
        if namespace in NAMESPACES and f"{namespace}.{name}" in FUNCTIONS:
            return FUNCTIONS[f"{namespace}.{name}"](*[self.visit(argument) for argument in arguments])
        if (name in TWO_VARIABLE_MACROS and len(arguments) >= 3) or name == "transformMapEntry":
            return self._two_variable_macro(member, str(name), arguments)
        if name in OPTIONAL and len(arguments) == 2:
            return self._optional_macro(member, str(name), arguments)
        if name == "map" and len(arguments) == 3:
            return self._filtered_map(member, arguments)
        if name in _PATTERN_FUNCTIONS and arguments:
            text, pattern = self.visit(member), self.visit(arguments[0])
            if isinstance(text, str) and isinstance(pattern, str):
                self.budget.spend(_steps_of_match(pattern, text))
            rest = [self.visit(argument) for argument in arguments[1:]]
            return FUNCTIONS[str(name)](text, pattern, *rest)
        if name == "min" and not arguments:
            return FUNCTIONS["min"](self.visit(member))
        if name == "existsOne":
            tree.children[1] = lark.Token("IDENT", "exists_one")
        return super().member_dot_arg(tree)

    def member_dot(self, tree: lark.Tree[Any]) -> Any:
        """`a.b`, also for an optional `a`; overrides cel-python's method."""
        found = self.visit(tree.children[0])
        if isinstance(found, Optional):
            return FUNCTIONS["optSelect__"](found, celtypes.StringType(str(tree.children[1])))
        return super().member_dot(tree)

    def _bodies(self, names: list[str], tree: Any, rows: Iterable[tuple[Any, ...]]) -> Iterator[Any]:
        """The value of a macro's body for each row; errors are yielded as values."""
        nested = self.sub_evaluator(tree)
        for row in rows:
            try:
                yield nested.evaluate(dict(zip(names, row, strict=True)))
            except CELEvalError as error:
                yield error

    def _two_variable_macro(self, member: Any, name: str, arguments: list[Any]) -> Any:
        over = self.visit(member)
        if isinstance(over, CELEvalError):
            return over
        if isinstance(over, celtypes.MapType):
            rows = list(over.items())
        elif isinstance(over, list):
            rows = [(celtypes.IntType(at), element) for at, element in enumerate(over)]
        else:
            return CELEvalError("no such overload", TypeError, (type(over).__name__,))
        names = [ident_of(argument) for argument in arguments[:2]]
        if len(arguments) == 4:
            kept = list(self._bodies(names, arguments[2], rows))
            for element in kept:
                if isinstance(element, CELEvalError):
                    return element
            rows = [row for row, keep in zip(rows, kept, strict=True) if keep]
        found = list(self._bodies(names, arguments[-1], rows))
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

    def _optional_macro(self, member: Any, name: str, arguments: list[Any]) -> Any:
        over = self.visit(member)
        if not isinstance(over, Optional):
            return over if isinstance(over, CELEvalError) else CELEvalError("no such overload", TypeError, ())
        if not over:
            return NONE
        (found,) = self._bodies([ident_of(arguments[0])], arguments[1], [over.values])
        return found if name == "optFlatMap" or isinstance(found, CELEvalError) else Optional((found,))

    def _filtered_map(self, member: Any, arguments: list[Any]) -> Any:
        """`list.map(x, condition, result)`."""
        over = self.visit(member)
        if isinstance(over, CELEvalError):
            return over
        names = [ident_of(arguments[0])]
        found: list[Any] = []
        for element in over:
            (kept,) = self._bodies(names, arguments[1], [(element,)])
            if isinstance(kept, CELEvalError):
                return kept
            if kept:
                found += self._bodies(names, arguments[2], [(element,)])
        return next((result for result in found if isinstance(result, CELEvalError)), celtypes.ListType(found))


def _steps_of_match(pattern: str, text: str) -> int:
    try:
        return 1 + match_cost(pattern, text) // MATCH_STEPS
    except ValueError:  # the function reports it
        return 1


class Runner(celpy.InterpretedRunner):
    """A compiled expression."""

    def evaluate(self, context: Any, budget: Budget | None = None) -> Any:
        whole = Interpreter(self.ast, activation=self.new_activation())
        whole.budget, whole.outer = budget or Budget(), {}
        return whole.evaluate(context)


def _edit(terminal: TerminalDef) -> None:
    if terminal.name in _LITERALS:
        terminal.pattern = PatternRE(_LITERALS[terminal.name])


def environment() -> celpy.Environment:
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
            tree_class=Runner.tree_node_class,
        )
    return celpy.Environment(runner_class=Runner)
