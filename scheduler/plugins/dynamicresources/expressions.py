"""CEL expressions about one device (`dra: cel/compile.go`), evaluated once for all devices that they cannot tell apart.

An evaluation records which values of the device it reads. A later device with the same values there has the same
result, so that an expression about a model costs one evaluation for each model, not one for each card of a cluster.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any, Final

from seatrial.scheduler.api.quantity import exact
from seatrial.scheduler.api.resourceclaims import Selector

MAX_LENGTH: Final = 10 * 1024  # bytes of an expression, as the API server's limit
MAX_EXPRESSIONS: Final = 20_000  # characters of a claim's or a class's expressions: a second to compile
MAX_STEPS: Final = 10_000  # of an evaluation, a third of a second; one with four terms takes 40
KEPT: Final = 1000  # results of one expression that are kept
KEPT_OF_DEVICE: Final = 16  # results of one device that are kept
_NO_KEY: Final = re.compile(r"no such (?:member in mapping|key)[^']*'?([^']*)'?")
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional"
    " fields"
)

Path = tuple[str, ...]  # ("driver",), ("attributes", domain, identifier)


class ExpressionError(Exception):
    """The expression cannot be compiled, or fails for a device."""


class ExhaustedError(Exception):
    """The decision has no steps left. What was evaluated is known; the next one goes on."""


class Allowance:
    """The steps that a decision may still take: those of evaluations, and one for each device that is tried."""

    left = math.inf

    def spend(self, steps: int) -> None:
        self.left -= steps

    def check(self) -> None:
        """
        Raises:
            ExhaustedError: nothing is left.
        """
        if self.left <= 0:
            raise ExhaustedError


class _Truth(Enum):
    """Truth values of devices: as keys of results, `True` and 1 would be one."""

    NO = 0
    YES = 1


class Subject:
    """A device as expressions see it. `values`: what it has by path."""

    __slots__ = ("own", "values")

    def __init__(self, values: Mapping[Path, Any]) -> None:
        self.values = {path: _Truth(value) if isinstance(value, bool) else value for path, value in values.items()}
        self.own: dict[str, bool | ExpressionError] = {}  # results that hold for this device alone, by expression

    def read(self, paths: Iterable[Path]) -> tuple[Any, ...]:
        return tuple(map(self.values.get, paths))


class Expression:
    """A compiled expression with the results that are known."""

    def __init__(self, text: str, allowance: Allowance) -> None:
        """
        Raises:
            ExpressionError: it cannot be compiled.
        """
        self.text, self._allowance = text, allowance
        self._evaluate = _compiled(text)
        self._known: dict[tuple[Path, ...], dict[tuple[Any, ...], bool | ExpressionError]] = {}
        self._size = 0

    @property
    def reads(self) -> Iterator[Path]:
        """What was read for the results that are known, but for those of a device alone."""
        return (path for paths in self._known for path in paths)

    def holds(self, device: Subject) -> bool:
        """Whether it is true of the device.

        Raises:
            ExpressionError: it fails for this device, as when it reads an attribute that the device does not have.
            ExhaustedError: it is not known yet for this device, and the decision has no steps left.
        """
        for paths, results in self._known.items():
            result = results.get(device.read(paths))
            if result is not None:
                return _result(result)
        if self.text in device.own:
            return _result(device.own[self.text])
        self._allowance.check()
        reads: dict[Path, None] = {}
        whole: list[bool] = []
        result = self._evaluated(device, reads, whole)
        if whole:
            if len(device.own) >= KEPT_OF_DEVICE:
                device.own.clear()
            device.own[self.text] = result
        else:
            if self._size >= KEPT:
                self._known.clear()
                self._size = 0
            paths = tuple(reads)
            self._known.setdefault(paths, {})[device.read(paths)] = result
            self._size += 1
        return _result(result)

    def _evaluated(self, device: Subject, reads: dict[Path, None], whole: list[bool]) -> bool | ExpressionError:
        from celpy.evaluation import CELEvalError

        steps = _Steps()
        try:
            evaluate = self._evaluate({"device": _view(device, reads, whole)}, steps)
        except CELEvalError as error:
            why = str(error.args[0] if error.args else error)
            missing = _NO_KEY.match(why)
            if missing is not None:
                key = missing[1] or next(iter(error.args[2] or ("",)) if len(error.args) > 2 else iter(("",)))
                return ExpressionError(f"no such key: {key}{_HINT}")
            return ExpressionError(why.partition(" (in activation")[0])
        except _TooLongError:
            return ExpressionError(f"the evaluation takes more than {MAX_STEPS} steps")
        except RecursionError:
            return ExpressionError("expression is nested too deeply")
        except Exception as error:  # noqa: BLE001 cel-python does not convert all errors of operations on values
            return ExpressionError(f"no such overload ({type(error).__name__})")
        finally:
            self._allowance.spend(steps.used)
        if evaluate is True or evaluate is False or type(evaluate).__name__ == "BoolType":
            return bool(evaluate)
        return ExpressionError(f"expression must evaluate to a bool, found {type(evaluate).__name__}")


def _result(result: "bool | ExpressionError") -> bool:
    if isinstance(result, ExpressionError):
        raise result
    return result


class Expressions:
    """The expressions that a scheduler has compiled, and the steps that its present decision may still take."""

    def __init__(self) -> None:
        self.allowance = Allowance()
        self._of_text = lru_cache(maxsize=256)(self._make)

    def of(self, selectors: Sequence[Selector]) -> tuple[Expression, ...]:
        """
        Raises:
            ExpressionError: one of them cannot be compiled.
        """
        return tuple(self._of_text(selector.cel.expression) for selector in selectors)

    def _make(self, text: str) -> Expression:
        return Expression(text, self.allowance)


def too_long(what: str, selectors: Iterable[Selector]) -> str:
    """The message for more than MAX_EXPRESSIONS characters of different expressions; "" where there are fewer."""
    length = sum(map(len, {selector.cel.expression for selector in selectors}))
    return (
        f"{what}: expected at most {MAX_EXPRESSIONS} characters of expressions in all, found {length}"
        if length > MAX_EXPRESSIONS
        else ""
    )


def _compiled(text: str) -> Callable[[Mapping[str, Any], "_Steps"], Any]:
    if len(text.encode()) > MAX_LENGTH:
        raise ExpressionError(f"expected at most {MAX_LENGTH} bytes, found {len(text.encode())}")
    from celpy.celparser import CELParseError

    from seatrial.scheduler.api.cel.evaluating import Runner
    from seatrial.scheduler.api.cel.parsing import desugared, environment, simplified

    place = environment(Runner)
    try:
        runner = place.program(simplified(place.compile(desugared(text))), _functions())
    except CELParseError as error:
        raise ExpressionError(f"compilation failed: {error.args[0] if error.args else error}") from error
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise ExpressionError(f"compilation failed: {error}") from error
    assert isinstance(runner, Runner)
    return runner.counted


@cache
def _functions() -> dict[str, Any]:
    from seatrial.scheduler.api.cel.functions import functions

    return functions(exact)


class _TooLongError(Exception):
    """More steps than allowed. Not a CEL error, since loops continue after those."""


class _Steps:
    """The steps of one evaluation."""

    def __init__(self) -> None:
        self.used = 0

    def spend(self, steps: int = 1) -> None:
        self.used += steps
        if self.used > MAX_STEPS:
            raise _TooLongError


# -- values ------------------------------------------------------------------------------------------------------------


def _view(device: Subject, reads: dict[Path, None], whole: list[bool]) -> Any:
    """The variable `device`, which notes what is read of it."""
    from celpy import celtypes

    class Fields(celtypes.MapType):
        """The entries below one path. A loop over it makes the result hold for this device alone."""

        size_of = 32  # the API server allows no more attributes and capacities

        def __init__(self, path: Path) -> None:
            super().__init__()
            self.path = path

        def find(self, key: str) -> Any:
            path = (*self.path, str(key))
            if path in {("attributes",), ("capacity",)} or len(path) == 2:
                return Fields(path)  # an unknown domain is an empty map
            reads[path] = None
            value = device.values.get(path)
            return None if value is None else _cel(value)

        def __getitem__(self, key: Any) -> Any:
            getitem = self.find(key)
            if getitem is None:
                raise KeyError(str(key))
            return getitem

        def __contains__(self, key: object) -> bool:
            if len(self.path) == 1:  # whether there is such a domain
                whole.append(True)
                return any(path[:2] == (*self.path, str(key)) for path in device.values)
            return self.find(str(key)) is not None

        def get(self, key: Any, default: Any = None) -> Any:
            result = self.find(key)
            return default if result is None else result

        def __iter__(self) -> Iterator[Any]:
            whole.append(True)
            at = len(self.path)
            names = dict.fromkeys(path[at] for path in device.values if len(path) > at and path[:at] == self.path)
            return iter([celtypes.StringType(name) for name in names])

        def __len__(self) -> int:
            return sum(1 for _ in iter(self))

        def keys(self) -> Any:
            return list(iter(self))

        def items(self) -> Any:
            return [(key, self[key]) for key in iter(self)]

        def __eq__(self, other: object) -> bool:
            return dict(self.items()) == other

        __hash__ = None  # type: ignore[assignment]

    return Fields(())


def _cel(value: Any) -> Any:
    from celpy import celtypes

    from seatrial.scheduler.api.cel.values import Amount

    if isinstance(value, _Truth):
        return celtypes.BoolType(value.value)
    if isinstance(value, int):
        return celtypes.IntType(value)
    if isinstance(value, Fraction):
        return Amount(value)
    return celtypes.StringType(value) if isinstance(value, str) else value
