"""cel-python's interpreter by counted steps, extended by two-variable macros, optional values and namespaced functions.

It is imported when the first expression is compiled: cel-python takes a while.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Protocol

import celpy
import lark
from celpy import celtypes
from celpy.evaluation import CELEvalError, Evaluator

from seatrial.scheduler.api.cel.parsing import ident_of, parts_of
from seatrial.scheduler.api.cel.patterns import match_cost
from seatrial.scheduler.api.cel.values import NONE, Optional, size_of

MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
TWO_VARIABLE_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "transformList", "transformMap"})
OPTIONAL: Final = frozenset({"optMap", "optFlatMap"})
_OPERATORS: Final = frozenset({"relation", "addition"})
_PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
VALUES_A_STEP: Final = 10  # texts or numbers whose comparison takes as long as one step of an evaluation
_STEPS_A_COMPARISON: Final = 2  # of what is in two lists of lists
_STEPS_A_NUMBER: Final = 2  # that is made
_AT_ONCE: Final = frozenset({"size", "hasValue", "value", "or", "orValue", "optSelect__", "optIndex__"})
MATCH_STEPS: Final = 500  # steps of a pattern match that take as long as one step here
_ALL_PAIRS: Final = frozenset({"distinct", "sets.contains", "sets.intersects", "sets.equivalent"})


class Steps(Protocol):
    """Counts the steps of an evaluation, and raises where there are too many."""

    def spend(self, steps: int = 1) -> None: ...


class Interpreter(Evaluator):
    """Evaluates an expression or a part of it, step by step: three nested loops over lists can take minutes."""

    budget: Steps  # shared by all parts of the expression
    outer: Mapping[str, Any]  # the variables of the enclosing parts
    scope: Mapping[str, Any]  # `outer` and this part's variables

    def sub_evaluator(self, ast: lark.Tree[Any]) -> "Interpreter":
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

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        """Count a step; cel-python calls this for every part of an expression, and for both sides of an operator."""
        self.budget.spend()
        values = super().visit_children(tree)
        if tree.data in _OPERATORS:
            self.count("", values)
        return values

    def member_dot_arg(self, tree: lark.Tree[Any]) -> Any:
        """A call of a method, macro or namespaced function; overrides cel-python's method."""
        member, name, arguments = parts_of(tree)
        namespace = ident_of(member)
        if namespace == "cel" and name == "bind" and len(arguments) == 3:
            (result,) = self._bodies([ident_of(arguments[0])], arguments[2], [(self.visit(arguments[1]),)])
            return result
        if namespace and f"{namespace}.{name}" in self.activation.functions:
            return self.function_eval(lark.Token("IDENT", f"{namespace}.{name}"), [*map(self.visit, arguments)])
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
            return self.method_eval(text, name, [pattern, *map(self.visit, arguments[1:])])
        if name == "min" and not arguments:
            return self.method_eval(self.visit(member), name)
        if name == "existsOne":
            tree.children[1] = lark.Token("IDENT", "exists_one")
        return super().member_dot_arg(tree)

    def member_dot(self, tree: lark.Tree[Any]) -> Any:
        """`a.b`, also for an optional `a`; overrides cel-python's method."""
        visit = self.visit(tree.children[0])
        if isinstance(visit, Optional):
            return self.activation.resolve_function("optSelect__")(visit, celtypes.StringType(str(tree.children[1])))
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
        bodies = list(self._bodies(names, arguments[-1], rows))
        failed = next((result for result in bodies if isinstance(result, CELEvalError)), None)
        truths = [bool(result) for result in bodies if not isinstance(result, CELEvalError)]
        if name == "all":
            return celtypes.BoolType(0) if False in truths else failed or celtypes.BoolType(1)
        if name == "exists":
            return celtypes.BoolType(1) if True in truths else failed or celtypes.BoolType(0)
        if failed is not None:
            return failed
        match name:
            case "transformList":
                return celtypes.ListType(bodies)
            case "transformMap":
                return celtypes.MapType({row[0]: result for row, result in zip(rows, bodies, strict=True)})
            case "transformMapEntry":
                return celtypes.MapType({key: value for mapping in bodies for key, value in mapping.items()})
            case _:
                return celtypes.BoolType(sum(1 for truth in bodies if truth) == 1)

    def _optional_macro(self, member: Any, name: str, arguments: list[Any]) -> Any:
        over = self.visit(member)
        if not isinstance(over, Optional):
            return over if isinstance(over, CELEvalError) else CELEvalError("no such overload", TypeError, ())
        if not over:
            return NONE
        (result,) = self._bodies([ident_of(arguments[0])], arguments[1], [over.values])
        return result if name == "optFlatMap" or isinstance(result, CELEvalError) else Optional((result,))

    def _filtered_map(self, member: Any, arguments: list[Any]) -> Any:
        """`list.map(x, condition, result)`."""
        over = self.visit(member)
        if isinstance(over, CELEvalError):
            return over
        names = [ident_of(arguments[0])]
        bodies: list[Any] = []
        for element in over:
            (kept,) = self._bodies(names, arguments[1], [(element,)])
            if isinstance(kept, CELEvalError):
                return kept
            if kept:
                bodies += self._bodies(names, arguments[2], [(element,)])
        return next((result for result in bodies if isinstance(result, CELEvalError)), celtypes.ListType(bodies))


def _steps_of_match(pattern: str, text: str) -> int:
    try:
        return 1 + match_cost(pattern, text) // MATCH_STEPS
    except ValueError:  # the function reports it
        return 1


class Runner(celpy.InterpretedRunner):
    """A compiled expression."""

    def counted(self, context: Any, budget: Steps) -> Any:
        """The value of the expression; `context` are its variables."""
        whole = Interpreter(self.ast, activation=self.new_activation())
        whole.budget, whole.outer = budget, {}
        return whole.evaluate(context)
