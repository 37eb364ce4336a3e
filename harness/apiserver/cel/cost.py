"""Estimates the greatest cost of a CEL expression from its text and the sizes that a schema declares.

The rules are those of `cel-go/checker/cost.go`, because they decide which definitions are accepted. Types come from the
schema and from functions whose result is known; others are dynamic. A function of a dynamic value costs as much as its
most expensive overload.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from seatrial.harness.apiserver.cel.declarations import Declared
from seatrial.harness.apiserver.cel.expressions import program, whole_number
from seatrial.harness.apiserver.cel.function_costs import (
    BOOL,
    DYNAMIC,
    FIXED_SIZE,
    INT,
    ONE,
    TRAVERSAL,
    Estimate,
    Size,
    at_place,
    call_estimate,
    capped,
    of_type,
    share,
)

_NEW_LIST, _NEW_MAP, _NEW_OBJECT = 10, 30, 40
_ESCAPE: Final = re.compile(r"\\(?:[0-3][0-7]{2}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_TEXTS: Final = frozenset({"string", "bytes", "dyn"})
_SUMS: Final = frozenset({"string", "bytes", "list", "dyn"})


def estimated_cost(expression: str, root: Declared, names: Sequence[str] = ("self", "oldSelf")) -> int:
    """The greatest cost of evaluating the expression once, with variables of these names of the type `root`.

    Raises:
        ExpressionError: it cannot be parsed.
    """
    start = at_place(root, root)
    return _Estimation(root).visit(program(expression).ast, dict.fromkeys(names, start)).cost


Scope = dict[str, Estimate]


class _Estimation:
    def __init__(self, root: Declared) -> None:
        self._root = root

    def visit(self, tree: Any, scope: Scope) -> Estimate:
        handler = getattr(self, f"_{tree.data}", None)
        if handler is not None and (len(tree.children) > 1 or tree.data not in _FORWARDING):
            target: Estimate = handler(tree, scope)
            return target
        return self.visit(tree.children[0], scope)

    def _all(self, trees: Iterable[Any], scope: Scope) -> list[Estimate]:
        return [self.visit(tree, scope) for tree in trees]

    # -- operators

    def _expr(self, tree: Any, scope: Scope) -> Estimate:
        target, first, second = self._all(tree.children, scope)
        kind = first.type if first.type.kind == second.type.kind else DYNAMIC
        entries = (
            (first.entries[0] | second.entries[0], first.entries[1] | second.entries[1])
            if first.entries and second.entries
            else None
        )
        return Estimate(capped(target.cost + max(first.cost, second.cost)), kind, first.size | second.size, entries)

    def _conditionalor(self, tree: Any, scope: Scope) -> Estimate:
        return of_type(BOOL, sum(part.cost for part in self._all(_operands(tree), scope)))

    _conditionaland = _conditionalor

    def _relation(self, tree: Any, scope: Scope) -> Estimate:
        left, right = self._all(_operands(tree), scope)
        spent, operator = left.cost + right.cost, tree.children[0].data
        if operator == "relation_in":
            lists = right.type.kind in {"list", "dyn"}
            return of_type(BOOL, spent + (max(1, right.size.high) if lists else 1))
        by_size = operator in {"relation_eq", "relation_ne"} or {left.type.kind, right.type.kind} <= _TEXTS
        least = min(left.size.high, right.size.high)
        return of_type(BOOL, spent + (share(least, TRAVERSAL) if by_size else 1))

    def _addition(self, tree: Any, scope: Scope) -> Estimate:
        left, right = self._all(_operands(tree), scope)
        spent = left.cost + right.cost
        kinds = {left.type.kind, right.type.kind}
        known = kinds - {"dyn"}
        if tree.children[0].data != "addition_add" or not kinds <= _SUMS or len(known) > 1:
            return of_type(left.type if left.type.kind in FIXED_SIZE else right.type, spent + 1)
        size = left.size + right.size
        kind = left.type if left.type.kind != "dyn" else right.type
        entries = (
            (left.entries[0] | right.entries[0], left.entries[1] | right.entries[1])
            if left.entries and right.entries
            else None
        )
        cost = (
            1
            if known == {"list"}
            else max(1, share(size.high, TRAVERSAL))
            if not known
            else share(size.high, TRAVERSAL)
        )
        return Estimate(capped(spent + cost), replace(kind, item=kind.item), size, entries)

    def _multiplication(self, tree: Any, scope: Scope) -> Estimate:
        left, right = self._all(_operands(tree), scope)
        return of_type(left.type, left.cost + right.cost + 1, size=ONE)

    def _unary(self, tree: Any, scope: Scope) -> Estimate:
        operator, operand = tree.children[0].data, self.visit(tree.children[1], scope)
        return of_type(BOOL if operator == "unary_not" else operand.type, operand.cost + 1, size=ONE)

    # -- values

    def _literal(self, tree: Any, _: Scope) -> Estimate:
        token = tree.children[0]
        if token.type in {"STRING_LIT", "MLSTRING_LIT", "BYTES_LIT"}:
            length = _text_length(str(token))
            return Estimate(0, Declared("bytes" if token.type == "BYTES_LIT" else "string"), Size(length, length))
        number = whole_number(token) if token.type == "INT_LIT" else None
        return Estimate(0, Declared(_LITERALS.get(token.type, "dyn")), ONE, constant=number)

    def _ident(self, tree: Any, scope: Scope) -> Estimate:
        target = scope.get(str(tree.children[0]))
        return target.costing(1) if target is not None else at_place(Declared("type"), self._root)

    def _dot_ident(self, tree: Any, scope: Scope) -> Estimate:
        return self._ident(tree, scope)

    def _list_lit(self, tree: Any, scope: Scope) -> Estimate:
        items = self._all(_arguments(tree), scope)
        size = Size(len(items), len(items))
        kinds = {item.type.kind for item in items}
        kind = Declared("list", item=items[0].type if len(kinds) == 1 else None)
        return Estimate(capped(sum(item.cost for item in items) + _NEW_LIST), kind, size, (ONE, _union(items)))

    def _map_lit(self, tree: Any, scope: Scope) -> Estimate:
        parts = self._all(_arguments(tree), scope)
        keys, values = parts[::2], parts[1::2]
        kinds = {value.type.kind for value in values}
        kind = Declared("map", key=keys[0].type if keys else None, item=values[0].type if len(kinds) == 1 else None)
        cost = sum(part.cost for part in parts) + _NEW_MAP
        return Estimate(capped(cost), kind, Size(len(keys), len(keys)), (_union(keys), _union(values)))

    def _member_object(self, tree: Any, scope: Scope) -> Estimate:
        fields = [child for child in _arguments(tree) if hasattr(child, "data")]
        return Estimate(capped(sum(part.cost for part in self._all(fields, scope)) + _NEW_OBJECT))

    # -- selection

    def _member_dot(self, tree: Any, scope: Scope) -> Estimate:
        operand = self.visit(tree.children[0], scope)
        return self._field(operand, str(tree.children[1]))

    def _field(self, operand: Estimate, name: str) -> Estimate:
        charged = 1 if operand.type.kind in {"map", "object"} else 0
        field = operand.type.fields.get(name) if operand.type.kind == "object" else operand.type.item
        place = operand.place.fields.get(name, operand.place.other) if operand.place is not None else None
        return at_place(field or DYNAMIC, place, operand.cost + charged)

    def _entry(self, over: Estimate, *, key: bool = False) -> Estimate:
        """A key or value of a list or map, as a variable.

        Upstream looks up the sizes of the entries of a computed list or map as if it were `self`.
        """
        at_index = key and over.type.kind == "list"
        kind = (INT if at_index else over.type.key if key else over.type.item) or DYNAMIC
        if at_index:
            return of_type(kind, 1)
        above = over.place
        place = self._root if above is None else above.key if key else above.item
        return at_place(kind, place, 1, over.entries[0 if key else 1] if over.entries else None)

    def _member_index(self, tree: Any, scope: Scope) -> Estimate:
        operand, index = self._all(tree.children, scope)
        if operand.place is not None:
            return self._entry(operand).costing(operand.cost + index.cost + 1)
        return of_type(
            operand.type.item or DYNAMIC,
            operand.cost + index.cost + 1,
            size=operand.entries[1] if operand.entries else None,
        )

    # -- calls

    def _ident_arg(self, tree: Any, scope: Scope) -> Estimate:
        name, arguments = str(tree.children[0]), _arguments(tree, 1)
        if name == "has" and arguments:
            selected = arguments[0]
            while selected.data != "member_dot" and len(selected.children) == 1:
                selected = selected.children[0]
            return of_type(BOOL, self.visit(selected.children[0], scope).cost)  # the test itself is free
        targets = self._all(arguments, scope)
        if name == "dyn" and targets:
            return targets[0].costing(targets[0].cost + 1)
        return call_estimate(name, None, targets, sum(part.cost for part in targets))

    def _member_dot_arg(self, tree: Any, scope: Scope) -> Estimate:
        from seatrial.harness.apiserver.cel.functions import NAMESPACES
        from seatrial.scheduler.api.cel.parsing import ident_of

        member, name = tree.children[0], str(tree.children[1])
        arguments, namespace = _arguments(tree, 2), ident_of(member)
        if namespace == "cel" and name == "bind" and len(arguments) == 3:
            bound = self.visit(arguments[1], scope)
            inner = self.visit(arguments[2], {**scope, ident_of(arguments[0]): replace(bound, cost=1)})
            return inner.costing(bound.cost + inner.cost + _NEW_LIST)  # the list is an empty range
        if namespace in NAMESPACES and namespace not in scope:
            targets = self._all(arguments, scope)
            return call_estimate(f"{namespace}.{name}", None, targets, sum(part.cost for part in targets))
        target = self.visit(member, scope)
        if name in _MACROS and len(arguments) >= 2:
            return self._macro(name, target, arguments, scope)
        if name in {"optMap", "optFlatMap"} and len(arguments) == 2:
            inner = self.visit(arguments[1], {**scope, ident_of(arguments[0]): replace(target, cost=1)})
            # hasValue(), value(), the binding of the variable, an empty range, and optional.of() or none()
            return inner.costing(2 * target.cost + inner.cost + 3 + _NEW_LIST)
        targets = self._all(arguments, scope)
        if name == "optSelect__":  # `a.?b`
            inner = self._field(target, _text(arguments[0]))
            return inner.costing(target.cost + 1)
        if name == "optIndex__":
            return self._entry(target).costing(target.cost + sum(part.cost for part in targets) + 1)
        return call_estimate(name, target, targets, target.cost + sum(part.cost for part in targets))

    def _macro(self, name: str, target: Estimate, values: list[Any], scope: Scope) -> Estimate:
        """The cost of a comprehension: its range, the initial value, and condition and step for each entry."""
        from seatrial.scheduler.api.cel.parsing import ident_of

        two = (len(values) >= 3 and name != "map") or name == "transformMapEntry"
        names = [ident_of(argument) for argument in values[: 2 if two else 1]]
        if two:
            variables = [self._entry(target, key=True), self._entry(target)]
        else:
            variables = [self._entry(target, key=target.type.kind == "map")]
        inside = {**scope, **dict(zip(names, variables, strict=True))}
        bodies = self._all(values[len(names) :], inside)
        body, rounds = bodies[-1], target.size.high
        condition = bodies[0].cost if len(bodies) == 2 else 0  # of a map with a filter

        def spent(start: int, each: int, end: int = 1) -> int:
            return capped(target.cost + start + end + capped(rounds * capped(each)))

        match name:
            case "all":
                return of_type(BOOL, spent(0, 3 + body.cost))
            case "exists":
                return of_type(BOOL, spent(0, 4 + body.cost))
            case "exists_one" | "existsOne":
                return of_type(BOOL, spent(0, 2 + body.cost, 2))
            case "filter":
                item = replace(target.type, kind="list", item=variables[0].type, max_size=0, min_bytes=2)
                kept = (ONE, variables[0].size)
                return Estimate(spent(_NEW_LIST, 13 + body.cost), item, target.size, kept)
            case "map" | "transformList":
                kind = Declared("list", item=body.type)
                each = condition + 2 + _NEW_LIST + body.cost
                return Estimate(spent(_NEW_LIST, each), kind, target.size, (ONE, body.size))
            case _:  # a new map
                kind = Declared("map", key=variables[0].type, item=body.type)
                return Estimate(spent(_NEW_MAP, condition + 2 + _NEW_MAP + body.cost), kind, target.size)


_MACROS: Final = frozenset(
    {"all", "exists", "exists_one", "existsOne", "filter", "map", "transformList", "transformMap", "transformMapEntry"}
)
_FORWARDING: Final = frozenset(
    {"expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary"}
)
_LITERALS: Final = {"INT_LIT": "int", "UINT_LIT": "uint", "FLOAT_LIT": "double", "BOOL_LIT": "bool", "NULL_LIT": "null"}


def _operands(tree: Any) -> list[Any]:
    """Both operands: the first one may be within a node that names the operator."""
    first, second = tree.children
    return [first.children[0] if str(first.data).startswith(f"{tree.data}_") else first, second]


def _arguments(tree: Any, start: int = 0) -> list[Any]:
    """The expressions in a literal or a call's parentheses; none if they are empty."""
    rest = [child for child in tree.children[start:] if child is not None]
    return list(rest[0].children) if rest else []


def _union(targets: Sequence[Estimate]) -> Size:
    if not targets:
        return Size(0, 0)
    return Size(min(one.size.low for one in targets), max(one.size.high for one in targets))


def _text(tree: Any) -> str:
    while hasattr(tree, "data"):
        tree = tree.children[0]
    return str(tree)[1:-1]


def _text_length(literal: str) -> int:
    """The number of characters of a literal text, of which an escape sequence is one."""
    body = literal.lstrip("bBrR")
    raw = "r" in literal[: len(literal) - len(body)].lower()
    quotes = 3 if body[:3] in {'"""', "'''"} else 1
    inside = body[quotes:-quotes]
    if raw:
        return len(inside)
    return len(_ESCAPE.sub("x", inside))
