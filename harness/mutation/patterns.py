"""Edits of Python code by syntax: a pattern is matched against the syntax tree of one function, not against its text.

White space, comments, quotes and the names of local variables do not matter: a name of the pattern that the function
does not have stands for one of its own names, the same one at each place.
"""

import ast
import copy
from collections.abc import Iterator, Sequence

_IGNORED = frozenset({"ctx", "kind", "type_comment", "type_ignores"})
_BODIES = ("body", "orelse", "finalbody")


class PatternError(ValueError):
    """The pattern or its replacement is no Python, or does not match as often as expected."""


class Pattern:
    """An expression, or one or more consecutive statements, with what replaces it."""

    def __init__(self, pattern: str, replacement: str) -> None:
        """
        Raises:
            PatternError: one of them is no Python.
        """
        self.text = pattern
        old, new = _parsed(pattern), _parsed(replacement)
        self._is_expression = isinstance(old, ast.expr) and isinstance(new, ast.expr)
        self._old = [old] if self._is_expression and isinstance(old, ast.expr) else _statements(old)
        self._new = [new] if self._is_expression and isinstance(new, ast.expr) else _statements(new)
        self._names = _names(self._old)

    def replace_in(self, scope: ast.AST, nth: int = 0) -> None:
        """Replace what matches within `scope`, in place. `nth`: which match, from 1; 0: the only one.

        Raises:
            PatternError: there is no such match, or more than the only one.
        """
        known = _names([scope])
        matches = list(self._matches(scope, frozenset()))
        if not matches:
            matches = list(self._matches(scope, frozenset(self._names - known)))
        if (len(matches) != 1) if not nth else len(matches) < nth:
            expected = "exactly once" if not nth else f"at least {nth} times"
            raise PatternError(f"expected {self.text!r} {expected}, found it {len(matches)} times")
        parent, field, index, names = matches[max(nth, 1) - 1]
        new = [_Renamed(names).visit(copy.deepcopy(node)) for node in self._new]
        place = getattr(parent, field)
        if isinstance(place, list):
            at = place[index]
            for node in new:
                ast.copy_location(node, at)
            place[index : index + len(self._old)] = new
        else:
            setattr(parent, field, ast.copy_location(new[0], place))

    def _matches(self, scope: ast.AST, free: frozenset[str]) -> Iterator[tuple[ast.AST, str, int, dict[str, str]]]:
        """Parent, field, index and names of each match; `free`: names of the pattern that stand for others."""
        for parent in _in_order(scope):
            for field, value in ast.iter_fields(parent):
                children = value if isinstance(value, list) else [value]
                for index, child in enumerate(children):
                    if self._is_expression:
                        run = [child]
                    elif field in _BODIES and isinstance(value, list):
                        run = children[index : index + len(self._old)]
                    else:
                        continue
                    names = _matched(self._old, run, free)
                    if names is not None:
                        yield parent, field, index, names


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all nodes below it, in the order of the source."""
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _parsed(text: str) -> ast.expr | list[ast.stmt]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise PatternError(f"{text!r} is no Python: {error}") from error
    if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
        return tree.body[0].value
    return tree.body


def _statements(code: ast.expr | list[ast.stmt]) -> list[ast.stmt]:
    return [ast.copy_location(ast.Expr(code), code)] if isinstance(code, ast.expr) else code


def _names(nodes: Sequence[ast.AST]) -> frozenset[str]:
    names = (name for node in nodes for name in ast.walk(node))
    return frozenset(
        name.id if isinstance(name, ast.Name) else name.arg for name in names if isinstance(name, ast.Name | ast.arg)
    )


def _matched(pattern: Sequence[ast.AST], nodes: Sequence[object], free: frozenset[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    if len(pattern) != len(nodes):
        return None
    if not all(_equal(one, other, free, names) for one, other in zip(pattern, nodes, strict=True)):
        return None
    return names if len(set(names.values())) == len(names) else None


def _equal(pattern: object, node: object, free: frozenset[str], names: dict[str, str]) -> bool:
    if isinstance(pattern, list):
        return (
            isinstance(node, list)
            and len(pattern) == len(node)
            and all(_equal(one, other, free, names) for one, other in zip(pattern, node, strict=True))
        )
    if type(pattern) is not type(node):
        return False
    if isinstance(pattern, ast.Name) and isinstance(node, ast.Name):
        return _same(pattern.id, node.id, free, names)
    if isinstance(pattern, ast.AST):
        return all(
            _same(pattern.arg, getattr(node, "arg"), free, names)  # noqa: B009 the type of `node` is that of `pattern`
            if field == "arg" and isinstance(pattern, ast.arg)
            else _equal(getattr(pattern, field, None), getattr(node, field, None), free, names)
            for field in pattern._fields
            if field not in _IGNORED
        )
    return pattern == node


def _same(name: str, other: str, free: frozenset[str], names: dict[str, str]) -> bool:
    return names.setdefault(name, other) == other if name in free else name == other


class _Renamed(ast.NodeTransformer):
    """Gives names of a pattern the names that they stand for."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._names.get(node.id, node.id)
        return node
