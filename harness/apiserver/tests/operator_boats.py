"""An operator for boats, run by kopf in a process of its own; see test_other_clients.py."""

from typing import Any

import kopf


@kopf.on.create("sea.example.com", "v1", "boats")
def made(spec: Any, **_: Any) -> dict[str, Any]:
    return {"sail": spec.get("sail")}


@kopf.on.update("sea.example.com", "v1", "boats")
def changed(spec: Any, patch: Any, **_: Any) -> None:
    patch.status["oars"] = spec.get("oars")


@kopf.on.delete("sea.example.com", "v1", "boats")
def gone(name: str, **_: Any) -> None:
    print("gone", name, flush=True)  # noqa: T201 what the test waits for
