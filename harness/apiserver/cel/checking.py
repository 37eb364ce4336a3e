"""Static checks of CEL expressions: syntax, unknown names and functions, unknown fields.

cel-go checks all types. Here names are checked, and fields along a chain of selections from a variable with a schema;
other type errors appear when an expression is evaluated.
"""

from collections.abc import Mapping
from typing import Any, Final

from seatrial.harness.apiserver.cel.expressions import ExpressionError, error_at, program

Schema = Mapping[str, Any]
_UNKNOWN: Final = "undeclared reference to '{}' (in container '')"
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
RESERVED: Final = frozenset(
    {
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)


def check(expression: str, variables: Mapping[str, Schema | None]) -> None:
    """Check an expression. `variables` maps the names it may use to their schemas; None if unknown.

    Raises:
        ExpressionError: `compilation failed: …`, with cel-go's message.
    """
    _Checked(expression, variables).visit(program(expression).ast, frozenset(variables))


def escaped(name: str) -> str:
    """A field's name with the escaping that expressions need."""
    if name in RESERVED:
        return f"__{name}__"
    for result, written in (("__", "__underscores__"), (".", "__dot__"), ("-", "__dash__"), ("/", "__slash__")):
        name = name.replace(result, written)
    return name


class _Checked:
    def __init__(self, expression: str, variables: Mapping[str, Schema | None]) -> None:
        self._expression, self._variables = expression, variables

    def visit(self, tree: Any, scope: frozenset[str]) -> None:
        """Check a syntax tree; `scope` holds the variables of enclosing macros.

        Raises:
            ExpressionError: a name is unknown.
        """
        if not hasattr(tree, "data"):
            return
        if tree.data == "ident" and str(tree.children[0]) not in scope | _types():
            self._reject(tree.children[0], 0, _UNKNOWN.format(tree.children[0]))
        if tree.data == "ident_arg":
            self._function(tree.children[0], str(tree.children[0]), of_value=False)
        if tree.data == "member_dot_arg":
            self._call(tree, scope)
            return
        if tree.data == "member_dot":
            self._field(tree, scope)
        for child in tree.children:
            self.visit(child, scope)

    def _call(self, tree: Any, scope: frozenset[str]) -> None:
        from seatrial.harness.apiserver.cel.functions import NAMESPACES
        from seatrial.scheduler.api.cel.evaluating import MACROS, OPTIONAL, TWO_VARIABLE_MACROS
        from seatrial.scheduler.api.cel.parsing import ident_of, parts_of

        member, token, value = parts_of(tree)
        name, namespace = str(token), ident_of(member)
        if namespace in NAMESPACES and namespace not in scope:
            self._function(token, f"{namespace}.{name}")
        elif (namespace, name, len(value)) == ("cel", "bind", 3) and "device" in self._variables:
            self.visit(value[1], scope)  # of selectors of devices alone (`dra: cel/compile.go`)
            scope, value = scope | {ident_of(value[0])}, value[2:]
        else:
            self.visit(member, scope)
            count = 2 if (name in TWO_VARIABLE_MACROS and len(value) >= 3) or name == "transformMapEntry" else 1
            if count == 2 or (name in MACROS | OPTIONAL and len(value) >= 2):
                names = [ident_of(argument) for argument in value[:count]]
                if not all(names):
                    self._reject(token, len(name), "argument must be a simple name")
                scope, value = scope | set(names), value[count:]
            else:
                self._function(token, name, of_value=True)
        for argument in value:
            self.visit(argument, scope)

    def _function(self, token: Any, name: str, *, of_value: bool | None = None) -> None:
        """`of_value`: it is called as one of a value; None if its name has a namespace."""
        from seatrial.harness.apiserver.cel.functions import AS_FUNCTIONS, IN_BOTH_WAYS, KNOWN

        if name not in KNOWN:
            self._reject(token, len(str(token)), _UNKNOWN.format(name))
        if of_value is not None and name not in IN_BOTH_WAYS and of_value is (name in AS_FUNCTIONS):
            self._reject(token, len(str(token)), f"found no matching overload for '{name}'")

    def _field(self, tree: Any, scope: frozenset[str]) -> None:
        schema = self._schema_of(tree.children[0], scope)
        name = str(tree.children[1])
        if schema is not None and _closed(schema) and name not in _names(schema):
            self._reject(tree.children[1], -1, f"undefined field '{name}'")

    def _schema_of(self, tree: Any, scope: frozenset[str]) -> Schema | None:
        """The schema of the selected value; None if unknown."""
        from seatrial.scheduler.api.cel.parsing import ident_of

        name = ident_of(tree)
        if name:
            return self._variables.get(name) if name in scope else None
        while tree.data != "member_dot" and len(tree.children) == 1 and hasattr(tree.children[0], "data"):
            tree = tree.children[0]
        if tree.data != "member_dot":
            return None
        above = self._schema_of(tree.children[0], scope)
        return _names(above).get(str(tree.children[1])) if above is not None and _closed(above) else None

    def _reject(self, token: Any, after: int, why: str) -> None:
        line, column = token.line or 1, max(1, (token.column or 1) + after)
        raise ExpressionError(f"compilation failed: {error_at(self._expression, line, column, why)}")


def _closed(schema: Schema) -> bool:
    """Whether the schema allows no fields beyond those it names."""
    return bool(schema.get("properties")) and not schema.get(_PRESERVE) and not schema.get("additionalProperties")


def _names(schema: Schema) -> dict[str, Any]:
    manifest = {escaped(name): sub for name, sub in (schema.get("properties") or {}).items()}
    if schema.get("x-kubernetes-embedded-resource"):
        manifest = {"apiVersion": None, "kind": None, "metadata": None, **manifest}
    return manifest


def _types() -> frozenset[str]:
    from seatrial.harness.apiserver.cel.functions import KNOWN

    return KNOWN
