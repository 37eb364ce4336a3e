"""Prints one object as `kubectl get -o wide` does."""

from typing import Any

from seatrial.harness.apiserver.printers.tables import table

NOW = 1_767_226_000.0  # 2026-01-01T00:06:40Z
CREATED = "2026-01-01T00:05:40Z"  # 60 seconds before NOW


def made(name: str = "x", **fields: Any) -> dict[str, Any]:
    """An object created a minute ago."""
    return {"metadata": {"name": name, "creationTimestamp": CREATED, **fields.pop("metadata", {})}, **fields}


def printed(group: str, plural: str, obj: dict[str, Any]) -> list[tuple[str, Any]]:
    """Header and cell of each column, in order, with wide headers in brackets."""
    answer = table(group, plural, [obj], now=NOW, list_meta=None)
    heads = [f"[{c['name']}]" if c["priority"] else c["name"] for c in answer["columnDefinitions"]]
    return list(zip(heads, answer["rows"][0]["cells"], strict=True))
