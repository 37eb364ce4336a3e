"""Koordinator's feature gates, as in `--feature-gates A=true,B=false`."""

from collections.abc import Mapping


def feature_gates(text: str, defaults: Mapping[str, bool]) -> dict[str, bool]:
    """All gates of a program, with those that the option names.

    Raises:
        ValueError: one of them is not known, or neither true nor false.
    """
    gates = dict(defaults)
    for word in filter(None, text.split(",")):
        name, _, value = word.partition("=")
        if name not in defaults or value not in {"true", "false"}:
            raise ValueError(f"--feature-gates: expected {', '.join(defaults)} with =true or =false, found {word!r}")
        gates[name] = value == "true"
    return gates
