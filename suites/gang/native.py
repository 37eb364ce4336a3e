"""PodGroups of scheduling.k8s.io in cases."""

from typing import Any

import orjson

from seatrial.fixtures.trial import Trial

API = "/apis/scheduling.k8s.io/v1beta1"


def path(trial: Trial, name: str = "") -> str:
    return f"{API}/namespaces/{trial.name}/podgroups{name and f'/{name}'}"


def condition(trial: Trial, name: str = "train") -> dict[str, Any]:
    """Status, reason and message of the group's condition; empty as long as none is written."""
    status = orjson.loads(trial.call("GET", path(trial, name)).body).get("status") or {}
    conditions: list[dict[str, Any]] = status.get("conditions") or []
    return next((one for one in conditions if one["type"] == "PodGroupInitiallyScheduled"), {})


def reaches(trial: Trial, state: str, reason: str, name: str = "train") -> bool:
    """Wait until the condition of the group has this status and reason."""

    def there() -> bool:
        results = condition(trial, name)
        return (results.get("status"), results.get("reason")) == (state, reason)

    return trial.wait(there, within=30)
