"""Upstream's messages about quotas, to the letter.

Source: `koordinator: pkg/scheduler/plugins/elasticquota/plugin_helper.go`.
"""

from collections.abc import Iterable, Mapping

from seatrial.scheduler.api.quantity import text


def printed(listed: Mapping[str, int]) -> str:
    """A resource list as `cpu:1,memory:2`, sorted; `<empty>` if there is none."""
    return ",".join(f"{key}:{text(key, value)}" for key, value in sorted(listed.items())) or "<empty>"


def insufficient(
    name: str, limit: Mapping[str, int], used: Mapping[str, int], request: Mapping[str, int], exceeded: Iterable[str]
) -> str:
    """The message has `runtime` even if the limit is max, as upstream's."""
    return (
        f"Insufficient quotas, quotaName: {name}, runtime: {printed(limit)}, used: {printed(used)}, "
        f"pod's request: {printed(request)}, exceedDimensions: {_keys(exceeded)}"
    )


def insufficient_min(
    name: str, least: Mapping[str, int], used: Mapping[str, int], request: Mapping[str, int], exceeded: Iterable[str]
) -> str:
    """The pod is not preemptible, and its quota's `min` is too small for it; upstream's message."""
    return (
        f"Insufficient non-preemptible quotas, quotaName: {name}, min: {printed(least)}, "
        f"nonPreemptibleUsed: {printed(used)}, pod's request: {printed(request)}, exceedDimensions: {_keys(exceeded)}"
    )


def insufficient_parent(
    path: Iterable[str],
    limit: Mapping[str, int],
    used: Mapping[str, int],
    request: Mapping[str, int],
    exceeded: Iterable[str],
) -> str:
    """A parent of the pod's quota has too little left; `path` names the quotas up to it. Upstream's message."""
    return (
        f"Insufficient quotas, quotaNameTopo: [{' '.join(path)}], runtime: {printed(limit)}, used: {printed(used)}, "
        f"pod's request: {printed(request)}, exceedDimensions: {_keys(exceeded)}"
    )


def _keys(keys: Iterable[str]) -> str:
    return f"[{' '.join(keys)}]"
