"""cel-python's interpreter, extended by two-variable macros, optional values and namespaced functions."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import lark
from celpy import celtypes
from celpy.evaluation import CELEvalError

from seatrial.harness.apiserver.cel.expressions import TooLongError
from seatrial.harness.apiserver.cel.functions import FUNCTIONS, NAMESPACES
from seatrial.harness.apiserver.cel.values import NONE, Optional
from seatrial.harness.apiserver.long_computations import LOOP_STEPS, NeedsThread
from seatrial.harness.apiserver.patterns import match_cost
from seatrial.scheduler.api.cel import CountingEvaluator, CountingRunner, ident_of

MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "filter", "map"})
TWO_VARIABLE_MACROS: Final = frozenset({"all", "exists", "exists_one", "existsOne", "transformList", "transformMap"})

_PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})
OPTIONAL: Final = frozenset({"optMap", "optFlatMap"})
MAX_STEPS = 100_000  # of all rules of an object; a rule over all pairs of 64 elements takes half
MATCH_STEPS = 500  # steps of a pattern match that take as long as one step here


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


def parts_of(tree: lark.Tree[Any]) -> tuple[Any, Any, list[Any]]:
    """Member, name and arguments of a call `member.name(arguments…)`."""
    member, name = tree.children[:2]
    return member, name, list(tree.children[2].children) if len(tree.children) > 2 else []


class Interpreter(CountingEvaluator):
    """Evaluates an expression or a part of it. Evaluation blocks the server, so the number of steps is limited."""

    def member_dot_arg(self, tree: lark.Tree[Any]) -> Any:
        """A call of a method, macro or namespaced function; overrides cel-python's method."""
        member, name, arguments = parts_of(tree)
        namespace = ident_of(member)
        if namespace in NAMESPACES and f"{namespace}.{name}" in FUNCTIONS:
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
            return FUNCTIONS["optSelect__"](visit, celtypes.StringType(str(tree.children[1])))
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


class Runner(CountingRunner):
    """A compiled expression."""

    evaluator = Interpreter

    def evaluate(self, context: Any, budget: Budget | None = None) -> Any:
        return self.counted(context, budget or Budget())
